// SPDX-License-Identifier: BSD-2-Clause
/* The calls about peers, and the reports of their changes. Ends the work of an ended epoch. */
#include "link/session/queue_choice.h"
#include "engine/engine.h"

#include <errno.h>
#include <string.h>

static void epoch_over(struct careful *c, struct link_peer *peer)
{
	message_forget(&c->messages, peer);
	message_pump(&c->messages, peer);
	bulk_sent(c);
	operations_reset(c, peer, operation_over_status(peer));
	if (c->events)
		c->event_hooks->epoch_over(c, peer);
}

static void call_watcher(struct careful *c, uint32_t peer, uint8_t state)
{
	c->callbacks++;
	if (c->watch)
		c->watch(c, peer, state, c->watch_user);
}

void peers_epochs(struct careful *c)
{
	if (!link_take_changed(&c->link))
		return;
	c->changed = true;
	for (uint32_t i = 0; i < c->link.peers_max; i++) {
		struct link_peer *peer = &c->link.peers[i];

		if (c->reported[i].epoch != peer->epoch) {
			c->reported[i].epoch = peer->epoch;
			epoch_over(c, peer);
		}
	}
}

/* Reports a peer's changes since the last report. The watcher may change the peer again. */
static void report_changes(struct careful *c, uint32_t index)
{
	const struct link_peer *peer = &c->link.peers[index];
	struct engine_reported *reported = &c->reported[index];

	if (reported->tenants != link_tenants(peer)) {
		bool had_peer = reported->state != CAREFUL_PEER_NONE;

		reported->tenants = link_tenants(peer);
		reported->lives = 0;
		reported->state = CAREFUL_PEER_NONE;
		if (had_peer) /* the slot has another host now */
			call_watcher(c, index, CAREFUL_PEER_NONE);
	}
	if (reported->lives != link_lives(peer)) {
		bool again = reported->lives != 0 && link_lives(peer) != 0;

		reported->lives = link_lives(peer);
		if (again) /* the peer restarted: handles of its former process are void */
			call_watcher(c, index, CAREFUL_PEER_FAILED);
	}
	if (reported->state != peer->state) {
		reported->state = peer->state;
		call_watcher(c, index, reported->state);
	}
}

void peers_report(struct careful *c)
{
	if (!c->changed)
		return;
	c->changed = false;
	for (uint32_t i = 0; i < c->link.peers_max; i++)
		report_changes(c, i);
}

/* Reports the changes that the running call made to a peer. others: other peers changed earlier. */
static void report_own(struct careful *c, uint32_t index, bool others)
{
	peers_epochs(c);
	c->changed = others;
	report_changes(c, index);
}

/* Looks up a route from our interface. Returns -ENETUNREACH if there is none, -ENOTUNIQ if the
 * address is our own. Other failures may be temporary. */
static int check_route(struct careful *c, const union address *to)
{
	struct llhdr unused;
	int rc = c->port->ops->resolve(c->port, to, &unused);

	return rc == -EXDEV || rc == -ENETDOWN ? -ENETUNREACH : rc;
}

int careful_peer_moved(struct careful *c, uint32_t index, uint32_t *queue, uint32_t *port)
{
	const struct link_peer *peer = engine_peer(c, index);

	return peer && queue_choice_target(peer, queue, port) ? 0 : -ENOENT;
}

int own_peer(struct careful *c, const struct sockaddr *address, uint32_t bytes, uint32_t queues)
{
	bool others = c->changed || c->link.changed;
	union address to = { 0 };
	struct link_peer *peer;
	uint16_t *port;
	int rc;

	if (address->sa_family == AF_INET && bytes >= sizeof(to.in)) {
		memcpy(&to.in, address, sizeof(to.in));
		port = &to.in.sin_port;
	} else if (address->sa_family == AF_INET6 && bytes >= sizeof(to.in6)) {
		memcpy(&to.in6, address, sizeof(to.in6));
		port = &to.in6.sin6_port;
	} else {
		return -EAFNOSUPPORT;
	}
	if (c->gone)
		return -ENODEV;
	if (!*port)
		*port = htons((uint16_t)c->options.port);
	peer = link_peer_find(&c->link, &to);
	if (!peer || peer->state == CAREFUL_PEER_FAILED) {
		rc = check_route(c, &to);
		if (rc == -ENETUNREACH || rc == -ENOTUNIQ)
			return rc;
	}
	link_set_now(&c->link, c->port->ops->now_ns(c->port));
	peer = link_peer_get(&c->link, &to);
	if (!peer && !window_yield_await(&c->link, &to))
		return -EADDRINUSE;
	if (!peer)
		peer = link_peer_get(&c->link, &to);
	if (!peer)
		return -EAGAIN;
	queue_choice_ask(peer, queues);
	link_connect(peer);
	report_own(c, peer->slot, others);
	return peer->slot;
}

int own_peer_close(struct careful *c, uint32_t peer)
{
	bool others = c->changed || c->link.changed;
	struct link_peer *p = engine_peer(c, peer);

	if (!p)
		return -ENOENT;
	link_close(p, 0);
	report_own(c, peer, others);
	return 0;
}

int own_peer_info(struct careful *c, uint32_t index, struct careful_peer_info *info)
{
	struct link_peer *peer = engine_peer(c, index);

	if (!peer)
		return -ENOENT;
	link_peer_info(peer, info);
	info->messages_out = c->messages.peers[index].messages;
	return 0;
}

int own_peer_measure(struct careful *c, uint32_t index)
{
	bool others = c->changed || c->link.changed;
	struct link_peer *peer = engine_peer(c, index);

	if (!peer)
		return -ENOENT;
	if (!link_is_open(peer))
		return -ENOTCONN;
	if (c->messages.peers[index].messages || peer->operations || peer->kept)
		return -EBUSY;
	link_set_now(&c->link, c->port->ops->now_ns(c->port));
	link_measure(peer);
	report_own(c, index, others);
	return 0;
}

int own_peer_whereabouts(struct careful *c, uint32_t index, struct careful_peer_whereabouts *where)
{
	struct link_peer *peer = engine_peer(c, index);

	if (!peer)
		return -ENOENT;
	link_peer_whereabouts(peer, where);
	return 0;
}

uint64_t engine_cookie(const struct careful *c, uint32_t peer)
{
	return link_peer_cookie(&c->link.peers[peer]);
}

struct careful_arrivals *engine_arrivals(struct careful *c)
{
	return c->port->ops->arrivals(c->port);
}

bool engine_same_host(const struct careful *c, uint32_t a, uint32_t b)
{
	return link_same_host(&c->link.peers[a], &c->link.peers[b]);
}

bool engine_peer_key(const struct careful *c, uint32_t peer, uint8_t *key)
{
	return link_peer_key(&c->link.peers[peer], key);
}

int engine_elsewhere(struct careful *c, uint32_t index, struct sockaddr_storage *address)
{
	const struct link_peer *peer = engine_peer(c, index);

	if (!peer)
		return -ENOENT;
	memcpy(address, link_elsewhere(peer), sizeof(struct sockaddr_in6));
	return 0;
}
