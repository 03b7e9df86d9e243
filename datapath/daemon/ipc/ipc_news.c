/* SPDX-License-Identifier: BSD-2-Clause */
/* Reports changes of peers to programs. A program gets notes about peers that it asked for, and
 * peers that sent it something. While a note about a peer is unread, later changes wait; then only
 * the last one is reported, and a failure before it. So a peer whose session comes and goes cannot
 * fill the ring of a program that pauses. */
#include <errno.h>

#include "daemon/ipc/ipc_program.h"
#include "local/ring_number.h"

static void put_note(struct ipc_program *p, const struct ipc_news *news, uint32_t state)
{
	const struct careful_ring_entry entry = {
		.kind = CAREFUL_RING_PEER,
		.peer = news->peer,
		.status = (int32_t)state,
	};

	ipc_ring_put(p, &entry, NULL);
}

/* Reports a change if the program has read the last note and its ring has room. */
static void flush(struct ipc_program *p, struct ipc_news *news)
{
	if (news->unread && (int32_t)(news->put - read_number(&p->area->notes_taken)) <= 0)
		news->unread = false;
	if (!news->due || news->unread || ipc_ring_room(p) < 2)
		return;
	/* A failure is reported even if the session is up again: the peer's regions have ended. */
	if (news->failed && news->state != CAREFUL_PEER_FAILED && news->state != CAREFUL_PEER_NONE)
		put_note(p, news, CAREFUL_PEER_FAILED);
	put_note(p, news, news->state);
	news->put = p->notes_put;
	news->unread = true;
	news->failed = false;
	news->due = false;
	news->known = news->state != CAREFUL_PEER_NONE;
}

static void change(struct ipc_program *p, struct ipc_news *news, uint32_t state)
{
	struct ipc *ipc = p->client->ipc;
	const bool was_counted = news->due || news->unread;

	news->state = (uint8_t)state;
	news->failed |= state == CAREFUL_PEER_FAILED;
	news->due = true;
	flush(p, news);
	p->news_count += !was_counted;
	ipc->poll_reasons += !was_counted;
}

void ipc_news_know(struct ipc_program *p, uint32_t index)
{
	struct ipc_news *news = &p->peers[index];
	const uint32_t peer = ipc_peer_name(p->client->ipc, index);

	if (news->known && news->peer == peer)
		return;
	if (news->due && ipc_ring_room(p)) /* the slot has another peer now */
		put_note(p, news, CAREFUL_PEER_NONE);
	news->due = false;
	news->known = true;
	news->peer = peer;
}

void ipc_programs_peer(struct ipc *ipc, uint32_t index, uint32_t state)
{
	const bool ends = state == CAREFUL_PEER_NONE || state == CAREFUL_PEER_FAILED;

	for (struct ipc_program *p = ipc->programs; p; p = p->next) {
		struct ipc_news *news = &p->peers[index];

		if (state == CAREFUL_PEER_NONE)
			p->wants[index] = false;
		for (uint32_t i = 0; ends && i < CAREFUL_AREA_REGIONS; i++)
			if (p->regions[i].key && p->regions[i].peer == index)
				p->regions[i].gone = ipc_region_remove(p, &p->regions[i]) == -EBUSY;
		if (news->known && news->peer == ipc_peer_name(ipc, index))
			change(p, news, state);
	}
}

void ipc_news_poll(struct ipc_program *p)
{
	uint32_t left = 0;

	for (uint32_t i = 0; p->news_count && i < p->client->ipc->peers_max; i++) {
		struct ipc_news *news = &p->peers[i];

		flush(p, news);
		left += news->due || news->unread;
	}
	p->client->ipc->poll_reasons -= p->news_count - left;
	p->news_count = left;
}

void ipc_news_forget(struct ipc_program *p)
{
	p->client->ipc->poll_reasons -= p->news_count;
	p->news_count = 0;
}
