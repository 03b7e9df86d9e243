/* SPDX-License-Identifier: BSD-2-Clause */
/* --xdp auto: measures native and generic mode alternately, with the first peer that grants the
 * trial lock. Keeps the better mode and remembers it. Also grants the lock to peers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/abi.h>
#include <careful/careful.h>

#include "daemon/ipc/ipc.h"
#include "daemon/options.h"

struct trial {
	struct careful *instance;
	struct ipc *ipc;
	const char *state_dir;
	uint32_t peers_max;
	uint32_t driver_mode; /* the driver's mode */
	bool undecided; /* no mode was chosen yet */
	bool asking; /* we ask for the lock: a peer that asks us needs a larger ticket */
	bool running; /* a trial runs; no peer gets the lock */
	uint32_t failed; /* trials that began and failed */
	uint32_t lock_failures; /* attempts that did not get the lock */
	uint32_t busy_checks; /* checks in a row that found traffic */
	uint64_t again_ns; /* no attempt before this time */
	uint64_t ticket;
	uint64_t due_ns[CAREFUL_PEERS_MAX]; /* when to try with each peer; 0: not at all */
	/* frames to and from each peer at the last check, plus 1; 0: no check yet */
	uint64_t moved[CAREFUL_PEERS_MAX];
	uint64_t lock_ns[CAREFUL_PEERS_MAX]; /* when the lock of each peer ends; 0: has no lock */
	uint32_t locks; /* peers that hold a lock here */
};

/* Applies the remembered mode; without one, prepares for trials. Serves peers' requests for the
 * lock. */
int xdp_trial_init(struct trial *trial, struct careful *instance, struct ipc *ipc,
		   const struct daemon_options *options);
/* Handles a peer's new state; called from careful_peer_watch(). */
void xdp_trial_peer_changed(struct trial *trial, uint32_t peer, uint32_t state);
/* Reports whether this host or the peer runs a trial. New epochs are then not logged. */
bool xdp_trial_is_on(const struct trial *trial, uint32_t peer);
/* Runs a trial if one is due, which takes less than a second. Call it each round. */
void xdp_trial_poll(struct trial *trial);
/* Returns the ms until the next poll; -1: when an event arrives. */
int xdp_trial_timeout_ms(const struct trial *trial);
