/* SPDX-License-Identifier: BSD-2-Clause */
/* The probe service that wire.h declares: answers measurements from afar. */
#ifndef SERVICE_PROBE_H
#define SERVICE_PROBE_H

#include <stdint.h>

#include <careful/careful.h>

/* @now_ns: a monotonic clock; the engine has none of its own */
struct careful_probe_clock {
	uint64_t (*now_ns)(void);
};

/* Answers probes until careful_close(); the clock must last as long. */
int careful_probe_serve(struct careful *instance, const struct careful_probe_clock *clock);

/* Where stage probes that go as far as the store are written (enum careful_scratch); fd
 * must last as long as the instance. Without it they end at HOST_RX. */
void careful_probe_scratch(struct careful *instance, int fd, uint8_t scratch);

#endif /* SERVICE_PROBE_H */
