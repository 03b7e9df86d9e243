// SPDX-License-Identifier: BSD-2-Clause
/* Pings (P1 section 6): frames that end at a stage, and their answers. Pings that end at XDP are
 * answered here, others by the engine. An answer is a control message, so it needs no receive
 * buffer. It goes to the session's peer, so a stranger gains nothing by a probe. */
#include "link/link_private.h"
#include "link/peer/peers.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include <careful/frame.h>

enum {
	PAYLOAD_MAX = 4096,
	STAMPS_NS = 1000 * 1000 * 1000, /* arrivals are stamped this long after the last probe */
};

/* The probe's payload, copied like an application's. */
static const uint8_t payload[PAYLOAD_MAX];

static uint64_t now_ns(const struct link *link)
{
	return link->port->ops->now_ns(link->port);
}

/* Returns the body bytes of a probe whose IP packet has ip_bytes; a sealed packet may be larger, to
 * hold its tag. -EINVAL, -EMSGSIZE. */
static int body_bytes(const struct link_peer *peer, uint32_t ip_bytes, bool outside)
{
	uint32_t headers = peer->llhdr.bytes - LINK_ETHERNET_BYTES + LINK_HDR_BYTES;

	if (ip_bytes < headers)
		return -EINVAL;
	if (!outside && peer->trailer) {
		headers += peer->trailer;
		ip_bytes = ip_bytes < headers ? headers : ip_bytes;
	}
	if (ip_bytes - headers > link_body_single(peer) || ip_bytes - headers > PAYLOAD_MAX)
		return -EMSGSIZE;
	return (int)(ip_bytes - headers);
}

/* Returns the body's bytes of a probe, or -errno if it cannot be sent. */
static int check(const struct link_peer *peer, const struct careful_ping_ask *ask)
{
	const struct session *session = peer->session;
	bool outside = ask->stage == CAREFUL_STAGE_NET_RX;

	if (ask->stage < CAREFUL_STAGE_NET_RX || ask->stage > CAREFUL_STAGE_STORE ||
	    ask->ttl > 255 || (ask->ttl && !outside))
		return -EINVAL;
	if ((peer->phase != LINK_OPEN && !session->path.probing) || !peer->llhdr.bytes)
		return -ENOTCONN;
	if (session->ping.asked || session->ping.done)
		return -EAGAIN;
	if (!outside && !session->ping.known)
		return -ENOTSUP;
	return body_bytes(peer, ask->bytes, outside);
}

/* Empties the queue, so that the timed kick sends the probe alone. */
static bool empty_queue(struct link *link)
{
	link_kick(link);
	return !link->kick_again;
}

static void stamp_arrivals(struct link *link)
{
	if (!link->stamps_until_ns)
		link->port->ops->stamps(link->port, true);
	link->stamps_until_ns = now_ns(link) + STAMPS_NS;
}

void link_stamps_tick(struct link *link)
{
	if (!link->stamps_until_ns || link->now_ns < link->stamps_until_ns)
		return;
	link->stamps_until_ns = 0;
	link->port->ops->stamps(link->port, false);
}

/* Sends a probe; link_ping_ended() has its result. Returns 0, or -errno like careful_ping(). */
int link_ping_ask(struct link_peer *peer, const struct careful_ping_ask *ask)
{
	struct link_ping *ping = &peer->session->ping;
	struct link *link = peer->link;
	bool outside = ask->stage == CAREFUL_STAGE_NET_RX;
	uint64_t begun_ns, built_ns;
	struct link_txframe frame;
	struct link_send_args args = { .type = CAREFUL_PING };
	struct ping_seen here;
	int body = check(peer, ask);

	if (body < 0)
		return body;
	if (!empty_queue(link) || (!outside && !link_may_send(peer, (uint32_t)body)))
		return -EAGAIN;
	stamp_arrivals(link);
	begun_ns = now_ns(link);
	if (!link_tx_get(peer, (uint32_t)body, &frame))
		return -EAGAIN;
	link_tx_write(&frame, 0, payload, (uint32_t)body);
	args.stage_limit = (uint8_t)ask->stage;
	args.msg_id = ++ping->last;
	args.frag_off = ping->unknown = (uint32_t)link_random(link);
	args.frag_bytes = (uint16_t)body;
	args.crc_bytes = (uint32_t)body;
	if (outside)
		link_send_outside(&frame, &args, (uint8_t)ask->ttl);
	else
		link_send(&frame, &args);
	built_ns = now_ns(link);
	link_kick(link);
	link->now_ns = now_ns(link);
	link->port->ops->probed(link->port, peer->slot, &here);
	ping->asked = (uint8_t)ask->stage;
	ping->until_ns = link->now_ns + ask->timeout_ms * 1000000ULL;
	ping->result = (struct careful_ping_result){
		.host_tx_ns = built_ns - begun_ns,
		.net_tx_ns = link->kick_again ? 0 : link->now_ns - built_ns,
		.sent_ns = built_ns,
		.tx_cpu = here.cpu,
	};
	return 0;
}

