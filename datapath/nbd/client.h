/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection to carefuld's local socket (ipc.h), shared by any number of threads. Each thread
 * waits for its own answer; one of the waiting threads reads for all. */
#ifndef CAREFUL_NBD_CLIENT_H
#define CAREFUL_NBD_CLIENT_H

#include <careful/ipc.h>
#include <stddef.h>

struct client;

/* Connects to a socket. 0, or -errno. */
int client_connect(const char *path, struct client **client);

/* Closes the connection. No thread may be in client_ask(). */
void client_close(struct client *client);

/* Asks, and waits for the answer.
 *
 * @packet: the request without version and id; then the answer's header
 * @payload: packet->payload_bytes bytes
 * @fd: a descriptor to pass; -1: none
 * @answer: receives up to `size` bytes of the answer's payload
 *
 * Returns the answer's status, or -errno. -ENOTCONN: the connection has ended. */
int client_ask(struct client *client, struct careful_ipc *packet, const void *payload, int fd,
	       void *answer, size_t size);

#endif /* CAREFUL_NBD_CLIENT_H */
