// SPDX-License-Identifier: BSD-2-Clause
/* The table of peers, and messages to a peer. */
#include "link/link_private.h"
#include "link/peer/peers.h"

#include <endian.h>
#include <errno.h>
#include <sodium/utils.h>
#include <string.h>

enum {
	DISTRUST_MS = 1000, /* silence after which a link address is looked up again */
	SETTINGS_TRIES = 8, /* attempts to read settings that no writer changes meanwhile */
};

static bool address_equal(const union address *a, const union address *b)
{
	return address_same_host(a, b) &&
	       (a->sa.sa_family == AF_INET ? a->in.sin_port == b->in.sin_port :
					     a->in6.sin6_port == b->in6.sin6_port);
}

/* Reports whether two address pairs can name one session. A pair without our address matches all
 * of our addresses. */
static bool pair_equal(const union address *a, const union address *b)
{
	return address_equal(a, b) && (!address_has_ours(a) || !address_has_ours(b) ||
				       !memcmp(a->ours, b->ours, sizeof(a->ours)));
}

bool link_peer_at(const struct link_peer *peer, const union address *address)
{
	return peer->state != CAREFUL_PEER_NONE && address_equal(&peer->session->address, address);
}

/* Returns how well an address pair matches the peer's session; 0: not at all. An open session is a
 * better match. */
static int match_quality(const struct link_peer *peer, const union address *pair)
{
	const union address *known = &peer->session->address;
	bool both = address_has_ours(known) && address_has_ours(pair);

	if (peer->state == CAREFUL_PEER_NONE || !pair_equal(known, pair))
		return 0;
	return 1 + 2 * both + link_has_epoch(peer);
}

struct link_peer *link_peer_find(struct link *link, const union address *pair)
{
	struct link_peer *best = NULL;
	int best_quality = 0;

	for (uint32_t i = 0; i < link->peers_max; i++) {
		int quality = match_quality(&link->peers[i], pair);

		if (quality > best_quality) {
			best = &link->peers[i];
			best_quality = quality;
		}
	}
	return best;
}

/* Reports whether a message contains a secret of the peer's session. */
static bool names_session(const struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	const struct session *session = peer->session;
	uint64_t nonce = be64toh(ctrl->nonce), token = be64toh(ctrl->token);
	uint64_t cookie = be64toh(ctrl->cookie);

	return (cookie && cookie == peer->cookie_in) ||
	       (token && (token == peer->cookie_in || token == session->cookie_was)) ||
	       (nonce &&
		(nonce == session->handshake.nonce || nonce == session->control_watch.nonce ||
		 (session->sync.token && nonce >> 32 == session->sync.token)));
}

/* Returns the peer that sent a control message, or NULL. If the message came to another of our
 * addresses than the session's, its secret names the session. */
struct link_peer *link_peer_from(struct link *link, const union address *from,
				 const struct careful_ctrl *ctrl)
{
	struct link_peer *peer = link_peer_find(link, from);

	for (uint32_t i = 0; !peer && i < link->peers_max; i++)
		if (link_peer_at(&link->peers[i], from) && names_session(&link->peers[i], ctrl))
			peer = &link->peers[i];
	return peer;
}

/* Reports whether the slot is free: its peer failed, or gave up its window and holds no buffer. */
bool link_peer_free(const struct link_peer *peer)
{
	return (peer->state == CAREFUL_PEER_NONE || peer->state == CAREFUL_PEER_FAILED ||
		peer->session->dormant) &&
	       !peer->kept && !peer->kept_old && !peer->operations;
}

/* Makes all peers prove that they live: all slots are taken, and some hosts may be gone. */
static void doubt_all(struct link *link)
{
	for (uint32_t i = 0; i < link->peers_max; i++)
		link->peers[i].session->doubted = true;
}

/* Reports whether two addresses behind routers share a /64, which one host can own. */
static bool net_equal(const union address *a, const union address *b)
{
	return a->sa.sa_family == AF_INET6 && b->sa.sa_family == AF_INET6 &&
	       !memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, 8);
}

/* Reports whether the peer belongs to the host: it has the same address or key, Ethernet address on
 * our link, or /64 behind a router. */
