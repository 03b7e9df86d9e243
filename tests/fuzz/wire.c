// SPDX-License-Identifier: BSD-2-Clause
/* Makes a peer's frames and control messages, corrupted by the input. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "node.h"

enum {
	BODY_MAX = 1200,
};

static void push_ctrl(struct node *node, uint32_t host, const void *data, int32_t bytes)
{
	uint32_t at = (node->ctrl_first + node->ctrl_count) % NODE_CTRL;

	if (node->ctrl_count == NODE_CTRL)
		return;
	node->ctrl_count++;
	node->ctrl[at].from = node_host(host);
	node->ctrl[at].from.ours[3] = node->ours;
	node->ctrl[at].bytes = bytes;
	if (bytes > 0)
		memcpy(node->ctrl[at].data, data, (size_t)bytes);
}

/* A control message of any form. */
union made {
	struct careful_ctrl ctrl;
	struct careful_proved proved;
	struct careful_keyed keyed;
};

static int32_t make(struct node *node, uint32_t host, struct careful_ctrl *ctrl, union made *made)
{
	if (!node->c->link.keyed) {
		ctrl->check = 0;
		ctrl->check = htobe32(careful_ctrl_check(ctrl));
		made->ctrl = *ctrl;
		return sizeof(made->ctrl);
	}
	if (ctrl->type == CAREFUL_WELCOME || (ctrl->type == CAREFUL_HELLO && ctrl->token)) {
		made->keyed = node_key(node, host, ctrl);
		return sizeof(made->keyed);
	}
	made->proved = node_prove(node, host, ctrl);
	return sizeof(made->proved);
}

void node_hear(struct node *node, uint32_t host, struct careful_ctrl *ctrl)
{
	union made made;
	int32_t bytes = make(node, host, ctrl, &made);

	push_ctrl(node, host, &made, bytes);
}

/* Describes the sender in a HELLO or WELCOME. */
static void describe(struct careful_ctrl *ctrl, uint32_t host)
{
	ctrl->cookie = htobe64(0x1000 + host);
	ctrl->terms.window = htobe32(NODE_RX / NODE_PEERS);
	ctrl->terms.buffer_bytes = htobe32(NODE_BUFFER);
	ctrl->terms.frame_bytes = htobe32(NODE_FRAME);
	ctrl->terms.protocol = htobe32(CAREFUL_SAYS_REPAIRS);
	ctrl->incarnation = htobe64(host + 1);
}

/* Describes the sealing that the instance wants. */
static void describe_seal(const struct node *node, struct careful_ctrl *ctrl, uint32_t host)
{
	const union address address = node_host(host);

	ctrl->terms.seal = htobe32(seal_rules_mode(&node->c->link.seal_rules, &address));
	ctrl->terms.cipher = htobe32(ctrl->terms.seal ? CAREFUL_CIPHER_CHACHA20_POLY1305 : 0);
}

struct careful_ctrl node_hello(uint32_t host)
{
	struct careful_ctrl hello = {
		.version = CAREFUL_WIRE_VERSION,
		.type = CAREFUL_HELLO,
		.bytes = htobe16(sizeof(hello)),
		.nonce = htobe64(100 + host),
	};

	describe(&hello, host);
	return hello;
}

void node_tell(struct node *node, uint32_t host, struct careful_ctrl *ctrl)
{
	node_hear(node, host, ctrl);
	node_time(node, 1);
}

/* Proves that a host with sealed frames has the keys. */
static void show_keys(struct node *node, uint32_t host, const struct link_peer *peer)
{
	struct careful_ctrl sync = {
		.version = CAREFUL_WIRE_VERSION,
		.type = CAREFUL_SYNC,
		.counts.question = htobe32(CAREFUL_SYNC_HEARD),
		.nonce = htobe64(1),
		.cookie = htobe64(peer->cookie_in),
	};

	node_tell(node, host, &sync);
}

bool node_ask(struct node *node, uint32_t host, struct careful_ctrl *hello)
{
	const union address address = node_host(host);
	struct link_peer *peer;

	node_tell(node, host, hello);
	hello->token = node->sent[CAREFUL_CHALLENGE & 7].token;
	node_tell(node, host, hello);
	node_time(node, 1);
	peer = link_peer_find(&node->c->link, &address);
	if (peer && seal_waits(peer))
		show_keys(node, host, peer);
	return peer && peer->phase == LINK_OPEN;
}

