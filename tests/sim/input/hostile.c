// SPDX-License-Identifier: BSD-2-Clause
/*
 * A node that lies for a while. Its messages are well formed, with the right cookie and CRC, but a
 * seed sets some fields of headers, messages and control messages. If the node has keys, it proves
 * and seals three of four lies; the fourth is a forgery. Then the node is killed, and an honest one
 * takes its place.
 */
#include "cluster.h"

#include <endian.h>
#include <string.h>

#include "proof.h"

enum { STREAM_LIES = 0x5000, STREAM_RATE, STREAM_PROVES };

enum { DEAD_NS = 10 * 1000 * 1000 };

static uint64_t draw(struct cluster *cluster)
{
	return sim_hash(cluster->scenario.seed, STREAM_LIES, cluster->draws++);
}

/* Fields that a liar can set. Cookie and slot stay, since they find the session. */
struct field {
	uint16_t at, bytes;
};

#define FIELD(type, name)                                                        \
	{                                                                        \
		offsetof(struct type, name), sizeof(((struct type *)NULL)->name) \
	}

static const struct field header[] = {
	FIELD(careful_hdr, flags),    FIELD(careful_hdr, stage_limit),
	FIELD(careful_hdr, seq),      FIELD(careful_hdr, credits),
	FIELD(careful_hdr, msg_id),   FIELD(careful_hdr, msg_bytes),
	FIELD(careful_hdr, frag_off), FIELD(careful_hdr, frag_bytes),
	FIELD(careful_hdr, extra),    FIELD(careful_hdr, type),
};

static const struct field message[] = {
	FIELD(careful_am, kind),  FIELD(careful_am, flags),	 FIELD(careful_am, handler),
	FIELD(careful_am, token), FIELD(careful_am, region),	 FIELD(careful_am, status),
	FIELD(careful_am, bytes), FIELD(careful_am, region_off), FIELD(careful_am, next),
};

static const struct field control[] = {
	FIELD(careful_ctrl, type),
	FIELD(careful_ctrl, nonce),
	FIELD(careful_ctrl, token),
	FIELD(careful_ctrl, cookie),
	FIELD(careful_ctrl, incarnation),
	FIELD(careful_ctrl, slot),
	FIELD(careful_ctrl, queue),
	FIELD(careful_ctrl, terms.window),
	FIELD(careful_ctrl, terms.buffer_bytes),
	FIELD(careful_ctrl, terms.protocol),
	FIELD(careful_ctrl, terms.frame_bytes),
	FIELD(careful_ctrl, terms.seal),
	FIELD(careful_ctrl, terms.cipher),
	FIELD(careful_ctrl, terms.reserve),
	FIELD(careful_ctrl, terms.lost),
	FIELD(careful_ctrl, terms.hold_ms),
};

/* Changes a big-endian number: by one, to zero, to the maximum, or to anything. */
static void alter(struct cluster *cluster, uint8_t *base, const struct field *fields, size_t n)
{
	const struct field *field = &fields[draw(cluster) % n];
	uint8_t *at = base + field->at;
	uint64_t random = draw(cluster);

	switch (draw(cluster) % 5) {
	case 0:
		at[field->bytes - 1]++;
		break;
	case 1:
		at[field->bytes - 1]--;
		break;
	case 2:
		memset(at, 0, field->bytes);
		break;
	case 3:
		memset(at, 0xff, field->bytes);
		break;
	default:
		memcpy(at, &random, field->bytes < sizeof(random) ? field->bytes : sizeof(random));
	}
}

/* Returns the liar's peer at a port, or NULL. */
static struct link_peer *known_at(const struct cluster *cluster, uint32_t from, uint32_t to)
{
	struct careful *c = cluster->nodes[from].c;
	union address address;

	if (!c)
		return NULL;
	sim_address(cluster->world, to, &address);
	return link_peer_find(&c->link, &address);
}

/* Changes a header and its body of this many bytes. */
static void lie_in_plain(struct cluster *cluster, uint8_t *frame, uint32_t body)
{
	struct careful_hdr hdr;
	uint32_t covered;

	memcpy(&hdr, frame, sizeof(hdr));
	covered = hdr.flags & CAREFUL_F_BULK ? MESSAGE_AM_BYTES : body;
	if (hdr.type == CAREFUL_DATA && hdr.flags & CAREFUL_F_FIRST && body >= MESSAGE_AM_BYTES &&
	    draw(cluster) % 2) {
		alter(cluster, frame + sizeof(hdr), message, sizeof(message) / sizeof(message[0]));
		hdr.payload_crc = htobe32(link_crc32c(frame + sizeof(hdr), covered));
	} else {
		alter(cluster, (uint8_t *)&hdr, header, sizeof(header) / sizeof(header[0]));
	}
	hdr.check = 0;
	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(frame, &hdr, sizeof(hdr));
}

/* Checks that these keys prove the true message with the same bytes. If not, no lie would be
 * accepted. */
static void compare(struct cluster *cluster, const void *told, const void *again, uint32_t bytes)
{
	cluster->unlike += memcmp(told, again, bytes) != 0;
}

