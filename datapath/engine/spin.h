/* SPDX-License-Identifier: BSD-2-Clause */
/* Decides whether a wait spins before it blocks. Spinning does not pay if the other end shares our
 * CPU and cannot run meanwhile. Waits then block at once, until some wait tries to spin again. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>

enum {
	SPIN_VAIN_MAX = 8, /* useless spins in a row after which spinning stops */
	SPIN_TRY = 64, /* waits without a spin before one spins again */
	SPIN_IDLE = 8, /* a block longer than this many spin times was idle time */
};

struct spin {
	uint32_t vain; /* useless spins in a row */
	uint32_t waits; /* since spinning stopped or was last tried */
};

static inline bool spin_wanted(struct spin *spin)
{
	if (spin->vain < SPIN_VAIN_MAX)
		return true;
	if (++spin->waits < SPIN_TRY)
		return false;
	spin->waits = 0;
	return true;
}

static inline uint64_t spin_for_ns(struct spin *spin, const struct careful_options *options)
{
	switch (options->wait_mode) {
	case CAREFUL_WAIT_SPIN:
		return UINT64_MAX;
	case CAREFUL_WAIT_BLOCK:
		return 0;
	default:
		return spin_wanted(spin) ? options->spin_us * 1000ull : 0;
	}
}

/* Records that frames came during a spin. After spin_ns the sender has had our CPU: still vain. */
static inline void spin_paid(struct spin *spin, uint64_t waited_ns, uint64_t spin_ns)
{
	if (waited_ns <= spin_ns)
		spin->vain = 0;
}

/* Records how long a wait blocked after its spin. */
static inline void spin_blocked(struct spin *spin, bool spun, uint64_t blocked_ns, uint64_t spin_ns)
{
	if (blocked_ns <= SPIN_IDLE * spin_ns)
		spin->vain += spun && spin->vain < SPIN_VAIN_MAX;
	else if (spin->vain == SPIN_VAIN_MAX)
		spin->vain--; /* the spin delayed nobody: let the next wait spin */
}
