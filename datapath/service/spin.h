/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether it pays to spin before a wait blocks. Where the other end shares our CPU, spinning keeps
 * it from running: what we wait for comes as soon as we block, and not before. Spinning then
 * stops, and is tried again now and then. Who was idle spins again. Calls nobody.
 */
#ifndef SERVICE_SPIN_H
#define SERVICE_SPIN_H

#include <stdbool.h>
#include <stdint.h>

enum {
	SPIN_VAIN_MAX = 8, /* in a row, until spinning stops */
	SPIN_TRY = 64, /* waits until it is tried again */
};

/*
 * @vain:  spins in a row after which frames came as soon as we blocked
 * @waits: since spinning stopped, or was tried last
 */
struct spin {
	uint32_t vain;
	uint32_t waits;
};

/* A wait begins. */
static inline bool spin_wanted(struct spin *spin)
{
	if (spin->vain < SPIN_VAIN_MAX)
		return true;
	if (++spin->waits < SPIN_TRY)
		return false;
	spin->waits = 0;
	return true;
}

/* Frames came while we spun. */
static inline void spin_paid(struct spin *spin)
{
	spin->vain = 0;
}

/* They came after we had spun, or not, and were blocked for so long. */
static inline void spin_blocked(struct spin *spin, bool spun, uint64_t blocked_ns, uint64_t spin_ns)
{
	if (blocked_ns > SPIN_VAIN_MAX * spin_ns)
		spin->vain = 0; /* idle: nobody was kept from anything */
	else if (spun && blocked_ns <= spin_ns && spin->vain < SPIN_VAIN_MAX)
		spin->vain++;
}

#endif /* SERVICE_SPIN_H */
