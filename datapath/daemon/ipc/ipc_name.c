/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of peers for clients, and questions that wait because their peer is held. A name consists
 * of the slot and the slot's generation. An old name is refused and never means another host. */
#include <errno.h>
#include <string.h>

#include "daemon/ipc/ipc_private.h"

enum {
	GENERATION_SHIFT = 16,
	GENERATION_MASK = 0x7fff,
};

uint32_t ipc_peer_name(const struct ipc *ipc, uint32_t index)
{
	return index | (uint32_t)(ipc->generations[index] & GENERATION_MASK) << GENERATION_SHIFT;
}

int ipc_peer_index(const struct ipc *ipc, uint32_t peer)
{
	uint32_t index = peer & 0xffff;

	if (index >= ipc->peers_max || peer != ipc_peer_name(ipc, index))
		return -ENOTCONN;
	return (int)index;
}

void ipc_hold(struct ipc *ipc, uint32_t peer, enum ipc_hold why, bool on)
{
	uint8_t was = ipc->held[peer];

	ipc->held[peer] = (uint8_t)(on ? was | why : was & ~(uint8_t)why);
	ipc->held_count += !!ipc->held[peer];
	ipc->held_count -= !!was;
}

bool ipc_holds(const struct ipc *ipc, uint32_t peer, enum ipc_hold why)
{
	return ipc->held[peer] & why;
}

static bool is_held(const struct ipc *ipc, uint32_t peer)
{
	int index = ipc_peer_index(ipc, peer);

	return index >= 0 && ipc->held[index];
}

static bool any_held(const struct ipc *ipc, const struct ipc_question *question)
{
	struct careful_signature s;

	if (question->head.payload_bytes != sizeof(s))
		return false;
	memcpy(&s, question->payload, sizeof(s));
	for (uint32_t i = 0; i < s.peers_count && i < CAREFUL_SIGNATURE_PEERS; i++)
		if (is_held(ipc, s.peers[i]))
			return true;
	return false;
}

bool ipc_held(const struct ipc *ipc, const struct ipc_question *question)
{
	if (!ipc->held_count)
		return false;
	switch (question->head.op) {
	case CAREFUL_IPC_SIGNATURE:
		return any_held(ipc, question);
	case CAREFUL_IPC_REQUEST:
	case CAREFUL_IPC_GET:
	case CAREFUL_IPC_GETS:
	case CAREFUL_IPC_STORE:
	case CAREFUL_IPC_PING:
	case CAREFUL_IPC_MEASURE:
		return is_held(ipc, question->head.peer);
	default:
		return false;
	}
}
