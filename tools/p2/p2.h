/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * P2's experiments (section 6.1) over the event interface. A node's program is a series of steps
 * that never wait, so it runs on hosts and in virtual time. A payload above a frame is cut; P2's
 * payloads fit a frame.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/event.h>

enum p2_kind {
	P2_LATENCY, /* Table 1: one message goes around a ring */
	P2_THROUGHPUT, /* Table 2: messages go along a chain of nodes */
	P2_FLOOD, /* Table 3: each node broadcasts many messages, then consumes */
	P2_MEET, /* no table: all nodes begin together */
	P2_KINDS,
};

/*
 * @words: payload of a message, in a flood of a fragment; 4 bytes per word
 * @count: rounds, or messages per node
 * @fragments:  flood: of each message
 * @ahead: flood: messages that a node sends ahead of those that it consumes; 0: all
 * @back: throughput: if not 0, the last node answers each message with a word, and the first is at
 *   most this many ahead (P2's network layer needs that)
 * @singly: a step ends after each fragment, so that the caller can count time
 * @processing: each word is written before sending and read after receiving
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
 * @words: the payload to send; received payload is not kept
 * @sum: of the words read, so that the compiler keeps the reads
 * @event, @sending, @at: the message under way, whether it is sent, its bytes so far
 * @consumed: flood: consumed messages
 * @bytes:  payload received so far
 * @written: the next fragment's words are written, but not sent
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

/* Begins; the caller then allocates p->words. Uses p2_events() events from base on. */
void p2_begin(struct p2 *p, const struct p2_setup *setup, struct careful_events *ev, uint32_t rank,
	      uint32_t nodes, uint64_t base);
uint64_t p2_events(const struct p2_setup *setup, uint32_t nodes);
/* Continues as far as possible. 0: it has ended; -EAGAIN: poll, call again; else -errno. */
int p2_step(struct p2 *p);
/* Returns the frames of a message, or of a flood's fragment; -errno. */
int p2_frames(struct careful_events *ev, const struct p2_setup *setup);
