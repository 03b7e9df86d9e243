/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * P2's experiments (section 6.1) over the event interface: a node's part in each, as steps that
 * never wait, so that they run on hosts and in virtual time alike. A payload that fits no frame
 * is cut; P2's always fitted one.
 */
#ifndef BENCH_P2_H
#define BENCH_P2_H

#include <stdbool.h>
#include <stdint.h>

#include <careful/event.h>

enum p2_kind {
	P2_LATENCY, /* Table 1: one message goes round a ring */
	P2_THROUGHPUT, /* Table 2: messages go along a chain, each node passing them on */
	P2_FLOOD, /* Table 3: each node broadcasts many, then consumes */
	P2_MEET, /* none of the tables: all nodes begin together */
	P2_KINDS,
};

/*
 * @words:      payload of a message, or, of a flood, of a fragment; 4 bytes each
 * @count:      rounds, or messages of each node
 * @fragments:  flood: of each message
 * @ahead:      flood: messages that are sent before the first is consumed, and then for each that
 *              is: outstanding are this many times fragments; 0: all
 * @back:       throughput: not 0: the last node sends a word back for each message, without which
 *              the first is never this many ahead (P2's network layer needs that)
 * @singly:     a step ends after each fragment, for who counts time
 * @processing: each word is written before it is sent, and read when it was received
 */
struct p2_setup {
	enum p2_kind kind;
	uint32_t words;
	uint32_t count;
	uint32_t fragments, ahead, back;
	bool processing, singly;
};

/*
 * A node's part.
 *
 * @base:   number of its first event
 * @words:  the payload; wanted where it was received is not kept
 * @sum:    of the words read, so that they are
 * @event, @sending, @at: the message under way, whether it goes out, bytes of it so far
 * @consumed: flood: messages
 * @bytes:  payload received so far
 * @written: the words of the next fragment are written, and a send has failed since
 */
struct p2 {
	struct p2_setup setup;
	struct careful_events *ev;
	uint32_t rank, nodes;
	uint64_t base;
	uint32_t *words;
	uint64_t sum;
	uint64_t event, consumed;
	uint64_t bytes;
	uint32_t at;
	uint32_t most;
	bool sending, written;
};

/* Begins; then words is to have room for this many. Events from base on are its own: p2_events() of
 * them. */
void p2_begin(struct p2 *p, const struct p2_setup *setup, struct careful_events *ev, uint32_t rank,
	      uint32_t nodes, uint64_t base);
uint64_t p2_events(const struct p2_setup *setup, uint32_t nodes);
/* Goes on as far as it can. 0: its part is over; -EAGAIN: poll, then again; else -errno. */
int p2_step(struct p2 *p);
/* Frames that a message, or a fragment of a flood, takes; -errno. */
int p2_frames(struct careful_events *ev, const struct p2_setup *setup);

#endif /* BENCH_P2_H */
