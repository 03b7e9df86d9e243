/* SPDX-License-Identifier: BSD-2-Clause */
/* The server of the memory service (careful/memory.h): lends pieces of this host's memory to
 * peers. */
#pragma once

#include <stdint.h>

#include <careful/careful.h>
#include <careful/ipc.h>
#include <careful/memory.h>

struct lend_options {
	uint64_t bytes; /* limit for all hosts together; 0: nothing is lent */
	uint64_t host_bytes; /* limit for one host; 0: half of bytes */
	uint32_t keep_ms; /* lifetime of pieces after their owner's last session */
};

struct lend_server;

/* Starts to lend. If options->bytes is 0, *server is NULL, which all functions below accept. On
 * failure *error has text. */
int lend_serve(struct careful *instance, const struct lend_options *options,
	       struct lend_server **server, struct careful_error *error);
/* Frees all memory. Call it after careful_close(). Returns the number of workers that are still
 * mapping memory; they end with the process. */
uint32_t lend_stop(struct lend_server *server);

/* Handles the workers' finished jobs and expired pieces. Call it each round. */
void lend_poll(struct lend_server *server);
/* Returns a descriptor that is readable when a worker has finished a job; -1: none. */
int lend_fd(const struct lend_server *server);
/* Returns the longest time until the next lend_poll(), ms; -1: until lend_fd() is readable. */
int lend_timeout_ms(const struct lend_server *server);
/* Handles a peer's new state. A callback for careful_peer_watch(). */
void lend_watch(struct lend_server *server, uint32_t peer, uint32_t state);

/* Describes the total, then each owner. Returns the number of entries, at most `most`. */
uint32_t lend_use(const struct lend_server *server, struct careful_lend_use *uses, uint32_t most);
