/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the log says of the network: peers that come, go and stall, promises that
 * broke, and what becomes of the interface.
 */
#ifndef DAEMON_HEALTH_H
#define DAEMON_HEALTH_H

#include <netinet/in.h>
#include <stdbool.h>

#include <careful/abi.h>
#include <careful/careful.h>

#include "daemon/log.h"

enum { HEALTH_NAME_BYTES = 88 };

/*
 * The interface as it was last seen.
 *
 * @address: its IPv4 address; 0: none
 * @master:  the bridge or bond that it is a port of; "": none
 * @qdiscs:  how often its pfifo was put back
 */
struct health_interface {
	bool down;
	uint32_t mtu;
	uint8_t mac[6];
	struct in_addr address;
	char master[16];
	uint32_t qdiscs;
};

/*
 * @logged: what the counters were when they were last spoken of
 * @names:  of each peer, address and name: once it is gone, nobody else knows
 * @macs:   of each peer, where frames to it went; 0: not known
 * @unheard: of each peer, whether it was said that no control message of it comes
 * @limits: of each peer: one that comes and goes hides nothing that is said of others
 */
struct health {
	int socket_fd;
	bool detached; /* the XDP program is off the interface */
	struct health_interface interface;
	struct careful_info logged;
	struct log_limit counters_limit;
	struct log_limit limits[CAREFUL_PEERS_MAX];
	char names[CAREFUL_PEERS_MAX][HEALTH_NAME_BYTES];
	uint8_t macs[CAREFUL_PEERS_MAX][6];
	bool unheard[CAREFUL_PEERS_MAX];
};

int health_init(struct health *health, struct careful *instance);
void health_deinit(struct health *health);
/* Looks at the counters, the interface, whether each peer's control messages come and who is
 * next on the way to it, once a second or so. -ENODEV where the interface no longer exists. */
int health_check(struct health *health, struct careful *instance);
/* A peer's state changed; from careful_peer_watch(). */
void health_peer_changed(struct health *health, struct careful *instance, uint32_t peer,
			 uint32_t state);

#endif /* DAEMON_HEALTH_H */
