/* SPDX-License-Identifier: BSD-2-Clause */
/* Times bursts of requests with computation between them (P4, `Microbenchmark signature`). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/ipc.h>

/* The layer under test: issues requests and receives replies.
 *
 * @issue:       issues a request; 0, -EAGAIN: not before a poll, or -errno
 * @poll:        sends and receives without waiting; 0 or -errno
 * @now_ns:      reads a monotonic clock
 * @capacity:    most requests under way
 * @outstanding: requests under way
 * @status:      -errno of the first failed request
 * @arrived_ns:  the other end's clock when the last request arrived; 0: unknown */
struct signature_layer {
	int (*issue)(struct signature_layer *layer);
	int (*poll)(struct signature_layer *layer);
	uint64_t (*now_ns)(void);
	uint32_t capacity;
	uint32_t outstanding;
	int status;
	uint64_t arrived_ns;
};

/* Checks a signature's marks and bounds. Returns 0 or -EINVAL. */
int signature_check(const struct careful_signature *signature);
/* Returns the bytes of one burst's answer. */
uint32_t signature_burst_bytes(const struct careful_signature *signature);

/* Issues bursts, each after all replies to the previous one. Ends after the requested number, when
 * the answers fill `bytes`, or after CAREFUL_SIGNATURE_MS. Returns the number of bursts, at least
 * 1; -ETIMEDOUT if a burst lasts longer than CAREFUL_BURST_MS; or another -errno. */
int signature_run(struct signature_layer *layer, const struct careful_signature *signature,
		  void *answers, uint32_t bytes);
