/* SPDX-License-Identifier: BSD-2-Clause */
/* Serves one region and the handler that names it. Peers may write there at the same time, because
 * the contents are never used. */
#include "measure/scratch.h"

#include <stddef.h>
#include <stdint.h>

#include <careful/wire.h>

static uint8_t scratch[SCRATCH_BYTES]; /* costs no memory until it is used */

void *scratch_memory(void)
{
	return scratch;
}

static void on_scratch(const struct careful_message *message, void *user)
{
	uint32_t args[CAREFUL_AM_ARGS] = { (uint32_t)(uintptr_t)user, SCRATCH_BYTES };

	careful_reply(message, 0, args, NULL, 0);
}

int scratch_serve(struct careful *instance)
{
	const struct careful_region region = {
		.span = { .base = scratch, .fd = -1 },
		.bytes = SCRATCH_BYTES,
		.access = CAREFUL_REGION_READ | CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
	};
	uint32_t key;
	int rc = careful_region_add(instance, &region, &key);

	return rc ? rc :
		    careful_handle(instance, CAREFUL_SCRATCH, on_scratch, (void *)(uintptr_t)key);
}
