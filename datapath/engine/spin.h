/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether it pays to spin before a wait blocks. Where the other end shares our CPU, spinning keeps
 * it from running: what we wait for comes once we block, or once the scheduler takes the CPU from
 * us, and not before. Spinning then stops, and is tried again now and then, and by who was idle.
 */
#ifndef SERVICE_SPIN_H
#define SERVICE_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>

enum {
	SPIN_VAIN_MAX = 8, /* in a row, until spinning stops */
	SPIN_TRY = 64, /* waits until it is tried again */
	SPIN_IDLE = 8, /* of the time that we spin: who is blocked for longer was idle */
};

/*
 * @vain:  spins in a row that brought nothing
 * @waits: since spinning stopped, or was tried last
 */
struct spin {
	uint32_t vain;
	uint32_t waits;
};

/* Reports whether it pays to spin in a wait that begins. */
static inline bool spin_wanted(struct spin *spin)
{
	if (spin->vain < SPIN_VAIN_MAX)
		return true;
	if (++spin->waits < SPIN_TRY)
		return false;
	spin->waits = 0;
	return true;
}

/* How long to spin in a wait that begins, before it blocks. */
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

/* Frames came while we spun, so long after the wait began. Nobody spins for longer than spin_ns:
 * who did was not running, and who sent them was. */
static inline void spin_paid(struct spin *spin, uint64_t waited_ns, uint64_t spin_ns)
{
	if (waited_ns <= spin_ns)
		spin->vain = 0;
}

/* They came after we had spun, or not, and were blocked for so long. */
static inline void spin_blocked(struct spin *spin, bool spun, uint64_t blocked_ns, uint64_t spin_ns)
{
	if (blocked_ns <= SPIN_IDLE * spin_ns)
		spin->vain += spun && spin->vain < SPIN_VAIN_MAX;
	else if (spin->vain == SPIN_VAIN_MAX)
		spin->vain--; /* idle: nobody was kept from anything, and one more spin may be */
}

#endif /* SERVICE_SPIN_H */
