// SPDX-License-Identifier: BSD-2-Clause
/*
 * Makes messages of peers with keys. It uses the hosts' private keys and the instance's session
 * keys, so the messages are authentic.
 */
#include <endian.h>
#include <sodium.h>

#include <careful/frame.h>

#include "node.h"
#include "proof.h"

/* Host 2 has the key of host 0, like a host with several addresses. */
static void private_key(uint32_t host, uint8_t *key)
{
	memset(key, 0x40 + (host == 2 ? 0 : (int)host), NOISE_KEY_BYTES);
}

static void public_key(uint32_t host, uint8_t *key)
{
	uint8_t private[NOISE_KEY_BYTES];

	private_key(host, private);
	MUST(crypto_scalarmult_base(key, private) == 0);
}

/* Returns the pair of a host's key with the instance's, which has the number NODE_HOSTS. */
static const struct noise_pair *host_pair(uint32_t host)
{
	static const uint8_t none[NOISE_KEY_BYTES];
	static struct noise_pair pairs[NODE_HOSTS];
	static bool made;
	uint8_t private[NOISE_KEY_BYTES], public[NOISE_KEY_BYTES];

	for (uint32_t i = 0; !made && i < NODE_HOSTS; i++) {
		private_key(i, private);
		public_key(NODE_HOSTS, public);
		MUST(noise_pair_init(&pairs[i], private, public, none) == 0);
	}
	made = true;
	return &pairs[host % NODE_HOSTS];
}

/* Trusts each host at its address. The multiplication is done once. */
void node_trust(struct node *node)
{
	static struct keys_trusted trusted[NODE_HOSTS];
	struct keys *keys = &node->c->link.keys;
	uint8_t private[NOISE_KEY_BYTES], public[NOISE_KEY_BYTES];
	static const uint8_t none[NOISE_KEY_BYTES];
	static bool made;

	private_key(NODE_HOSTS, private);
	for (uint32_t i = 0; !made && i < NODE_HOSTS; i++) {
		const union address at = node_host(i);

		public_key(i, public);
		MUST(keys_trust(keys, &at, private, public, none) == 0);
	}
	if (!made)
		memcpy(trusted, keys->trusted, sizeof(trusted));
	else
		keys->trusted = malloc(sizeof(trusted));
	MUST(keys->trusted);
	memcpy(keys->trusted, trusted, sizeof(trusted));
	keys->count = NODE_HOSTS;
	made = true;
	node->c->link.keyed = true;
}

static const struct keys_trusted *trusted_at(const struct node *node, uint32_t host)
{
	return &node->c->link.keys.trusted[host % NODE_HOSTS];
}

static struct link_peer *peer_at(struct node *node, uint32_t host)
{
	const union address address = node_host(host);

	return link_peer_find(&node->c->link, &address);
}

struct careful_proved node_prove(struct node *node, uint32_t host, const struct careful_ctrl *ctrl)
{
	const struct link_peer *peer = peer_at(node, host);
	const struct keyed *keyed = peer ? &peer->session->keyed : NULL;
	struct careful_proved message = { .ctrl = *ctrl };
	const struct noise_pair *pair = host_pair(host);

	message.ctrl.bytes = htobe16(sizeof(message));
	message.ctrl.check = 0;
	message.ctrl.check = htobe32(careful_ctrl_check(&message.ctrl));
	if (proof_static(ctrl->type)) {
		proof_mac(trusted_at(node, host)->mac_key, &message,
			  offsetof(struct careful_proved, mac), pair->ours, message.mac);
	} else if (keyed && keyed->proves) {
		message.count = htobe64(keyed->heard.last + 1);
		proof_mac(keyed->hear_key, &message, offsetof(struct careful_proved, mac), NULL,
			  message.mac);
	}
	return message;
}

void node_prove_answer(const struct node *node, uint32_t slot, struct careful_ping_answer *answer)
{
	const struct link_peer *peer = &node->c->link.peers[slot];
	uint8_t in[sizeof(*answer) + sizeof(__be32)], out[CAREFUL_TAG_BYTES];
	const __be32 frag_off = htobe32(peer->session->ping.unknown);

	answer->cookie = 0;
	answer->check = 0;
	memcpy(in, answer, sizeof(*answer));
	memcpy(in + sizeof(*answer), &frag_off, sizeof(frag_off));
	proof_mac(peer->session->keyed.hear_key, in, sizeof(in), NULL, out);
	memcpy(&answer->cookie, out, sizeof(answer->cookie));
}

