/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets of the local socket (ipc.h), for carefuld and its clients. */
#pragma once

#include <sys/types.h>

#include <careful/ipc.h>

/* Sends head and its payload, with a descriptor unless fd is -1. Does not wait. Returns 0 or
 * -errno; -EAGAIN: no room. */
int packet_send(int socket, const struct careful_ipc *head, const void *payload, int fd);
/* Receives a packet without waiting. *fd: the descriptor passed with it, or -1. Returns the
 * packet's length, or -errno. Payload beyond `bytes` is lost. */
ssize_t packet_receive(int socket, struct careful_ipc *head, void *payload, size_t bytes, int *fd);