bool node_session(struct node *node, uint32_t host)
{
	struct careful_ctrl hello = node_hello(host);

	describe_seal(node, &hello, host);
	return node_ask(node, host, &hello);
}

void node_call(struct node *node)
{
	const union address to = node_host(0);

	MUST(careful_peer(node->c, &to.sa, sizeof(to.in)) == 0);
	node_time(node, 1);
	MUST(node->last.type == CAREFUL_HELLO);
}

void node_challenge(struct node *node, struct careful_ctrl *answer, uint64_t token)
{
	answer->nonce = node->last.nonce;
	answer->type = CAREFUL_CHALLENGE;
	answer->token = htobe64(token);
	node_tell(node, 0, answer);
}

void node_welcome(struct node *node, struct careful_ctrl *answer)
{
	answer->type = CAREFUL_WELCOME;
	node_tell(node, 0, answer);
}

/* Returns a control message that the instance accepts in its state. */
static struct careful_ctrl valid_ctrl(struct node *node, uint32_t host, uint8_t type)
{
	const union address address = node_host(host);
	const struct link_peer *peer = link_peer_find(&node->c->link, &address);
	struct careful_ctrl ctrl = {
		.version = CAREFUL_WIRE_VERSION,
		.type = type,
		.bytes = htobe16(sizeof(ctrl)),
	};

	switch (type) {
	case CAREFUL_HELLO:
		ctrl.nonce = node->sent[CAREFUL_CHALLENGE & 7].nonce;
		ctrl.token = node->sent[CAREFUL_CHALLENGE & 7].token;
		break;
	case CAREFUL_CHALLENGE:
		ctrl.token = htobe64(77);
		/* fallthrough */
	case CAREFUL_WELCOME:
	case CAREFUL_REFUSE:
		ctrl.nonce = node->sent[CAREFUL_HELLO & 7].nonce;
		break;
	case CAREFUL_TRAIN_ASK:
		ctrl.nonce = htobe64(1 + host);
		break;
	case CAREFUL_TRAIN_SENT:
		ctrl.nonce = node->train.nonce;
		break;
	default:
		ctrl.nonce = node->sent[CAREFUL_SYNC & 7].nonce;
	}
	describe(&ctrl, host);
	describe_seal(node, &ctrl, host);
	if (peer && type >= CAREFUL_SYNC) {
		ctrl.cookie = htobe64(peer->cookie_in);
		ctrl.counts.seq_sent = htobe32(peer->flow.seq_in);
		ctrl.counts.seq_rcvd = htobe32(peer->flow.seq_out);
		ctrl.counts.returned = htobe32(peer->flow.tx.sent);
	}
	return ctrl;
}

/* Changes a few bytes. */
static void corrupt(struct input *in, uint8_t *data, uint32_t bytes)
{
	for (uint32_t n = take8(in) & 3; n && bytes; n--) {
		uint32_t at = take8(in) % bytes;

		data[at] ^= take8(in);
	}
}

/* Delivers a message that is corrupted after its proof and before its check. */
static void deliver_corrupted(struct node *node, struct input *in, uint32_t host,
			      struct careful_ctrl *ctrl)
{
	union made made;
	int32_t bytes = make(node, host, ctrl, &made);

	corrupt(in, (uint8_t *)&made, (uint32_t)bytes);
	made.ctrl.check = 0;
	made.ctrl.check = bytes == sizeof(made.keyed) ?
				  htobe32(careful_message_check(&made, sizeof(made.keyed))) :
				  htobe32(careful_ctrl_check(&made.ctrl));
	push_ctrl(node, host, &made, bytes);
}

void node_ctrl(struct node *node, struct input *in)
{
	uint8_t what = take8(in);
	uint32_t host = what >> 3 & 3;
	uint8_t type = CAREFUL_CTRL_BIT | (what & 7);
	struct careful_ctrl ctrl;

	if (what & 0x80)
		type = CAREFUL_TRAIN_ASK + (what & 7) % 4;
	ctrl = valid_ctrl(node, host, type);
	if (what & 0x80 || host == 2)
		ctrl.train.hold_ms = htobe32(take16(in));
	if (type == CAREFUL_MISSING) { /* all of our last frames */
		ctrl.missing.last = ctrl.counts.seq_rcvd;
		ctrl.missing.before = ctrl.missing.seq_rcvd =
			htobe32(be32toh(ctrl.missing.last) - (take8(in) & 31));
		memset(ctrl.missing.arrived, 0, sizeof(ctrl.missing.arrived));
	}

	if (what & 0x20)
		ctrl.nonce = htobe64(take16(in));
	if (what & 0x40)
		corrupt(in, (uint8_t *)&ctrl, sizeof(ctrl));
	if (node->c->link.keyed && what & 0x20)
		deliver_corrupted(node, in, host, &ctrl);
	else
		node_hear(node, host, &ctrl);
}

