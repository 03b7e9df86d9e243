/* SPDX-License-Identifier: BSD-2-Clause */
/* The local socket's server; careful/ipc.h has its protocol. It runs in the engine's thread and
 * never blocks: other threads close files. A client's operations continue after the client has
 * gone; then carefuld closes the client's files, and its handles at peers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>

enum { IPC_CLIENTS = 32 };

struct ipc;

/* Serves clients that connect to listen_fd; the caller closes listen_fd. The main loop passes each
 * event of epoll_fd to the struct ipc_event in the event's data. */
int ipc_create(struct careful *instance, int listen_fd, int epoll_fd, struct ipc **ipc);
/* Returns 0, or the number of clients whose files do not close. Their threads and memory stay. */
uint32_t ipc_destroy(struct ipc *ipc);

/* Sets the servers whose exports and memory USE lists; lend may be NULL. */
struct block_server;
struct lend_server;
void ipc_set_servers(struct ipc *ipc, const struct block_server *block,
		     const struct lend_server *lend);

/* Called for RELOAD, which is refused if fn is not set. Returns 0, or -errno with *error. */
typedef int ipc_reload_fn(const char *words, uint32_t bytes, struct careful_error *error,
			  void *user);
void ipc_set_reload(struct ipc *ipc, ipc_reload_fn *fn, void *user);

/* The data of an event in epoll_fd. */
struct ipc_event {
	void (*handle)(struct ipc_event *event, uint32_t events);
};

/* Why questions to a peer wait. */
enum ipc_hold {
	IPC_HOLD_TRIAL = 1, /* no mode is chosen yet */
	IPC_HOLD_LOCK = 2, /* the peer holds the trial lock */
};

/* Starts or stops holding clients' questions to a peer (by its index) for a reason. */
void ipc_hold(struct ipc *ipc, uint32_t peer, enum ipc_hold why, bool on);
bool ipc_holds(const struct ipc *ipc, uint32_t peer, enum ipc_hold why);

/* Handles time limits and questions that had to wait. Called in each round of the main loop. */
void ipc_poll(struct ipc *ipc);
/* Returns the ms until the next ipc_poll(); -1: when an event arrives. */
int ipc_timeout_ms(const struct ipc *ipc);
/* Called by careful_peer_watch() when a peer's state has changed. */
void ipc_peer_changed(struct ipc *ipc, uint32_t peer, uint32_t state);
