// SPDX-License-Identifier: BSD-2-Clause
/* Opens and closes the message layer. All its memory is allocated here. */
#include "message/message.h"

#include <errno.h>
#include <stdlib.h>

static size_t parked_bytes(const struct message_state *state)
{
	size_t bytes = sizeof(struct message_small) + state->link->queue->buffer_bytes;

	return (bytes + 63) / 64 * 64;
}

static int init_ins(struct message_state *state, uint32_t copies)
{
	/* Besides those in slots, complete ones whose answer waits. Each keeps a receive buffer or
	 * a copy: two windows of each peer, and all copies, bound them. */
	uint32_t slots = state->link->peers_max * MESSAGE_SLOTS;
	uint32_t n = slots + 2 * state->link->queue->rx_chunks + LINK_BATCH + copies;
	uint32_t entries = state->link->queue->rx_chunks + copies;

	/* The kernel backs the pages of messages and hashes that are used. */
	state->ins = calloc(n, sizeof(*state->ins));
	state->ins_free = calloc(n, sizeof(struct message_in *));
	state->hashes = aligned_alloc(64, (size_t)n * XXH3_BYTES);
	state->slots = calloc(slots, sizeof(struct message_in *));
	state->entries = calloc(entries, sizeof(*state->entries));
	if (!state->ins || !state->ins_free || !state->hashes || !state->slots || !state->entries)
		return -ENOMEM;
	for (uint32_t i = 0; i < entries; i++) {
		state->entries[i].next = state->entries_free;
		state->entries_free = &state->entries[i];
	}
	state->ins_max = n;
	return 0;
}

/* The kernel backs these pages only when a slow disk needs them. */
static int init_copies(struct message_state *state, uint32_t n)
{
	share_init(&state->copies_share, n, state->link->peers_max);
	if (!n)
		return 0;
	state->copies = calloc(n, MESSAGE_COPY_BYTES);
	state->copies_free = calloc(n, sizeof(int32_t));
	if (!state->copies || !state->copies_free)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		state->copies_free[i] = (int32_t)(n - 1 - i);
	return 0;
}

static int init_outs(struct message_state *state, uint32_t n)
{
	uint32_t frames = state->link->queue->tx_chunks;

	state->outs = calloc(n, sizeof(*state->outs));
	state->outs_free = calloc(n, sizeof(struct message_out *));
	state->frames = calloc(frames, sizeof(*state->frames));
	if (!state->outs || !state->outs_free || !state->frames)
		return -ENOMEM;
	for (uint32_t i = frames; i-- > 0;) {
		state->frames[i].next = state->frames_free;
		state->frames_free = &state->frames[i];
	}
	share_init(&state->outs_share, n, state->link->peers_max);
	for (uint32_t i = 0; i < n; i++) {
		state->outs[i].hash = xxh3_create();
		if (!state->outs[i].hash)
			return -ENOMEM;
		state->outs[i].io.iov = state->outs[i].iov;
		state->outs_free[i] = &state->outs[i];
	}
	return 0;
}

int message_init(struct message_state *state, struct link *link, struct storage *storage,
		 const struct message_limits *limits)
{
	size_t bytes;

	*state = (struct message_state){ .link = link, .storage = storage };
	state->finished_tail = &state->finished;
	state->ended_tail = &state->ended;
	bytes = parked_bytes(state);
	state->peers = calloc(link->peers_max, sizeof(*state->peers));
	for (uint32_t i = 0; state->peers && i < link->peers_max; i++) {
		state->peers[i].unanswered_tail = &state->peers[i].unanswered;
		state->peers[i].sent_kick = UINT64_MAX;
		state->peers[i].retained_tail = &state->peers[i].retained;
	}
	state->parked = calloc(limits->parked, bytes);
	state->parked_free = calloc(limits->parked, sizeof(struct message_small *));
	if (!state->peers || !state->parked || !state->parked_free ||
	    init_ins(state, limits->copies) || init_outs(state, limits->outs) ||
	    init_copies(state, limits->copies)) {
		message_deinit(state);
		return -ENOMEM;
	}
	share_init(&state->parked_share, limits->parked, link->peers_max);
	for (uint32_t i = 0; i < limits->parked; i++)
		state->parked_free[i] = (struct message_small *)(state->parked + i * bytes);
	return 0;
}

void message_deinit(struct message_state *state)
{
	for (uint32_t i = 0; state->outs && i < state->outs_share.count; i++)
		xxh3_free(state->outs[i].hash);
	free(state->ins);
	free(state->ins_free);
	free(state->hashes);
	free(state->slots);
	free(state->entries);
	free(state->copies);
	free(state->copies_free);
	free(state->outs);
	free(state->outs_free);
	free(state->frames);
	free(state->peers);
	free(state->parked);
	free(state->parked_free);
	*state = (struct message_state){ 0 };
}
