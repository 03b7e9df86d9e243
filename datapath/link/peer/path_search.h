/* SPDX-License-Identifier: BSD-2-Clause */
/* When to search for the largest frame that a path takes, and which frames its limit blocks.
 * session/path.c searches. */
#pragma once

#include "link/link_private.h"

enum {
	PATH_FIRST_MS = 500, /* longest wait for the first answer */
	PATH_AGAIN_S = 10, /* between two searches */
};

void path_search_begin(struct link_path *path, uint32_t first_ms, uint64_t now_ns);
/* Returns how long to wait for an answer if others took this long. */
uint32_t path_search_wait_ms(uint64_t round_trip_ns);
/* Begins a search if a frame was lost often. times: how often it was sent again */
void path_search_doubt(struct link_peer *peer, uint32_t seq, uint32_t body_bytes, uint32_t times);
/* Reports whether a frame with this body is too large for the path. */
bool path_search_blocks(const struct link_peer *peer, uint32_t body_bytes);
