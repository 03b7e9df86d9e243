// SPDX-License-Identifier: BSD-2-Clause
/*
 * What ebpf/careful.bpf.c does with a frame, on a virtual device: the same rule (frame.h),
 * asked in the same order. Calls nobody.
 */
#include "device/sim_private.h"

#include <endian.h>
#include <string.h>

#include <careful/frame.h>

static enum careful_xdp_counter admit(struct sim_device *sim, const struct careful_hdr *hdr,
				      uint32_t frame_bytes)
{
	uint32_t slot = be16toh(hdr->src_node);
	enum careful_xdp_counter verdict;

	if (slot >= sim->peers_count)
		return CAREFUL_XDP_DROP_NODE;
	verdict = careful_frame_admit(&sim->peers[slot], hdr, frame_bytes);
	if (hdr->type >= CAREFUL_PING && careful_frame_right(verdict))
		careful_frame_stamp(&sim->peers[slot], hdr, sim->nic.ops->now_ns(&sim->nic), 0);
	return verdict;
}

/* What becomes of a frame. */
enum careful_xdp_counter sim_xdp(struct sim_device *sim, const uint8_t *frame, uint32_t bytes)
{
	struct careful_datagram datagram;
	enum careful_xdp_counter verdict;
	struct careful_hdr hdr;

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
	verdict = careful_frame_judge(&hdr, datagram.bytes - (uint32_t)sizeof(hdr));
	if (!careful_frame_right(verdict))
		return verdict;
	return admit(sim, &hdr, bytes);
}
