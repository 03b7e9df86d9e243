/* SPDX-License-Identifier: BSD-2-Clause */
/* One arm of a trial: measures with a peer in the current mode, and does nothing else meanwhile. */
#pragma once

#include <stdint.h>

#include <careful/careful.h>
#include <careful/wire.h>

#include "daemon/xdp/xdp_choice.h"

/* Measures round trips of a small request, then a stream of gets: receiving depends most on the
 * mode at this end. Returns 0, -ETIMEDOUT after until_ns, -ETIME on a path too slow for the modes
 * to differ, or the first failure's -errno.
 *
 * @region: the peer's scratch memory */
int xdp_trial_arm(struct careful *instance, uint32_t peer, uint32_t region, uint64_t until_ns,
		  struct xdp_figures *figures);

enum { TRIAL_ASK_MS = 200 }; /* longest wait for the answers of xdp_trial_ask_all() */

/* Sends a request and waits. The answer's args replace args. Returns its status or -ETIMEDOUT. */
int xdp_trial_ask(struct careful *instance, uint32_t peer, uint16_t handler,
		  uint32_t args[CAREFUL_AM_ARGS], uint64_t until_ns);

/* Asks @count peers at once. Returns 0 if all grant the request, the first refusal, or -ETIMEDOUT.
 * *first is the index of the peer that refused, or @count. */
int xdp_trial_ask_all(struct careful *instance, const uint32_t *peers, uint32_t count,
		      uint16_t handler, const uint32_t args[CAREFUL_AM_ARGS], uint64_t until_ns,
		      uint32_t *first);
