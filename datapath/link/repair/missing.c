// SPDX-License-Identifier: BSD-2-Clause
/* Requests missing frames by a control message, which needs no credit. At most w numbers are
 * requested at a time, since repairs load the network like any frame. Requests and repairs stay in
 * order: a repair that arrives shows that repairs of earlier requests are lost. If nothing arrives, a
 * timer repeats the request. A frame that is requested too early arrives twice, and is dropped. */
#include "link/link_private.h"
#include "link/repair/repair.h"
#include "link/peer/peers.h"

#include <endian.h>

enum {
	WAIT_FIRST_US = 2000, /* wait for a repair, while repair_us is unknown */
	WAIT_MORE_US = 100, /* wait for a repair, in addition to repair_us */
	/* longest wait, unless the peer is silent; and the silence while repair_us is unknown */
	WAIT_LONG_US = 64 * 1000,
	SILENT_US = 8 * 1000, /* least silence otherwise */
	SILENCE_PART = 32, /* a silent peer is asked again after this part of the silence, */
	SILENT_WAIT_MAX_US = 8000, /* and after this time at the latest */
	BACKOFF_MAX = 6,
	LATE_PLACES = 3, /* a frame is lost if this many overtook it (RFC 5681, section 3.2), */
	LATE_US = 50, /* or if it is late by this time and by a quarter of repair_us */
	SETTLE_TRIES = 2, /* requests, after which XDP's account is checked */
	ANNOUNCED_SHARE = 8, /* an update follows a request after this part of T and of repair_us */
};

/* A frame missing for so long ends the epoch. The sender has had time to give the frame up. */
static const uint64_t GIVE_UP_NS = 2000ull * 1000 * 1000;

static struct link_asked *asked_at(const struct link_peer *peer, uint32_t seq)
{
	return &peer->repair.asked[seq & peer->link->early_mask];
}

/* Notes that the numbers after `from` up to `to` are missing. */
void missing_begin(struct link_peer *peer, uint32_t from, uint32_t to)
{
	for (uint32_t seq = from + 1; (int32_t)(to - seq) >= 0; seq++)
		*asked_at(peer, seq) = (struct link_asked){ .noticed_us = link_us(peer->link) };
}

/* Times a repair. After two requests it may answer either, so it does not count, and the doubled wait
 * stays (Karn's rule, RFC 6298). */
static void time_repair(struct link_missing *missing, const struct link_asked *asked,
			uint32_t now_us)
{
	uint32_t took_us = now_us - asked->first_us;

	if (asked->first_us != asked->last_us)
		return;
	missing->backoff = 0;
	missing->repair_us = took_us > missing->repair_us ? took_us :
							    (7 * missing->repair_us + took_us) / 8;
}

/* Notes that a missing number has arrived. */
void missing_came(struct link_peer *peer, uint32_t seq)
{
	struct link_missing *missing = &peer->session->missing;
	const struct link_asked *asked = asked_at(peer, seq);
	uint32_t now_us = link_us(peer->link);

	if (!asked->first_us)
		return;
	if (now_us - asked->first_us <= missing->repair_us / 4) {
		/* Too fast for a repair: the frame was late. If repairs did become faster, this repeats
		 * until the estimate is right. */
		missing->repair_us -= missing->repair_us / 4;
		congestion_late(peer);
		peer->session->late++;
		return;
	}
	time_repair(missing, asked, now_us);
	if (!missing->came_us || (int32_t)(asked->last_us - missing->came_us) > 0)
		missing->came_us = asked->last_us;
}

/* Returns the time to wait for a repair, before it is doubled. */
static uint32_t wait_first_us(const struct link_missing *missing)
{
	return missing->repair_us ? missing->repair_us + WAIT_MORE_US : WAIT_FIRST_US;
}

/* Reports whether the link may be down: nothing has arrived for longer than a repair takes. */
static bool is_silent(const struct link_peer *peer)
{
	const struct link_missing *missing = &peer->session->missing;
	uint64_t us = missing->repair_us ? wait_first_us(missing) : WAIT_LONG_US;

	return peer->link->now_ns - peer->session->heard_ns >
	       1000 * (us > SILENT_US ? us : SILENT_US);
}

/* Returns the time between two questions to a silent peer. It is a part of the silence, so that the
 * ends go on soon after the return of a link that was down. */
uint32_t missing_silent_wait_us(const struct link_peer *peer)
{
	uint64_t us = (peer->link->now_ns - peer->session->heard_ns) / 1000 / SILENCE_PART;

	return us < SILENT_WAIT_MAX_US ? (uint32_t)us : SILENT_WAIT_MAX_US;
}

/* Returns the time to wait for a repair; each request in vain doubles it. If the peer is silent, the
 * wait stays short, so that repairs begin soon after the link returns. */
