/* SPDX-License-Identifier: BSD-2-Clause */
/* If two hosts ask each other for the trial lock at once, the larger ticket gets it. */
#include "daemon/xdp/trial_lock.h"

#include <errno.h>
#include <string.h>

#include <careful/wire.h>

#include "base/clock.h"
#include "daemon/xdp/xdp_trial_arm.h"

bool xdp_trial_is_up(uint32_t state)
{
	return state == CAREFUL_PEER_UP || state == CAREFUL_PEER_STALLED;
}

struct careful_peer_info xdp_trial_peer(const struct trial *t, uint32_t peer)
{
	struct careful_peer_info info = { 0 };

	if (careful_peer_info(t->instance, peer, &info))
		info.state = CAREFUL_PEER_NONE;
	return info;
}

static bool is_busy(const struct careful_peer_info *info)
{
	return info->operations || info->messages_out;
}

bool xdp_trial_is_quiet(struct trial *t, uint32_t peer)
{
	struct careful_peer_info info = xdp_trial_peer(t, peer);
	uint64_t moved = info.tx_frames + info.rx_frames + 1, before = t->moved[peer];

	t->moved[peer] = moved;
	return !is_busy(&info) && (!before || moved == before);
}

void xdp_trial_lock_end(struct trial *t, uint32_t peer)
{
	if (!t->lock_ns[peer])
		return;
	t->lock_ns[peer] = 0;
	t->locks--;
	ipc_hold(t->ipc, peer, IPC_HOLD_LOCK, false);
	/* A trial of ours that is due begins before clients' data moves. */
	if (t->undecided && xdp_trial_is_up(xdp_trial_peer(t, peer).state))
		t->due_ns[peer] = clock_now_ns();
}

static int grant(struct trial *t, uint32_t peer, const uint32_t *args)
{
	uint64_t ticket = (uint64_t)args[1] << 32 | args[2];
	struct careful_peer_info info = xdp_trial_peer(t, peer);
	uint32_t for_ms = args[0] < CAREFUL_TRIAL_LOCK_MS ? args[0] : CAREFUL_TRIAL_LOCK_MS;

	if (!for_ms) {
		xdp_trial_lock_end(t, peer);
		return 0;
	}
	/* While we ask, our own request makes the peer look busy, so only the tickets decide. */
	if (t->running || (t->locks && !t->lock_ns[peer]) ||
	    (t->asking ? ticket <= t->ticket : is_busy(&info)))
		return -EBUSY;
	t->locks += !t->lock_ns[peer];
	t->lock_ns[peer] = clock_in_ms(for_ms);
	ipc_hold(t->ipc, peer, IPC_HOLD_LOCK, true);
	return 0;
}

static void on_asked(const struct careful_message *message, void *user)
{
	careful_reply(message, grant(user, message->peer, message->args), NULL, NULL, 0);
}

static void ask_args(const struct trial *t, uint32_t for_ms, uint32_t args[CAREFUL_AM_ARGS])
{
	memset(args, 0, CAREFUL_AM_ARGS * sizeof(args[0]));
	args[0] = for_ms;
	args[1] = (uint32_t)(t->ticket >> 32);
	args[2] = (uint32_t)t->ticket;
}

int xdp_trial_lock_ask(const struct trial *t, const uint32_t *peers, uint32_t count,
		       uint32_t *first)
{
	uint32_t args[CAREFUL_AM_ARGS];

	ask_args(t, CAREFUL_TRIAL_LOCK_MS, args);
	return xdp_trial_ask_all(t->instance, peers, count, CAREFUL_TRIAL_LOCK, args,
				 clock_in_ms(TRIAL_ASK_MS), first);
}

static void on_released(const struct careful_result *result, void *user)
{
	(void)result;
	(void)user;
}

void xdp_trial_lock_release(const struct trial *t, uint32_t peer)
{
	uint32_t args[CAREFUL_AM_ARGS];

	ask_args(t, 0, args);
	careful_request(t->instance, peer, CAREFUL_TRIAL_LOCK, args, NULL, 0, on_released, NULL);
}

int xdp_trial_lock_serve(struct trial *t)
{
	return careful_handle(t->instance, CAREFUL_TRIAL_LOCK, on_asked, t);
}
