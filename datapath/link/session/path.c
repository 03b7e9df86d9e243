// SPDX-License-Identifier: BSD-2-Clause
/* The kernel's route to a peer, and the largest frame that fits it. The administrator sets the size
 * (`ip route ... mtu`), or pings of several sizes find it (RFC 8899). The search begins, and holds
 * data back, after losses in several epochs in a row, or in one epoch if ICMP called a frame too
 * large. It also begins when one frame was lost several times, while other data continues. ICMP
 * alone, which anybody can forge, makes no frame smaller. */
#include "link/link_private.h"
#include "link/peer/path_search.h"
#include "link/session/session.h"

enum {
	LOSING_EPOCHS = 2, /* epochs in a row with losses, before the path is probed */
	TRIES = 3, /* unanswered pings, until a size counts as too large */
	NEAR_BYTES = 8, /* the search ends when the bounds are this close */
	RAISE_S = 600, /* until a larger frame is tried again */
	PING_BODY_MAX = 4096, /* the largest probe */
	PATIENCE_MS = 500, /* without ICMP, until a lost frame counts as too large */
};

/* Returns the largest frame that the path takes, in bytes with its Ethernet header. */
static uint32_t frame_limit(const struct link_peer *peer)
{
	uint32_t limit = queue_frame_bytes(peer->link->queue);
	uint32_t mtu = peer->llhdr.mtu;

	if (mtu && mtu + LINK_ETHERNET_BYTES < limit)
		limit = mtu + LINK_ETHERNET_BYTES;
	if (peer->session->path.bytes && peer->session->path.bytes < limit)
		limit = peer->session->path.bytes;
	return limit > DEVICE_FRAME_BYTES_MIN ? limit : DEVICE_FRAME_BYTES_MIN;
}

/* Fits frames to a path that was found or measured. */
void link_path_fit(struct link_peer *peer)
{
	uint32_t limit = frame_limit(peer);

	link_set_beside(peer);
	peer->frame_bytes = peer->session->frame_bytes < limit ? peer->session->frame_bytes : limit;
}

/* Looks up the route again. Returns 0, -EMSGSIZE if messages under way were cut for frames that no
 * longer fit, or the errno of a lost route. A session that waits for its next epoch notes that errno
 * as the reason. *moved: there is a route, but from another address of ours. */
int link_path_again(struct link_peer *peer, bool *moved)
{
	struct port *port = peer->link->port;
	struct llhdr fresh = { .moved = false };
	bool lost;
	int rc;

	*moved = false;
	if (peer->state == CAREFUL_PEER_NONE || peer->state == CAREFUL_PEER_FAILED)
		return 0;
	rc = port->ops->resolve(port, &peer->session->address, &fresh);
	lost = rc == -ENETUNREACH || rc == -EXDEV || rc == -ENOTUNIQ;
	*moved = fresh.moved && !lost;
	if (!link_has_epoch(peer)) {
		peer->session->last_errno = lost ? -rc : 0;
		return 0;
	}
	if (lost)
		return rc;
	if (!rc)
		peer->llhdr = fresh;
	link_set_beside(peer);
	return peer->frame_bytes > frame_limit(peer) ? -EMSGSIZE : 0;
}

bool link_path_narrow(const struct link_peer *peer)
{
	return peer->frame_bytes < peer->session->frame_bytes;
}

static uint32_t probe_max(const struct link_peer *peer)
{
	uint32_t body = link_body_single(peer);

	return peer->llhdr.bytes + LINK_HDR_BYTES + (body < PING_BODY_MAX ? body : PING_BODY_MAX);
}

/* Notes that ICMP called a frame of this epoch too large. */
bool link_path_told(struct link_peer *peer)
{
	peer->session->path.told = true;
	return true;
}

/* Called when an epoch begins. Reports whether data waits until the path has been probed. */
bool link_path_begin(struct link_peer *peer)
{
	struct session *session = peer->session;
	struct link_path *path = &session->path;
	uint64_t lost = session->lost_here + session->lost_there;
	uint64_t now_ns = peer->link->now_ns;
	uint32_t wait_s;
	bool due;

	path->losing = lost > path->lost ? path->losing + 1 : 0;
	path->lost = lost;
	path->probing = false;
	due = path->losing >= (path->told ? 1 : LOSING_EPOCHS);
	wait_s = path->bytes && !due ? RAISE_S : PATH_AGAIN_S;
	if (path->searched_ns && now_ns - path->searched_ns < wait_s * 1000000000ull &&
	    !(due && path->told))
		return false;
	path->bytes = 0;
	if (!due || peer->link->traditional)
		return false;
	path_search_begin(path, PATH_FIRST_MS, now_ns);
	path->lost_bytes = 0;
	return true;
}

/* Ends the search: frames of this many bytes pass. 0: all sizes pass, or none. */
static void conclude(struct link_peer *peer, uint32_t bytes)
{
	struct link_path *path = &peer->session->path;

	path->probing = false;
	path->losing = 0;
	path->bytes = bytes;
	path->searched_ns = peer->link->now_ns;
	if (peer->phase == LINK_OPEN)
		link_path_fit(peer);
	path->renews = bytes && bytes < peer->frame_bytes; /* messages were cut for larger frames */
}

/* Ends the search with a limit, unless the lost frame has arrived or may still do so: a device that
 * had no buffers for a while is no narrow path. */
static void conclude_limit(struct link_peer *peer, uint32_t bytes)
{
	struct link_path *path = &peer->session->path;
	uint64_t spent_ns = peer->link->now_ns - path->began_ns;

	if (path->lost_bytes && link_resolved(peer, path->lost_seq))
		conclude(peer, 0);
	else if (!path->lost_bytes || spent_ns >= PATIENCE_MS * 1000000ull)
		conclude(peer, bytes);
}

/* Chooses the next size, and after the first answer how long to wait for later ones. */
static void step(struct link_peer *peer)
{
	struct link_path *path = &peer->session->path;
	uint32_t most = probe_max(peer);
	bool first = !path->low;

	if (!path->passed && ++path->tries < TRIES)
		return;
	path->tries = 0;
	if (path->passed)
		path->low = path->tried;
	else
		path->high = path->tried;
	if (!path->low) {
		conclude(peer, 0);
	} else if (path->low >= most) {
		if (path->lost_bytes > most) /* no larger ping exists */
			conclude_limit(peer, most);
		else
			conclude(peer, 0);
	} else if (first) {
		path->wait_ms = path_search_wait_ms(path->round_trip_ns);
		path->tried = most;
	} else if (path->high - path->low <= NEAR_BYTES) {
		conclude_limit(peer, path->low);
	} else {
		path->tried = (path->low + path->high) / 2;
	}
}

enum link_path_state link_path_tick(struct link_peer *peer)
{
	struct link_path *path = &peer->session->path;
	struct careful_ping_ask ask = { .stage = CAREFUL_STAGE_NET_RX };
	int rc;

	if (path->probing && peer->llhdr.bytes && path->ended) {
		path->ended = false;
		step(peer);
	}
	if (path->probing && peer->llhdr.bytes && !peer->session->ping.asked) {
		ask.bytes = path->tried - LINK_ETHERNET_BYTES;
		ask.timeout_ms = path->wait_ms;
		rc = link_ping_ask(peer, &ask);
		path->asks = !rc;
		if (rc && rc != -EAGAIN)
			conclude(peer, 0);
	}
	if (path->renews) {
		path->renews = false;
		return LINK_PATH_RENEWS;
	}
	return path->probing ? LINK_PATH_PROBES : LINK_PATH_KNOWN;
}
