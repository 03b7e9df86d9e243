/* SPDX-License-Identifier: BSD-2-Clause */
/* The functions of host_tx.c. */
#pragma once

#include "message/message.h"

enum {
	/* the most bytes next to the payload */
	HOST_TX_EXTRA_BYTES = MESSAGE_AM_BYTES + CAREFUL_DIGEST_BYTES,
};

/* Returns a frame's entry to the pool. */
static inline void host_tx_put(struct message_state *state, struct message_frame *frame)
{
	frame->next = state->frames_free;
	state->frames_free = frame;
}

bool host_tx(struct message_state *state, struct message_out *out);
void host_tx_trace(struct message_out *out, uint32_t flags);
void host_tx_note_source(struct message_out *out, struct message_frame *frame);