/* Delivers ICMP port unreachable; it quotes the last message, a frame's cookie, or neither. */
static void node_refuse(struct node *node, struct input *in, uint8_t what)
{
	uint32_t at = (node->ctrl_first + node->ctrl_count) % NODE_CTRL;
	const struct careful_hdr frame = {
		.type = CAREFUL_DATA,
		.cookie = htobe64(node->c->link.peers[what >> 2 & 1].cookie_out),
	};
	uint8_t *quoted = node->ctrl[at].data;

	if (node->ctrl_count == NODE_CTRL)
		return;
	push_ctrl(node, what & 3, NULL, -ECONNREFUSED);
	memset(quoted, 0, sizeof(node->ctrl[at].data));
	if (what & 0x20)
		memcpy(quoted, &node->last, sizeof(node->last));
	else if (what & 0x10)
		memcpy(quoted, &frame, sizeof(frame));
	if (what & 0x40)
		corrupt(in, quoted, sizeof(struct careful_ctrl));
}

void node_raw_ctrl(struct node *node, struct input *in)
{
	uint8_t what = take8(in);
	uint32_t bytes;
	const uint8_t *p;

	if (what & 0x80) {
		node_refuse(node, in, what);
		return;
	}
	p = take_bytes(in, what % (sizeof(struct careful_ctrl) + 1), &bytes);
	push_ctrl(node, what >> 5 & 3, p, (int32_t)bytes);
}

/* Returns the bytes of the slot's bulk message that have arrived. */
static uint32_t received(struct node *node, uint32_t slot, uint32_t msg_id)
{
	const struct message_in *at =
		node->c->messages.slots[slot * MESSAGE_SLOTS + msg_id % MESSAGE_SLOTS];

	return at ? at->received : 0;
}

/* Returns the bytes of the message that have not arrived, at most `most`. */
static uint32_t missing_bytes(struct node *node, uint32_t slot, uint32_t msg_id, uint32_t most)
{
	const struct message_in *at =
		node->c->messages.slots[slot * MESSAGE_SLOTS + msg_id % MESSAGE_SLOTS];

	return at && at->bytes - at->received < most ? at->bytes - at->received : most;
}

/* Returns the token of an operation under way. */
static uint32_t live_token(struct node *node, uint32_t which)
{
	const struct careful *c = node->c;
	uint32_t last = 0;

	for (uint32_t i = 0; i < c->limits.operations; i++) {
		if (c->operations[i].token) {
			last = c->operations[i].token;
			if (!which--)
				break;
		}
	}
	return last;
}

static uint32_t write_am(struct node *node, struct input *in, uint8_t *body, uint32_t *bulk_bytes)
{
	struct careful_am am = { 0 };
	uint8_t what = take8(in);
	uint8_t which = take8(in);
	uint16_t off = take16(in);

	am.kind = what % 7;
	am.flags = what & 0x40 ? CAREFUL_AM_WANT_DIGEST : 0;
	am.handler = htobe16(which & 0x80 ? off : which & 7);
	am.token = htobe32(which & 0x40 ? off : live_token(node, which & 7));
	am.region = htobe32(node->keys[(which >> 4 & 3) % NODE_REGIONS]);
	am.region_off = htobe64(what & 0x80 ? off : off & 0x3f);
	am.bytes = htobe32(take16(in) % (2 * NODE_BYTES));
	am.status = htobe32(what & 0x20 ? off : 0);
	am.next = htobe32((what & 0x38) == 0x18 ? 8 * (off & 31) : 0);
	for (int i = 0; i < CAREFUL_AM_ARGS; i++)
		am.args[i] = htobe32((uint32_t)which << i);
	if (am.kind == CAREFUL_AM_GET_DATA) { /* of the requested length */
		uint32_t token = be32toh(am.token);

		*bulk_bytes = node->c->operations[token % node->c->limits.operations].bytes;
	}
	corrupt(in, (uint8_t *)&am, sizeof(am));
	memcpy(body, &am, sizeof(am));
	return sizeof(am);
}

