// SPDX-License-Identifier: BSD-2-Clause
/* One round of careful_poll(): receive, call the application, send. */
#include "engine/engine.h"

#include <errno.h>

/* Not inlined, so that rounds without messages save fewer registers. */
static __attribute__((noinline)) void pump_all(struct careful *c)
{
	link_tx_begin(&c->link);
	for (uint32_t at = 0; at < c->link.peers_max; at += 64) {
		uint64_t left = c->messages.sending[at / 64];

		for (; left; left &= left - 1)
			message_pump(&c->messages, &c->link.peers[at + __builtin_ctzll(left)]);
	}
}

/* Sends everything that can leave now. Credit updates come last, because data frames carry credits
 * too, and can make an update unnecessary. */
void round_send(struct careful *c)
{
	if (c->link.again)
		message_reread(&c->messages);
	if (c->messages.messages)
		pump_all(c);
	if (c->messages.has_ended)
		bulk_sent(c);
	if (c->events)
		c->event_hooks->round(c);
	link_updates(&c->link);
	if (c->link.trains)
		link_trains_send(&c->link);
	/* Before the kick, so that file operations overlap with frames. */
	if (c->storage->pending)
		storage_flush(c->storage);
	link_kick(&c->link);
}

/* Reports whether XDP has counted a control message, long enough ago that the socket has it. */
static bool is_announced(struct careful *c)
{
	uint32_t count = c->port->control ? __atomic_load_n(c->port->control, __ATOMIC_RELAXED) : 0;

	if (count == c->control)
		return false;
	if (!c->announced_ns)
		c->announced_ns = c->link.now_ns;
	if (c->link.now_ns - c->announced_ns < ENGINE_REPAIR_NS)
		return false;
	c->control = count;
	c->announced_ns = 0;
	return true;
}

/* Polls the control socket between two ticks, so that repairs are faster. The number of polls is
 * bounded: a flood of control messages causes no more polls than an idle engine makes. */
static void poll_control(struct careful *c, bool idle)
{
	uint64_t since_ns = c->link.now_ns - c->attended_ns;

	if (!c->link.attentive || since_ns < ENGINE_REPAIR_NS)
		return;
	if (!c->link.mending && !c->link.draining && (!idle || since_ns < ENGINE_CONTROL_NS)) {
		if (c->announced_polls == ENGINE_ANNOUNCED_MAX || !is_announced(c))
			return;
		c->announced_polls++;
	}
	c->attended_ns = c->link.now_ns;
	link_attend(&c->link);
}

static void tick(struct careful *c)
{
	uint64_t rx_frames = c->link.counters[CAREFUL_C_RX_FRAMES];
	bool idle = c->rx_frames == rx_frames;
	uint32_t events;

	c->rx_frames = rx_frames;
	link_set_now(&c->link, c->port->ops->now_ns(c->port));
	if (c->link.now_ns - c->tick_ns < ENGINE_TICK_NS) {
		poll_control(c, idle);
		return;
	}
	c->tick_ns = c->attended_ns = c->link.now_ns;
	c->announced_polls = 0;
	events = c->port->ops->events(c->port);
	if (events & DEVICE_GONE) {
		c->gone = true;
		for (uint32_t i = 0; i < c->link.peers_max; i++)
			if (c->link.peers[i].state != CAREFUL_PEER_NONE)
				link_close(&c->link.peers[i], ENODEV);
	}
	if (events & DEVICE_ROUTES)
		link_routes_changed(&c->link);
	if (events & DEVICE_MTU)
		link_frames_changed(&c->link);
	link_control(&c->link);
	link_tick(&c->link);
	if (c->messages.retained)
		message_tick(&c->messages);
}

/* Reports ended operations, then peers' new states. */
static void report_changes(struct careful *c)
{
	if (!c->link.changed && !c->changed && !c->ended)
		return;
	peers_epochs(c);
	operations_report(c);
	peers_report(c);
}

/* Places data and runs handlers one by one, because a handler may change any list. Reports the end
 * of a session before the next session's first message. Returns the number of frames. */
static uint32_t receive(struct careful *c)
{
	struct link_rxframe frame;
	struct link_held *held;
	uint32_t n = 0;

	link_rx(&c->link);
	while (link_rx_next(&c->link, &frame)) {
		n++;
		report_changes(c);
		if (frame.hdr.type == CAREFUL_PING)
			ping_receive(c, &frame);
		else if ((held = am_take(c, &frame)))
			deferred_put(c, held);
		link_relieve(frame.peer);
	}
	return n;
}

static void finish_work(struct careful *c)
{
	if (c->storage->pending)
		c->storage->ops->poll(c->storage);
	report_changes(c);
	if (c->messages.finished || c->messages.unanswered)
		deferred_stores(c);
	if (c->deferred_count || c->messages.unanswered)
		deferred_serve(c);
	report_changes(c);
	if (link_take_pings(&c->link))
		ping_finish(c);
}

int own_poll(struct careful *c)
{
	uint32_t n;

	if (c->polling)
		return -EDEADLK;
	c->polling = true;
	if (++c->polls % ENGINE_POLLS_PER_CLOCK == 0)
		tick(c);
	n = receive(c);
	finish_work(c);
	if (c->each_round)
		n += c->each_round(c, c->each_round_user, false);
	link_publish(&c->link);
	if (c->link.draining)
		link_drained(&c->link);
	if (c->link.changed)
		peers_epochs(c);
	round_send(c);
	link_publish(&c->link);
	c->polling = false;
	return c->gone ? -ENODEV : (int)n;
}
