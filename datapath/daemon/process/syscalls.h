/* SPDX-License-Identifier: BSD-2-Clause */
/* Restricts carefuld to the system calls that it needs while it serves. An attacker inside carefuld
 * can run no program, trace no process, map no code, and change no mount, namespace or user. */
#pragma once

#include <careful/careful.h>

/* Restricts all threads of the process for good. Needs no_new_privs. Returns 0 or -errno. */
int syscalls_confine(struct careful_error *error);
