// SPDX-License-Identifier: BSD-2-Clause
/* Trains measure the burst that the path from a peer takes, which bounds the window: a whole window
 * sent at once must arrive, even over a short queue. Before the first data of a session, and after
 * a loss, we ask the peer for trains of back-to-back frames, which XDP counts. Both ends send no data
 * during a train, so only train frames are lost, and no operation fails when a new epoch begins with
 * a smaller window. A peer that lies or stays silent lowers only its own window, to WINDOW_MIN at
 * least. */
#include "link/link_private.h"
#include "link/peer/peers.h"

#include <endian.h>

enum {
	BROKEN_MAX = 4, /* incomplete trains before the verdict */
	LATE_MAX = 3, /* trains without a frame or an end before the verdict */
	RESTARTS_MAX = 3, /* epochs that may end before their trains do */
	ANSWER_MS = 100, /* longest wait for the first frame of a train, or for its end */
	SETTLE_MS = 40, /* silence after which no more frames of an ended train arrive */
	BUDGET_MS = 1500, /* for all trains of an epoch */
	HELD_MS = 5000, /* the longest time that data is held */
	SPAN_MS = 200, /* longest duration of a train if no loss came before */
	OVER_TIMES = 3, /* copies of TRAIN_OVER, since some may be lost */
	AGAIN_MS = 10 * 1000, /* between two measurements after losses; doubled each time */
	AGAIN_MS_MAX = 640 * 1000, /* the longest such time */
	/* On a path that loses one frame in n at random, n frames arrive before the first loss on
	 * average, and one in n is lost after it. A full queue loses QUEUE_TIMES as many. */
	QUEUE_TIMES = 8,
	EVEN = 8, /* a queue breaks trains at the same frame, within 1/EVEN */
};

static uint64_t ms_since(const struct link_peer *peer, uint64_t at_ns)
{
	return (peer->link->now_ns - at_ns) / 1000000;
}

/* Returns the time for which HELLO and WELCOME ask the peer to hold its data back. */
uint32_t link_train_hold_ms(const struct link_peer *peer)
{
	const struct link_train *train = &peer->session->train;

	return train->wanted || train->measuring ? TRAIN_HOLD_MS : 0;
}

/* Holds our data back as the peer asked. */
void train_hold(struct link_peer *peer, uint32_t hold_ms)
{
	struct link_train *train = &peer->session->train;

	train->hold_until_ns = 0;
	if (hold_ms)
		train->hold_until_ns =
			peer->link->now_ns +
			(hold_ms < TRAIN_HOLD_MS ? hold_ms : TRAIN_HOLD_MS) * 1000000ull;
}

/* Returns the most frames that a peer may send at once without trains. */
static uint32_t window_first(const struct link *link)
{
	return link->window + link->reserve.count;
}

static bool others_open(const struct link_peer *peer)
{
	const struct link *link = peer->link;

	for (uint32_t i = 0; i < link->peers_max; i++)
		if (&link->peers[i] != peer && link_has_epoch(&link->peers[i]))
			return true;
	return false;
}

/* Returns the length of the longest train. While other peers have sessions and nothing was lost, it
 * is a window: longer trains would take the others' room in a shared queue. */
static uint32_t goal_of(const struct link_peer *peer)
{
	const struct link *link = peer->link;
	uint32_t all = link->queue->info.receive_buffers;

	if (!peer->session->train.lost_some && others_open(peer))
		return window_first(link);
	return all < CAREFUL_TRAIN_FRAMES ? all : CAREFUL_TRAIN_FRAMES;
}

void train_say(struct link_peer *peer, uint8_t type, uint32_t number, uint32_t frames)
{
	struct careful_ctrl ctrl = {
		.nonce = htobe64(number),
		.train.frames = htobe32(frames),
		.train.smallest = htobe32(type == CAREFUL_TRAIN_ASK && peer->session->train.tiny),
		.train.hold_ms = htobe32(type == CAREFUL_TRAIN_ASK ? TRAIN_HOLD_MS : 0),
	};

	link_say(peer, &ctrl, type);
}

static void ask(struct link_peer *peer, uint32_t frames)
{
	struct link_train *train = &peer->session->train;
	struct port *port = peer->link->port;

	train->number++;
	train->number += !train->number;
	train->frames = frames;
	train->seen = 0;
	train->ended = false;
	train->asked_ns = train->seen_ns = peer->link->now_ns;
	port->ops->train(port, peer->slot, train->number);
	train_say(peer, CAREFUL_TRAIN_ASK, train->number, frames);
}

/* Asks for a first train. */
static void ask_first(struct link_peer *peer, uint32_t frames)
{
	struct link_train *train = &peer->session->train;

	train->broken = train->late = 0;
	train->lost = train->behind = 0;
	ask(peer, frames);
}

