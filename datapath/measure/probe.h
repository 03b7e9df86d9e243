/* SPDX-License-Identifier: BSD-2-Clause */
/* The probe service that wire.h declares: answers measurements from afar. */
#ifndef MEASURE_PROBE_H
#define MEASURE_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include <careful/abi.h>
#include <careful/careful.h>
#include <careful/wire.h>

/*
 * The train that is arriving from a peer.
 *
 * @number: as its frames name it; 0: none
 * @count: frames that arrived
 * @stamps: when each of them did, as the answer says it
 */
struct probe_train {
	uint32_t number;
	uint32_t count;
	__be64 stamps[CAREFUL_PROBE_FRAMES];
};

/*
 * @now_ns: a monotonic clock; the engine has none of its own
 * @trains: one for each peer, so that no peer ends another's
 */
struct probe {
	uint64_t (*now_ns)(void);
	struct probe_train trains[CAREFUL_PEERS_MAX];
};

/* Answers probes until careful_close(); @probe, all 0 but its clock, must last as long. */
int probe_serve(struct careful *instance, struct probe *probe);

/* Adds a frame to the train of its peer: false unless it is the next of that train. A first frame
 * begins a train. */
bool probe_train_add(struct probe_train *train, const struct careful_message *message,
		     uint64_t now_ns);

/* Says where pings that go as far as the store are written. Without a scratch file they end at
 * HOST_RX. @fd: lasts until the next call; -1: they wait for one. @scratch: enum careful_scratch */
void probe_scratch(struct careful *instance, int fd, uint8_t scratch);
/* Counts the pings so far that were to be written. */
uint64_t probe_scratch_asked(const struct careful *instance);

#endif /* MEASURE_PROBE_H */