static void put16(uint8_t *to, uint32_t value)
{
	to[0] = (uint8_t)(value >> 8);
	to[1] = (uint8_t)value;
}

/* Writes Ethernet, IP and UDP before the careful header. */
static uint32_t write_ll(struct input *in, uint8_t what, uint8_t *p, uint32_t body)
{
	uint32_t udp = 8 + LINK_HDR_BYTES + body;
	uint32_t at = 14;

	memset(p, 0, LLHDR_MAX);
	if (what & 1) { /* a VLAN tag */
		p[12] = 0x81;
		at += 4;
	}
	p[at - 2] = what & 2 ? 0x86 : 0x08;
	p[at - 1] = what & 2 ? 0xdd : 0x00;
	if (what & 2) {
		p[at] = 0x60;
		put16(p + at + 4, udp + (what & 4 ? 8 : 0));
		p[at + 6] = what & 4 ? 60 : 17;
		at += 40;
		if (what & 4) { /* destination options */
			p[at] = 17;
			at += 8;
		}
	} else {
		p[at] = 0x45;
		put16(p + at + 2, 20 + udp);
		p[at + 9] = 17;
		at += 20;
	}
	put16(p + at + 4, udp);
	if (what & 8)
		corrupt(in, p, at + 8);
	return at + 8;
}

/* Returns a header with valid numbers for the peer's next frame. */
static struct careful_hdr valid_hdr(const struct node *node, uint32_t slot)
{
	const struct link_peer *peer = &node->c->link.peers[slot];

	return (struct careful_hdr){
		.version = CAREFUL_WIRE_VERSION,
		.type = CAREFUL_DATA,
		.src_node = htobe16((uint16_t)slot),
		.cookie = htobe64(peer->cookie_in),
		.seq = htobe32(peer->flow.seq_in + node->queue.index + 1),
		.credits = htobe32(peer->flow.tx.sent),
	};
}

static uint32_t write_digest(struct node *node, uint32_t slot, uint32_t msg_id, const uint8_t *data,
			     uint32_t bytes, uint8_t *to)
{
	const struct message_in *at =
		node->c->messages.slots[slot * MESSAGE_SLOTS + msg_id % MESSAGE_SLOTS];
	struct xxh3 *hash = xxh3_create();
	__be64 digest;

	if (at && at->digest_wanted)
		XXH3_copyState((XXH3_state_t *)hash, (const XXH3_state_t *)at->hash);
	else
		xxh3_reset(hash);
	xxh3_update(hash, data, bytes);
	digest = htobe64(xxh3_end(hash));
	xxh3_free(hash);
	memcpy(to, &digest, sizeof(digest));
	return sizeof(digest);
}

/* Completes a frame, sealed if the peer's frames are. Returns its length. `corrupt` may change sealed
 * bytes. */
static uint32_t close_frame(struct node *node, struct input *in, uint32_t slot, uint8_t *at,
			    struct careful_hdr *hdr, uint32_t total)
{
	uint32_t end = (uint32_t)sizeof(struct careful_seal_end);

	if (!node->c->link.peers[slot].trailer || hdr->flags & CAREFUL_F_BCAST_EVENT) {
		memcpy(at, hdr, sizeof(*hdr));
		return total;
	}
	hdr->version = CAREFUL_WIRE_SEALED;
	hdr->payload_crc = 0;
	hdr->check = htobe32(careful_hdr_check(hdr));
	memcpy(at, hdr, sizeof(*hdr));
	if (!node_seal(node, slot, at, total))
		return total;
	if (take8(in) % 8 == 7)
		corrupt(in, at + sizeof(*hdr), total + end);
	return total + end;
}

/*
 * Delivers a frame of a peer. The bits of the first byte: FIRST, LAST, BULK, DIGEST, ABORT, an
 * update, a corrupted byte, another slot. Polls at once, or leaves the frame with the device.
 */
