/* SPDX-License-Identifier: BSD-2-Clause */
/* The handshake of a session: one end asks and proves its address, and each end describes its
 * receive side. If there are keys, keyed.h proves the asker's identity. */
#pragma once

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>

#include <careful/wire.h>

#include "device/device.h"

struct link;
struct link_peer;

struct handshake {
	uint64_t nonce; /* of our HELLO; 0: we are not asking */
	uint64_t nonce_in; /* of the HELLO that this epoch answers */
	uint64_t token; /* from the peer's CHALLENGE; 0: none yet */
	uint32_t challenge; /* number of the last CHALLENGE (careful_ctrl.opening); 0: none yet */
	uint32_t among; /* our queues offered to the peer, a bit each (queue_choice.h); 0: none */
	uint32_t retry_ms; /* between unanswered HELLOs */
	int refused; /* errno of the last REFUSE */
	bool refused_last; /* the last HELLO got only an unproved REFUSE */
	uint32_t refusals; /* such HELLOs in a row */
	union address elsewhere; /* answered our HELLO in place of the peer; family 0: none */
};

/* handshake.c */
void handshake_ask(struct link_peer *peer);
void handshake_ask_again(struct link_peer *peer);
bool handshake_waits(const struct link_peer *peer);
void handshake_drained(struct link_peer *peer);
void handshake_tick(struct link_peer *peer);

/* Handlers of messages. They report whether the message was expected. */
bool handshake_on_challenge(struct link_peer *peer, const struct careful_ctrl *ctrl);
bool handshake_on_welcome(struct link_peer *peer, const union address *from,
			  const struct careful_ctrl *ctrl, const struct careful_keyed *keyed);
bool handshake_on_refuse(struct link_peer *peer, const struct careful_ctrl *ctrl, bool proved);
void handshake_elsewhere(struct link *link, const union address *from,
			 const struct careful_ctrl *ctrl);

/* handshake_answer.c */
void handshake_on_hello(struct link *link, const union address *from,
			const struct careful_ctrl *hello, const struct careful_keyed *keyed,
			const struct careful_proved *proved);
void handshake_refuse(struct link *link, const union address *to, const struct careful_ctrl *hello,
		      enum careful_refusal why);
void handshake_try_welcome(struct link_peer *peer);

/* handshake_terms.c */
uint32_t handshake_flags(const struct link *link);
void handshake_describe(const struct link_peer *peer, struct careful_ctrl *ctrl);
void handshake_note_incarnation(struct link_peer *peer, const struct careful_ctrl *ctrl);
int handshake_adopt(struct link_peer *peer, const union address *from,
		    const struct careful_ctrl *ctrl);
void handshake_begin(struct link_peer *peer, uint8_t type);

/* Reports whether a message answers the HELLO that we sent last. */
static inline bool handshake_answers(const struct handshake *handshake,
				     const struct careful_ctrl *ctrl)
{
	return handshake->nonce && be64toh(ctrl->nonce) == handshake->nonce;
}

static inline void handshake_forget(struct handshake *handshake)
{
	handshake->nonce = 0;
	handshake->among = 0;
}
