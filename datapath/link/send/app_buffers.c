// SPDX-License-Identifier: BSD-2-Clause
/* Send buffers that are lent to the application, to build messages in place: at most a quarter of
 * those that the largest frame does not need. A buffer is named by the address of its body; any
 * other address is refused. */
#include "link/link_private.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int link_lend_init(struct link *link)
{
	const struct queue *queue = link->queue;
	uint32_t largest = queue_frame_bytes(queue) / queue->chunk_bytes + 2;

	link->lent = calloc(queue->tx_chunks, sizeof(*link->lent));
	if (queue->tx_chunks > largest)
		link->lent_most = (queue->tx_chunks - largest + 3) / 4;
	return link->lent ? 0 : -ENOMEM;
}

/* Returns the entry of the lent buffer with this body, or NULL. */
static bool *lent_entry(const struct link *link, const uint8_t *body)
{
	const struct queue *queue = link->queue;
	uint64_t offset = (uintptr_t)body - (uintptr_t)queue->umem - LINK_PAYLOAD_AT;
	uint64_t index = offset / queue->chunk_bytes - queue->rx_chunks;

	return offset % queue->chunk_bytes || index >= queue->tx_chunks || !link->lent[index] ?
		       NULL :
		       &link->lent[index];
}

bool link_is_lent(const struct link *link, const uint8_t *body)
{
	return lent_entry(link, body);
}

/* Lends a buffer and returns its body; NULL if none may be lent. */
uint8_t *link_lend(struct link *link)
{
	uint64_t addr;

	if (link->lent_count >= link->lent_most || !link_tx_room(link, 1))
		return NULL;
	addr = link->tx_free[--link->tx_free_count];
	link->lent[addr / link->queue->chunk_bytes - link->queue->rx_chunks] = true;
	link->lent_count++;
	return link->queue->umem + addr + LINK_PAYLOAD_AT;
}

/* Ends the loan of a buffer. Returns its address. */
static uint64_t take_back(struct link *link, const uint8_t *body)
{
	bool *lent = lent_entry(link, body);

	assert(lent);
	*lent = false;
	link->lent_count--;
	return (uint64_t)(body - link->queue->umem) - LINK_PAYLOAD_AT;
}

void link_unlend(struct link *link, const uint8_t *body)
{
	uint64_t addr = take_back(link, body);

	link->tx_free[link->tx_free_count++] = addr;
}

/* Makes a frame of a lent buffer. */
void link_tx_lent(struct link_peer *peer, uint8_t *body, uint32_t body_bytes,
		  struct link_txframe *frame)
{
	struct link *link = peer->link;
	uint32_t prefix = peer->llhdr.bytes + LINK_HDR_BYTES;
	uint32_t bytes = body_bytes + peer->trailer;

	assert(bytes <= link->queue->chunk_bytes - LINK_PAYLOAD_AT);
	*frame = (struct link_txframe){
		.peer = peer,
		.segments = 1,
		.umem = link->queue->umem,
		.body = body,
		.body_bytes = bytes,
		.body_total = body_bytes,
		.hdr = (struct careful_hdr *)(body - LINK_HDR_BYTES),
	};
	frame->desc[0] = (struct device_desc){
		.addr = take_back(link, body) + LINK_PAYLOAD_AT - prefix,
		.bytes = prefix + bytes,
	};
}
