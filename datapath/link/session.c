// SPDX-License-Identifier: BSD-2-Clause
/*
 * The handshake, and the end of an epoch.
 *
 *   A: HELLO                      no state at B yet
 *   B: CHALLENGE token            a hash of A's address and nonce: no state either
 *   A: HELLO token, A's window    A admits B's frames before it sends this
 *   B: WELCOME B's window         B admits A's frames before it sends this
 *
 * After a loss the first two are left out: the token is the cookie of the epoch that
 * ended, which nobody else knows, and which is good for one new epoch.
 *
 * Either end drains the old epoch first: its slot in the peers map is closed, the
 * RX ring seen empty, and every held buffer back in the fill ring. A stranger who
 * cannot read what is sent to A cannot make B believe that A began anew.
 */
#include "link/link.h"

#include <assert.h>
#include <endian.h>
#include <sodium/crypto_shorthash.h>
#include <string.h>

enum {
	RETRY_NS = 50 * 1000 * 1000, /* between two HELLOs, at most; */
	RETRY_MS_MIN = 5, /* between the first two: each next time is twice as long */
	CONNECT_MS = 5000, /* without an answer: the peer counts as unreachable */
	DISTRUST_MS = 1000, /* without an answer: maybe its link address is another now */
	CONTROL_BATCH = 32, /* control messages handled in one go */
	/* What a receive buffer can hold of a frame: one that held more than any frame has
	 * would make frames cost nothing. */
	BUFFER_BYTES_MIN = 256,
	BUFFER_BYTES_MAX = 1 << 16,
};

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

static uint64_t random_nonzero(struct link *link)
{
	uint64_t value = 0;

	while (!value)
		link->port->ops->random(link->port, &value, sizeof(value));
	return value;
}

/* Proof that whoever returns it received what we sent to this address. It names the
 * attempt, our epoch and how many were opened before, so that it opens one at most. */
static uint64_t challenge_token(struct link *link, const union address *address, uint64_t nonce,
				const struct link_peer *peer)
{
	struct {
		uint64_t nonce, epoch;
		uint8_t host[16];
		uint16_t port;
		uint8_t pad[2];
		uint32_t epochs;
	} in = {
		.nonce = nonce,
		.epoch = peer ? peer->epoch : 0,
		.epochs = peer ? peer->epochs : link->closed,
	};
	uint64_t token;

	if (address->sa.sa_family == AF_INET) {
		memcpy(in.host, &address->in.sin_addr, 4);
		in.port = address->in.sin_port;
	} else {
		memcpy(in.host, &address->in6.sin6_addr, 16);
		in.port = address->in6.sin6_port;
	}
	_Static_assert(crypto_shorthash_BYTES == sizeof(token), "token size");
	_Static_assert(crypto_shorthash_KEYBYTES == sizeof(link->secret), "secret size");
	crypto_shorthash((uint8_t *)&token, (const uint8_t *)&in, sizeof(in), link->secret);
	return token | 1;
}

/* What HELLO and WELCOME say of our receive side. */
static void describe(const struct link_peer *peer, struct careful_ctrl *ctrl)
{
	const struct link *link = peer->link;

	ctrl->cookie = htobe64(peer->cookie_in);
	ctrl->slot = htobe16(peer->slot);
	ctrl->queue = htobe16(link->queue->index);
	ctrl->window = htobe32(link->window);
	ctrl->buffer_bytes = htobe32(link->queue->buffer_bytes);
	ctrl->frame_bytes = htobe32(queue_frame_bytes(link->queue));
	ctrl->lost = htobe32((uint32_t)peer->lost_frames);
	memcpy(ctrl->name, link->name, sizeof(ctrl->name));
}

/* Is it the process that was there before? */
static void meet(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	if (peer->incarnation == be64toh(ctrl->incarnation))
		return;
	peer->incarnation = be64toh(ctrl->incarnation);
	peer->lives++;
	peer->lost_said = 0;
	peer->link->changed = true;
}

/* The peer counts what it found lost since it started, or since it knows us. */
static void take_lost(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	uint32_t said = be32toh(ctrl->lost);

	peer->lost_there += said < peer->lost_said ? said : said - peer->lost_said;
	peer->lost_said = said;
}

