/* SPDX-License-Identifier: BSD-2-Clause */
/* The server of the memory service (careful/memory.h): peers create, share, read and write pieces
 * of this host's memory. Uses only careful.h. Worker threads map and unmap the memory. */
#pragma once

#include <stdint.h>

#include <careful/careful.h>
#include <careful/ipc.h>
#include <careful/memory.h>

/* @bytes:      most memory that all peers hold together; 0: none is lent
 * @host_bytes: most that one host holds; 0: half of bytes
 * @keep_ms:     how long pieces stay after the last session of their owner ended */
struct lend_options {
	uint64_t bytes;
	uint64_t host_bytes;
	uint32_t keep_ms;
};

struct lend_server;

/* Lends memory. Without bytes, it sets no handler and *server is NULL, which all functions below
 * accept. On failure *error has text. */
int lend_serve(struct careful *instance, const struct lend_options *options,
	       struct lend_server **server, struct careful_error *error);
/* Gives all memory back. Call it after careful_close(). Returns how many threads are still mapping
 * memory; they end with the process. */
uint32_t lend_stop(struct lend_server *server);

/* Takes what the workers have finished, and frees what was kept long enough. Call it each round. */
void lend_poll(struct lend_server *server);
/* Returns a descriptor that is readable when a worker has finished a job; -1: none. */
int lend_fd(const struct lend_server *server);
/* Returns after how many ms at most to call lend_poll() again; -1: when lend_fd() is readable. */
int lend_timeout_ms(const struct lend_server *server);
/* Handles a peer's new state. A callback for careful_peer_watch(). */
void lend_watch(struct lend_server *server, uint32_t peer, uint32_t state);

/* Writes what is lent, then each owner's part; returns the number of entries, at most `most`. */
uint32_t lend_use(const struct lend_server *server, struct careful_lend_use *uses, uint32_t most);
