/* SPDX-License-Identifier: BSD-2-Clause */
/* How two ends agree on a session: which end asks, how it proves its address, and how each end
 * describes its receive side. epoch.c defines an epoch; session.c decides when one is wanted. If
 * there are keys, keyed.h proves the asker's identity. */
#pragma once

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>

#include <careful/wire.h>

#include "device/device.h"

struct link;
struct link_peer;

/* @nonce:     of our HELLO; 0: we are not asking
 * @nonce_in:  of the HELLO that this epoch answers
 * @token:     from the peer's CHALLENGE; 0: none yet
 * @challenge: number of the last CHALLENGE to this HELLO (careful_ctrl.seq_sent); 0: none yet
 * @among:     our queues, a bit each, that the peer may choose from when the session begins
 *             (queue_choice.h); 0: no choice
 * @retry_ms:  between unanswered HELLOs
 * @refusals:  HELLOs in a row that got only a REFUSE that anybody can have sent; @refused_last: the
 *             last one did; @refused: errno of the last REFUSE
 * @elsewhere: another address than the peer's that answered our HELLO; family 0: none */
struct handshake {
	uint64_t nonce;
	uint64_t nonce_in;
	uint64_t token;
	uint32_t challenge;
	uint32_t among;
	uint32_t retry_ms;
	int refused;
	bool refused_last;
	uint32_t refusals;
	union address elsewhere;
};

void handshake_ask(struct link_peer *peer);
void handshake_ask_again(struct link_peer *peer);
bool handshake_waits(const struct link_peer *peer);
void handshake_drained(struct link_peer *peer);
void handshake_tick(struct link_peer *peer);
void handshake_refuse(struct link *link, const union address *to, const struct careful_ctrl *hello,
		      enum careful_refusal why);

/* Handlers of messages. They report whether the message was expected. */
void handshake_on_hello(struct link *link, const union address *from,
			const struct careful_ctrl *hello, const struct careful_keyed *keyed,
			const struct careful_proved *proved);
bool handshake_on_challenge(struct link_peer *peer, const struct careful_ctrl *ctrl);
bool handshake_on_welcome(struct link_peer *peer, const union address *from,
			  const struct careful_ctrl *ctrl, const struct careful_keyed *keyed);
bool handshake_on_refuse(struct link_peer *peer, const struct careful_ctrl *ctrl, bool proved);
void handshake_elsewhere(struct link *link, const union address *from,
			 const struct careful_ctrl *ctrl);

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