/* What it says of the peer's: how we may send. -EPROTO if that cannot work. */
static int adopt(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	uint32_t window = be32toh(ctrl->window);
	uint32_t buffer_bytes = be32toh(ctrl->buffer_bytes);
	uint32_t frame_bytes = be32toh(ctrl->frame_bytes);
	uint64_t limit;

	if (window < WINDOW_MIN || window > 1u << 20 || !ctrl->cookie)
		return -EPROTO;
	if (buffer_bytes < BUFFER_BYTES_MIN || buffer_bytes > BUFFER_BYTES_MAX)
		return -EPROTO;
	limit = (uint64_t)window_cost_max(window) * buffer_bytes;
	if (frame_bytes > queue_frame_bytes(peer->link->queue))
		frame_bytes = queue_frame_bytes(peer->link->queue);
	if (frame_bytes > limit)
		frame_bytes = (uint32_t)limit;
	if (frame_bytes < DEVICE_FRAME_BYTES_MIN)
		return -EPROTO;
	peer->cookie_out = be64toh(ctrl->cookie);
	peer->slot_out = be16toh(ctrl->slot);
	peer->queue_out = be16toh(ctrl->queue);
	peer->buffer_bytes = buffer_bytes;
	peer->frame_bytes = frame_bytes;
	memcpy(peer->name, ctrl->name, sizeof(peer->name));
	peer->name[sizeof(peer->name) - 1] = 0;
	meet(peer, ctrl);
	take_lost(peer, ctrl);
	flow_grant(&peer->flow, window);
	return 0;
}

/* Ends the epoch on our side: nothing more is admitted, what is held is old. */
static void end_epoch(struct link_peer *peer)
{
	struct link *link = peer->link;
	bool used = peer->phase == LINK_OPEN || flow_used(&peer->flow);

	peer->phase = LINK_IDLE;
	peer->bye_at = 0;
	peer->sync_nonce = 0;
	peer->question.nonce = 0;
	peer->sync_disagreed = 0;
	peer->refused_rounds = 0;
	peer->refused = false;
	peer->withholding = false;
	link_ping_reset(peer);
	flow_close(&peer->flow);
	if (!peer->cookie_in)
		return;
	link->port->ops->admit(link->port, peer->slot, 0, 0);
	peer->cookie_was = peer->cookie_in;
	peer->cookie_in = 0;
	/* Both asked at once: what waits to be sent in a window that was never used was
	 * not sent, and goes with the next. */
	if (used) {
		peer->epoch++;
		link->changed = true;
	}
	peer->kept_old += peer->kept;
	peer->kept = 0;
	/* What was freed and not yet published is owed to nobody now, but it is
	 * only back when published: two empty looks at the RX ring see to both. */
	peer->drain_at = link->rx_drains + 2;
}

static bool drained(const struct link_peer *peer)
{
	return !peer->kept_old && peer->link->rx_drains >= peer->drain_at;
}

/* Opens our window to the peer; the message that tells it so comes after. */
static void begin_epoch(struct link_peer *peer)
{
	struct link *link = peer->link;

	assert(drained(peer) && !peer->cookie_in);
	peer->cookie_in = random_nonzero(link);
	flow_open(&peer->flow, link->window);
	link->port->ops->admit(link->port, peer->slot, peer->cookie_in, link->window);
}

static void opened(struct link_peer *peer)
{
	struct link *link = peer->link;

	peer->phase = LINK_OPEN;
	peer->epochs++;
	peer->heard_ns = link->now_ns;
	peer->heard = true;
	peer->last_errno = 0;
	if (link->port->ops->resolve(link->port, &peer->address, &peer->llhdr))
		peer->llhdr.bytes = 0;
	peer->no_way = 0;
	link_state(peer, CAREFUL_PEER_UP);
}

/* Without an address for its frames a session is none, however well control goes.
 * Attempts are counted, not time: a process that was stopped has not tried. */
