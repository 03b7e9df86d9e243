/* SPDX-License-Identifier: BSD-2-Clause */
/* Times bursts of requests with computation between them (P4, `Microbenchmark signature`). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/ipc.h>

/* The layer under test: issues requests and receives replies. */
struct signature_layer {
	/* Issues a request; 0, -EAGAIN: not before a poll, or -errno. */
	int (*issue)(struct signature_layer *layer);
	/* Sends and receives without waiting; 0 or -errno. */
	int (*poll)(struct signature_layer *layer);
	/* Reads a monotonic clock. */
	uint64_t (*now_ns)(void);
	uint32_t capacity; /* most requests under way */
	uint32_t outstanding; /* requests under way */
	int status; /* -errno of the first failed request */
	uint64_t arrived_ns; /* the other end's clock when the last request arrived; 0: unknown */
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
