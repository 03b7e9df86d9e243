// SPDX-License-Identifier: BSD-2-Clause
/* Fragment plans (plan.h). */
#include "message/plan.h"

#include <string.h>

enum {
	ONE_Q16 = 65536,
	FRAGMENT_MIN = 16, /* least payload bytes of a fragment */
	MINPULSE_NET_TX = 65536,
	MINPULSE_STORE = 65536,
	RETRIES = 8,
};

/* Returns a message's class. Class i has sizes up to CAREFUL_CLASS0_BYTES << i. */
uint32_t plan_class(uint64_t bytes)
{
	uint32_t class = 0;

	while (class < CAREFUL_CLASSES - 1 && bytes > (uint64_t)CAREFUL_CLASS0_BYTES << class)
		class ++;
	return class;
}

/* Fills in the plan of an untuned path: fragments of fragment_bytes, copied one by one. */
void plan_default(struct careful_tune_entry *entry, uint32_t fragment_bytes)
{
	memset(entry, 0, sizeof(*entry));
	for (int i = 0; i < CAREFUL_CLASSES; i++) {
		struct careful_class *class = &entry->version[0].classes[i];

		class->plan = (struct careful_plan){
			.first_bytes = fragment_bytes,
			.ratio_q16 = ONE_Q16,
			.peak_bytes = fragment_bytes,
			.down_ratio_q16 = ONE_Q16,
		};
		class->minpulse_bytes[CAREFUL_SINK_NET_TX] = MINPULSE_NET_TX;
		class->minpulse_bytes[CAREFUL_SINK_STORE] = MINPULSE_STORE;
	}
}

/* Reports whether all fragments have one size. A plan that starts at its peak may fall. */
static bool is_fixed(const struct careful_plan *plan)
{
	bool rises = plan->ratio_q16 != ONE_Q16 || plan->step_bytes;
	bool falls = plan->down_ratio_q16 != ONE_Q16 || plan->down_step_bytes;

	return !rises && !(falls && plan->peak_bytes && plan->first_bytes >= plan->peak_bytes);
}

/* Reads the plan of a message's class. A writer fills an inactive version and then changes
 * `active`; if `active` changes while we read, we read again. */
void plan_take(const struct careful_tune_entry *entry, uint32_t message_bytes,
	       struct plan_cursor *cursor)
{
	uint32_t class = plan_class(message_bytes);

	*cursor = (struct plan_cursor){ 0 };
	for (int i = 0; i < RETRIES; i++) {
		uint32_t active = __atomic_load_n(&entry->active, __ATOMIC_ACQUIRE);

		cursor->version = active % CAREFUL_TUNE_VERSIONS;
		cursor->settings = entry->version[cursor->version].classes[class];
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (__atomic_load_n(&entry->active, __ATOMIC_RELAXED) == active)
			break;
	}
	cursor->next_bytes = cursor->settings.plan.first_bytes;
	if (cursor->next_bytes < FRAGMENT_MIN)
		cursor->next_bytes = FRAGMENT_MIN;
	cursor->message_bytes = message_bytes;
}

/* Cuts a message into equal fragments instead of a short last one (P1 section 5.4): 4096 bytes in
 * frames of 3750 become two fragments of 2048. */
static uint32_t equal_size(const struct plan_cursor *cursor, uint32_t cap_bytes)
{
	uint64_t bytes = cursor->message_bytes;
	uint32_t most = cursor->next_bytes < cap_bytes ? cursor->next_bytes : cap_bytes;
	uint64_t k = (bytes + most - 1) / most;

	return bytes > most ? (uint32_t)((bytes + k - 1) / k) : most;
}

static uint32_t scale(uint32_t bytes, uint32_t ratio_q16, uint32_t step_bytes)
{
	uint64_t next = ((uint64_t)bytes * ratio_q16 >> 16) + step_bytes;

	return next > UINT32_MAX ? UINT32_MAX : (uint32_t)next;
}

/* Returns the size of the next fragment, at most cap_bytes. */
uint32_t plan_next(struct plan_cursor *cursor, uint32_t cap_bytes)
{
	const struct careful_plan *plan = &cursor->settings.plan;
	uint32_t bytes = cursor->next_bytes;

	if (!cursor->equal && is_fixed(plan)) {
		cursor->next_bytes = bytes = equal_size(cursor, cap_bytes);
		cursor->equal = true;
	} else if (!cursor->equal) {
		if (!cursor->down && plan->peak_bytes && bytes >= plan->peak_bytes) {
			bytes = plan->peak_bytes;
			cursor->down = true;
		}
		cursor->next_bytes =
			cursor->down ? scale(bytes, plan->down_ratio_q16, plan->down_step_bytes) :
				       scale(bytes, plan->ratio_q16, plan->step_bytes);
		if (cursor->next_bytes < FRAGMENT_MIN)
			cursor->next_bytes = FRAGMENT_MIN;
	}
	return bytes < cap_bytes ? bytes : cap_bytes;
}
