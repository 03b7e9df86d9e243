// SPDX-License-Identifier: BSD-2-Clause
/* P2's experiments, step by step (section 6.1). Calls the event interface alone. */
#include "p2.h"

#include <errno.h>
#include <string.h>

enum {
	LAST = CAREFUL_EVENT_F_LAST,
	LARGE = CAREFUL_EVENT_F_LARGE,
	CROWD = CAREFUL_EVENT_F_CROWD,
};

void p2_begin(struct p2 *p, const struct p2_setup *setup, struct careful_events *ev, uint32_t rank,
	      uint32_t nodes, uint64_t base)
{
	*p = (struct p2){
		.setup = *setup,
		.ev = ev,
		.rank = rank,
		.nodes = nodes,
		.base = base,
		/* Each node of a ring except the first receives before it sends. */
		.sending = setup->kind != P2_LATENCY && setup->kind != P2_THROUGHPUT ? true : !rank,
		.event = setup->kind == P2_LATENCY && rank ? rank - 1 : 0,
	};
}

uint64_t p2_events(const struct p2_setup *setup, uint32_t nodes)
{
	return setup->kind == P2_LATENCY ? (uint64_t)setup->count * nodes : setup->count;
}

int p2_frames(struct careful_events *ev, const struct p2_setup *setup)
{
	int most = careful_event_bytes(ev);
	uint32_t bytes = setup->words * 4;

	if (most <= 0)
		return most ? most : -EMSGSIZE;
	return bytes ? (int)((bytes + (uint32_t)most - 1) / (uint32_t)most) : 1;
}

static void write_words(struct p2 *p)
{
	for (uint32_t i = 0; p->setup.processing && i < p->setup.words; i++)
		((volatile uint32_t *)p->words)[i] = (uint32_t)p->event + i;
}

static void read_words(struct p2 *p, const struct careful_event_fragment *fragment)
{
	const uint8_t *at = fragment->data; /* not aligned */
	uint32_t word;

	for (uint32_t i = 0; p->setup.processing && i < fragment->bytes / 4; i++, at += 4) {
		memcpy(&word, at, sizeof(word));
		p->sum += word;
	}
}

/* Returns the words that a node sends: the last of a chain sends one word. */
static uint32_t words_out(const struct p2 *p)
{
	return p->setup.kind == P2_THROUGHPUT && p->rank + 1 == p->nodes ? 1 : p->setup.words;
}

/* Returns the bytes of the message under way, in a flood of all its fragments. */
static uint32_t message_bytes(const struct p2 *p)
{
	return words_out(p) * 4 * (p->setup.kind == P2_FLOOD ? p->setup.fragments : 1);
}

/* Returns a frame's payload, which never crosses the end of a flood's fragment. */
static uint32_t next_bytes(const struct p2 *p, uint32_t *from)
{
	uint32_t whole = words_out(p) * 4;
	uint32_t rest;

	*from = whole ? p->at % whole : 0;
	rest = whole - *from;
	return rest < p->most ? rest : p->most;
}

/* Sends the message under way to its end. */
static int send_message(struct p2 *p, uint32_t dst, uint32_t flags)
{
	uint32_t whole = message_bytes(p);
	int rc;

	if (!p->most) {
		rc = careful_event_bytes(p->ev);
		if (rc < 0)
			return rc;
		p->most = (uint32_t)rc / 4 * 4;
	}
	do {
		uint32_t from;
		uint32_t bytes = next_bytes(p, &from);
		bool last = p->at + bytes == whole;

		if (!from && !p->written)
			write_words(p);
		p->written = true;
		rc = careful_event_send(p->ev, dst, p->base + p->event,
					(const uint8_t *)p->words + from, bytes,
					flags | (bytes < whole ? LARGE : 0) | (last ? LAST : 0), 0);
		if (rc)
			return rc;
		p->written = false;
		p->at += bytes;
		if (p->setup.singly && p->at < whole)
			return -EAGAIN;
	} while (p->at < whole);
	p->at = 0;
	return 0;
}

/* Receives to the end of a message, or of an event. */
static int receive_message(struct p2 *p, uint32_t src, uint64_t event, uint32_t until)
{
	struct careful_event_fragment fragment;
	int rc;

	do {
		rc = careful_event_receive(p->ev, src, p->base + event, &fragment, 0);
		if (rc)
			return rc;
		read_words(p, &fragment);
		p->bytes += fragment.bytes;
		if (p->setup.singly && fragment.status < until)
			return -EAGAIN;
	} while (fragment.status < until);
	return 0;
}

/* Hop e goes from node e mod P to the next one. */
static int latency(struct p2 *p)
{
	uint64_t hops = p2_events(&p->setup, p->nodes);
	uint32_t next = (p->rank + 1) % p->nodes, before = (p->rank + p->nodes - 1) % p->nodes;
	int rc;

	while (p->event < hops) {
		rc = p->sending ? send_message(p, next, 0) :
				  receive_message(p, before, p->event, CAREFUL_EVENT_NODE_DONE);
		if (rc)
			return rc;
		p->event += p->sending ? p->nodes - 1 : 1;
		p->sending = !p->sending;
		if (p->setup.singly && p->event < hops)
			return -EAGAIN;
	}
	return 0;
}

/* In each event the first node sends, then receives the word that answers an earlier message; each
 * other node receives, then sends on. */
static int throughput(struct p2 *p)
{
	bool first = !p->rank, last = p->rank + 1 == p->nodes;
	uint32_t back = p->setup.back, lag = first && back ? back - 1 : 0;
	uint64_t events = p->setup.count + (uint64_t)lag;
	int rc = 0;

	while (p->event < events) {
		if (p->sending && p->event < p->setup.count && (!last || back))
			rc = send_message(p, last ? 0 : p->rank + 1, 0);
		else if (!p->sending && p->event >= lag && (!first || back))
			rc = receive_message(p, first ? p->nodes - 1 : p->rank - 1, p->event - lag,
					     CAREFUL_EVENT_NODE_DONE);
		if (rc)
			return rc;
		p->event += p->sending != first;
		p->sending = !p->sending;
		if (p->setup.singly && p->event < events)
			return -EAGAIN;
	}
	return 0;
}

/* Sends messages as far ahead of consumed ones as allowed. */
static int flood(struct p2 *p)
{
	uint32_t ahead = p->setup.ahead ? p->setup.ahead : p->setup.count;
	int rc;

	while (p->consumed < p->setup.count) {
		bool sends = p->event < p->setup.count && p->event - p->consumed < ahead;

		rc = sends ? send_message(p, CAREFUL_EVENT_ALL, CROWD) :
			     receive_message(p, CAREFUL_EVENT_ALL, p->consumed,
					     CAREFUL_EVENT_EVENT_DONE);
		if (rc)
			return rc;
		p->event += sends;
		p->consumed += !sends;
		if (p->setup.singly && p->consumed < p->setup.count)
			return -EAGAIN;
	}
	return 0;
}

int p2_step(struct p2 *p)
{
	switch (p->setup.kind) {
	case P2_LATENCY:
		return latency(p);
	case P2_THROUGHPUT:
		return throughput(p);
	default:
		return flood(p);
	}
}
