/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How often strangers are answered, and how often a handshake is gone on with: a flood of them
 * costs a bounded share of the loop, and keeps nothing. control.c and handshake.c interpret the
 * messages.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"

struct link;

enum {
	/* Answers a second to all who have not proved that they are where they say, over each
	 * family; each is as long as what it answers. DOOR_ANSWERS_HOST: those to one address. */
	DOOR_ANSWERS = 2000,
	DOOR_ANSWERS_BURST = 128,
	DOOR_ANSWERS_HOST = 500,
	DOOR_ANSWERS_HOST_BURST = 32,
	/* Handshakes a second of one address that has proved itself: each may cost four
	 * multiplications, or an epoch. */
	DOOR_PROVED = 100,
	DOOR_PROVED_BURST = 100,
	DOOR_SOURCES = 256,
	/* Trains sent to all hosts and to one of them: nanoseconds for each byte (16 and 4 MB/s),
	 * and bytes at once. The longest train of the largest frames has 16 MB. */
	DOOR_TRAINS_BYTE_NS = 62,
	DOOR_TRAINS_BURST = 64000000,
	DOOR_TRAIN_BYTE_NS = 250,
	DOOR_TRAIN_BURST = 32000000,
};

/* When the next one would be due at that rate, ns; beyond now, of a burst. */
struct door {
	uint64_t answers_ns[2]; /* IPv4, IPv6 */
	/* By a secret hash of the address. A peer has its own (struct session): strangers with many
	 * addresses fill all of these. */
	uint64_t proved_ns[DOOR_SOURCES];
	uint64_t asked_ns[DOOR_SOURCES]; /* likewise: answers */
	uint64_t trains_ns;
	uint64_t train_ns[DOOR_SOURCES];
	uint32_t closed[DOOR_SOURCES]; /* sessions with hosts of such an address */
};

/* Reports whether a message whose sender has proved nothing is answered; else that is counted. */
bool door_answers(struct link *link, const union address *to);
/* Reports whether a HELLO whose sender is at its address is gone on with; else that is counted. */
bool door_admits(struct link *link, const union address *from);
/* Returns how many of a train's frames, of so many bytes each, may be sent to the host now. The bound
 * holds over epochs and sessions: a few bytes ask for megabytes. */
uint32_t door_train(struct link *link, const union address *host, uint32_t frames, uint32_t bytes);
/* A session with a host is over: what proves an address is another from then on, and that of hosts
 * elsewhere the same. */
void door_close(struct link *link, const union address *host);
uint32_t door_closed(const struct link *link, const union address *host);