static void resolve_tick(struct link_peer *peer)
{
	struct link *link = peer->link;
	int rc = link->port->ops->resolve(link->port, &peer->address, &peer->llhdr);

	if (!rc) {
		peer->no_way = 0;
		return;
	}
	peer->llhdr.bytes = 0;
	if (peer->no_way && link->now_ns - peer->no_way_ns < RETRY_NS)
		return;
	peer->no_way_ns = link->now_ns;
	if (++peer->no_way > CONNECT_MS * 1000000ULL / RETRY_NS)
		link_close(peer, rc == -EAGAIN ? EHOSTUNREACH : ENETUNREACH);
}

static void send_hello(struct link_peer *peer)
{
	struct careful_ctrl ctrl = { .nonce = htobe64(peer->nonce) };

	peer->asked_ns = peer->link->now_ns;
	if (peer->phase == LINK_ASKED) {
		ctrl.token = htobe64(peer->token);
		describe(peer, &ctrl);
	}
	link_ctrl_send(peer->link, &peer->address, &ctrl, CAREFUL_HELLO);
}

static void ask(struct link_peer *peer)
{
	peer->phase = LINK_ASKING;
	peer->nonce = random_nonzero(peer->link);
	peer->token = 0;
	peer->retry_ms = RETRY_MS_MIN;
	send_hello(peer);
}

/* The same of who shared an epoch with us until now, and may know it still. */
static void ask_again(struct link_peer *peer)
{
	peer->phase = LINK_ASKING;
	peer->nonce = random_nonzero(peer->link);
	peer->token = peer->cookie_out;
	peer->retry_ms = RETRY_MS_MIN;
	peer->asked_ns = peer->link->now_ns;
	peer->link->draining = true;
}

/* Whether a HELLO's token is the cookie of the epoch that we share with its sender, or
 * of the last one where we are asking ourselves. */
static bool shares_epoch(const struct link_peer *peer, const struct careful_ctrl *hello)
{
	uint64_t token = be64toh(hello->token);

	if (!peer || !token)
		return false;
	if (peer->phase == LINK_OPEN)
		return token == peer->cookie_in;
	return (peer->phase == LINK_ASKING || peer->phase == LINK_ASKED) &&
	       token == peer->cookie_was;
}

/* Wants a session with the peer; asks for it unless there is one. */
void link_connect(struct link_peer *peer)
{
	peer->want = true;
	if (peer->state != CAREFUL_PEER_NONE && peer->state != CAREFUL_PEER_FAILED)
		return;
	peer->last_errno = 0;
	peer->since_ns = peer->link->now_ns;
	link_state(peer, CAREFUL_PEER_CONNECTING);
	if (peer->phase == LINK_IDLE)
		ask(peer);
}

/* The promise is broken, or the peer forgot the session: a new epoch. */
void link_break(struct link_peer *peer)
{
	/* In LINK_ASKED the peer may have answered already, and sent. */
	bool open = peer->phase == LINK_OPEN;

	if (!open && peer->phase != LINK_ASKED)
		return;
	link_count(peer->link, CAREFUL_C_EPOCHS_BROKEN);
	if (open)
		link_state(peer, CAREFUL_PEER_RENEWING);
	end_epoch(peer);
	if (open && peer->cookie_out)
		ask_again(peer);
	else
		ask(peer);
}

/* Gives the session up, with the errno that its users are told. */
void link_close(struct link_peer *peer, int error)
{
	struct careful_ctrl ctrl = { .cookie = htobe64(peer->cookie_out) };
	struct link *link = peer->link;

	if (peer->phase == LINK_OPEN && peer->cookie_out)
		link_ctrl_send(link, &peer->address, &ctrl, CAREFUL_BYE);
	end_epoch(peer);
	link->closed++;
	peer->nonce = 0;
	peer->want = false;
	peer->cookie_out = 0;
	peer->last_errno = error;
	/* Also what was queued before there was any session is over now. */
	peer->epoch++;
	link_state(peer, error ? CAREFUL_PEER_FAILED : CAREFUL_PEER_NONE);
	link->changed = true;
}

/* The peer said BYE, and what it sent before has been seen, or does not matter now. */
static void bye(struct link_peer *peer)
{
	peer->cookie_out = 0; /* no BYE in answer */
	link_close(peer, ECONNRESET);
}

