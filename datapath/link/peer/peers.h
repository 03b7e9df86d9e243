/* SPDX-License-Identifier: BSD-2-Clause */
/* The functions of peer.c that only link/ calls. */
#pragma once

#include "link/link_private.h"

bool link_peer_at(const struct link_peer *peer, const union address *address);
struct link_peer *link_peer_from(struct link *link, const union address *from,
				 const struct careful_ctrl *ctrl);
struct link_host link_host_of(const struct link_peer *peer);
bool link_peer_belongs(const struct link_peer *peer, const struct link_host *host);
uint32_t link_peer_taken(const struct link *link, const struct link_host *host);
bool link_peer_welcome(struct link *link, const struct link_host *host);
bool link_peer_free(const struct link_peer *peer);
struct link_peer *link_peer_with(struct link *link, const struct careful_hdr *hdr);
void link_state(struct link_peer *peer, uint8_t state);
bool link_say(struct link_peer *peer, struct careful_ctrl *ctrl, uint8_t type);
bool link_ctrl_send(struct link *link, const union address *to, struct careful_ctrl *ctrl,
		    uint8_t type);
void link_recheck_address(struct link_peer *peer, uint64_t since_ns);
