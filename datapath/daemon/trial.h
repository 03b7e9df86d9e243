/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --xdp auto: the first peer that gives peace for it sees native and generic mode tried in turns,
 * and the better one stays, and is remembered. And the peace that peers ask of us for theirs.
 */
#ifndef DAEMON_TRIAL_H
#define DAEMON_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#include <careful/abi.h>
#include <careful/careful.h>

#include "daemon/ipc.h"
#include "daemon/options.h"

/*
 * @drivers:  the mode that the driver has
 * @wanted:   no mode was chosen yet
 * @asking:   for peace: who asks us meanwhile has a larger @ticket or is refused
 * @running:  nobody is given peace
 * @failed:   trials that were begun and came to no end
 * @unmet:    attempts for which a peer gave no peace
 * @again_ns: no attempt before
 * @due_ns:   of each peer, when to try with it; 0: not to
 * @moved:    frames to and from it, and 1, when it was last looked whether it is quiet; 0: not yet
 * @peace_ns: of each peer, until when we keep the peace that it asked for; 0: it did not
 * @peaces:   of them not 0
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
	uint32_t unquiet; /* looks in a row at which something was under way */
	uint64_t again_ns;
	uint64_t ticket;
	uint64_t due_ns[CAREFUL_PEERS_MAX];
	uint64_t moved[CAREFUL_PEERS_MAX];
	uint64_t peace_ns[CAREFUL_PEERS_MAX];
	uint32_t peaces;
};

/* Takes the mode that is remembered, or lets questions of clients wait for the trial with their
 * peer. Serves peers' requests for peace in either case. */
int trial_init(struct trial *trial, struct careful *instance, struct ipc *ipc,
	       const struct daemon_options *options);
/* A peer's state changed; from careful_peer_watch(). */
void trial_peer_changed(struct trial *trial, uint32_t peer, uint32_t state);
/* Reports whether new epochs of the peer's are no news: one of the two hosts tries modes. */
bool trial_is_on(const struct trial *trial, uint32_t peer);
/* Called each round. A round with a trial takes less than a second, whatever the peers do. */
void trial_poll(struct trial *trial);
/* After how many ms at most to call it again; -1: when an event arrives. */
int trial_timeout_ms(const struct trial *trial);

#endif /* DAEMON_TRIAL_H */