bool link_peer_belongs(const struct link_peer *peer, const struct link_host *host)
{
	const struct session *session = peer->session;
	const struct llhdr *a = &peer->llhdr, *b = &host->way;

	if (address_same_host(&session->address, &host->address) ||
	    (host->key && !sodium_memcmp(session->keyed.theirs, host->key, NOISE_KEY_BYTES)))
		return true;
	if (!a->bytes || !b->bytes || a->neighbour != b->neighbour)
		return false;
	return a->neighbour ? !memcmp(a->data, b->data, LINK_MAC_BYTES) :
			      net_equal(&session->address, &host->address);
}

struct link_host link_host_of(const struct link_peer *peer)
{
	return (struct link_host){
		.address = peer->session->address,
		.key = peer->link->keyed ? peer->session->keyed.theirs : NULL,
		.way = peer->llhdr,
	};
}

bool link_same_host(const struct link_peer *a, const struct link_peer *b)
{
	const struct link_host host = link_host_of(b);

	return link_peer_belongs(a, &host);
}

uint64_t link_peer_cookie(const struct link_peer *peer)
{
	return peer->cookie_in;
}

bool link_peer_key(const struct link_peer *peer, uint8_t *key)
{
	if (peer->link->keyed)
		memcpy(key, peer->session->keyed.theirs, NOISE_KEY_BYTES);
	return peer->link->keyed;
}

/* Counts the slots that a host holds with addresses other than host->address. */
uint32_t link_peer_taken(const struct link *link, const struct link_host *host)
{
	uint32_t taken = 0;

	for (uint32_t i = 0; i < link->peers_max; i++)
		taken += !link_peer_free(&link->peers[i]) &&
			 link_peer_belongs(&link->peers[i], host) &&
			 !pair_equal(&link->peers[i].session->address, &host->address);
	return taken;
}

/* Reports whether one more slot for the host leaves half of the slots to others. Its sessions must
 * prove that they live, since it may have lost their addresses. */
bool link_peer_welcome(struct link *link, const struct link_host *host)
{
	for (uint32_t i = 0; i < link->peers_max; i++)
		if (link_peer_belongs(&link->peers[i], host))
			link->peers[i].session->doubted = true;
	return link_peer_taken(link, host) < (link->peers_max + 1) / 2;
}

/* Copies the settings of new peers to the slot: a spare version, then the index (abi.h). */
static void settings_reset(struct link_peer *peer)
{
	const struct port_ops *ops = peer->link->port->ops;
	const struct careful_tune_entry *from = ops->tune(peer->link->port, CAREFUL_TUNE_DEFAULT);
	struct careful_tune_entry *entry = ops->tune(peer->link->port, peer->slot);
	uint32_t spare = (entry->active + 1) % CAREFUL_TUNE_VERSIONS, active;

	/* A concurrent writer of these settings changes `active` last. */
	for (int i = 0; i < SETTINGS_TRIES; i++) {
		active = __atomic_load_n(&from->active, __ATOMIC_ACQUIRE);
		entry->version[spare] = from->version[active % CAREFUL_TUNE_VERSIONS];
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (__atomic_load_n(&from->active, __ATOMIC_RELAXED) == active)
			break;
	}
	__atomic_store_n(&entry->active, spare, __ATOMIC_RELEASE);
}

/* Applies the sealing rule of the peer's address. */
static void set_sealing(struct link_peer *peer)
{
	struct seal *seal = peer->session->seal;

	peer->trailer = 0;
	if (!seal)
		return;
	sodium_memzero(seal, sizeof(*seal));
	seal->mode = seal_rules_mode(&peer->link->seal_rules, &peer->session->address);
	if (!seal->mode)
		return;
	peer->trailer = sizeof(struct careful_seal_end);
	peer->sends = LINK_SENDS_SEALED;
}

