/* SPDX-License-Identifier: BSD-2-Clause */
/* Restricts carefuld to the system calls that it makes while it serves. Even if taken over, it
 * can then run no program, trace no process, change no mount, namespace or identity, and map no
 * code. */
#pragma once

#include <careful/careful.h>

/* Restricts all threads, also running ones, for good. Needs no_new_privs. Returns 0 or -errno. */
int syscalls_confine(struct careful_error *error);