/* Called when an epoch begins. Reports whether data is held back. */
bool link_train_begin(struct link_peer *peer)
{
	struct link_train *train = &peer->session->train;
	const struct link *link = peer->link;

	train->begun_ns = link->now_ns;
	train->asks = 0;
	train_hold(peer, train->hold_ms);
	if (train->wanted) {
		train->wanted = false;
		train->measuring = true;
		train->goal = goal_of(peer);
		train->best = train->lost = train->behind = 0;
		train->broken = train->late = 0;
		train->asked_ns = 0;
		train->tiny = false;
	}
	return train->measuring || train->hold_until_ns;
}

/* Called when an epoch ends. The next epoch repeats an unfinished measurement. */
void link_train_reset(struct link_peer *peer)
{
	struct link_train *train = &peer->session->train;

	train->left = 0;
	train->over = 0;
	train->end_due = false;
	train->hold_until_ns = 0;
	train->renews = false;
	if (!train->measuring)
		return;
	train->measuring = false;
	train->wanted = train->restarts++ < RESTARTS_MAX;
}

/* Measures again after a loss, since the path may have changed. Seldom, since the path may just lose
 * frames at random. */
void link_train_lost(struct link_peer *peer)
{
	struct link_train *train = &peer->session->train;

	if (!peer->link->measures || train->measuring ||
	    (train->again_ms && ms_since(peer, train->measured_ns) < train->again_ms))
		return;
	train->again_ms = !train->again_ms		 ? AGAIN_MS :
			  train->again_ms < AGAIN_MS_MAX ? 2 * train->again_ms :
							   AGAIN_MS_MAX;
	train->wanted = true;
	train->lost_some = true;
	train->restarts = 0;
}

void link_train_want(struct link_peer *peer)
{
	struct link_train *train = &peer->session->train;

	train->wanted = true;
	train->lost_some = true;
	train->restarts = 0;
}

/* Ends the measurement. Data may leave, in a new epoch if our window changed. */
static void conclude(struct link_peer *peer, uint8_t verdict, uint32_t burst)
{
	struct link_train *train = &peer->session->train;
	struct port *port = peer->link->port;

	train->measuring = false;
	train->verdict = verdict;
	train->burst = burst;
	train->shared = others_open(peer);
	train->measured_ns = peer->link->now_ns;
	train->measured++;
	train->lost_some = false;
	port->ops->train(port, peer->slot, 0);
	if (link_peer_window(peer) != peer->flow.rx.size && !link_used(peer))
		train->renews = true;
	else
		train->over = OVER_TIMES;
}

/* Takes the result of trains of one frame size. If large frames were lost, tiny ones follow: they
 * arrive faster, so a queue that counts frames takes fewer. They can only lower the result. */
static void take_result(struct link_peer *peer, uint8_t verdict, uint32_t burst)
{
	struct link_train *train = &peer->session->train;

	if (train->lost_some && !train->tiny && verdict != CAREFUL_BURST_LOSSY) {
		train->tiny = true;
		train->verdict = verdict;
		train->burst = train->goal = burst;
		train->best = 0;
		ask_first(peer, burst);
	} else if (train->tiny && verdict != CAREFUL_BURST_SHORT) {
		conclude(peer, train->verdict, train->burst);
	} else {
		conclude(peer, verdict, burst);
	}
}

/* Reports whether all trains broke at about the same frame, like at a queue. Such a queue may lose
 * few later frames, if it drains while the peer waits for send buffers. */
static bool breaks_evenly(const struct link_train *train)
{
	return train->broken >= BROKEN_MAX - 1 && train->best >= EVEN &&
	       train->best - train->least <= train->best / EVEN;
}

/* Classifies several incomplete trains: a queue, or random losses. */
static void classify(struct link_peer *peer)
{
	const struct link_train *train = &peer->session->train;
	uint64_t lost = train->lost, behind = train->behind;

	if (!train->broken || !train->best) /* no new result: nothing arrived */
		conclude(peer, train->verdict, train->burst);
	else if (breaks_evenly(train) || lost * train->best >= QUEUE_TIMES * behind ||
		 (lost >= QUEUE_TIMES && 4 * lost >= 3 * behind))
		take_result(peer, CAREFUL_BURST_SHORT, train->best);
	else
		take_result(peer, CAREFUL_BURST_LOSSY, train->best);
}

static void take_complete(struct link_peer *peer, uint64_t span_ns)
{
	struct link_train *train = &peer->session->train;
	uint64_t longer_ns = span_ns * train->goal / train->frames;

	if (train->frames > train->best)
		train->best = train->frames;
	if (train->frames < train->goal && (train->lost_some || longer_ns < SPAN_MS * 1000000ull)) {
		ask_first(peer, train->goal);
		return;
	}
	take_result(peer, CAREFUL_BURST_WHOLE, train->best);
}

static void take_incomplete(struct link_peer *peer, const struct train_seen *seen)
{
	struct link_train *train = &peer->session->train;

	if (seen->whole > train->best)
		train->best = seen->whole;
	if (!train->broken || seen->whole < train->least)
		train->least = seen->whole;
	/* The first missing frame is not counted: it only ends the complete part. */
	train->lost += train->frames - seen->frames - 1;
	train->behind += train->frames - seen->whole - 1;
	if (++train->broken < BROKEN_MAX)
		ask(peer, train->frames);
	else
		classify(peer);
}