static void end(struct link_peer *peer, int status)
{
	struct link_ping *ping = &peer->session->ping;
	ping->result.status = status;
	ping->asked = 0;
	if (peer->session->path.asks) {
		peer->session->path.asks = false;
		peer->session->path.ended = true;
		peer->session->path.passed = !status;
		peer->session->path.round_trip_ns = ping->result.round_trip_ns;
		return;
	}
	ping->done = true;
	peer->link->pings_done = true;
}

/* Reports whether no ping is under way. *result: of a ping that ended since the last call */
bool link_ping_ended(struct link_peer *peer, struct careful_ping_result *result)
{
	struct link_ping *ping = &peer->session->ping;

	if (ping->asked)
		return false;
	if (ping->done)
		*result = ping->result;
	ping->done = false;
	return true;
}

void link_ping_tick(struct link_peer *peer)
{
	const struct link_ping *ping = &peer->session->ping;
	if (ping->asked && peer->link->now_ns >= ping->until_ns)
		end(peer, -ETIMEDOUT);
}

/* Gives the ping up; a later answer is ignored. */
void link_ping_forget(struct link_peer *peer)
{
	if (peer->session->ping.asked)
		end(peer, -ECANCELED);
}

void link_ping_reset(struct link_peer *peer)
{
	struct link_ping *ping = &peer->session->ping;
	if (ping->asked)
		end(peer, -ECONNRESET);
	ping->last = ping->answered = 0;
	ping->known = false;
}

/* Answers the peer's probe with this frag_off, whose last stage ended at end_ns. */
void link_ping_answer(struct link_peer *peer, __be32 frag_off, struct careful_ping_answer *answer,
		      uint64_t end_ns, uint64_t at_ns)
{
	struct port *port = peer->link->port;
	uint64_t turn_ns = at_ns - end_ns;

	answer->version = CAREFUL_WIRE_VERSION;
	answer->type = CAREFUL_PING_ANSWER;
	answer->bytes = htobe16(sizeof(*answer));
	answer->cookie = htobe64(peer->cookie_out);
	answer->turn_ns = htobe32(turn_ns < UINT32_MAX ? (uint32_t)turn_ns : UINT32_MAX);
	if (peer->link->keyed)
		keyed_prove_answer(peer, frag_off, answer);
	answer->check = 0;
	answer->check = htobe32(careful_message_check(answer, sizeof(*answer)));
	link_count(peer->link, CAREFUL_C_PINGS_ANSWERED);
	port->ops->ctrl_send(port, &peer->session->address, answer, sizeof(*answer));
}

/* Handles a probe that XDP stamped and passed. Returns like link_on_sync(). */
bool link_on_ping(struct link *link, const struct careful_hdr *hdr)
{
	struct link_peer *peer = link_peer_with(link, hdr);
	uint32_t probe = be32toh(hdr->msg_id);
	struct ping_seen probed;
	struct careful_ping_answer answer = {
		.stage = CAREFUL_STAGE_NET_RX,
		.probe = hdr->msg_id,
	};

	/* The other end may ping while we wait for trains. */
	if (careful_frame_classify(hdr, careful_frame_body(hdr)) != CAREFUL_FRAME_PLAIN ||
	    !careful_frame_ends_at_xdp(hdr) || !peer ||
	    (peer->phase != LINK_OPEN && peer->phase != LINK_HELD))
		return false;
	link->port->ops->probed(link->port, peer->slot, &probed);
	if (!peer->trailer && !careful_is_newer(probe, peer->session->ping.answered))
		return false;
	/* The stamp belongs to this probe only if XDP passed none after it. */
	if (probed.probe != probe) {
		link_count(link, CAREFUL_C_PINGS_LATE);
		return true;
	}
	peer->session->ping.answered = probe;
	answer.arrived_ns = htobe64(probed.at_ns);
	answer.net_cpu = htobe16((uint16_t)probed.net_cpu);
	answer.host_cpu = htobe16((uint16_t)probed.cpu);
	link_ping_answer(peer, hdr->frag_off, &answer, probed.at_ns, now_ns(link));
	return true;
}