static uint32_t wait_us(const struct link_peer *peer)
{
	const struct link_missing *missing = &peer->session->missing;
	uint32_t first_us = wait_first_us(missing), us = first_us << missing->backoff;

	if (is_silent(peer))
		us = missing_silent_wait_us(peer);
	else if (us > WAIT_LONG_US)
		us = WAIT_LONG_US;
	return us > first_us ? us : first_us;
}

/* Reports whether a frame is lost, and not only late. Its lateness counts from the last frame that
 * arrived in order. */
static bool is_lost(const struct link_peer *peer, uint32_t seq, uint32_t noticed_us)
{
	const struct link_missing *missing = &peer->session->missing;
	uint32_t late_us = (missing->repair_us ? missing->repair_us : WAIT_FIRST_US) / 4;
	uint32_t since_us = (uint32_t)(missing->since_ns / 1000);

	if ((int32_t)(since_us - noticed_us) > 0)
		noticed_us = since_us;
	return (int32_t)(missing->ahead - seq) >= LATE_PLACES ||
	       link_us(peer->link) - noticed_us >= (late_us > LATE_US ? late_us : LATE_US);
}

/* Reports whether a later frame, or the repair of a later request, has arrived. */
static bool is_overtaken(const struct link_missing *missing, const struct link_asked *asked,
			 uint32_t seq)
{
	if (!asked->last_us)
		return (int32_t)(missing->ahead - seq) > 0;
	return missing->came_us && (int32_t)(missing->came_us - asked->last_us) > 0;
}

/* Reports whether a missing number is due for a request. */
static bool is_due(const struct link_peer *peer, uint32_t seq)
{
	const struct link_missing *missing = &peer->session->missing;
	const struct link_asked *asked = asked_at(peer, seq);

	if (reorder_holds(peer, seq))
		return false;
	if (!asked->last_us)
		return is_lost(peer, seq, asked->noticed_us);
	return is_overtaken(missing, asked, seq) ||
	       link_us(peer->link) - asked->last_us >= wait_us(peer);
}

/* Counts the missing numbers that are not due, because they may still arrive. */
static uint32_t under_way(const struct link_peer *peer)
{
	uint32_t n = 0;

	for (uint32_t seq = peer->flow.seq_in + 1; (int32_t)(peer->repair.highest - seq) >= 0;
	     seq++)
		n += !reorder_holds(peer, seq) && !is_due(peer, seq);
	return n;
}

/* Accounts a request for one number. */
static void count_request(struct link_peer *peer, uint32_t seq)
{
	struct link_missing *missing = &peer->session->missing;
	struct link_asked *asked = asked_at(peer, seq);

	if (!is_overtaken(missing, asked, seq)) {
		link_count(peer->link, CAREFUL_C_TIMED_OUT);
		peer->session->asked_silent++;
	}
	congestion_lost(peer);
	if (asked->last_us && seq == missing->first &&
	    link_us(peer->link) - asked->last_us >= wait_us(peer)) {
		missing->tries++;
		missing->backoff =
			is_silent(peer) ? 0 : missing->backoff + (missing->backoff < BACKOFF_MAX);
	}
	asked->last_us = link_us(peer->link);
	if (!asked->first_us)
		asked->first_us = asked->last_us;
	peer->link->counters[CAREFUL_C_ASKED_AGAIN]++;
	peer->session->asked_again++;
}

/* Requests due numbers after `from`, at most *room, in one message. Returns the last number that was
 * checked. */
static uint32_t request(struct link_peer *peer, uint32_t from, uint32_t *room)
{
	struct careful_ctrl ctrl = {
		.missing.seq_rcvd = htobe32(peer->flow.seq_in),
		.missing.before = htobe32(from),
	};
	uint32_t count = peer->repair.highest - from, before = *room;

	count = count < MISSING_NAMED ? count : MISSING_NAMED;
	ctrl.missing.last = htobe32(from + count);
	for (uint32_t i = 0; i < count; i++) {
		if (*room && is_due(peer, from + 1 + i)) {
			count_request(peer, from + 1 + i);
			--*room;
		} else {
			ctrl.missing.arrived[i / 8] |= (uint8_t)(1u << i % 8);
		}
	}
	if (*room != before)
		link_say(peer, &ctrl, CAREFUL_MISSING);
	return from + count;
}

/* Restarts the timer and the count of requests if another number is now the first. */
static void track_first(struct link_peer *peer)
{
	struct link_missing *missing = &peer->session->missing;

	if (missing->since_ns && missing->first == peer->flow.seq_in + 1)
		return;
	missing->first = peer->flow.seq_in + 1;
	missing->since_ns = peer->link->now_ns;
	missing->tries = 0;
}