static void refuse(struct link *link, const union address *to, const struct careful_ctrl *hello,
		   enum careful_refusal why)
{
	struct careful_ctrl ctrl = {
		.nonce = hello->nonce,
		.window = htobe32(link->peers_max),
		.status = htobe32(why),
	};

	link_count(link, CAREFUL_C_CTRL_REFUSED);
	link_ctrl_send(link, to, &ctrl, CAREFUL_REFUSE);
}

static void welcome(struct link_peer *peer)
{
	struct careful_ctrl ctrl = { .nonce = htobe64(peer->nonce_in) };

	describe(peer, &ctrl);
	link_ctrl_send(peer->link, &peer->address, &ctrl, CAREFUL_WELCOME);
}

/* A valid HELLO waits until the old epoch has drained. */
static void try_welcome(struct link_peer *peer)
{
	if (!drained(peer))
		return;
	begin_epoch(peer);
	opened(peer);
	welcome(peer);
}

static void on_hello(struct link *link, const union address *from, const struct careful_ctrl *hello)
{
	struct link_peer *peer = link_peer_find(link, from);
	uint64_t nonce = be64toh(hello->nonce);
	uint64_t token;

	if (peer && peer->bye_at) /* it is back already */
		bye(peer);
	token = challenge_token(link, from, nonce, peer);

	if (peer && peer->phase == LINK_OPEN && peer->nonce_in == nonce) {
		/* Ours got lost; or a HELLO from before its challenge comes late. */
		if (hello->token)
			welcome(peer);
		return;
	}
	if (peer && peer->phase == LINK_DRAINING && peer->nonce_in == nonce)
		return; /* it gets its answer */
	if (be64toh(hello->token) != token && !shares_epoch(peer, hello)) {
		struct careful_ctrl ctrl = { .nonce = hello->nonce, .token = htobe64(token) };

		link_count(link, CAREFUL_C_CTRL_CHALLENGED);
		link_ctrl_send(link, from, &ctrl, CAREFUL_CHALLENGE);
		return;
	}
	/* Both ask at once: the larger nonce is answered, the other is not. */
	if (peer && (peer->phase == LINK_ASKING || peer->phase == LINK_ASKED) &&
	    peer->nonce > nonce)
		return;
	if (!peer)
		peer = link_peer_get(link, from);
	if (!peer) {
		refuse(link, from, hello, CAREFUL_REFUSED_PEERS);
		return;
	}
	end_epoch(peer);
	if (adopt(peer, hello)) {
		refuse(link, from, hello, CAREFUL_REFUSED_FRAME);
		/* Whatever there was with it is over: nobody would ask again. */
		link_close(peer, peer->state == CAREFUL_PEER_NONE ? 0 : EMSGSIZE);
		return;
	}
	peer->nonce = 0;
	peer->nonce_in = nonce;
	peer->phase = LINK_DRAINING;
	link->draining = true;
	if (peer->state == CAREFUL_PEER_UP || peer->state == CAREFUL_PEER_STALLED)
		link_state(peer, CAREFUL_PEER_RENEWING);
	else if (peer->state != CAREFUL_PEER_RENEWING)
		link_state(peer, CAREFUL_PEER_CONNECTING);
	try_welcome(peer);
}

/* Our window opens before the HELLO that says so; not before the old one is empty. */
static void try_hello(struct link_peer *peer)
{
	if (!drained(peer))
		return;
	begin_epoch(peer);
	peer->phase = LINK_ASKED;
	send_hello(peer);
}

/* Whether a message answers the HELLO that we sent last. */
static bool answers_us(const struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	return peer->nonce && be64toh(ctrl->nonce) == peer->nonce;
}

/* These return whether the message meant anything. */
static bool on_challenge(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	if ((peer->phase != LINK_ASKING && peer->phase != LINK_ASKED) || !answers_us(peer, ctrl))
		return false;
	peer->refused = false;
	peer->refused_rounds = 0;
	if (peer->token == be64toh(ctrl->token))
		return true; /* the answer to a HELLO that we repeated */
	/* Another than before: the peer ended an epoch since, maybe that of the window
	 * which we opened. A new question, and nothing said to the old one counts. */
	if (peer->phase == LINK_ASKED) {
		end_epoch(peer);
		ask(peer);
		return true;
	}
	/* Its frames may overtake its WELCOME: whose they are is known before they can come. */
	meet(peer, ctrl);
	peer->token = be64toh(ctrl->token);
	peer->retry_ms = RETRY_MS_MIN;
	peer->link->draining = true;
	try_hello(peer);
	return true;
}

