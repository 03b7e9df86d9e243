/* SPDX-License-Identifier: BSD-2-Clause */
/* The probe service and the scratch region of wire.h, for measurements from other hosts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/abi.h>
#include <careful/careful.h>
#include <careful/wire.h>

enum { SCRATCH_BYTES = 1 << 20 };

/* The train that a peer is sending. */
struct probe_train {
	uint32_t number; /* its number; 0: none */
	uint32_t count; /* frames that have arrived */
	__be64 stamps[CAREFUL_PROBE_FRAMES]; /* their arrival times, as in the answer */
};

struct probe {
	/* Reads a monotonic clock. */
	uint64_t (*now_ns)(void);
	/* Returns the cookie of a peer's frames (engine/sharing.h). */
	uint64_t (*cookie_of)(const struct careful *instance, uint32_t peer);
	struct careful *instance;
	struct careful_arrivals *arrivals; /* recorded by XDP */
	uint64_t asked_ns; /* when a peer last asked for arrivals */
	struct probe_train trains[CAREFUL_PEERS_MAX]; /* the train of each peer */
};

/* Answers probes until careful_close(); @probe must last as long. The caller sets the functions and
 * @arrivals; the other fields start as 0. */
int probe_serve(struct careful *instance, struct probe *probe);

/* Adds a frame to its peer's train; the first frame begins a train. Returns false unless the frame
 * is the next of its train. */
bool probe_train_add(struct probe_train *train, const struct careful_message *message,
		     uint64_t now_ns);

/* Returns memory for measurements, with meaningless contents. */
void *scratch_memory(void);
/* Offers the scratch memory to all peers until careful_close(). */
int scratch_serve(struct careful *instance);
