/* SPDX-License-Identifier: BSD-2-Clause */
/* The probe service and the scratch region of wire.h, for measurements from other hosts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/abi.h>
#include <careful/careful.h>
#include <careful/wire.h>

enum { SCRATCH_BYTES = 1 << 20 };

/*
 * The train that is arriving from a peer.
 *
 * @number: its number; 0: none
 * @count: frames that have arrived
 * @stamps: their arrival times, in the answer's form
 */
struct probe_train {
	uint32_t number;
	uint32_t count;
	__be64 stamps[CAREFUL_PROBE_FRAMES];
};

/*
 * @now_ns: reads a monotonic clock; the engine has none of its own
 * @cookie_of: returns the cookie of a peer's frames (engine/sharing.h)
 * @instance: answers with the payload that a frame holds
 * @arrivals: of the instance, recorded by XDP
 * @asked_ns: when a peer last asked for them
 * @trains: one for each peer, so that no peer disturbs another's
 */
struct probe {
	uint64_t (*now_ns)(void);
	uint64_t (*cookie_of)(const struct careful *instance, uint32_t peer);
	struct careful *instance;
	struct careful_arrivals *arrivals;
	uint64_t asked_ns;
	struct probe_train trains[CAREFUL_PEERS_MAX];
};

/* Answers probes until careful_close(). @probe must last as long, and be 0 except for its
 * functions and @arrivals. */
int probe_serve(struct careful *instance, struct probe *probe);

/* Adds a frame to its peer's train; a first frame begins one. Returns false unless the frame is the
 * next of its train. */
bool probe_train_add(struct probe_train *train, const struct careful_message *message,
		     uint64_t now_ns);

/* Returns memory with meaningless contents, shared by all measurements. */
void *scratch_memory(void);
/* Offers the memory to all peers until careful_close(). */
int scratch_serve(struct careful *instance);