static bool on_welcome(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	if (peer->phase != LINK_ASKED || !answers_us(peer, ctrl))
		return false;
	if (adopt(peer, ctrl)) {
		link_close(peer, EPROTO);
		return true;
	}
	peer->nonce = 0;
	opened(peer);
	return true;
}

static bool on_refuse(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	uint32_t why = be32toh(ctrl->status);

	if (!answers_us(peer, ctrl))
		return false;
	link_close(peer, why == CAREFUL_REFUSED_VERSION ? EPROTONOSUPPORT :
			 why == CAREFUL_REFUSED_PEERS	? EUSERS :
							  EMSGSIZE);
	return true;
}

static bool on_bye(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	if (!peer->cookie_in || be64toh(ctrl->cookie) != peer->cookie_in)
		return false;
	/* It came by another way than frames, and faster: what the peer sent before may
	 * still lie in the RX ring. */
	if (!peer->bye_at)
		peer->bye_at = peer->link->rx_drains + 1;
	return true;
}

static void dispatch(struct link *link, const union address *from, const struct careful_ctrl *ctrl)
{
	struct link_peer *peer = link_peer_find(link, from);
	bool meant = false;

	if (ctrl->type == CAREFUL_HELLO) {
		on_hello(link, from, ctrl);
		return;
	}
	if (ctrl->type == CAREFUL_SYNC &&
	    (!peer || !peer->cookie_in || be64toh(ctrl->cookie) != peer->cookie_in)) {
		struct careful_ctrl gone = { .nonce = ctrl->nonce };

		link_count(link, CAREFUL_C_CTRL_UNKNOWN);
		link_ctrl_send(link, from, &gone, CAREFUL_GONE);
		return;
	}
	switch (peer ? ctrl->type : 0) {
	case CAREFUL_CHALLENGE:
		meant = on_challenge(peer, ctrl);
		break;
	case CAREFUL_WELCOME:
		meant = on_welcome(peer, ctrl);
		break;
	case CAREFUL_REFUSE:
		meant = on_refuse(peer, ctrl);
		break;
	case CAREFUL_SYNC:
		meant = link_on_sync(peer, ctrl);
		break;
	case CAREFUL_SYNC_ACK:
		meant = link_on_sync_ack(peer, ctrl);
		break;
	case CAREFUL_GONE:
		meant = link_on_gone(peer, ctrl);
		break;
	case CAREFUL_BYE:
		meant = on_bye(peer, ctrl);
		break;
	default:
		break;
	}
	if (!meant)
		link_count(link, CAREFUL_C_CTRL_UNKNOWN);
}

/* Another version: say which one is spoken here; believe a REFUSE that does so. */
static void other_version(struct link *link, const union address *from,
			  const struct careful_ctrl *ctrl)
{
	struct link_peer *peer = link_peer_find(link, from);

	link_count(link, CAREFUL_C_CTRL_VERSION);
	if (ctrl->type == CAREFUL_HELLO)
		refuse(link, from, ctrl, CAREFUL_REFUSED_VERSION);
	else if (ctrl->type == CAREFUL_REFUSE && peer)
		on_refuse(peer, ctrl);
}

static void on_control(struct link *link, const union address *from,
		       const struct careful_ctrl *ctrl, size_t got)
{
	if (got != sizeof(*ctrl) || !(ctrl->type & CAREFUL_CTRL_BIT))
		link_count(link, CAREFUL_C_CTRL_MALFORMED);
	else if (ctrl->version != CAREFUL_WIRE_VERSION)
		other_version(link, from, ctrl);
	else if (be32toh(ctrl->check) != careful_ctrl_check(ctrl))
		link_count(link, CAREFUL_C_CTRL_MALFORMED);
	else
		dispatch(link, from, ctrl);
}

