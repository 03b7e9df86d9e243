/* SPDX-License-Identifier: BSD-2-Clause */
/* Limits how often strangers are answered and how often a handshake continues, so that a flood costs
 * a bounded share of the loop and keeps no state. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"

struct link;

enum {
	/* Answers a second to hosts that have not proved their address: to all hosts of a family,
	 * and to one address (HOST). An answer is never longer than its question. */
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

/* Times at which the next event of each limit is due at its rate; a burst moves a time beyond now.
 * Arrays are indexed by a secret hash of the address. */
struct rate_limit {
	uint64_t answers_ns[2]; /* IPv4, IPv6 */
	/* A peer has its own (struct session), since strangers can use up all of these. */
	uint64_t proved_ns[RATE_LIMIT_SOURCES];
	uint64_t asked_ns[RATE_LIMIT_SOURCES];
	uint64_t trains_ns;
	uint64_t train_ns[RATE_LIMIT_SOURCES];
	uint32_t sessions_ended[RATE_LIMIT_SOURCES];
};

/* Reports whether to answer an unproved sender; if not, counts the message. */
bool rate_limit_answer(struct link *link, const union address *to);
/* Reports whether to continue with a HELLO from a proved address; if not, counts the message. */
bool rate_limit_handshake(struct link *link, const union address *from);
/* Returns how many frames of a train, of this many bytes each, may be sent to the host now. The
 * limit holds across epochs and sessions, since a few bytes ask for megabytes. */
uint32_t rate_limit_train(struct link *link, const union address *host, uint32_t frames,
			  uint32_t bytes);
/* Counts a session that ended. The count is part of the proof of the host's address, so a new
 * session needs a new proof. */
void rate_limit_session_ended(struct link *link, const union address *host);
uint32_t rate_limit_sessions_ended(const struct link *link, const union address *host);
