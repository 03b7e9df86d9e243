/* SPDX-License-Identifier: BSD-2-Clause */
/* Bursts of requests with computation between them (P4, `Microbenchmark signature`), timed
 * as they are issued. Whose requests they are is the layer's. */
#ifndef SERVICE_SIGNATURE_H
#define SERVICE_SIGNATURE_H

#include <stdbool.h>
#include <stdint.h>

#include <careful/ipc.h>

/*
 * A layer whose requests are answered.
 *
 * @issue:       hands one request over; 0, -EAGAIN: not before a poll, or -errno
 * @poll:        sends and takes what is there, without waiting; 0 or -errno
 * @now_ns:      a monotonic clock
 * @capacity:    requests that may be under way: more wait in issuing
 * @outstanding: requests that are
 * @status:      -errno of the first that failed
 * @arrived_ns:  the other end's clock when it took the last one, where it tells; else 0
 */
struct signature_layer {
	int (*issue)(struct signature_layer *layer);
	int (*poll)(struct signature_layer *layer);
	uint64_t (*now_ns)(void);
	uint32_t capacity;
	uint32_t outstanding;
	int status;
	uint64_t arrived_ns;
};

/* Reports whether a signature is one: marks in order, nothing beyond its bounds. 0 or -EINVAL. */
int signature_check(const struct careful_signature *signature);
/* Bytes of one burst's answer. */
uint32_t signature_burst_bytes(const struct careful_signature *signature);

/*
 * Issues bursts, each after the replies to the one before, until there are as many as
 * asked for, the answers fill `bytes`, or CAREFUL_SIGNATURE_MS have passed. Returns how
 * many, at least one; -ETIMEDOUT where one lasts longer than CAREFUL_BURST_MS, or -errno.
 */
int signature_run(struct signature_layer *layer, const struct careful_signature *signature,
		  void *answers, uint32_t bytes);

#endif /* SERVICE_SIGNATURE_H */
