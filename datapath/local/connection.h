/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection to carefuld's local socket (ipc.h) for any number of threads. Each thread waits for
 * its own answer; one of the waiting threads reads for all. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include <careful/ipc.h>

struct waiter;

struct connection {
	int fd;
	int timeout_ms; /* longest wait for carefuld; -1: no limit */
	/* guards the members below it, except buffer, which belongs to the reader */
	pthread_mutex_t lock;
	struct waiter *waiters;
	uint64_t last_id;
	int failed; /* -errno once the connection has ended */
	bool is_read; /* a thread reads for all */
	bool rung; /* a BELL arrived */
	struct {
		struct careful_ipc head;
		char payload[CAREFUL_IPC_PAYLOAD_BYTES];
	} buffer;
};

/* Connects to a socket. Returns 0 or -errno; -ETIMEDOUT: carefuld accepts no connection. */
int connection_open(const char *path, int timeout_ms, struct connection **connection);

/* Closes the connection. No thread may be in connection_ask(). */
void connection_close(struct connection *connection);

/* Asks, and waits for the answer.
 *
 * @packet: the request without version and id; then the answer's header
 * @payload: packet->payload_bytes bytes
 * @fd: a descriptor to pass, then one that was received; -1: none. NULL: neither
 * @answer: receives up to `size` bytes of the answer's payload
 *
 * Returns the answer's status, or -errno if the connection has ended: -ENOTCONN, or the reason that
 * carefuld gave. */
int connection_ask(struct connection *connection, struct careful_ipc *packet, const void *payload,
		   int *fd, void *answer, size_t size);