void node_frame(struct node *node, struct input *in)
{
	uint8_t what = take8(in), ll = take8(in);
	uint32_t slot = what >> 7 & 1;
	struct careful_hdr hdr = valid_hdr(node, slot);
	uint8_t frame[LLHDR_MAX + 64 + LINK_HDR_BYTES + BODY_MAX], body[BODY_MAX];
	uint32_t msg_id = take8(in), bytes = take16(in) % 900, at = 0, total;
	uint32_t off = received(node, slot, msg_id);
	uint32_t bulk_bytes, start;

	hdr.flags = what & 0x1f & ~CAREFUL_F_BCAST_EVENT;
	if (hdr.flags & CAREFUL_F_LAST && !(hdr.flags & CAREFUL_F_FIRST)) /* of all flags */
		bytes = missing_bytes(node, slot, msg_id, bytes);
	bulk_bytes = off + bytes + (ll & 0x10 ? take16(in) : 0);
	if (what & 0x10)
		hdr.flags |= CAREFUL_F_ABORT;
	if (what & 0x20) {
		hdr.type = CAREFUL_UPDATE;
		hdr.flags = 0;
		bytes = 0;
	}
	if (hdr.flags & CAREFUL_F_FIRST)
		at = write_am(node, in, body, &bulk_bytes);
	memset(body + at, (int)msg_id, bytes);
	total = at + bytes;
	if (hdr.flags & CAREFUL_F_LAST && hdr.flags & CAREFUL_F_DIGEST)
		total += write_digest(node, slot, msg_id, body + at, bytes, body + total);
	hdr.msg_id = htobe32(msg_id);
	hdr.msg_bytes = htobe32(hdr.flags & CAREFUL_F_BULK ? bulk_bytes : bytes);
	hdr.frag_off = htobe32(hdr.flags & CAREFUL_F_BULK ? off : 0);
	hdr.frag_bytes = htobe16((uint16_t)bytes);
	hdr.payload_crc = htobe32(link_crc32c(body, hdr.flags & CAREFUL_F_BULK ? at : total));
	if (what & 0x40)
		corrupt(in, (uint8_t *)&hdr, sizeof(hdr));
	if (!(ll & 0x20))
		hdr.check = htobe32(careful_hdr_check(&hdr));
	start = write_ll(in, ll, frame, total + node->c->link.peers[slot].trailer);
	memcpy(frame + start + sizeof(hdr), body, total);
	total = close_frame(node, in, slot, frame + start, &hdr, total);
	start += (uint32_t)sizeof(hdr) + total;
	node_arrive(node, frame, ll & 0x40 ? start - take8(in) % start : start);
	if (!(ll & 0x80))
		node_poll(node, 1);
}

/*
 * Delivers a store in two or three fragments, correct except for their digest bits. node_frame()
 * delivers corrupted ones.
 */
void node_bulk(struct node *node, struct input *in)
{
	uint8_t how = take8(in), msg_id = take8(in), fill = take8(in), i = 0;
	uint8_t first[] = {
		CAREFUL_F_FIRST | CAREFUL_F_BULK,
		0x10,
		msg_id,
		0,
		fill,
		0,
		2 * fill % 256,
		CAREFUL_AM_STORE,
		7, /* the handler of stores */
		0,
		0,
		0,
		0,
		0, /* careful_am is not corrupted */
	};
	uint8_t middle[] = { CAREFUL_F_BULK, 0x10, msg_id, 0, fill / 2, 0, 0, 0 };
	uint8_t last[] = { CAREFUL_F_BULK | CAREFUL_F_LAST, 0, msg_id, 3, 0x83, 0, 0, 0 };
	struct input fragments[] = { { first, sizeof(first) },
				     { middle, sizeof(middle) },
				     { last, sizeof(last) } };
	uint8_t *flags[] = { first, middle, last };

	for (; i < 3; i++) {
		*flags[i] |= how >> i & 1 ? CAREFUL_F_DIGEST : 0;
		*flags[i] |= how & 0x40 ? 0x80 : 0; /* of the other slot */
		if (i != 1 || how & 8)
			node_frame(node, &fragments[i]);
	}
}

void node_raw_frame(struct node *node, struct input *in)
{
	uint32_t bytes;
	const uint8_t *p = take_bytes(in, take8(in) * 2u, &bytes);

	node_arrive(node, p, bytes);
}

