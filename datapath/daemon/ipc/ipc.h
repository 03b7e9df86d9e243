/* SPDX-License-Identifier: BSD-2-Clause */
/* The local socket's server; careful/ipc.h has its protocol. It runs in the engine's thread and
 * never blocks: other threads close files. A client's operations outlive the client. When they have
 * ended, the client's files close, and so do the handles that it left open at peers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>

enum { IPC_CLIENTS = 32 };

struct ipc;

/* Serves clients that connect to listen_fd, which the caller closes. Events arrive in epoll_fd with
 * a struct ipc_event as data. */
int ipc_create(struct careful *instance, int listen_fd, int epoll_fd, struct ipc **ipc);
/* Returns 0, or how many clients have files that do not close: the threads that wait for these
 * files stay, with their memory. */
uint32_t ipc_destroy(struct ipc *ipc);

/* Sets the servers whose exports and memory are listed in answers to USE; lend may be NULL. */
struct block_server;
struct lend_server;
void ipc_tells_of(struct ipc *ipc, const struct block_server *block,
		  const struct lend_server *lend);

/* Called for RELOAD. Returns 0, or -errno with *error. Until it is set, RELOAD is not supported. */
typedef int ipc_reload_fn(const char *words, uint32_t bytes, struct careful_error *error,
			  void *user);
void ipc_reloads(struct ipc *ipc, ipc_reload_fn *fn, void *user);

/* The data of an event in epoll_fd. */
struct ipc_event {
	void (*handle)(struct ipc_event *event, uint32_t events);
};

/* Why questions to a peer wait. */
enum ipc_hold {
	IPC_HOLD_TRIAL = 1, /* no mode is chosen yet */
	IPC_HOLD_LOCK = 2, /* the peer holds the trial lock */
};

/* Lets clients' questions to a peer (by its index) wait for a reason, or no longer. */
void ipc_hold(struct ipc *ipc, uint32_t peer, enum ipc_hold why, bool on);
bool ipc_holds(const struct ipc *ipc, uint32_t peer, enum ipc_hold why);

/* Handles time limits and questions that had to wait. Called in each round of the main loop. */
void ipc_poll(struct ipc *ipc);
/* Returns after how many ms ipc_poll() is due again; -1: when an event arrives. */
int ipc_timeout_ms(const struct ipc *ipc);
/* Called by careful_peer_watch() when a peer's state has changed. */
void ipc_peer_changed(struct ipc *ipc, uint32_t peer, uint32_t state);
