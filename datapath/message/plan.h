/* SPDX-License-Identifier: BSD-2-Clause */
/* Fragment sizes of a message. Each message reads its plan from the tune map once, so it never
 * mixes two versions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/abi.h>

/* A message's position in its plan. */
struct plan_cursor {
	struct careful_class settings;
	uint32_t version; /* of the settings in the tune entry */
	uint32_t message_bytes;
	uint32_t next_bytes; /* size of the next fragment, before the limit of a frame */
	bool equal; /* all fragments have next_bytes */
	bool down; /* the peak was reached */
};

uint32_t plan_class(uint64_t bytes);
void plan_default(struct careful_tune_entry *entry, uint32_t fragment_bytes);
void plan_take(const struct careful_tune_entry *entry, uint32_t message_bytes,
	       struct plan_cursor *cursor);
uint32_t plan_next(struct plan_cursor *cursor, uint32_t cap_bytes);
