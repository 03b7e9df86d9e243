/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local socket's server (ipc.h of the public headers says what it speaks), in
 * the engine's thread; nothing in it blocks (files are closed by other threads). A client's
 * operations outlive it: they finish quietly, then its files close and the handles it left open at
 * peers do too.
 */
#ifndef DAEMON_IPC_H
#define DAEMON_IPC_H

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>

enum { IPC_CLIENTS = 32 };

struct ipc;

/* Serves clients that connect to listen_fd, which is theirs to close. Their events
 * arrive in epoll_fd with a struct ipc_event as data. */
int ipc_create(struct careful *instance, int listen_fd, int epoll_fd, struct ipc **ipc);
/* 0; or how many clients have files that do not close: who waits for those is left, and all that
 * it uses. */
uint32_t ipc_destroy(struct ipc *ipc);

/* Whose exports clients are told of; not before, none. */
struct block_server;
void ipc_tells_of(struct ipc *ipc, const struct block_server *block);

/* Who takes RELOAD; not before, nobody. Returns 0, or -errno with *error. */
typedef int ipc_reload_fn(const char *words, uint32_t bytes, struct careful_error *error,
			  void *user);
void ipc_reloads(struct ipc *ipc, ipc_reload_fn *fn, void *user);

/* What an event in epoll_fd belongs to. */
struct ipc_event {
	void (*handle)(struct ipc_event *event, uint32_t events);
};

/* Whose reason it is that questions to a peer wait. */
enum ipc_hold {
	IPC_HOLD_TRIAL = 1, /* ours: no mode has been chosen yet */
	IPC_HOLD_PEACE = 2, /* the peer's: it measures */
};

/* Lets questions of clients to a peer wait (by its index), or no longer for that reason. */
void ipc_hold(struct ipc *ipc, uint32_t peer, enum ipc_hold why, bool on);
bool ipc_holds(const struct ipc *ipc, uint32_t peer, enum ipc_hold why);

/* To be called each round: time limits, questions that had to wait. */
void ipc_poll(struct ipc *ipc);
/* After how many ms at most to call ipc_poll() again; -1: when an event arrives. */
int ipc_timeout_ms(const struct ipc *ipc);
/* A peer's state changed; from careful_peer_watch(). */
void ipc_peer_changed(struct ipc *ipc, uint32_t peer, uint32_t state);

#endif /* DAEMON_IPC_H */
