/* SPDX-License-Identifier: BSD-2-Clause */
/* Chooses the better XDP mode from measurements, and remembers the choice. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>

enum { XDP_ARMS = 6 };

/* One arm's results. trip_ns: round trip of a small request; rate: of a stream, bytes/us. */
struct xdp_figures {
	double trip_ns;
	double rate;
};

/* Returns the better mode, or CAREFUL_XDP_AUTO if the arms disagree. Arms alternate, native first.
 * Each arm is compared with the previous one, because disturbances last longer than an arm. Generic
 * wins a comparison if the product of the two ratios is better by XDP_MARGIN. Generic is better if
 * it loses at most one comparison, native if it loses at most one. */
uint32_t xdp_choose(const struct xdp_figures arms[XDP_ARMS]);

/* Reads the mode remembered for a driver and this kernel. Returns 0, -ENOENT, or -errno with *error
 * if the file cannot be trusted. */
int xdp_recall(const char *dir, const char *driver, uint32_t *mode, struct careful_error *error);
/* Remembers a mode, completely or not at all. Returns 0, or -errno with *error. */
int xdp_remember(const char *dir, const char *driver, uint32_t mode, struct careful_error *error);