/* Delivers a ping of a peer, passed and stamped by XDP, or in sequence. */
static void ping(struct node *node, struct input *in, uint8_t what, uint32_t slot)
{
	uint8_t frame[LLHDR_MAX + LINK_HDR_BYTES + 320] = { 0 };
	struct careful_hdr hdr = valid_hdr(node, slot);
	uint32_t bytes = what & 0x10 ? 200 : 0, start;

	hdr.type = CAREFUL_PING;
	hdr.stage_limit = what % 6;
	hdr.msg_id = htobe32(node->probed[slot].probe + (what >> 3 & 1));
	hdr.frag_bytes = htobe16((uint16_t)bytes);
	hdr.payload_crc = htobe32(link_crc32c(frame, bytes));
	node->probed[slot].probe = be32toh(hdr.msg_id);
	node->probed[slot].at_ns = node->now_ns - take8(in);
	if (what & 0x20)
		corrupt(in, (uint8_t *)&hdr, sizeof(hdr));
	hdr.check = htobe32(careful_hdr_check(&hdr));
	if (what & 4) {
		push_ctrl(node, slot, &hdr, sizeof(hdr));
		return;
	}
	start = write_ll(in, 0, frame, bytes + node->c->link.peers[slot].trailer);
	bytes = close_frame(node, in, slot, frame + start, &hdr, bytes);
	node_arrive(node, frame, start + (uint32_t)sizeof(hdr) + bytes);
}

/* Ends a ping of the instance, by an answer or ICMP. */
static void ping_end(struct node *node, struct input *in, uint8_t what, uint32_t slot)
{
	const struct link_peer *peer = &node->c->link.peers[slot];
	uint32_t at = (node->ctrl_first + node->ctrl_count) % NODE_CTRL;
	uint32_t host = ntohl(peer->session->address.in.sin_addr.s_addr) - 0x0a000001;
	struct careful_ping_answer answer = {
		.version = CAREFUL_WIRE_VERSION,
		.type = CAREFUL_PING_ANSWER,
		.cookie = htobe64(peer->cookie_in),
		.probe = htobe32(peer->session->ping.last),
		.stage = what & 7,
	};
	struct careful_hdr quoted = {
		.type = CAREFUL_PING,
		.msg_id = htobe32(peer->session->ping.last),
	};

	if (node->c->link.keyed)
		node_prove_answer(node, slot, &answer);
	if (what & 0x20)
		corrupt(in, (uint8_t *)&answer, sizeof(answer));
	answer.check = 0;
	answer.check = htobe32(careful_message_check(&answer, sizeof(answer)));
	if (what & 4) {
		push_ctrl(node, host, &answer, sizeof(answer));
		return;
	}
	if (what & 0x20)
		corrupt(in, (uint8_t *)&quoted, sizeof(quoted));
	push_ctrl(node, host, NULL, -EHOSTUNREACH);
	if (what & 0x10)
		memcpy(node->ctrl[at].data, &quoted, sizeof(quoted));
	else
		memset(node->ctrl[at].data, 0, sizeof(quoted));
}

static void on_ping(const struct careful_ping_result *result, void *user)
{
	struct node *node = user;

	MUST(result->status <= 0 && result->stage <= CAREFUL_STAGE_STORE);
	node->ended++;
}

/* Runs pings of both sides; the engine sends at most one answer for each. */
void node_ping(struct node *node, struct input *in)
{
	uint8_t what = take8(in), more = take8(in);
	struct careful_ping_ask ask = {
		.stage = more & 7,
		.ttl = more >> 5,
		.bytes = take16(in) % 1024,
		.timeout_ms = more,
	};
	uint32_t slot = more >> 2 & 1;

	switch (what >> 6) {
	case 0:
		ping_end(node, in, what, slot);
		break;
	case 1:
		node->begun += careful_ping(node->c, slot, &ask, on_ping, node) == 0;
		break;
	default:
		ping(node, in, what, slot);
	}
}

void node_steps(struct node *node, struct input *in)
{
	uint8_t steps = 0;

	while (in->bytes && steps++ < 200) {
		uint8_t what = take8(in);

		switch (what & 7) {
		case 0:
			node_raw_frame(node, in);
			break;
		case 1:
			node_frame(node, in);
			break;
		case 2:
		case 3:
			node_ctrl(node, in);
			break;
		case 4:
			node_raw_ctrl(node, in);
			break;
		case 5:
			node_time(node, 1u << (what >> 4));
			break;
		case 6:
			node_operation(node, in);
			break;
		default:
			if (what & 0x40)
				node_ping(node, in);
			else
				node_device(node, in);
		}
		node_poll(node, what >> 3 & 1);
	}
}
