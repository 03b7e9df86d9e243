/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads and writes the numbers in the shared area (ipc.h), with acquire and release: a process that
 * reads a number sees all that the other process wrote before it. */
#pragma once

#include <careful/ipc.h>

static inline uint32_t read_number(const struct careful_ring_number *number)
{
	return __atomic_load_n(&number->value, __ATOMIC_ACQUIRE);
}

static inline void write_number(struct careful_ring_number *number, uint32_t value)
{
	__atomic_store_n(&number->value, value, __ATOMIC_RELEASE);
}
