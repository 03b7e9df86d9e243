/* SPDX-License-Identifier: BSD-2-Clause */
/* Which XDP mode is better, by what was measured, and what is remembered of that. */
#ifndef DAEMON_XDP_CHOICE_H
#define DAEMON_XDP_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>

enum { XDP_ARMS = 6 };

/* What one arm measured. @trip_ns: of a small request; @rate: of a stream, bytes a us */
struct xdp_figures {
	double trip_ns;
	double rate;
};

/*
 * The better mode, by arms in turns, native first; CAREFUL_XDP_AUTO where they disagree. Each is
 * compared with the one before it, for what disturbs a machine lasts longer than one. Generic
 * wins a comparison if the product of the two ratios is better by XDP_MARGIN. It is better if it
 * wins all but one, native if generic wins one at most.
 */
uint32_t xdp_choose(const struct xdp_figures arms[XDP_ARMS]);

/* The mode that is remembered for a driver and this kernel. 0, -ENOENT, or -errno with *error
 * where what is there is not to be believed. */
int xdp_recall(const char *dir, const char *driver, uint32_t *mode, struct careful_error *error);
/* Remembers one, as a whole or not at all. 0, or -errno with *error. */
int xdp_remember(const char *dir, const char *driver, uint32_t mode, struct careful_error *error);

#endif /* DAEMON_XDP_CHOICE_H */