/* Announces the owed credits soon after a request. The peer's next frames then follow the repair,
 * and keep the network busy until the frames behind the gap have returned their credits. */
static void announce(struct link_peer *peer)
{
	const struct link_missing *missing = &peer->session->missing;
	const struct link_asked *asked = asked_at(peer, missing->first);
	uint32_t least = peer->flow.rx.threshold / ANNOUNCED_SHARE;
	uint32_t after_us = missing->repair_us / ANNOUNCED_SHARE;

	least = least > WINDOW_UPDATE_COST ? least : WINDOW_UPDATE_COST;
	after_us = after_us > LATE_US ? after_us : LATE_US;
	if (asked->first_us && link_us(peer->link) - asked->first_us >= after_us &&
	    window_rx_owed(&peer->flow.rx) > least && peer->phase == LINK_OPEN && peer->llhdr.bytes)
		link_send_update(peer);
}

/* Requests missing frames that are due. */
void missing_ask(struct link_peer *peer)
{
	uint32_t from = peer->flow.seq_in, most = congestion_now(peer), room;

	if (!reorder_missing(peer) || !link_has_epoch(peer))
		return;
	peer->link->mending = LINK_MENDING;
	track_first(peer);
	room = under_way(peer);
	room = room < most ? most - room : 0;
	while (room && (int32_t)(peer->repair.highest - from) > 0)
		from = request(peer, from, &room);
	announce(peer);
}

/* Finds frames that XDP admitted and the RX ring lost. They stay charged, and may leave no room for
 * repairs. XDP then admits nothing more, so once the ring is empty, each charge without a frame
 * belongs to a lost frame. */
static void settle_tick(struct link_peer *peer)
{
	struct link_missing *missing = &peer->session->missing;
	struct link *link = peer->link;
	struct port *port = link->port;
	uint32_t filled = *(volatile uint32_t *)&peer->entry->filled;

	switch ((enum link_settle)missing->settle) {
	case LINK_SETTLED:
		if (missing->tries < SETTLE_TRIES)
			return;
		missing->filled = filled;
		if (port->ops->settle)
			port->ops->settle(port, peer->slot);
		missing->settle = LINK_SETTLE_ADMITTED;
		return;
	case LINK_SETTLE_ADMITTED:
		if (port->ops->closed && !port->ops->closed(port, peer->slot))
			return;
		missing->drain = link_drain_begin(link);
		missing->settle = LINK_SETTLE_DRAINED;
		link->draining = true;
		return;
	case LINK_SETTLE_DRAINED:
		link->draining = true;
		if (filled != missing->filled)
			missing->settle = LINK_SETTLED;
	}
}

/* Corrects the charge of lost frames, once the RX ring has drained. */
void missing_drained(struct link_peer *peer)
{
	struct link_missing *missing = &peer->session->missing;
	struct flow *flow = &peer->flow;
	uint32_t filled, lost;

	if (missing->settle != LINK_SETTLE_DRAINED)
		return;
	if (!link_drain_over(peer->link, &missing->drain)) {
		peer->link->draining = true;
		return;
	}
	missing->settle = LINK_SETTLED;
	filled = *(volatile uint32_t *)&peer->entry->filled;
	lost = filled - flow->rx.received - (flow->most - missing->most_before);
	if (filled != missing->filled || (int32_t)lost <= 0)
		return;
	flow->most += lost;
	/* now, since the peer may leave link->dirty before the next publication */
	__atomic_store_n(&peer->entry->may_fill, flow->rx.returned + flow->most, __ATOMIC_RELEASE);
}

/* Advances numbers that lag behind, before they would count as ahead modulo 2^32. */
static void advance_old(struct link_peer *peer)
{
	struct link_repair *repair = &peer->repair;

	if (!reorder_missing(peer))
		repair->highest = peer->session->missing.ahead = peer->flow.seq_in;
	if (repair->log && peer->flow.seq_out - repair->acked > repair->log_mask + 1)
		repair->acked = peer->flow.seq_out - repair->log_mask - 1;
}

/* Repeats requests. Reports whether the epoch must end, because a frame never arrives. */
bool missing_tick(struct link_peer *peer)
{
	struct link_missing *missing = &peer->session->missing;

	if (peer->cookie_in) {
		advance_old(peer);
		congestion_tick(peer);
		link_again_tick(peer);
	}
	if (!peer->link->repairs || !peer->cookie_in || !reorder_missing(peer)) {
		missing->since_ns = 0;
		return false;
	}
	track_first(peer);
	if (peer->link->now_ns - missing->since_ns >= GIVE_UP_NS)
		return true;
	settle_tick(peer);
	missing_ask(peer);
	return false;
}
