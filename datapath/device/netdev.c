// SPDX-License-Identifier: BSD-2-Clause
/* Properties of an interface, read once at open: driver, MTU, queues, ring, master, and steering of
 * our port to our queue. route.c follows later changes. */
#include <ctype.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "device/xsk/xsk.h"

enum { BACKLOG_DEFAULT = 1000 }; /* the kernel's default of net.core.netdev_max_backlog */

static int ethtool(int fd, const char *ifname, void *command)
{
	struct ifreq request = { 0 };

	memcpy(request.ifr_name, ifname, strnlen(ifname, IFNAMSIZ - 1));
	request.ifr_data = command;
	return ioctl(fd, SIOCETHTOOL, &request) ? -errno : 0;
}

static int read_interface(int fd, struct netdev *netdev)
{
	struct ifreq request = { 0 };

	memcpy(request.ifr_name, netdev->name, sizeof(netdev->name));
	if (ioctl(fd, SIOCGIFINDEX, &request))
		return -errno;
	netdev->ifindex = (uint32_t)request.ifr_ifindex;
	if (ioctl(fd, SIOCGIFFLAGS, &request))
		return -errno;
	netdev->flags = (uint16_t)request.ifr_flags;
	if (ioctl(fd, SIOCGIFMTU, &request))
		return -errno;
	netdev->mtu = (uint32_t)request.ifr_mtu;
	if (ioctl(fd, SIOCGIFHWADDR, &request))
		return -errno;
	netdev->hardware = request.ifr_hwaddr.sa_family;
	memcpy(netdev->mac, request.ifr_hwaddr.sa_data, sizeof(netdev->mac));
	return 0;
}

/* Before Linux 7.0, igb_xsk_wakeup() always raised the TX queue's interrupt, and igc_xsk_wakeup()
 * the RX queue's (fixed by d4c13ab36273 and 554a1c34c11a, meant for stable 6.18 and 6.19, too).
 * That is harmless if one interrupt serves both: with more than half of the possible queues in use
 * (igb_set_flag_queue_pairs()), and for igb without MSI-X, which then reports other_count 0. */
bool netdev_wakes_another(const char *driver, const char *release,
			  const struct ethtool_channels *channels)
{
	bool paired = channels->combined_count > channels->max_combined / 2;
	bool msix = channels->other_count;

	if (strtoul(release, NULL, 10) >= 7)
		return false;
	if (!strcmp(driver, "igb"))
		return msix && !paired;
	return !strcmp(driver, "igc") && !(msix && paired);
}

static void read_driver(int fd, struct netdev *netdev)
{
	struct utsname system = { 0 };
	struct ethtool_drvinfo driver = { .cmd = ETHTOOL_GDRVINFO };
	struct ethtool_channels channels = { .cmd = ETHTOOL_GCHANNELS };
	struct ethtool_ringparam ring = { .cmd = ETHTOOL_GRINGPARAM };

	if (!ethtool(fd, netdev->name, &driver))
		memcpy(netdev->driver, driver.driver, sizeof(netdev->driver) - 1);
	else
		snprintf(netdev->driver, sizeof(netdev->driver), "unknown");
	netdev->rx_queues = netdev->tx_queues = 1;
	if (!ethtool(fd, netdev->name, &channels) &&
	    channels.combined_count + channels.rx_count > 1)
		netdev->rx_queues = channels.combined_count + channels.rx_count;
	if (channels.combined_count + channels.tx_count > 1)
		netdev->tx_queues = channels.combined_count + channels.tx_count;
	netdev->combined = channels.combined_count;
	uname(&system);
	netdev->zerocopy_broken = netdev_wakes_another(netdev->driver, system.release, &channels);
	if (!ethtool(fd, netdev->name, &ring))
		netdev->rx_ring = ring.rx_pending;
}

struct link {
	uint32_t master;
	char name[16];
	char kind[16];
};

static void copy_text(char *to, size_t bytes, const struct rtattr *attr)
{
	if (attr)
		snprintf(to, bytes, "%.*s", (int)RTA_PAYLOAD(attr), (const char *)RTA_DATA(attr));
}