/* Changes a sealed frame and seals it again, under its own number or the next. Returns false,
 * without a change, if the frame is not sealed or its epoch has ended. */
static bool lie_in_sealed(struct cluster *cluster, const struct link_peer *peer, uint8_t *frame,
			  uint32_t bytes)
{
	uint8_t plain[SIM_FRAME_BYTES], again[SIM_FRAME_BYTES];
	const struct seal *seal = peer->session->seal;
	struct careful_seal_end end;
	uint32_t body, beside = LINK_HDR_BYTES;

	if (frame[0] != CAREFUL_WIRE_SEALED || !seal || !seal->out.cipher ||
	    bytes < LINK_HDR_BYTES + sizeof(end))
		return false;
	body = bytes - LINK_HDR_BYTES - (uint32_t)sizeof(end);
	beside += seal->mode == CAREFUL_SEAL_AUTH ? body : 0;
	memcpy(plain, frame, bytes);
	memcpy(&end, plain + LINK_HDR_BYTES + body, sizeof(end));
	if (!aead_open(&seal->out, be64toh(end.count), plain, beside, plain + beside,
		       LINK_HDR_BYTES + body - beside, end.tag))
		return false;
	memcpy(again, plain, bytes);
	aead_seal(&seal->out, be64toh(end.count), again, beside, again + beside,
		  LINK_HDR_BYTES + body - beside, again + bytes - sizeof(end.tag));
	compare(cluster, frame, again, bytes);
	if (draw(cluster) % 16)
		lie_in_plain(cluster, plain, body);
	else
		alter(cluster, (uint8_t *)&end, &(struct field)FIELD(careful_seal_end, count), 1);
	end.count = end.count ? end.count : htobe64(1); /* none is sealed as 0 */
	aead_seal(&seal->out, be64toh(end.count), plain, beside, plain + beside,
		  LINK_HDR_BYTES + body - beside, end.tag);
	memcpy(plain + LINK_HDR_BYTES + body, &end, sizeof(end));
	memcpy(frame, plain, bytes);
	return true;
}

static void lie_in_control(struct cluster *cluster, uint8_t *bytes)
{
	struct careful_ctrl ctrl;

	memcpy(&ctrl, bytes, sizeof(ctrl));
	alter(cluster, (uint8_t *)&ctrl, control, sizeof(control) / sizeof(control[0]));
	ctrl.check = 0;
	ctrl.check = htobe32(careful_ctrl_check(&ctrl));
	memcpy(bytes, &ctrl, sizeof(ctrl));
}

/* Proves a changed message with the keys of its new type. Returns false if there are none. */
static bool prove(const struct cluster *cluster, uint32_t from, struct link_peer *peer,
		  struct careful_proved *proved)
{
	const struct link *link = &cluster->nodes[from].c->link;
	struct keyed *keyed = &peer->session->keyed;
	const struct keys_trusted *trusted = NULL;

	if (!proof_static(proved->ctrl.type)) {
		if (!proved->count)
			proved->count = htobe64(++keyed->said);
		proof_mac(keyed->say_key, proved, offsetof(struct careful_proved, mac), NULL,
			  proved->mac);
		return keyed->proves;
	}
	/* If there are several keys, the last one is its host's (keys.c). */
	proved->count = 0;
	while ((trusted = keys_find(&link->keys, &peer->session->address, trusted)))
		proof_mac(trusted->mac_key, proved, offsetof(struct careful_proved, mac),
			  trusted->pair.ours, proved->mac);
	return true;
}

/* Changes the sealed part of a HELLO, consistently until the handshake ends. Returns false for
 * other messages. */
static bool lie_in_hello(struct cluster *cluster, struct keyed *keyed, struct careful_keyed *hello)
{
	enum { OPEN_FIELDS = 4 }; /* control messages, which come before sealed ones */
	struct {
		uint8_t name[7], version;
		__be64 nonce, token;
	} prologue = { { 'c', 'a', 'r', 'e', 'f', 'u', 'l' },
		       CAREFUL_WIRE_VERSION,
		       hello->nonce,
		       hello->token };
	uint8_t public[NOISE_KEY_BYTES], sealed[sizeof(hello->sealed)];
	struct noise ours, theirs, again;
	struct careful_ctrl ctrl;

	if (hello->type != CAREFUL_HELLO || memcmp(hello, &keyed->message, sizeof(*hello)) != 0)
		return false;
	noise_begin(&ours, &keyed->noise.pair, true, &prologue, sizeof(prologue));
	if (noise_write(&ours, keyed->noise.e, public))
		return false;
	theirs = again = ours;
	if (noise_open(&theirs, hello->sealed, sizeof(hello->sealed), &ctrl.incarnation))
		return false;
	noise_seal(&again, &ctrl.incarnation, CAREFUL_SEALED_BYTES, sealed);
	compare(cluster, hello->sealed, sealed, sizeof(sealed));
	alter(cluster, (uint8_t *)&ctrl, control + OPEN_FIELDS,
	      sizeof(control) / sizeof(control[0]) - OPEN_FIELDS);
	noise_seal(&ours, &ctrl.incarnation, CAREFUL_SEALED_BYTES, hello->sealed);
	keyed->noise = ours;
	return true;
}

