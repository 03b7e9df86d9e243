/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/health.h"
#include "device/xsk/xsk.h"
#include "engine/sharing.h"
#include "engine/xdp_mode.h"

enum { MAC_BYTES = 6 };

struct trouble {
	size_t offset; /* of a uint64_t in struct careful_info */
	const char *text;
};

#define COUNTER(name) \
	(offsetof(struct careful_info, counters) + sizeof(uint64_t) * CAREFUL_C_##name)
#define STATISTIC(name) offsetof(struct careful_info, statistics.name)

static const struct trouble troubles[] = {
	{ COUNTER(LOST_FRAMES), "frames lost" }, /* loss_place() adds the place */
	{ COUNTER(BAD_CREDITS), "impossible credits" },
	{ COUNTER(EPOCHS_BROKEN), "epochs broken" },
	{ COUNTER(STALLS), "stalls" },
	{ COUNTER(DIGEST_BAD), "damaged blocks" },
	{ COUNTER(DROP_CRC), "damaged frames" },
	{ COUNTER(CREDITS_WITHHELD), "times that credits were withheld" },
	{ COUNTER(CTRL_REFUSED), "sessions refused" },
	{ COUNTER(CTRL_KEY), "of these without a key that is trusted here (carefulctl key)" },
	{ COUNTER(CTRL_PROTOCOL), "of these with the other protocol (up --protocol)" },
	{ COUNTER(CTRL_VERSION),
	  "control messages of another wire version (carefulctl --version)" },
	{ COUNTER(CTRL_LIMITED), "control messages over the limit" },
	{ COUNTER(CTRL_FORGED), "control messages without a valid proof" },
	{ COUNTER(DROP_SEAL), "sealed frames that were forged or repeated" },
	{ COUNTER(CTRL_MALFORMED), "malformed control messages" },
	{ COUNTER(PATHS_DENIED), "paths denied to peers" },
	{ STATISTIC(rx_refused), "frames refused (status --json: xdp_counters)" },
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

/* Returns where frames were lost, for troubles[0] only. A peer logs losses in its XDP program. */
static const char *loss_place(const struct careful_info *info, size_t index)
{
	if (index)
		return "";
	return info->statistics.program_detached ? " without the XDP program" : " on the way";
}

static void check_program(struct health *health, const struct careful_info *info)
{
	const char *ifname = info->device.ifname;
	bool detached = info->statistics.program_detached;

	if (detached && !health->detached)
		log_line("%s: the XDP program was removed from the interface, so no frame arrives: "
			 "carefulctl down %s, then up",
			 ifname, ifname);
	health->detached = detached;
}

static void check_counters(struct health *health, const struct careful_info *info)
{
	char line[1600] = "";
	size_t n = 0;

	for (size_t i = 0; i < sizeof(troubles) / sizeof(troubles[0]); i++) {
		uint64_t more = value(info, &troubles[i]) - value(&health->logged, &troubles[i]);

		if (more)
			n += (size_t)snprintf(line + n, sizeof(line) - n, "%s%llu %s%s",
					      n ? ", " : "", (unsigned long long)more,
					      troubles[i].text, loss_place(info, i));
	}
	/* If the rate limit forbids a line now, a later line includes these counts. */
	if (!n || !log_allowed(&health->counters_limit))
		return;
	log_line("%s: %s", info->device.ifname, line);
	health->logged = *info;
}

static bool same_mac(const uint8_t *a, const uint8_t *b)
{
	return !memcmp(a, b, MAC_BYTES);
}

static bool has_mac(const uint8_t *mac)
{
	static const uint8_t none[MAC_BYTES];

	return !same_mac(mac, none);
}

static void log_mac(const char *whose, const uint8_t *was, const uint8_t *is)
{
	log_line("%s: the link address changed from %02x:%02x:%02x:%02x:%02x:%02x "
		 "to %02x:%02x:%02x:%02x:%02x:%02x",
		 whose, was[0], was[1], was[2], was[3], was[4], was[5], is[0], is[1], is[2], is[3],
		 is[4], is[5]);
}

/* Reads the interface's state; keeps fields that cannot be read now. */
static void read_interface(const struct health *health, struct ifreq *ifr,
			   struct health_interface *now)
{
	const struct sockaddr_in *in = (const void *)&ifr->ifr_addr;

	if (ioctl(health->socket_fd, SIOCGIFFLAGS, ifr) == 0)
		now->down = !(ifr->ifr_flags & IFF_UP);
	if (ioctl(health->socket_fd, SIOCGIFMTU, ifr) == 0)
		now->mtu = (uint32_t)ifr->ifr_mtu;
	if (ioctl(health->socket_fd, SIOCGIFHWADDR, ifr) == 0)
		memcpy(now->mac, ifr->ifr_hwaddr.sa_data, MAC_BYTES);
	ifr->ifr_addr.sa_family = AF_INET;
	if (ioctl(health->socket_fd, SIOCGIFADDR, ifr) == 0)
		now->address = in->sin_addr;
	else if (errno == EADDRNOTAVAIL)
		now->address.s_addr = 0;
}

static void log_address(const char *ifname, struct in_addr was, struct in_addr is)
{
	char from[INET_ADDRSTRLEN] = "none", to[INET_ADDRSTRLEN] = "none";

	if (was.s_addr)
		inet_ntop(AF_INET, &was, from, sizeof(from));
	if (is.s_addr)
		inet_ntop(AF_INET, &is, to, sizeof(to));
	log_line("%s: the IPv4 address changed from %s to %s", ifname, from, to);
}

static int check_interface(struct health *health, struct careful *instance,
			   const struct careful_info *info)
{
	struct ifreq ifr = { .ifr_ifindex = (int)info->device.ifindex };
	struct health_interface *was = &health->interface, now = *was;
	struct netdev netdev = { .ifindex = info->device.ifindex };

	if (ioctl(health->socket_fd, SIOCGIFNAME, &ifr)) {
		if (errno != ENODEV)
			return 0;
		log_line("%s: the interface was deleted, or moved to another network namespace",
			 info->device.ifname);
		return -ENODEV;
	}
	read_interface(health, &ifr, &now);
	if (now.down != was->down)
		log_line("%s: the interface is %s", ifr.ifr_name, now.down ? "down" : "up again");
	if (now.mtu != was->mtu)
		log_line("%s: the MTU changed from %u to %u; frames now have at most %u bytes",
			 ifr.ifr_name, was->mtu, now.mtu, info->device.frame_bytes);
	if (!same_mac(now.mac, was->mac))
		log_mac(ifr.ifr_name, was->mac, now.mac);
	if (now.address.s_addr != was->address.s_addr)
		log_address(ifr.ifr_name, was->address, now.address);
	netdev_read_master(&netdev);
	memcpy(now.master, netdev.master, sizeof(now.master));
	if (now.master[0] && strcmp(now.master, was->master) != 0)
		log_line("%s became a port of %s (%s), which gets all its frames: run `ip link "
			 "set %s nomaster`",
			 ifr.ifr_name, now.master, netdev.master_kind, ifr.ifr_name);
	now.qdiscs = xdp_mode_qdiscs(instance);
	if (now.qdiscs > was->qdiscs)
		log_line(
			"%s: another program removed the pfifo; carefuld restored it, because a full ring loses frames without it",
			ifr.ifr_name);
	*was = now;
	return 0;
}

int health_init(struct health *health, struct careful *instance)
{
	struct ifreq ifr = { 0 };
	int rc;

	memset(health, 0, sizeof(*health));
	rc = careful_info(instance, &health->logged);
	if (rc)
		return rc;
	health->socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (health->socket_fd < 0)
		return -errno;
	memcpy(ifr.ifr_name, health->logged.device.ifname, sizeof(ifr.ifr_name));
	read_interface(health, &ifr, &health->interface);
	health->interface.down = false; /* so that the first check logs an interface that is down */
	health->interface.mtu = health->logged.device.mtu;
	return 0;
}

void health_deinit(struct health *health)
{
	close(health->socket_fd);
}

/* Logs when a peer's control messages stop or return: a firewall sees these, but no frames. */
static void check_control(struct health *health, struct careful *instance, uint32_t peer,
			  uint32_t port)
{
	struct careful_peer_info info;
	bool unheard;

	if (careful_peer_info(instance, peer, &info))
		return;
	unheard = info.flags & CAREFUL_PEER_IS_UNHEARD;
	if (unheard == health->unheard[peer] || !log_allowed(&health->limits[peer]))
		return;
	health->unheard[peer] = unheard;
	if (unheard && health->interface.master[0])
		log_line(
			"peer %u %s: its frames arrive, but no control messages: bridge or bond %s gets them",
			peer, health->names[peer], health->interface.master);
	else if (unheard)
		log_line(
			"peer %u %s: its frames arrive, but no control messages: does a "
			"firewall of either host drop UDP port %u? A lost frame may end the session",
			peer, health->names[peer], port);
	else
		log_line("peer %u %s: control messages arrive again", peer, health->names[peer]);
}

static void check_mac(struct health *health, struct careful *instance, uint32_t peer)
{
	char whose[HEALTH_NAME_BYTES + 16];
	struct careful_peer_whereabouts now;
	uint8_t *was = health->macs[peer];

	if (careful_peer_whereabouts(instance, peer, &now) || !has_mac(now.mac) ||
	    same_mac(now.mac, was))
		return;
	snprintf(whose, sizeof(whose), "peer %u %s", peer, health->names[peer]);
	if (has_mac(was) && log_allowed(&health->limits[peer]))
		log_mac(whose, was, now.mac);
	memcpy(was, now.mac, MAC_BYTES);
}

int health_check(struct health *health, struct careful *instance)
{
	struct careful_info info;
	int rc = careful_info(instance, &info);

	if (rc)
		return rc;
	check_counters(health, &info);
	for (uint32_t i = 0; i < info.peers_max; i++) {
		check_mac(health, instance, i);
		check_control(health, instance, i, info.port);
	}
	rc = check_interface(health, instance, &info);
	if (!rc) /* without the interface, its program is gone, too */
		check_program(health, &info);
	return rc;
}

static const char *const state_names[] = {
	[CAREFUL_PEER_NONE] = "gone",
	[CAREFUL_PEER_CONNECTING] = "connecting",
	[CAREFUL_PEER_UP] = "up",
	[CAREFUL_PEER_STALLED] = "stalled",
	[CAREFUL_PEER_RENEWING] = "beginning a new epoch",
	[CAREFUL_PEER_FAILED] = "failed",
};

/* text has INET6_ADDRSTRLEN bytes. */
static void address_text(const struct sockaddr_storage *address, char *text)
{
	const struct sockaddr_in *in = (const void *)address;
	const struct sockaddr_in6 *in6 = (const void *)address;
	bool six = address->ss_family == AF_INET6;

	snprintf(text, INET6_ADDRSTRLEN, "?");
	inet_ntop(address->ss_family,
		  six ? (const void *)&in6->sin6_addr : (const void *)&in->sin_addr, text,
		  INET6_ADDRSTRLEN);
}

static void set_name(char *name, const struct careful_peer_info *info)
{
	char address[INET6_ADDRSTRLEN];

	address_text(&info->address, address);
	snprintf(name, HEALTH_NAME_BYTES, "%s%s%.*s", address, info->name[0] ? " " : "",
		 (int)sizeof(info->name), info->name);
}

/* Describes another slot of the same process, which has several addresses or a new one. */
static void describe_twin(struct careful *instance, uint32_t peer, char *text, size_t bytes)
{
	struct careful_peer_whereabouts own, other;
	struct careful_info info;

	if (careful_info(instance, &info) || careful_peer_whereabouts(instance, peer, &own))
		return;
	for (uint32_t i = 0; i < info.peers_max; i++)
		if (i != peer && careful_peer_whereabouts(instance, i, &other) == 0 &&
		    other.incarnation == own.incarnation) {
			snprintf(text, bytes, "; same process as peer %u", i);
			return;
		}
}

static void describe_failure(struct careful *instance, uint32_t peer, int error, char *text,
			     size_t bytes)
{
	struct sockaddr_storage from = { 0 };
	char address[INET6_ADDRSTRLEN];

	if (error == EADDRNOTAVAIL && engine_elsewhere(instance, peer, &from) == 0) {
		address_text(&from, address);
		snprintf(text, bytes, ": it answers as %s: use that address", address);
		return;
	}
	snprintf(text, bytes, ": %s", strerror(error));
}

void health_peer_changed(struct health *health, struct careful *instance, uint32_t peer,
			 uint32_t state)
{
	struct careful_peer_info info = { 0 };
	bool known = careful_peer_info(instance, peer, &info) == 0;
	char more[96] = "";

	/* With NONE, info describes the slot's next peer. */
	if (known && state != CAREFUL_PEER_NONE)
		set_name(health->names[peer], &info);
	if (state == CAREFUL_PEER_NONE)
		memset(health->macs[peer], 0, MAC_BYTES);
	if (state == CAREFUL_PEER_NONE || state == CAREFUL_PEER_FAILED)
		health->unheard[peer] = false;
	if (state == CAREFUL_PEER_FAILED && info.last_errno == EREMCHG)
		return; /* the peer belongs to another queue */
	if (state >= sizeof(state_names) / sizeof(state_names[0]) ||
	    !log_allowed(&health->limits[peer]))
		return;
	if (state == CAREFUL_PEER_FAILED && info.state != CAREFUL_PEER_FAILED) {
		log_line("peer %u %s: another process has its address now", peer,
			 health->names[peer]);
		return;
	}
	if (state == CAREFUL_PEER_FAILED)
		describe_failure(instance, peer, info.last_errno, more, sizeof(more));
	else if (state == CAREFUL_PEER_RENEWING && info.last_errno)
		snprintf(more, sizeof(more),
			 "; nothing is sent: the kernel has no route to it through this interface");
	else if (state == CAREFUL_PEER_UP)
		describe_twin(instance, peer, more, sizeof(more));
	if (state == CAREFUL_PEER_UP && info.burst == CAREFUL_BURST_SHORT && !more[0])
		snprintf(more, sizeof(more), "; window %u: the path carries %u frames at once",
			 info.window, info.burst_frames);
	if (state == CAREFUL_PEER_UP && info.flags & CAREFUL_PEER_IS_NARROW && !more[0])
		snprintf(more, sizeof(more), "; frames of at most %u bytes: path MTU %u",
			 info.frame_bytes, info.frame_bytes - ETH_HLEN);
	log_line("peer %u %s: %s%s", peer, health->names[peer], state_names[state], more);
}
