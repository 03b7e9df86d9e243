/* SPDX-License-Identifier: BSD-2-Clause */
/* Limits how often strangers are answered and how often a handshake continues: a flood costs a
 * bounded share of the loop and keeps no state. control.c and handshake.c interpret the messages.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"

struct link;

enum {
	/* Answers a second to all hosts that have not proved their address, for each family. An
	 * answer is no longer than its question. RATE_LIMIT_ANSWERS_HOST: answers to one
	 * address. */
	RATE_LIMIT_ANSWERS = 2000,
	RATE_LIMIT_ANSWERS_BURST = 128,
	RATE_LIMIT_ANSWERS_HOST = 500,
	RATE_LIMIT_ANSWERS_HOST_BURST = 32,
	/* Handshakes a second of one proved address: each may cost four multiplications, or an
	 * epoch. */
	RATE_LIMIT_PROVED = 100,
	RATE_LIMIT_PROVED_BURST = 100,
	RATE_LIMIT_SOURCES = 256,
	/* Trains sent to all hosts (TRAINS) and to one host (TRAIN): nanoseconds for each byte (16
	 * and 4 MB/s), and bytes at once. The longest train of the largest frames has 16 MB. */
	RATE_LIMIT_TRAINS_BYTE_NS = 62,
	RATE_LIMIT_TRAINS_BURST = 64000000,
	RATE_LIMIT_TRAIN_BYTE_NS = 250,
	RATE_LIMIT_TRAIN_BURST = 32000000,
};

/* For each limit, when the next event would be due at its rate, ns; a burst moves it beyond now. */
struct rate_limit {
	uint64_t answers_ns[2]; /* IPv4, IPv6 */
	/* By a secret hash of the address. A peer has its own (struct session), since strangers
	 * with many addresses can use up all of these. */
	uint64_t proved_ns[RATE_LIMIT_SOURCES];
	uint64_t asked_ns[RATE_LIMIT_SOURCES]; /* likewise: answers */
	uint64_t trains_ns;
	uint64_t train_ns[RATE_LIMIT_SOURCES];
	uint32_t sessions_ended[RATE_LIMIT_SOURCES]; /* sessions with hosts of such an address */
};

/* Reports whether to answer an unproved sender; if not, counts the message. */
bool rate_limit_answer(struct link *link, const union address *to);
/* Reports whether to continue with a HELLO from a proved address; if not, counts the message. */
bool rate_limit_handshake(struct link *link, const union address *from);
/* Returns how many frames of a train, each of this many bytes, may be sent to the host now. The
 * limit holds across epochs and sessions, since a few bytes ask for megabytes. */
uint32_t rate_limit_train(struct link *link, const union address *host, uint32_t frames,
			  uint32_t bytes);
/* Counts a session with the host that ended. The count is part of the proof of an address: a new
 * session needs a new proof, and other hosts keep theirs. */
void rate_limit_session_ended(struct link *link, const union address *host);
uint32_t rate_limit_sessions_ended(const struct link *link, const union address *host);
