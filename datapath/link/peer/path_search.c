// SPDX-License-Identifier: BSD-2-Clause
#include "link/peer/path_search.h"

enum {
	LOSING_TIMES = 8, /* losses of one frame, before the path is probed */
	TOLD_TIMES = 2, /* the same, after ICMP */
	MORE_MS = 20, /* wait for an answer: this and ROUND_TRIPS */
	ROUND_TRIPS = 4,
};

void path_search_begin(struct link_path *path, uint32_t first_ms, uint64_t now_ns)
{
	path->probing = true;
	path->began_ns = path->told ? 0 : now_ns;
	path->told = false;
	path->ended = false;
	path->low = path->high = path->tries = 0;
	path->tried = DEVICE_FRAME_BYTES_MIN;
	path->wait_ms = first_ms;
}

uint32_t path_search_wait_ms(uint64_t round_trip_ns)
{
	return MORE_MS + (uint32_t)(round_trip_ns / 1000000) * ROUND_TRIPS;
}

void path_search_doubt(struct link_peer *peer, uint32_t seq, uint32_t body_bytes, uint32_t times)
{
	struct link_path *path = &peer->session->path;
	uint64_t round_ns = peer->session->missing.round_ns;
	uint64_t since_ns = peer->link->now_ns - path->searched_ns;

	if (times < (path->told ? TOLD_TIMES : LOSING_TIMES) || path->probing ||
	    peer->phase != LINK_OPEN || path_search_blocks(peer, body_bytes) ||
	    (path->searched_ns && since_ns < PATH_AGAIN_S * 1000000000ull && !path->told))
		return;
	path_search_begin(path, round_ns ? path_search_wait_ms(round_ns) : PATH_FIRST_MS,
			  peer->link->now_ns);
	path->lost_seq = seq;
	path->lost_bytes = peer->beside + body_bytes;
}

bool path_search_blocks(const struct link_peer *peer, uint32_t body_bytes)
{
	uint32_t most = peer->session->path.bytes;

	return most && peer->beside + body_bytes > most;
}
