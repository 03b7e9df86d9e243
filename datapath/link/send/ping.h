/* SPDX-License-Identifier: BSD-2-Clause */
/* Pings and their answers (ping.c). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/ping.h>
#include <careful/wire.h>

struct arrival;
struct link;
struct link_peer;
union address;
union link_message;

int link_ping_ask(struct link_peer *peer, const struct careful_ping_ask *ask);
bool link_ping_ended(struct link_peer *peer, struct careful_ping_result *result);
void link_ping_answer(struct link_peer *peer, __be32 frag_off, struct careful_ping_answer *answer,
		      uint64_t end_ns, uint64_t now_ns);
bool link_on_ping(struct link *link, const struct careful_hdr *hdr);
bool link_on_ping_answer(struct link *link, const union address *from,
			 const struct careful_ping_answer *answer, const struct arrival *arrival);
void link_on_ping_icmp(struct link *link, const union address *to, const union link_message *quoted,
		       const struct arrival *arrival);
void link_ping_tick(struct link_peer *peer);
void link_ping_forget(struct link_peer *peer);
void link_ping_reset(struct link_peer *peer);
void link_stamps_tick(struct link *link);
