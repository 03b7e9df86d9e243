/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection to carefuld's local socket (ipc.h), for any number of threads: each asks and waits
 * for its own answer. Whoever waits reads for all, until its own answer is there.
 */
#ifndef CAREFUL_NBD_CLIENT_H
#define CAREFUL_NBD_CLIENT_H

#include <careful/ipc.h>
#include <stddef.h>

struct client;

/*
 * Connects to a socket. 0, or -errno.
 */
int client_connect(const char *path, struct client **client);

/*
 * Ends it; nobody is in client_ask().
 */
void client_close(struct client *client);

/*
 * Asks, and waits for the answer.
 *
 * @packet:   the question without version and id; then the answer's header
 * @payload:  packet->payload_bytes of it
 * @fd:       passed on; -1: none
 * @answer:   as much of the answer's payload as `size` bytes hold
 *
 * The answer's status, or -errno: the connection has ended (-ENOTCONN).
 */
int client_ask(struct client *client, struct careful_ipc *packet, const void *payload, int fd,
	       void *answer, size_t size);

#endif /* CAREFUL_NBD_CLIENT_H */