/* Gives the slot to its next peer. A peer that returns to its old slot keeps its settings. */
static void reset(struct link_peer *peer, const union address *address)
{
	struct session *session = peer->session;
	struct link *link = peer->link;

	if (!address_equal(&session->address, address))
		settings_reset(peer);
	*session = (struct session){
		.address = *address,
		.tenants = session->tenants + 1,
		.ended_ns = session->ended_ns,
		.closing = session->closing, /* its frames may still be in the ring */
		.drain = session->drain,
		.heard_ns = link->now_ns,
		.sync.wait_ms = link->sync_ms,
		.train.wanted = link->measures,
		.granted = session->granted,
		.copied = session->copied,
		.claims = session->claims,
		.seal = session->seal,
	};
	*peer = (struct link_peer){
		.link = link,
		.session = session,
		.entry = peer->entry,
		.slot = peer->slot,
		.epoch = peer->epoch + 1,
		.dirty = peer->dirty,
		.kept_old = peer->kept_old,
		.flow.built = peer->flow.built,
		.operations = peer->operations,
		.asking = peer->asking,
		.sends = link->traditional ? LINK_SENDS_TRADITIONAL : LINK_SENDS_CAREFUL,
		.repair = peer->repair,
	};
	set_sealing(peer);
	/* link_peer_belongs() needs the link address. */
	if (link->port->ops->resolve(link->port, address, &peer->llhdr))
		peer->llhdr.bytes = 0;
	link_set_beside(peer);
}

/* Returns the peer with this address, in a new slot if needed; NULL if all P are taken. */
struct link_peer *link_peer_get(struct link *link, const union address *address)
{
	struct link_peer *peer = link_peer_find(link, address);
	struct link_peer *best = NULL;

	if (peer)
		return peer;
	for (uint32_t i = 0; i < link->peers_max; i++) {
		peer = &link->peers[i];
		/* A peer that returns gets its old slot. */
		if (peer->state == CAREFUL_PEER_NONE &&
		    pair_equal(&peer->session->address, address)) {
			best = peer;
			break;
		}
		if (!link_peer_free(peer))
			continue;
		if (!best || (peer->state == CAREFUL_PEER_NONE && best->state))
			best = peer;
	}
	if (!best) {
		doubt_all(link);
		return NULL;
	}
	reset(best, address);
	return best;
}

void link_state(struct link_peer *peer, uint8_t state)
{
	struct session *session = peer->session;
	const uint64_t now_ns = peer->link->now_ns;

	if (peer->state == state)
		return;
	peer->state = state;
	session->since_ns = now_ns;
	if (state == CAREFUL_PEER_UP || state == CAREFUL_PEER_NONE ||
	    (state == CAREFUL_PEER_FAILED && session->last_errno == ECONNRESET))
		session->away_ns = 0;
	else if (!session->away_ns)
		session->away_ns = state == CAREFUL_PEER_STALLED ? session->heard_ns : now_ns;
	peer->link->changed = true;
}

/* Returns the peer of a sealed frame, or of a frame outside the session, or NULL. */
struct link_peer *link_peer_with(struct link *link, const struct careful_hdr *hdr)
{
	uint32_t slot = be16toh(hdr->src_node);
	struct link_peer *peer = &link->peers[slot];

	if (slot >= link->peers_max || !peer->cookie_in || peer->cookie_in != be64toh(hdr->cookie))
		return NULL;
	return peer;
}

bool link_ctrl_send(struct link *link, const union address *to, struct careful_ctrl *ctrl,
		    uint8_t type)
{
	ctrl->version = CAREFUL_WIRE_VERSION;
	ctrl->type = type;
	ctrl->bytes = htobe16(sizeof(*ctrl));
	ctrl->incarnation = htobe64(link->incarnation);
	ctrl->check = 0;
	ctrl->check = htobe32(careful_ctrl_check(ctrl));
	return link->port->ops->ctrl_send(link->port, to, ctrl, sizeof(*ctrl)) == 0;
}

/* Called for each repeated question: looks up the link address of a peer silent since since_ns. */
void link_recheck_address(struct link_peer *peer, uint64_t since_ns)
{
	struct port *port = peer->link->port;
	uint64_t now_ns = peer->link->now_ns;

	if (since_ns < peer->session->distrusted_ns)
		since_ns = peer->session->distrusted_ns;
	if (!port->ops->distrust || now_ns - since_ns < DISTRUST_MS * 1000000ull)
		return;
	peer->session->distrusted_ns = now_ns;
	port->ops->distrust(port, &peer->session->address);
}

/* Returns a random secret, never 0. */
uint64_t link_random(struct link *link)
{
	uint64_t value = 0;

	while (!value)
		link->port->ops->random(link->port, &value, sizeof(value));
	return value;
}