/* Completes a handshake message, from its sealed part on. */
static void close_keyed(struct node *node, uint32_t host, struct noise *noise,
			const struct careful_ctrl *ctrl, struct careful_keyed *message)
{
	noise_seal(noise, &ctrl->incarnation, CAREFUL_SEALED_BYTES, message->sealed);
	proof_mac(trusted_at(node, host)->mac_key, message, sizeof(*message), NULL, message->mac);
	message->check = htobe32(careful_message_check(message, sizeof(*message)));
	noise_forget(noise);
}

static void begin_keyed(struct node *node, uint32_t host, bool initiator,
			const struct careful_ctrl *ctrl, __be64 token, struct noise *noise,
			struct careful_keyed *message)
{
	struct {
		uint8_t name[7], version;
		__be64 nonce, token;
	} prologue = {
		{ 'c', 'a', 'r', 'e', 'f', 'u', 'l' }, CAREFUL_WIRE_VERSION, ctrl->nonce, token
	};

	(void)node;
	*message = (struct careful_keyed){
		.version = ctrl->version,
		.type = ctrl->type,
		.bytes = htobe16(sizeof(*message)),
		.nonce = ctrl->nonce,
		.token = initiator ? token : 0,
	};
	noise_begin(noise, host_pair(host), initiator, &prologue, sizeof(prologue));
}

static void write_key(struct node *node, struct noise *noise, struct careful_keyed *message)
{
	uint8_t private[NOISE_KEY_BYTES];

	node->port.ops->random(&node->port, private, sizeof(private));
	MUST(noise_write(noise, private, message->ephemeral) == 0);
}

/* Returns the second HELLO, or the WELCOME if the instance has asked. */
struct careful_keyed node_key(struct node *node, uint32_t host, const struct careful_ctrl *ctrl)
{
	uint8_t payload[CAREFUL_SEALED_BYTES];
	struct careful_keyed message;
	struct noise noise;

	if (ctrl->type == CAREFUL_HELLO) {
		begin_keyed(node, host, true, ctrl, ctrl->token, &noise, &message);
	} else {
		begin_keyed(node, host, false, ctrl, node->last_keyed_hello.token, &noise,
			    &message);
		if (noise_read(&noise, node->last_keyed_hello.ephemeral) ||
		    noise_open(&noise, node->last_keyed_hello.sealed,
			       sizeof(node->last_keyed_hello.sealed), payload))
			return message; /* the instance's HELLO was for another host */
	}
	write_key(node, &noise, &message);
	close_keyed(node, host, &noise, ctrl, &message);
	return message;
}

/* Seals a frame with a complete header like the peer; `bytes` of body, and room for the tag behind
 * it. Reports whether it is sealed. */
bool node_seal(struct node *node, uint32_t slot, uint8_t *hdr, uint32_t bytes)
{
	const struct link_peer *peer = &node->c->link.peers[slot];
	const struct seal *seal = peer->session->seal;
	uint32_t beside = LINK_HDR_BYTES;
	struct careful_seal_end end;
	uint64_t count;

	if (!peer->trailer || !seal->in.cipher)
		return false;
	count = seal->seen.last + 1;
	end.count = htobe64(count);
	if (seal->mode == CAREFUL_SEAL_AUTH)
		beside += bytes;
	aead_seal(&seal->in, count, hdr, beside, hdr + beside, LINK_HDR_BYTES + bytes - beside,
		  end.tag);
	memcpy(hdr + LINK_HDR_BYTES + bytes, &end, sizeof(end));
	return true;
}

/* Checks that the instance's messages are proved, except a REFUSE for lack of a key. */
void node_check_sent(struct node *node, const void *message, uint32_t bytes)
{
	const struct careful_ctrl *ctrl = message;

	if (bytes == sizeof(struct careful_keyed)) {
		MUST(ctrl->type == CAREFUL_HELLO || ctrl->type == CAREFUL_WELCOME);
		if (ctrl->type == CAREFUL_HELLO)
			memcpy(&node->last_keyed_hello, message, bytes);
		return;
	}
	MUST(bytes == sizeof(struct careful_proved) || ctrl->type == CAREFUL_REFUSE);
}
