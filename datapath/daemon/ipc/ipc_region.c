/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions of programs: parts of a program's shared memory, or of files that it passed. */
#include <errno.h>

#include "daemon/ipc/ipc_program.h"
#include "engine/sharing.h"

struct ipc_program_region *ipc_region_find(struct ipc_program *p, uint32_t key)
{
	for (uint32_t i = 0; key && i < CAREFUL_AREA_REGIONS; i++)
		if (p->regions[i].key == key)
			return &p->regions[i];
	return NULL;
}

int ipc_region_remove(struct ipc_program *p, struct ipc_program_region *region)
{
	int rc = careful_region_remove(p->client->ipc->instance, region->key);

	if (rc == -EBUSY) {
		engine_revoke_region(p->client->ipc->instance, region->key);
	} else {
		if (region->fd >= 0)
			ipc_close(p->client, region->fd, NULL);
		region->fd = -1;
		region->key = 0;
		region->gone = false;
		p->regions_used--;
	}
	return rc;
}

/* Sets the span of a region and checks its bounds. */
static int region_span(struct ipc_program *p, const struct ipc_question *q,
		       struct careful_span *span)
{
	const struct careful_ipc *head = &q->head;
	int rc;

	*span = (struct careful_span){ .fd = -1, .offset = head->file_off };
	if (q->fd < 0) {
		span->base = p->memory + head->region_off;
		return head->region_off > p->memory_bytes ||
				       head->bytes > p->memory_bytes - head->region_off ?
			       -EFAULT :
			       0;
	}
	rc = head->file_off > INT64_MAX || head->bytes > INT64_MAX - head->file_off ?
		     -EINVAL :
		     ipc_file_check(q->fd);
	span->fd = q->fd;
	return rc;
}

int ipc_region_add(struct ipc_program *p, struct ipc_question *q, uint32_t *key)
{
	const struct careful_ipc *head = &q->head;
	struct ipc *ipc = p->client->ipc;
	struct careful_region region = {
		.bytes = head->bytes,
		.access = head->flags,
		.peer = head->peer,
	};
	struct ipc_program_region *slot = p->regions;
	int rc;

	if (p->regions_used == CAREFUL_AREA_REGIONS)
		return -ENOSPC;
	if (head->peer != CAREFUL_ANY_PEER) {
		rc = ipc_peer_index(ipc, head->peer);
		if (rc < 0)
			return rc;
		region.peer = (uint32_t)rc;
	}
	while (slot->key)
		slot++;
	rc = region_span(p, q, &region.span);
	if (rc)
		return rc;
	rc = careful_region_add(ipc->instance, &region, &slot->key);
	if (rc) {
		slot->key = 0;
		return rc;
	}
	slot->fd = region.span.fd;
	q->fd = -1;
	slot->peer = region.peer;
	slot->memory_off = head->region_off;
	p->regions_used++;
	*key = slot->key;
	return 0;
}

void ipc_regions_remove_gone(struct ipc_program *p)
{
	for (uint32_t i = 0; p->regions_used && i < CAREFUL_AREA_REGIONS; i++)
		if (p->regions[i].gone)
			ipc_region_remove(p, &p->regions[i]);
}
