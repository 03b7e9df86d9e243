// SPDX-License-Identifier: BSD-2-Clause
/* Opens and closes a link, reports its state, and handles changes of the device. Allocates all
 * memory of link/. */
#include "link/send/group.h"
#include "link/link_private.h"
#include "link/repair/repair.h"
#include "link/session/session.h"
#include "base/error.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *bound_name(uint32_t bound)
{
	static const char *const names[CAREFUL_BOUNDS] = {
		[CAREFUL_BOUND_UMEM] = "the UMEM",
		[CAREFUL_BOUND_FILL_RING] = "the fill ring",
		[CAREFUL_BOUND_RX_RING] = "the socket's RX ring",
		[CAREFUL_BOUND_DEVICE_RING] = "the device's RX ring (ethtool -G)",
		[CAREFUL_BOUND_BACKLOG] = "net.core.netdev_max_backlog",
	};

	return bound < CAREFUL_BOUNDS ? names[bound] : "?";
}

/* Returns W = floor(R / P), or explains why it is too small. */
int careful_window(uint32_t receive_buffers, uint32_t bound, uint32_t peers, uint32_t mtu,
		   uint32_t frame_buffers, struct careful_error *error)
{
	uint32_t window = receive_buffers / peers;

	if (window < WINDOW_MIN)
		return explain_option(
			error, -ENOBUFS, bound == CAREFUL_BOUND_UMEM ? "rx_buffers" : "peers",
			"%u peers need %u receive buffers (%d each), but only %u are available, "
			"because of %s: use fewer peers, or raise that limit",
			peers, peers * WINDOW_MIN, WINDOW_MIN, receive_buffers, bound_name(bound));
	if (frame_buffers > window_cost_max(window))
		return refuse(
			error, -EMSGSIZE, peers,
			"MTU %u: a frame fills %u receive buffers, but a window of %u (%u buffers for "
			"%u peers) allows at most %u: use a smaller MTU, fewer peers or more buffers",
			mtu, frame_buffers, window, receive_buffers, peers,
			window_cost_max(window));
	return (int)window;
}

int link_window(struct link *link, const struct careful_options *options,
		struct careful_error *error)
{
	const struct queue *queue = link->queue;
	uint32_t cost = link_frame_cost(queue);
	uint32_t buffers = queue->info.receive_buffers;
	int rc;

	if (options->reserve >= buffers || options->reserve > RESERVE_MAX)
		return refuse(error, -ENOBUFS, reserve,
			      "%u of the %u guaranteed receive buffers leave none for "
			      "windows: reserve fewer",
			      options->reserve, buffers);
	rc = careful_window(buffers - options->reserve, queue->info.receive_bound, options->peers,
			    queue->port->mtu, cost, error);
	if (rc < 0)
		return rc;
	link->window = rc < LINK_WINDOW_MAX ? (uint32_t)rc : LINK_WINDOW_MAX;
	return 0;
}

/* Checks that the send buffers hold the largest frame and an update. */
static int check_send_buffers(const struct queue *queue, struct careful_error *error)
{
	uint32_t first = queue->chunk_bytes - LINK_PAYLOAD_AT;
	uint32_t frame = queue_frame_bytes(queue);
	uint32_t more = frame > first ? frame - first : 0;
	uint32_t need =
		1 + (more + queue->chunk_bytes - 1) / queue->chunk_bytes + LINK_CHUNKS_FREE_MIN;

	if (queue->tx_chunks >= need)
		return 0;
	return refuse(
		error, -ENOBUFS, tx_buffers,
		"MTU %u: a frame needs %u send buffers, and an update needs one more; there are "
		"%u: use more, or a smaller MTU",
		queue->port->mtu, need - LINK_CHUNKS_FREE_MIN, queue->tx_chunks);
}