static void prove_handshake(const struct keyed *keyed, struct careful_keyed *message)
{
	message->check = 0;
	memset(message->mac, 0, sizeof(message->mac));
	proof_mac(keyed->mac_key, message, sizeof(*message), NULL, message->mac);
	message->check = htobe32(careful_message_check(message, sizeof(*message)));
}

/* Changes a handshake message. A WELCOME keeps its seal, since its keys are gone. */
static void lie_in_handshake(struct cluster *cluster, const struct link_peer *peer, uint8_t *bytes)
{
	static const struct field fields[] = {
		FIELD(careful_keyed, type),   FIELD(careful_keyed, nonce),
		FIELD(careful_keyed, token),  FIELD(careful_keyed, ephemeral),
		FIELD(careful_keyed, sealed),
	};
	struct keyed *keyed = &peer->session->keyed;
	struct careful_keyed message;
	bool inside;

	memcpy(&message, bytes, sizeof(message));
	prove_handshake(keyed, &message);
	compare(cluster, bytes, &message, sizeof(message));
	inside = draw(cluster) % 4 && lie_in_hello(cluster, keyed, &message);
	if (!inside)
		alter(cluster, (uint8_t *)&message, fields, sizeof(fields) / sizeof(fields[0]));
	prove_handshake(keyed, &message);
	if (inside)
		keyed->message = message;
	memcpy(bytes, &message, sizeof(message));
}

/* Proves a lie with the node's keys. Returns its kind, or -1 if nothing of it can be proved. */
static int lie_proved(struct cluster *cluster, uint32_t from, uint32_t to, bool is_control,
		      uint8_t *what, uint32_t bytes)
{
	struct link_peer *peer = known_at(cluster, from, to);
	struct careful_proved proved;

	if (!peer || !cluster->nodes[from].c->link.keyed)
		return -1;
	if (!is_control)
		return lie_in_sealed(cluster, peer, what, bytes) ? LIE_SEALED : -1;
	if (bytes == sizeof(struct careful_keyed)) {
		lie_in_handshake(cluster, peer, what);
		return LIE_HANDSHAKE;
	}
	if (bytes != sizeof(proved))
		return -1;
	memcpy(&proved, what, sizeof(proved));
	if (prove(cluster, from, peer, &proved))
		compare(cluster, what, &proved, sizeof(proved));
	if (draw(cluster) % 16)
		lie_in_control(cluster, (uint8_t *)&proved.ctrl);
	else
		alter(cluster, (uint8_t *)&proved, &(struct field)FIELD(careful_proved, count), 1);
	if (!prove(cluster, from, peer, &proved))
		return -1;
	memcpy(what, &proved, sizeof(proved));
	return LIE_CONTROL;
}

bool hostile_still(const struct cluster *cluster, uint32_t port)
{
	return cluster->scenario.hostile >> port & 1 &&
	       sim_now_ns(cluster->world) <= cluster->scenario.lies_end_ns;
}

static enum sim_said lie(void *user, uint32_t from, uint32_t to, bool is_control, void *what,
			 uint32_t bytes)
{
	struct cluster *cluster = user;
	const struct scenario *s = &cluster->scenario;
	uint32_t one_in = 1 + (uint32_t)(sim_hash(s->seed, STREAM_RATE, 0) % 12);
	int kind = -1;

	if (!hostile_still(cluster, from))
		return SIM_SAID;
	if (misdeeds_silent(cluster) ||
	    (!is_control && misdeeds_mute(&cluster->nodes[from], to, what, bytes)))
		return SIM_UNSAID;
	if (draw(cluster) % one_in ||
	    bytes < (is_control ? sizeof(struct careful_ctrl) : sizeof(struct careful_hdr)))
		return SIM_SAID;
	cluster->lies++;
	if (cluster->proves_all || sim_hash(s->seed, STREAM_PROVES, cluster->lies) % 4)
		kind = lie_proved(cluster, from, to, is_control, what, bytes);
	if (kind >= 0)
		cluster->lies_proved[kind]++;
	else if (cluster->proves_all)
		return SIM_SAID;
	else if (is_control)
		lie_in_control(cluster, what);
	else
		lie_in_plain(cluster, what, bytes - (uint32_t)sizeof(struct careful_hdr));
	return SIM_SAID_OTHERWISE;
}

void hostile_make(struct scenario *s, uint32_t port, uint32_t until_ms)
{
	struct sim_fault *end = &s->faults[s->faults_count];

	s->hostile = 1u << port;
	s->lies_end_ns = until_ms * 1000000ull;
	s->config.on_send = lie;
	*end = (struct sim_fault){
		.kind = FAULT_KILL,
		.to = (uint8_t)port,
		.what = SIM_ALL,
		.one_in = 1,
		.amount = 1,
		.id = s->faults_count++,
		.at_ns = s->lies_end_ns,
		.until_ns = s->lies_end_ns + DEAD_NS,
	};
}
