/* SPDX-License-Identifier: BSD-2-Clause */
/* One arm of a trial: measures the engine with a peer, in the mode in effect. */
#pragma once

#include <stdint.h>

#include <careful/careful.h>
#include <careful/wire.h>

#include "daemon/xdp/xdp_choice.h"

/*
 * Measures round trips of a small request, one at a time, then a stream of gets: the mode of this
 * end matters most to receiving. On 0 nothing is under way. Returns -ETIMEDOUT after until_ns, or
 * the first failure's -errno.
 *
 * @region: the peer's scratch memory
 */
int xdp_trial_arm(struct careful *instance, uint32_t peer, uint32_t region, uint64_t until_ns,
		  struct xdp_figures *figures);

enum { TRIAL_ASK_MS = 200 }; /* for the answers of all peers that are asked at once */

/* Sends a request and waits; the answer replaces args. Returns its status or -ETIMEDOUT. */
int xdp_trial_ask(struct careful *instance, uint32_t peer, uint16_t handler,
		  uint32_t args[CAREFUL_AM_ARGS], uint64_t until_ns);

/* Asks @count peers at once. Returns 0 when all have answered 0, the first other answer, or
 * -ETIMEDOUT. *first is the index of the peer with that other answer, or @count. */
int xdp_trial_ask_all(struct careful *instance, const uint32_t *peers, uint32_t count,
		      uint16_t handler, const uint32_t args[CAREFUL_AM_ARGS], uint64_t until_ns,
		      uint32_t *first);
