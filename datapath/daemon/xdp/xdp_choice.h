/* SPDX-License-Identifier: BSD-2-Clause */
/* Chooses the better XDP mode from measurements, and remembers the choice. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>

enum { XDP_ARMS = 6 };

/* Results of an arm: of the measurements in one mode. */
struct xdp_figures {
	double trip_ns; /* round trip of a small request */
	double rate; /* of a stream, in bytes per us */
};

/* Returns the better mode, or CAREFUL_XDP_AUTO if the arms disagree. Arms alternate, native first.
 * Each arm is compared only with the previous one, because disturbances last longer than an arm.
 * Generic wins a comparison if the product of both figures' ratios is below XDP_MARGIN. The mode
 * that loses at most one comparison is better. */
uint32_t xdp_choose(const struct xdp_figures arms[XDP_ARMS]);

/* Reads the mode remembered for a driver and this kernel. Returns 0, -ENOENT if there is none, or
 * another -errno with *error if the file cannot be trusted. */
int xdp_recall(const char *dir, const char *driver, uint32_t *mode, struct careful_error *error);
/* Writes a mode to the file, completely or not at all. Returns 0, or -errno with *error. */
int xdp_remember(const char *dir, const char *driver, uint32_t mode, struct careful_error *error);