/* Reports whether no more frames of the train will arrive: it has ended, and none came for a while,
 * which is longer for slow trains. */
static bool has_settled(const struct link_peer *peer, const struct train_seen *seen)
{
	const struct link_train *train = &peer->session->train;
	uint64_t wait_ns = SETTLE_MS * 1000000ull;

	if (!train->ended)
		return false;
	if (!seen->frames)
		wait_ns = ANSWER_MS * 1000000ull;
	else if (4 * seen->span_ns / seen->frames > wait_ns)
		wait_ns = 4 * seen->span_ns / seen->frames;
	return peer->link->now_ns - train->seen_ns >= wait_ns;
}

static void measure_tick(struct link_peer *peer)
{
	struct link_train *train = &peer->session->train;
	struct port *port = peer->link->port;
	struct train_seen seen;

	if (!train->asked_ns) {
		ask(peer, train->goal < peer->link->window ? train->goal : peer->link->window);
		return;
	}
	port->ops->trained(port, peer->slot, &seen);
	if (seen.frames != train->seen) {
		train->seen = seen.frames;
		train->seen_ns = peer->link->now_ns;
	}
	if (seen.frames >= train->frames)
		take_complete(peer, seen.span_ns);
	else if (ms_since(peer, train->begun_ns) >= BUDGET_MS)
		classify(peer);
	else if (has_settled(peer, &seen))
		take_incomplete(peer, &seen);
	else if (train->ended || ms_since(peer, train->seen_ns) < ANSWER_MS)
		return;
	else if (++train->late < LATE_MAX)
		ask(peer, train->frames);
	else
		classify(peer);
}

bool link_on_train_sent(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	struct link_train *train = &peer->session->train;
	uint32_t sent = be32toh(ctrl->train.frames);

	if (peer->phase != LINK_HELD || !train->measuring || !train->asked_ns ||
	    be64toh(ctrl->nonce) != train->number || be64toh(ctrl->cookie) != peer->cookie_in)
		return false;
	if (train->ended)
		return true;
	if (!sent) {
		classify(peer);
		return true;
	}
	if (sent < train->frames)
		train->frames = sent;
	train->ended = true;
	train->seen_ns = peer->link->now_ns;
	return true;
}

bool link_on_train_over(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	if (be64toh(ctrl->cookie) != peer->cookie_in)
		return false;
	peer->session->train.hold_until_ns = 0;
	return true;
}

/* Opens the session for data. Drops the rest of the peer's train, which would delay the data and
 * which the peer no longer needs. */
static void open_now(struct link_peer *peer)
{
	peer->session->train.left = 0;
	peer->session->train.end_due = false;
	peer->session->train.renews = false;
	peer->phase = LINK_OPEN;
	peer->session->heard_ns = peer->link->now_ns;
	peer->heard = true;
	link_state(peer, CAREFUL_PEER_UP);
}

/* Opens the session early, because the peer has sent data: its trains are over, and its frames have
 * overtaken TRAIN_OVER. Returns false if the session stays closed. */
bool link_train_opens(struct link_peer *peer)
{
	struct link_train *train = &peer->session->train;

	if (peer->phase != LINK_HELD || !link_used(peer) || peer->session->path.probing)
		return false;
	if (train->measuring)
		conclude(peer, train->verdict, train->burst);
	open_now(peer);
	return true;
}

static void held_tick(struct link_peer *peer)
{
	struct link_train *train = &peer->session->train;
	struct link *link = peer->link;

	if (train->measuring)
		measure_tick(peer);
	if (train->renews)
		return;
	if (link->now_ns >= train->hold_until_ns || ms_since(peer, train->begun_ns) >= HELD_MS)
		train->hold_until_ns = 0;
	if (!train->measuring && !train->hold_until_ns && !seal_waits(peer))
		open_now(peer);
}

/* Reports whether a new epoch must begin, since our window changed. */
bool link_train_tick(struct link_peer *peer)
{
	struct link_train *train = &peer->session->train;
	bool renews;

	if (peer->phase == LINK_HELD)
		held_tick(peer);
	if (train->over && link_has_epoch(peer)) {
		train->over--;
		train_say(peer, CAREFUL_TRAIN_OVER, 0, 0);
	}
	renews = train->renews;
	train->renews = false;
	return renews;
}

void link_train_info(const struct link_peer *peer, struct careful_peer_info *info)
{
	const struct link_train *train = &peer->session->train;

	info->window = peer->cookie_in ? peer->flow.rx.size : link_peer_window(peer);
	info->window_now = info->window - (peer->cookie_in ? peer->session->missing.withheld : 0);
	info->burst = train->verdict;
	info->burst_frames = (uint16_t)train->burst;
	info->bursts_measured = (uint8_t)train->measured;
}
