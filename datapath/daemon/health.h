/* SPDX-License-Identifier: BSD-2-Clause */
/* Logs changes of peers and of the interface, and counted faults. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>

#include <careful/abi.h>
#include <careful/careful.h>

#include "daemon/log.h"

enum { HEALTH_NAME_BYTES = 88 };

struct health_interface {
	bool down;
	uint32_t mtu;
	uint8_t mac[6];
	struct in_addr address; /* its IPv4 address; 0: none */
	char master[16]; /* its bridge or bond; "": none */
	uint32_t qdiscs; /* how often its pfifo was restored */
};

struct health {
	int socket_fd;
	bool detached; /* the XDP program is off the interface */
	struct health_interface interface;
	struct careful_info logged; /* the counters when they were last logged */
	struct log_limit counters_limit;
	/* one rate limit per peer, so that an unstable peer suppresses no line about others */
	struct log_limit limits[CAREFUL_PEERS_MAX];
	/* address and name of each peer, for the line that reports that the peer is gone */
	char names[CAREFUL_PEERS_MAX][HEALTH_NAME_BYTES];
	uint8_t macs[CAREFUL_PEERS_MAX][6]; /* link address for frames to each peer; 0: not known */
	/* the last line about each peer's control messages was that none arrive */
	bool unheard[CAREFUL_PEERS_MAX];
};

int health_init(struct health *health, struct careful *instance);
void health_deinit(struct health *health);
/* Checks the counters, the interface, and each peer's control messages and next hop. Call it about
 * once a second. Returns -ENODEV if the interface no longer exists. */
int health_check(struct health *health, struct careful *instance);
/* Logs a peer's new state; called from careful_peer_watch(). */
void health_peer_changed(struct health *health, struct careful *instance, uint32_t peer,
			 uint32_t state);