static void on_message(struct link *link, const union address *from,
		       const union link_message *message, size_t got, const struct arrival *arrival)
{
	bool meant;

	if (message->hdr.type == CAREFUL_PING && got >= sizeof(message->hdr)) {
		meant = link_on_ping(link, &message->hdr);
	} else if (message->answer.type == CAREFUL_PING_ANSWER && got == sizeof(message->answer)) {
		meant = link_on_ping_answer(link, from, &message->answer, arrival);
	} else {
		on_control(link, from, &message->ctrl, got);
		return;
	}
	if (!meant)
		link_count(link, CAREFUL_C_CTRL_UNKNOWN);
}

/* ICMP: nobody listens at an address. */
static void on_refused(struct link *link, const union address *at, const union link_message *quoted)
{
	struct link_peer *peer = link_peer_find(link, at);

	if (!peer || !link_on_refused(peer, quoted))
		link_count(link, CAREFUL_C_CTRL_UNKNOWN);
}

/* Reads the control socket: a bounded number of messages, so that a flood of them
 * cannot keep frames waiting. */
void link_control(struct link *link)
{
	struct port *port = link->port;

	for (int i = 0; i < CONTROL_BATCH; i++) {
		union link_message message = { 0 };
		struct arrival arrival = { 0 };
		union address from = { 0 };
		ssize_t got =
			port->ops->ctrl_recv(port, &from, &message, sizeof(message), &arrival);

		if (got == -ECONNREFUSED) {
			on_refused(link, &from, &message);
			continue;
		}
		if (got == -EHOSTUNREACH) {
			link_on_ping_icmp(link, &from, &message.hdr, &arrival);
			continue;
		}
		if (got < 0)
			return;
		on_message(link, &from, &message, (size_t)got, &arrival);
	}
}

/* Whether a handshake waits for the old epoch's buffers. */
static bool waits(const struct link_peer *peer)
{
	return peer->phase == LINK_DRAINING || (peer->phase == LINK_ASKING && peer->token);
}

/* Goes on where the RX ring was seen empty; not only when the clock is looked at. */
void link_drained(struct link *link)
{
	link->draining = false;
	for (uint32_t i = 0; i < link->peers_max; i++) {
		struct link_peer *peer = &link->peers[i];

		link->draining |= link_question_answer(peer);
		if (!waits(peer))
			continue;
		if (peer->phase == LINK_DRAINING)
			try_welcome(peer);
		else
			try_hello(peer);
		if (waits(peer) && !peer->kept_old)
			link->draining = true;
	}
}

/* Called with each question that is repeated. */
void link_unheard(struct link_peer *peer, uint64_t since_ns)
{
	struct port *port = peer->link->port;
	uint64_t now_ns = peer->link->now_ns;

	if (since_ns < peer->distrusted_ns)
		since_ns = peer->distrusted_ns;
	if (!port->ops->distrust || now_ns - since_ns < DISTRUST_MS * 1000000ull)
		return;
	peer->distrusted_ns = now_ns;
	port->ops->distrust(port, &peer->address);
}

static void repeat_hello(struct link_peer *peer)
{
	link_unheard(peer, peer->since_ns);
	peer->retry_ms *= 2;
	if (peer->retry_ms > RETRY_NS / 1000000)
		peer->retry_ms = RETRY_NS / 1000000;
	send_hello(peer);
}

/* Repeats what got no answer, and gives up after a while. */
void link_session_tick(struct link_peer *peer)
{
	struct link *link = peer->link;
	uint64_t limit_ms;

	if (peer->bye_at && link->rx_drains >= peer->bye_at)
		bye(peer);
	limit_ms = peer->state == CAREFUL_PEER_RENEWING ? link->stall_ms : CONNECT_MS;

	if (waits(peer)) {
		link->draining = true;
	} else if (peer->phase == LINK_ASKING || peer->phase == LINK_ASKED) {
		if (link->now_ns - peer->asked_ns >= peer->retry_ms * 1000000ull)
			repeat_hello(peer);
	}
	if (peer->phase != LINK_OPEN && peer->phase != LINK_IDLE &&
	    link->now_ns - peer->since_ns >= limit_ms * 1000000)
		link_close(peer, ETIMEDOUT);
	if (peer->phase == LINK_OPEN && !peer->llhdr.bytes)
		resolve_tick(peer);
}