static void link_init_buffers(struct link *link)
{
	const struct queue *queue = link->queue;

	link->body_most = queue->chunk_bytes - LINK_PAYLOAD_AT;
	if (link->body_most > queue->buffer_bytes)
		link->body_most = queue->buffer_bytes;
	for (uint32_t i = 0; i < queue->tx_chunks; i++)
		link->tx_free[i] = (uint64_t)(queue->rx_chunks + i) * queue->chunk_bytes;
	link->tx_free_count = queue->tx_chunks;
	for (uint32_t i = 0; i < queue->rx_chunks; i++)
		link->kept_free[i] = &link->kept[i];
	link->kept_free_count = queue->rx_chunks;
	for (uint32_t i = queue->rx_chunks; i < queue->rx_chunks + link->pool_count; i++)
		link->kept_free[link->kept_free_count++] = &link->kept[i];
	for (uint32_t i = 0; i < link->pool_count; i++)
		link->pool_free[i] = (int32_t)i;
	share_init(&link->pool_share, link->pool_count, link->peers_max);
}

int link_init(struct link *link, struct queue *queue, const struct careful_options *options,
	      struct careful_error *error)
{
	uint32_t kept_count = queue->rx_chunks + options->copyout_buffers;
	int rc;

	*link = (struct link){ .queue = queue, .port = queue->port, .peers_max = options->peers };
	rc = link_window(link, options, error);
	if (!rc)
		rc = check_send_buffers(queue, error);
	if (rc)
		return rc;
	link->sync_ms = options->sync_ms;
	link->stall_ms = options->stall_ms;
	if (options->keys) {
		rc = keys_load(&link->keys, options->keys, error);
		if (rc)
			return rc;
		link->keyed = true;
	}
	link->measures = options->measure_burst &&
			 options->protocol != CAREFUL_PROTOCOL_TRADITIONAL;
	snprintf(link->name, sizeof(link->name), "%s", options->name);
	link->pool_count = options->copyout_buffers;
	link->pool_buffer_bytes = queue->buffer_bytes;

	link->peers = aligned_alloc(LINK_PEER_LINE, link->peers_max * sizeof(*link->peers));
	link->sessions = calloc(link->peers_max, sizeof(*link->sessions));
	link->heard = calloc(link->peers_max, sizeof(*link->heard));
	link->tx_free = calloc(queue->tx_chunks, sizeof(*link->tx_free));
	link->fill = calloc(queue->rx_chunks, sizeof(*link->fill));
	link->dirty = calloc(link->peers_max, sizeof(struct link_peer *));
	link->kept = calloc(kept_count, sizeof(*link->kept));
	link->kept_lists = calloc(link->peers_max, sizeof(*link->kept_lists));
	link->kept_free = calloc(kept_count, sizeof(struct link_held *));
	link->pool = calloc(link->pool_count + 1, link->pool_buffer_bytes);
	link->pool_free = calloc(link->pool_count + 1, sizeof(*link->pool_free));
	if (!link->peers || !link->sessions || !link->heard || !link->tx_free || !link->fill ||
	    !link->dirty || !link->kept || !link->kept_lists || !link->kept_free || !link->pool ||
	    !link->pool_free || link_lend_init(link)) {
		link_deinit(link);
		return explain(error, -ENOMEM, "out of memory");
	}
	link_init_buffers(link);
	for (uint32_t i = 0; i < link->peers_max; i++) {
		link->peers[i] = (struct link_peer){
			.link = link,
			.session = &link->sessions[i],
			.entry = &link->unused,
			.slot = (uint16_t)i,
		};
		link->kept_lists[i].next = link->kept_lists[i].prev = &link->kept_lists[i];
	}
	rc = seal_init(link, options->seal, error);
	if (rc) {
		link_deinit(link);
		return rc;
	}
	link->repairs = options->protocol != CAREFUL_PROTOCOL_TRADITIONAL &&
			options->repair == CAREFUL_REPAIR_ON;
	if (reservation_init(link, options->reserve) || reorder_init(link) ||
	    (options->protocol == CAREFUL_PROTOCOL_TRADITIONAL && traditional_init(link))) {
		link_deinit(link);
		return explain(error, -ENOMEM, "out of memory");
	}
	link->port->ops->random(link->port, &link->incarnation, sizeof(link->incarnation));
	link->port->ops->random(link->port, link->secret, sizeof(link->secret));
	link->now_ns = link->port->ops->now_ns(link->port);
	return 0;
}