static void read_link(const struct nlmsghdr *answer, void *user)
{
	const struct rtattr *attrs = IFLA_RTA(NLMSG_DATA(answer)), *attr;
	size_t bytes = IFLA_PAYLOAD(answer);
	struct link *link = user;

	if (answer->nlmsg_type != RTM_NEWLINK)
		return;
	link->master = rtnl_attr_u32(rtnl_attr(attrs, bytes, IFLA_MASTER));
	copy_text(link->name, sizeof(link->name), rtnl_attr(attrs, bytes, IFLA_IFNAME));
	attr = rtnl_attr(attrs, bytes, IFLA_LINKINFO);
	if (attr)
		copy_text(link->kind, sizeof(link->kind),
			  rtnl_attr(RTA_DATA(attr), RTA_PAYLOAD(attr), IFLA_INFO_KIND));
}

static struct link ask_link(struct rtnl *rtnl, uint32_t ifindex)
{
	struct link link = { 0 };
	struct rtnl_message message;
	struct ifinfomsg *ifi = rtnl_begin(&message, RTM_GETLINK, 0, sizeof(*ifi));

	ifi->ifi_index = (int)ifindex;
	rtnl_ask(rtnl, &message, read_link, &link);
	return link;
}

void netdev_read_master(struct netdev *netdev)
{
	struct rtnl rtnl;
	struct link link;

	netdev->master[0] = 0;
	if (rtnl_open(&rtnl, 0))
		return;
	link = ask_link(&rtnl, netdev->ifindex);
	if (link.master) {
		link = ask_link(&rtnl, link.master);
		if (strcmp(link.kind, "vrf") != 0) {
			memcpy(netdev->master, link.name, sizeof(netdev->master));
			memcpy(netdev->master_kind, link.kind, sizeof(netdev->master_kind));
		}
	}
	rtnl_close(&rtnl);
}

int netdev_read(const char *ifname, struct netdev *netdev, struct careful_error *error)
{
	int fd, rc;

	*netdev = (struct netdev){ 0 };
	if (!ifname || !ifname[0] || strlen(ifname) >= sizeof(netdev->name))
		return explain(error, -ENODEV, "%s: no such interface", ifname ? ifname : "(none)");
	memcpy(netdev->name, ifname, strlen(ifname) + 1);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return explain(error, -errno, "%s: socket(): %s", ifname, strerror(errno));
	rc = read_interface(fd, netdev);
	if (!rc) {
		read_driver(fd, netdev);
		netdev_read_master(netdev);
	}
	close(fd);
	if (rc == -ENODEV)
		return explain(error, rc, "%s: no such interface; `ip link` lists them", ifname);
	if (rc)
		return explain(error, rc, "%s: %s", ifname, strerror(-rc));
	return 0;
}

static bool rule_steers(const struct ethtool_rx_flow_spec *rule, uint32_t queue, uint16_t port)
{
	uint32_t type = rule->flow_type & ~(uint32_t)(FLOW_EXT | FLOW_MAC_EXT | FLOW_RSS);
	uint16_t be_port = htons(port);

	if (rule->ring_cookie != queue)
		return false;
	if (type == UDP_V4_FLOW)
		return rule->h_u.udp_ip4_spec.pdst == be_port &&
		       rule->m_u.udp_ip4_spec.pdst == 0xffff;
	if (type == UDP_V6_FLOW)
		return rule->h_u.udp_ip6_spec.pdst == be_port &&
		       rule->m_u.udp_ip6_spec.pdst == 0xffff;
	return false;
}

/* Looks for a NIC rule that steers our port. 1: found; 0: none; -errno: the NIC has no rules. */
static int find_rule(int fd, const char *ifname, uint32_t queue, uint16_t port)
{
	struct ethtool_rxnfc count = { .cmd = ETHTOOL_GRXCLSRLCNT };
	struct ethtool_rxnfc *rules;
	int rc = ethtool(fd, ifname, &count);
	int found = 0;

	if (rc)
		return rc;
	rules = calloc(1, sizeof(*rules) + count.rule_cnt * sizeof(rules->rule_locs[0]));
	if (!rules)
		return -ENOMEM;
	rules->cmd = ETHTOOL_GRXCLSRLALL;
	rules->rule_cnt = count.rule_cnt;
	rc = ethtool(fd, ifname, rules);
	for (uint32_t i = 0; !rc && !found && i < rules->rule_cnt; i++) {
		struct ethtool_rxnfc rule = { .cmd = ETHTOOL_GRXCLSRULE };

		rule.fs.location = rules->rule_locs[i];
		found = !ethtool(fd, ifname, &rule) && rule_steers(&rule.fs, queue, port);
	}
	free(rules);
	return rc ? rc : found;
}

