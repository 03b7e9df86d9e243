// SPDX-License-Identifier: BSD-2-Clause
/* Sends pings (P1 section 6), and answers those of peers that do not end at XDP: a ping to HOST_RX
 * on receipt, a ping to STORE after a write. It writes one ping of each peer at a time. */
#include <endian.h>
#include <errno.h>
#include <stddef.h>

#include "engine/engine.h"

static void submit(struct careful *c, struct ping_slot *slot);

void engine_scratch(struct careful *c, int fd, uint8_t scratch)
{
	c->scratch_fd = fd;
	c->scratch = scratch;
	for (uint32_t i = 0; fd >= 0 && i < c->link.peers_max; i++) {
		if (!c->pings[i].waiting)
			continue;
		c->pings[i].host_ns = c->port->ops->now_ns(c->port);
		submit(c, &c->pings[i]);
	}
}

uint64_t engine_scratch_asked(const struct careful *c)
{
	return c->scratch_asked;
}

int own_ping(struct careful *c, uint32_t index, const struct careful_ping_ask *ask,
	     careful_ping_fn *done, void *user)
{
	struct link_peer *peer = engine_peer(c, index);
	int rc;

	if (!peer)
		return -ENOENT;
	/* Data goes first: pings would use up the credits for which a large frame waits. */
	if (c->pings[index].done ||
	    (ask->stage != CAREFUL_STAGE_NET_RX && c->messages.peers[index].messages))
		return -EAGAIN;
	rc = link_ping_ask(peer, ask);
	if (rc)
		return rc;
	c->pings[index].done = done;
	c->pings[index].user = user;
	return 0;
}

/* Reports ended pings, even if the peer's slot now belongs to another host. */
void ping_finish(struct careful *c)
{
	for (uint32_t i = 0; i < c->link.peers_max; i++) {
		struct careful_ping_result result = { .status = -ECONNRESET };
		careful_ping_fn *done = c->pings[i].done;

		if (!link_ping_ended(&c->link.peers[i], &result))
			continue;
		c->pings[i].done = NULL;
		if (!done)
			continue;
		c->callbacks++;
		done(&result, c->pings[i].user);
	}
}

void ping_forget(struct careful *c, engine_match_fn *match, const void *of)
{
	for (uint32_t i = 0; i < c->link.peers_max; i++)
		if (c->pings[i].done && match(c->pings[i].user, of))
			link_ping_forget(&c->link.peers[i]);
}

static __be32 ns32(uint64_t ns)
{
	return htobe32(ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX);
}

static uint64_t now_ns(const struct careful *c)
{
	return c->port->ops->now_ns(c->port);
}

static void finish_write(struct ping_slot *slot, bool at_once)
{
	struct careful *c = slot->c;
	uint64_t end_ns = now_ns(c), from_ns = slot->host_ns;

	if (slot->io.result == (int64_t)slot->io.bytes) {
		slot->answer.stage = CAREFUL_STAGE_STORE;
		slot->answer.store_ns = ns32(end_ns - slot->host_ns);
		slot->answer.store_inline = at_once;
		from_ns = end_ns;
	}
	if (slot->epoch == slot->peer->epoch)
		link_ping_answer(slot->peer, slot->frag_off, &slot->answer, from_ns, now_ns(c));
	link_unhold(&c->link, slot->kept);
	slot->kept = NULL;
}

static void on_written(struct storage_io *io)
{
	finish_write((struct ping_slot *)((uint8_t *)io - offsetof(struct ping_slot, io)), false);
}

static void submit(struct careful *c, struct ping_slot *slot)
{
	int rc;

	slot->waiting = false;
	slot->io.fd = c->scratch_fd;
	rc = c->storage->ops->submit(c->storage, &slot->io);
	if (rc == 0)
		return;
	if (rc < 0)
		slot->io.result = rc;
	finish_write(slot, true);
}

/* Writes the ping's payload to the scratch file, now or once that file is open. */
static void store(struct careful *c, struct ping_slot *slot, struct link_rxframe *frame)
{
	c->scratch_asked++;
	slot->c = c;
	slot->peer = frame->peer;
	slot->epoch = frame->epoch;
	slot->kept = link_hold(&c->link, frame, false);
	slot->io = (struct storage_io){
		.write = true,
		.iov_count = 1,
		.bytes = frame->body_bytes,
		.done = on_written,
		.iov = &slot->iov,
	};
	slot->iov = (struct iovec){ (void *)frame->body, frame->body_bytes };
	slot->waiting = c->scratch_fd < 0;
	if (!slot->waiting)
		submit(c, slot);
}

static bool is_intact(const struct link_rxframe *frame)
{
	return frame->segments == 1 && frame->body_bytes == frame->body_total &&
	       (!frame->body_bytes || frame->checked ||
		be32toh(frame->hdr.payload_crc) == link_crc32c(frame->body, frame->body_bytes));
}

void ping_receive(struct careful *c, struct link_rxframe *frame)
{
	struct link_peer *peer = frame->peer;
	struct ping_slot *slot = &c->pings[peer->slot];
	struct ping_seen probed;
	uint64_t host_ns;

	if (link_stale(frame)) {
		link_release(&c->link, frame);
		return;
	}
	if (!is_intact(frame)) {
		link_count(&c->link, CAREFUL_C_DROP_CRC);
		link_release(&c->link, frame);
		link_break(peer);
		return;
	}
	host_ns = now_ns(c);
	link_placed(frame);
	c->port->ops->probed(c->port, peer->slot, &probed);
	/* The peer waits only for its latest ping. So it needs no answer if XDP has recorded a
	 * later ping, or if its earlier ping is still being written. */
	if (probed.probe != be32toh(frame->hdr.msg_id) || slot->kept) {
		link_count(&c->link, CAREFUL_C_PINGS_LATE);
		link_release(&c->link, frame);
		return;
	}
	slot->host_ns = host_ns;
	slot->frag_off = frame->hdr.frag_off;
	slot->answer = (struct careful_ping_answer){
		.stage = CAREFUL_STAGE_HOST_RX,
		.probe = frame->hdr.msg_id,
		.arrived_ns = htobe64(probed.at_ns),
		.host_rx_ns = ns32(host_ns - probed.at_ns),
		.scratch = c->scratch,
		.net_cpu = htobe16((uint16_t)probed.net_cpu),
		.host_cpu = htobe16((uint16_t)probed.cpu),
	};
	if (frame->hdr.stage_limit == CAREFUL_STAGE_STORE && c->scratch != CAREFUL_SCRATCH_NONE &&
	    frame->body_bytes) {
		store(c, slot, frame);
		return;
	}
	link_ping_answer(peer, slot->frag_off, &slot->answer, host_ns, now_ns(c));
	link_release(&c->link, frame);
}
