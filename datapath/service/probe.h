/* SPDX-License-Identifier: BSD-2-Clause */
/* The probe service that wire.h declares: answers measurements from afar. */
#ifndef SERVICE_PROBE_H
#define SERVICE_PROBE_H

#include <stdint.h>

#include <careful/careful.h>
#include <careful/wire.h>

/*
 * @now_ns: a monotonic clock; the engine has none of its own
 * @peer, @train, @count: the train that is arriving, and how many of its frames did
 * @stamps: when each of them did, as the answer says it
 */
struct probe {
	uint64_t (*now_ns)(void);
	uint32_t peer;
	uint32_t train; /* 0: none */
	uint32_t count;
	__be64 stamps[CAREFUL_PROBE_FRAMES];
};

/* Answers probes until careful_close(); @probe, all 0 but its clock, must last as long. */
int probe_serve(struct careful *instance, struct probe *probe);

/* Says where pings that go as far as the store are written. Without a scratch file they end at
 * HOST_RX. @fd: lasts until the next call; -1: they wait for one. @scratch: enum careful_scratch */
void probe_scratch(struct careful *instance, int fd, uint8_t scratch);
/* Counts the pings so far that were to be written. */
uint64_t probe_scratch_asked(const struct careful *instance);

#endif /* SERVICE_PROBE_H */