static bool ended_rightly(const struct link_peer *peer, const struct careful_ping_answer *answer)
{
	const struct link_ping *ping = &peer->session->ping;
	if (ping->asked == CAREFUL_STAGE_STORE)
		return answer->stage == CAREFUL_STAGE_STORE ||
		       answer->stage == CAREFUL_STAGE_HOST_RX;
	return answer->stage == ping->asked;
}

static void take_arrival(struct careful_ping_result *result, const struct arrival *arrival)
{
	result->round_trip_ns = arrival->at_ns - result->sent_ns;
	result->answer_bytes = arrival->ip_bytes;
}

/* Reports whether the answer belongs to the ping under way. */
static bool answers(const struct link_peer *peer, const struct careful_ping_answer *answer)
{
	const struct link_ping *ping = &peer->session->ping;

	if (!peer->cookie_in || !ping->asked || be32toh(answer->probe) != ping->last ||
	    !ended_rightly(peer, answer))
		return false;
	if (!peer->link->keyed)
		return be64toh(answer->cookie) == peer->cookie_in;
	if (keyed_answer_proves(peer, htobe32(ping->unknown), answer))
		return true;
	link_count(peer->link, CAREFUL_C_CTRL_FORGED);
	return false;
}

bool link_on_ping_answer(struct link *link, const union address *from,
			 const struct careful_ping_answer *answer, const struct arrival *arrival)
{
	struct link_peer *peer = link_peer_find(link, from);
	struct careful_ping_result *result;

	if (answer->version != CAREFUL_WIRE_VERSION ||
	    be32toh(answer->check) != careful_message_check(answer, sizeof(*answer)) || !peer ||
	    !answers(peer, answer))
		return false;
	result = &peer->session->ping.result;
	memcpy(&result->by, from, sizeof(from->in6));
	result->stage = answer->stage;
	result->arrived_ns = be64toh(answer->arrived_ns);
	result->host_rx_ns = be32toh(answer->host_rx_ns);
	result->store_ns = be32toh(answer->store_ns);
	result->turn_ns = be32toh(answer->turn_ns);
	result->scratch = answer->scratch;
	result->store_inline = answer->store_inline;
	result->net_cpu = be16toh(answer->net_cpu);
	result->host_cpu = be16toh(answer->host_cpu);
	take_arrival(result, arrival);
	peer->session->ping.known = true;
	end(peer, 0);
	return true;
}

/* Handles ICMP from a router or host where a probe towards `to` ended. Routers may quote only the
 * ports; the probe is then the one under way. */
void link_on_ping_icmp(struct link *link, const union address *to, const union link_message *quoted,
		       const struct arrival *arrival)
{
	struct careful_ping_result *result;
	struct link_peer *peer = NULL;

	for (uint32_t i = 0; i < link->peers_max && !peer; i++)
		if (link_peer_at(&link->peers[i], to) &&
		    link->peers[i].session->ping.asked == CAREFUL_STAGE_NET_RX)
			peer = &link->peers[i];
	/* A forged ICMP must not end the search for the largest frame. */
	if (!peer || (peer->session->path.asks && be64toh(quoted->hdr.cookie) != peer->cookie_out))
		return;
	if (quoted->hdr.type && (quoted->hdr.type != CAREFUL_PING ||
				 be32toh(quoted->hdr.msg_id) != peer->session->ping.last))
		return;
	result = &peer->session->ping.result;
	memcpy(&result->by, &arrival->by, sizeof(arrival->by.in6));
	result->icmp_type = arrival->icmp_type;
	result->icmp_code = arrival->icmp_code;
	result->icmp_info = arrival->icmp_info;
	take_arrival(result, arrival);
	end(peer, -EHOSTUNREACH);
}
