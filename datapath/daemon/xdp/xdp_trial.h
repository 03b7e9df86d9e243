/* SPDX-License-Identifier: BSD-2-Clause */
/* --xdp auto: tries native and generic mode in turns with the first peer that grants the trial
 * lock, keeps the better one and remembers it. Also grants the lock to peers for their trials. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/abi.h>
#include <careful/careful.h>

#include "daemon/ipc/ipc.h"
#include "daemon/options.h"

/*
 * @drivers:  the driver's mode
 * @wanted:   no mode was chosen yet
 * @asking: we ask for the lock: peers that ask us need a larger @ticket
 * @running: a trial runs; no peer gets the lock
 * @failed:   trials that began and failed
 * @unmet: attempts without the lock
 * @again_ns: no attempt before this time
 * @due_ns:   when to try with each peer; 0: not at all
 * @moved:    1 plus frames to and from each peer at the last check for quiet; 0: none yet
 * @lock_ns: when the lock of each peer ends; 0: none
 * @locks: number of peers that hold our lock
 */
struct trial {
	struct careful *instance;
	struct ipc *ipc;
	const char *state_dir;
	uint32_t peers_max;
	uint32_t drivers;
	bool wanted;
	bool asking;
	bool running;
	uint32_t failed;
	uint32_t unmet;
	uint32_t unquiet; /* checks in a row that found something under way */
	uint64_t again_ns;
	uint64_t ticket;
	uint64_t due_ns[CAREFUL_PEERS_MAX];
	uint64_t moved[CAREFUL_PEERS_MAX];
	uint64_t lock_ns[CAREFUL_PEERS_MAX];
	uint32_t locks;
};

/* Puts the remembered mode into effect, or holds clients' questions until the trial with their
 * peer. Serves peers' requests for the lock in either case. */
int xdp_trial_init(struct trial *trial, struct careful *instance, struct ipc *ipc,
		   const struct daemon_options *options);
/* Handles a peer's new state; called from careful_peer_watch(). */
void xdp_trial_peer_changed(struct trial *trial, uint32_t peer, uint32_t state);
/* Reports whether one of the two hosts tries modes, so new epochs need no log line. */
bool xdp_trial_is_on(const struct trial *trial, uint32_t peer);
/* Call it each round. A round with a trial lasts less than a second, whatever the peers do. */
void xdp_trial_poll(struct trial *trial);
/* Returns after how many ms at most to call it again; -1: when an event arrives. */
int xdp_trial_timeout_ms(const struct trial *trial);