void link_deinit(struct link *link)
{
	traditional_deinit(link);
	reorder_deinit(link);
	reservation_deinit(link);
	seal_deinit(link);
	keys_forget(&link->keys);
	for (uint32_t i = 0; link->sessions && i < link->peers_max; i++)
		keyed_forget(&link->sessions[i].keyed);
	free(link->peers);
	free(link->sessions);
	free(link->heard);
	free(link->tx_free);
	free(link->lent);
	free(link->fill);
	free(link->dirty);
	free(link->kept);
	free(link->kept_lists);
	free(link->kept_free);
	free(link->pool);
	free(link->pool_free);
	*link = (struct link){ 0 };
}

/* Looks up the path to each peer again after routes changed. */
void link_routes_changed(struct link *link)
{
	for (uint32_t i = 0; i < link->peers_max; i++)
		link_way_changed(&link->peers[i]);
}

void link_info(struct link *link, struct careful_info *info)
{
	info->peers_max = link->peers_max;
	info->window = link->window;
	info->protocol = link_protocol(link);
	info->update_threshold = window_threshold(link->window);
	info->copyout_buffers = link->pool_count;
	info->copyout_used = link->pool_count - link->pool_share.free;
	info->reserve_buffers = link->reserve.count;
	info->reserve_free = link->reserve.free;
	info->keyed = link->keyed;
	link_complete(link);
	memcpy(info->counters, link->counters, sizeof(info->counters));
}

void link_peer_info(const struct link_peer *peer, struct careful_peer_info *info)
{
	const struct session *session = peer->session;
	*info = (struct careful_peer_info){
		.state = peer->state,
		.last_errno = (uint16_t)session->last_errno,
		.slot = (uint8_t)peer->slot,
		.frame_bytes = peer->frame_bytes,
		.buffers_kept = peer->kept,
		.operations = peer->operations,
		.epochs = session->epochs,
		.wire_minor = session->minor,
		.flags = (peer->withholding ? CAREFUL_PEER_IS_WITHHELD : 0) |
			 (control_watch_unheard(peer) ? CAREFUL_PEER_IS_UNHEARD : 0) |
			 (link_path_narrow(peer) ? CAREFUL_PEER_IS_NARROW : 0),
		.tx_frames = peer->tx_frames,
		.tx_bytes = peer->tx_bytes,
		.rx_frames = peer->rx_frames,
		.rx_bytes = peer->rx_bytes,
		.lost_here = session->lost_here,
		.lost_there = session->lost_there,
		.sent_again = session->sent_again,
		.asked_again = session->asked_again,
		.asked_silent = session->asked_silent,
		.away_ms = session->away_ns ? (peer->link->now_ns - session->away_ns) / 1000000 : 0,
		.late = session->late,
		.seal = session->seal ? session->seal->mode : CAREFUL_SEAL_OFF,
		.cipher = session->seal ? (uint8_t)session->seal->cipher : 0,
	};
	flow_info(&peer->flow, info);
	if (peer->link->traditional)
		peer->link->traditional->ops->info(peer, info);
	link_train_info(peer, info);
	memcpy(&info->address, &session->address, sizeof(session->address.in6));
	memcpy(info->name, session->name, sizeof(info->name));
}

void link_peer_whereabouts(const struct link_peer *peer, struct careful_peer_whereabouts *where)
{
	*where = (struct careful_peer_whereabouts){ .incarnation = peer->session->incarnation };
	if (peer->llhdr.bytes >= sizeof(where->mac)) /* an Ethernet header begins with it */
		memcpy(where->mac, peer->llhdr.data, sizeof(where->mac));
}

/* Handles a change of the device's MTU. Both ends agree on a smaller one in a new epoch. */
void link_frames_changed(struct link *link)
{
	for (uint32_t i = 0; i < link->peers_max; i++)
		if (link->peers[i].frame_bytes > queue_frame_bytes(link->queue))
			link_break(&link->peers[i]);
}
