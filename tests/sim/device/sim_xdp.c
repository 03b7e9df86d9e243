// SPDX-License-Identifier: BSD-2-Clause
/*
 * Does the work of ebpf/careful.bpf.c on a virtual device: the same rules (frame.h) in the same
 * order, and the same groups.
 */
#include "device/sim_private.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include <careful/frame.h>

/* Returns the slot of a group's sender, or NULL. */
static struct careful_peer_entry *sender_of(struct sim_device *sim, uint64_t cookie)
{
	for (uint32_t i = 0; i < sim->peers_count; i++)
		if (sim->peers[i].group_cookie == cookie)
			return &sim->peers[i];
	return NULL;
}

int sim_group(struct port *nic, uint32_t slot, uint64_t cookie, const union address *from)
{
	struct sim_device *sim = nic_to_sim(nic);
	struct careful_peer_entry *peer = &sim->peers[slot];

	if (cookie && sender_of(sim, cookie))
		return -EEXIST;
	if (cookie && !peer->cookie)
		sim_fail(sim->world, "port %u: slot %u has no session", sim->port, slot);
	peer->group_probe = 0;
	if (cookie)
		address_words(from, peer->group_source);
	peer->group_cookie = cookie;
	return 0;
}

uint32_t sim_grouped(struct port *nic, uint32_t slot)
{
	return nic_to_sim(nic)->peers[slot].group_probe;
}

/* Admits a frame to a group, whose cookie names the sender. */
static enum careful_xdp_counter admit_group(struct sim_device *sim, const struct careful_hdr *hdr,
					    uint32_t frame_bytes,
					    const struct careful_datagram *datagram)
{
	struct careful_peer_entry *peer = sender_of(sim, be64toh(hdr->cookie));

	return peer ? careful_frame_admit_group(peer, hdr, frame_bytes, careful_frame_ip(datagram),
						datagram->end) :
		      CAREFUL_XDP_DROP_COOKIE;
}

static enum careful_xdp_counter admit(struct sim_device *sim, const struct careful_hdr *hdr,
				      uint32_t kind, uint32_t frame_bytes,
				      const struct careful_datagram *datagram)
{
	uint32_t slot = be16toh(hdr->src_node);
	struct careful_peer_entry *peer;
	enum careful_xdp_counter verdict;

	if (slot >= sim->peers_count)
		return CAREFUL_XDP_DROP_NODE;
	peer = &sim->peers[slot];
	switch (kind) {
	case CAREFUL_FRAME_SEALED:
		verdict = careful_frame_admit_sealed(peer, hdr, frame_bytes);
		break;
	case CAREFUL_FRAME_GROUP:
		if (peer->cookie != be64toh(hdr->cookie))
			return admit_group(sim, hdr, frame_bytes, datagram);
		__attribute__((fallthrough));
	default: /* plain */
		verdict = careful_frame_admit(peer, hdr, frame_bytes);
	}
	if (hdr->type >= CAREFUL_PING && careful_frame_is_valid(verdict))
		careful_frame_stamp(peer, hdr, sim->nic.ops->now_ns(&sim->nic), 0);
	return verdict;
}

/* Returns the verdict on a frame. */
enum careful_xdp_counter sim_xdp(struct sim_device *sim, const uint8_t *frame, uint32_t bytes)
{
	struct careful_datagram datagram;
	enum careful_xdp_counter verdict;
	struct careful_hdr hdr;
	uint32_t body_bytes, kind;

	if (!careful_frame_find(frame, frame + bytes, bytes, &datagram) ||
	    datagram.port != CAREFUL_PORT_DEFAULT)
		return CAREFUL_XDP_PASS_OTHER;
	if (datagram.at + 2 > datagram.end)
		return CAREFUL_XDP_DROP_SHORT;
	if (datagram.at[1] & CAREFUL_CTRL_BIT)
		return CAREFUL_XDP_PASS_CONTROL;
	verdict = careful_frame_readable(&datagram);
	if (verdict != CAREFUL_XDP_ADMITTED)
		return verdict;
	memcpy(&hdr, datagram.at, sizeof(hdr));
	body_bytes = datagram.bytes - (uint32_t)sizeof(hdr);
	kind = careful_frame_classify(&hdr, body_bytes);
	if (kind < CAREFUL_FRAME_PLAIN)
		return kind;
	verdict = admit(sim, &hdr, kind, bytes, &datagram);
	if (verdict == CAREFUL_XDP_ADMITTED && sim->arrivals.cookie)
		careful_frame_record(&sim->arrivals, &hdr, body_bytes,
				     sim->nic.ops->now_ns(&sim->nic));
	return verdict;
}