static bool rules_off(int fd, const char *ifname)
{
	struct ethtool_value flags = { .cmd = ETHTOOL_GFLAGS };

	return !ethtool(fd, ifname, &flags) && !(flags.data & ETH_FLAG_NTUPLE);
}

/* Returns the index of a feature in ETHTOOL_GFEATURES, or -1. *count: number of all features. */
static int find_feature(int fd, const char *ifname, const char *name, uint32_t *count)
{
	struct ethtool_sset_info *info = calloc(1, sizeof(*info) + sizeof(info->data[0]));
	struct ethtool_gstrings *names = NULL;
	int found = -1;

	if (!info)
		return -1;
	info->cmd = ETHTOOL_GSSET_INFO;
	info->sset_mask = 1ULL << ETH_SS_FEATURES;
	*count = ethtool(fd, ifname, info) || !info->sset_mask ? 0 : info->data[0];
	free(info);
	if (*count)
		names = calloc(1, sizeof(*names) + (size_t)*count * ETH_GSTRING_LEN);
	if (!names)
		return -1;
	names->cmd = ETHTOOL_GSTRINGS;
	names->string_set = ETH_SS_FEATURES;
	names->len = *count;
	if (!ethtool(fd, ifname, names))
		for (uint32_t i = 0; i < *count && found < 0; i++)
			if (!strncmp((char *)names->data + (size_t)i * ETH_GSTRING_LEN, name,
				     ETH_GSTRING_LEN))
				found = (int)i;
	free(names);
	return found;
}

/* Reports whether rules cannot be turned on: some drivers support them only for other cards. */
static bool rules_fixed(int fd, const char *ifname)
{
	struct ethtool_gfeatures *features;
	uint32_t count = 0, words;
	int bit = find_feature(fd, ifname, "rx-ntuple-filter", &count);
	bool fixed = false;

	if (bit < 0)
		return false;
	words = (count + 31) / 32;
	features = calloc(1, sizeof(*features) + words * sizeof(features->features[0]));
	if (!features)
		return false;
	features->cmd = ETHTOOL_GFEATURES;
	features->size = words;
	if (!ethtool(fd, ifname, features))
		fixed = !(features->features[bit / 32].available & 1U << bit % 32);
	free(features);
	return fixed;
}

int netdev_steered(const struct netdev *netdev, uint32_t queue, uint16_t port)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int rc;

	if (fd < 0)
		return -errno;
	rc = find_rule(fd, netdev->name, queue, port);
	if (!rc && rules_off(fd, netdev->name))
		rc = rules_fixed(fd, netdev->name) ? -EOPNOTSUPP : -ENOENT;
	close(fd);
	return rc;
}

/* Returns how many frames generic XDP's queue holds: the setting, or its default in a network
 * namespace that cannot read it. */
uint32_t netdev_backlog(void)
{
	FILE *file = fopen("/proc/sys/net/core/netdev_max_backlog", "re");
	unsigned int frames = 0;

	if (file) {
		if (fscanf(file, "%u", &frames) != 1) /* NOLINT: the kernel writes a number */
			frames = 0;
		fclose(file);
	}
	return frames ? frames : BACKLOG_DEFAULT;
}

static bool read_sysfs(const struct netdev *netdev, const char *name, char *line, int bytes)
{
	char path[96];
	FILE *file;
	bool has_line;

	snprintf(path, sizeof(path), "/sys/class/net/%s/%s", netdev->name, name);
	file = fopen(path, "re");
	if (!file)
		return false;
	has_line = fgets(line, bytes, file) != NULL;
	fclose(file);
	return has_line;
}

uint32_t netdev_rps_cpus(const struct netdev *netdev, uint32_t queue)
{
	char name[48], line[2048], digit[2] = "";
	uint32_t cpus = 0;

	/* /sys may show another network namespace's interfaces. */
	if (!read_sysfs(netdev, "ifindex", line, sizeof(line)) ||
	    strtoul(line, NULL, 10) != netdev->ifindex)
		return 0;
	snprintf(name, sizeof(name), "queues/rx-%u/rps_cpus", queue);
	if (!read_sysfs(netdev, name, line, sizeof(line)))
		return 0;
	for (const char *at = line; *at; at++) {
		digit[0] = *at;
		if (isxdigit((unsigned char)*at))
			cpus += (uint32_t)__builtin_popcountl(strtoul(digit, NULL, 16));
	}
	return cpus;
}
