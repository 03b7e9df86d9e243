/* SPDX-License-Identifier: BSD-2-Clause */
/* See health.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/health.h"

struct trouble {
	size_t offset; /* of a uint64_t in struct careful_info */
	const char *text;
};

#define COUNTER(name) \
	(offsetof(struct careful_info, counters) + sizeof(uint64_t) * CAREFUL_C_##name)
#define STATISTIC(name) offsetof(struct careful_info, statistics.name)

/* Signs that the promise broke or that something is slow. What strangers send is
 * counted, not logged. */
static const struct trouble troubles[] = {
	{ COUNTER(LOST_FRAMES), "frames lost by the network" },
	{ COUNTER(BAD_CREDITS), "impossible credits" },
	{ COUNTER(EPOCHS_BROKEN), "epochs broken" },
	{ COUNTER(STALLS), "stalls" },
	{ COUNTER(DIGEST_BAD), "damaged blocks" },
	{ COUNTER(DROP_CRC), "damaged frames" },
	{ COUNTER(CREDITS_WITHHELD), "times that credits had to be withheld" },
	{ COUNTER(CTRL_REFUSED), "sessions refused" },
	{ STATISTIC(rx_ring_full), "frames lost to a full RX ring" },
	{ STATISTIC(rx_fill_ring_empty), "frames lost to an empty fill ring" },
	{ STATISTIC(rx_dropped), "frames dropped by the device" },
	{ STATISTIC(kicks_failed), "kicks that failed" },
};

static uint64_t value(const struct careful_info *info, const struct trouble *trouble)
{
	uint64_t v;

	memcpy(&v, (const char *)info + trouble->offset, sizeof(v));
	return v;
}

static void check_counters(struct health *health, const struct careful_info *info)
{
	char line[900] = "";
	size_t n = 0;

	for (size_t i = 0; i < sizeof(troubles) / sizeof(troubles[0]); i++) {
		uint64_t more = value(info, &troubles[i]) - value(&health->logged, &troubles[i]);

		if (more)
			n += (size_t)snprintf(line + n, sizeof(line) - n, "%s%llu %s",
					      n ? ", " : "", (unsigned long long)more,
					      troubles[i].text);
	}
	/* What is not logged now is part of the next line. */
	if (!n || !log_allowed(&health->counters_limit))
		return;
	log_line("%s: %s", info->device.ifname, line);
	health->logged = *info;
}

static int check_interface(struct health *health, const struct careful_info *info)
{
	struct ifreq ifr = { .ifr_ifindex = (int)info->device.ifindex };
	bool down;

	if (ioctl(health->socket_fd, SIOCGIFNAME, &ifr)) {
		if (errno != ENODEV)
			return 0;
		log_line("%s: the interface was deleted", info->device.ifname);
		return -ENODEV;
	}
	if (ioctl(health->socket_fd, SIOCGIFFLAGS, &ifr))
		return 0;
	down = !(ifr.ifr_flags & IFF_UP);
	if (down != health->down)
		log_line("%s: the interface is %s", ifr.ifr_name, down ? "down" : "up again");
	health->down = down;
	if (ioctl(health->socket_fd, SIOCGIFMTU, &ifr))
		return 0;
	if ((uint32_t)ifr.ifr_mtu != health->mtu)
		log_line("%s: the MTU changed from %u to %d; frames have at most %u bytes",
			 ifr.ifr_name, health->mtu, ifr.ifr_mtu, info->device.frame_bytes);
	health->mtu = (uint32_t)ifr.ifr_mtu;
	return 0;
}

int health_init(struct health *health, struct careful *instance)
{
	int rc;

	memset(health, 0, sizeof(*health));
	rc = careful_info(instance, &health->logged);
	if (rc)
		return rc;
	health->mtu = health->logged.device.mtu;
	health->socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return health->socket_fd < 0 ? -errno : 0;
}

void health_deinit(struct health *health)
{
	close(health->socket_fd);
}

int health_check(struct health *health, struct careful *instance)
{
	struct careful_info info;
	int rc = careful_info(instance, &info);

	if (rc)
		return rc;
	check_counters(health, &info);
	return check_interface(health, &info);
}

static const char *const state_names[] = {
	[CAREFUL_PEER_NONE] = "gone",
	[CAREFUL_PEER_CONNECTING] = "connecting",
	[CAREFUL_PEER_UP] = "up",
	[CAREFUL_PEER_STALLED] = "stalled",
	[CAREFUL_PEER_RENEWING] = "beginning a new epoch",
	[CAREFUL_PEER_FAILED] = "failed",
};

static void take_name(char *name, const struct careful_peer_info *info)
{
	const struct sockaddr_in *in = (const void *)&info->address;
	const struct sockaddr_in6 *in6 = (const void *)&info->address;
	bool six = info->address.ss_family == AF_INET6;
	char address[INET6_ADDRSTRLEN] = "?";

	inet_ntop(info->address.ss_family,
		  six ? (const void *)&in6->sin6_addr : (const void *)&in->sin_addr, address,
		  sizeof(address));
	snprintf(name, HEALTH_NAME_BYTES, "%s%s%.*s", address, info->name[0] ? " " : "",
		 (int)sizeof(info->name), info->name);
}

void health_peer_changed(struct health *health, struct careful *instance, uint32_t peer,
			 uint32_t state)
{
	struct careful_peer_info info = { 0 };

	if (careful_peer_info(instance, peer, &info) == 0)
		take_name(health->names[peer], &info);
	if (state >= sizeof(state_names) / sizeof(state_names[0]) ||
	    !log_allowed(&health->peers_limit))
		return;
	log_line("peer %u %s: %s%s%s", peer, health->names[peer], state_names[state],
		 state == CAREFUL_PEER_FAILED ? ": " : "",
		 state == CAREFUL_PEER_FAILED ? strerror((int)info.last_errno) : "");
}
