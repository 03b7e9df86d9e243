/* SPDX-License-Identifier: BSD-2-Clause */
/* The probe service and the scratch region of wire.h, for measurements from other hosts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/abi.h>
#include <careful/careful.h>
#include <careful/wire.h>

enum { SCRATCH_BYTES = 1 << 20 };

/* The train that a peer is sending.
 *
 * @number: its number; 0: none
 * @count: frames that have arrived
 * @stamps: their arrival times, as in the answer */
struct probe_train {
	uint32_t number;
	uint32_t count;
	__be64 stamps[CAREFUL_PROBE_FRAMES];
};

/* @now_ns: reads a monotonic clock
 * @cookie_of: returns the cookie of a peer's frames (engine/sharing.h)
 * @arrivals: recorded by XDP
 * @asked_ns: when a peer last asked for @arrivals
 * @trains: the train of each peer */
struct probe {
	uint64_t (*now_ns)(void);
	uint64_t (*cookie_of)(const struct careful *instance, uint32_t peer);
	struct careful *instance;
	struct careful_arrivals *arrivals;
	uint64_t asked_ns;
	struct probe_train trains[CAREFUL_PEERS_MAX];
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
