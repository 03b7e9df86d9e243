// SPDX-License-Identifier: BSD-2-Clause
/* Attaches the program by a link that ends with this process. Names any other program on the
 * interface, and how to remove it. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/if_link.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "device/compat.h"
#include "device/xsk/xsk.h"

enum {
	/* A killed owner's program may take a moment to leave the interface. */
	ATTACH_TRIES = 100,
	ATTACH_PAUSE_US = 10000,
};

/* A program on an interface. @mode: in the words of `ip link set` */
struct other {
	uint32_t id;
	const char *mode;
	char name[BPF_OBJ_NAME_LEN];
};

/* Finds the program on the interface; false: none. Only root sees its name. */
static bool find_other(uint32_t ifindex, struct other *other)
{
	LIBBPF_OPTS(bpf_xdp_query_opts, query);
	struct bpf_prog_info info = { 0 };
	uint32_t bytes = sizeof(info);
	int fd;

	memset(other, 0, sizeof(*other));
	if (bpf_xdp_query((int)ifindex, 0, &query))
		return false;
	other->id = query.drv_prog_id ? query.drv_prog_id :
		    query.skb_prog_id ? query.skb_prog_id :
					query.hw_prog_id;
	other->mode = query.drv_prog_id ? "xdpdrv" :
		      query.skb_prog_id ? "xdpgeneric" :
					  "xdpoffload";
	if (!other->id)
		other->id = query.prog_id;
	fd = other->id ? bpf_prog_get_fd_by_id(other->id) : -1;
	if (fd >= 0) {
		if (!bpf_obj_get_info_by_fd(fd, &info, &bytes))
			snprintf(other->name, sizeof(other->name), "%s", info.name);
		close(fd);
	}
	return other->id;
}

static bool is_ours(const struct other *other)
{
	return !strncmp(other->name, "careful_", 8);
}

/* Returns the link that holds a program, or 0: no link, or none visible to us. */
static uint32_t link_of(uint32_t program)
{
	uint32_t id = 0;

	while (!bpf_link_get_next_id(id, &id)) {
		struct bpf_link_info info = { 0 };
		uint32_t bytes = sizeof(info);
		int fd = bpf_link_get_fd_by_id(id);
		bool found;

		if (fd < 0)
			continue;
		found = !bpf_obj_get_info_by_fd(fd, &info, &bytes) &&
			info.type == BPF_LINK_TYPE_XDP && info.prog_id == program;
		close(fd);
		if (found)
			return id;
	}
	return 0;
}

static int say_other(const struct xsk_port *port, const struct other *other,
		     struct careful_error *error)
{
	const char *ifname = port->netdev.name;
	const char *name = other->name[0] ? other->name : "unnamed";
	uint32_t link;
	int rc = xsk_lock_check(port, error);

	if (rc)
		return rc;
	link = link_of(other->id);
	if (link)
		return refuse(error, -EBUSY,
			      "%s has another XDP program, %s (id %u); end its owner, or: "
			      "bpftool link detach id %u",
			      ifname, name, other->id, link);
	return refuse(error, -EBUSY,
		      "%s has another XDP program, %s (id %u); end its owner, or: "
		      "ip link set dev %s %s off",
		      ifname, name, other->id, ifname, other->mode);
}

int xsk_attach_check(const struct xsk_port *port, struct careful_error *error)
{
	struct other other;

	if (find_other(port->netdev.ifindex, &other))
		return say_other(port, &other, error);
	return refuse(error, 0, "no program on %s", port->netdev.name);
}

static int attach_mode(struct xsk_port *port, int program, uint32_t flags)
{
	LIBBPF_OPTS(bpf_link_create_opts, options, .flags = flags);

	port->link = bpf_link_create(program, (int)port->netdev.ifindex, BPF_XDP, &options);
	return port->link < 0 ? -errno : 0;
}

/* The kernel's extra message for an error; libbpf prints it. */
static char words[96];

static int take_words(enum libbpf_print_level level, const char *format, va_list args)
{
	static const char before[] = "Kernel error message: ";
	char line[256];
	const char *found;

	(void)level;
	vsnprintf(line, sizeof(line), format, args);
	found = strstr(line, before);
	if (found)
		snprintf(words, sizeof(words), "%.*s", (int)strcspn(found + strlen(before), "\n"),
			 found + strlen(before));
	return 0;
}

/* Learns why the driver refuses the program: netlink reports a reason, a link does not. */
static void ask_why(struct xsk_port *port, int program, int rc)
{
	const uint32_t flags = XDP_FLAGS_DRV_MODE | XDP_FLAGS_UPDATE_IF_NOEXIST;
	int ifindex = (int)port->netdev.ifindex;
	libbpf_print_fn_t print = libbpf_set_print(take_words);

	words[0] = '\0';
	if (!bpf_xdp_attach(ifindex, program, flags, NULL))
		bpf_xdp_detach(ifindex, XDP_FLAGS_DRV_MODE, NULL);
	libbpf_set_print(print);
	snprintf(port->native_refused, sizeof(port->native_refused), "%s",
		 words[0]	 ? words :
		 rc == -ENOTSUPP ? "not supported" :
				   strerror(-rc));
}

static int attach_once(struct xsk_port *port, int program, uint32_t mode)
{
	int rc = -EOPNOTSUPP;

	if (mode != CAREFUL_XDP_GENERIC) {
		rc = attach_mode(port, program, XDP_FLAGS_DRV_MODE);
		port->xdp_mode = CAREFUL_XDP_NATIVE;
		if (!rc || rc == -EBUSY || rc == -EEXIST)
			return rc;
		ask_why(port, program, rc);
	}
	if (mode == CAREFUL_XDP_NATIVE)
		return rc;
	rc = attach_mode(port, program, XDP_FLAGS_SKB_MODE);
	port->xdp_mode = CAREFUL_XDP_GENERIC;
	return rc;
}

/* Generic XDP runs behind RPS. On several CPUs it would admit more frames than a window has. */
static int check_rps(const struct xsk_port *port, struct careful_error *error)
{
	for (uint32_t i = 0; i < port->netdev.rx_queues; i++) {
		uint32_t cpus = netdev_rps_cpus(&port->netdev, i);

		if (cpus > 1)
			return refuse(error, -EOPNOTSUPP,
				      "RPS spreads queue %u of %s over %u CPUs, where generic XDP "
				      "cannot keep to windows: `echo 1 > "
				      "/sys/class/net/%s/queues/rx-%u/rps_cpus`",
				      i, port->netdev.name, cpus, port->netdev.name, i);
	}
	return 0;
}

int xsk_attach(struct xsk_port *port, int program, uint32_t mode, struct careful_error *error)
{
	struct other other = { 0 };
	int rc;

	for (int i = 0; i < ATTACH_TRIES; i++) {
		rc = attach_once(port, program, mode);
		if (rc != -EBUSY && rc != -EEXIST)
			break;
		/* Wait only for a program of careful. */
		if (find_other(port->netdev.ifindex, &other) && !is_ours(&other))
			break;
		usleep(ATTACH_PAUSE_US);
	}
	if (!rc && port->xdp_mode == CAREFUL_XDP_GENERIC) {
		rc = check_rps(port, error);
		if (rc)
			xsk_take_off(port);
		return rc;
	}
	if (!rc)
		return 0;
	if (rc == -EBUSY || rc == -EEXIST)
		return say_other(port, &other, error);
	return refuse(error, rc == -ENOTSUPP ? -EOPNOTSUPP : rc,
		      "%s (driver %s, MTU %u) accepts no XDP program%s: %s", port->netdev.name,
		      port->netdev.driver, port->netdev.mtu,
		      mode == CAREFUL_XDP_NATIVE ? " in native mode" : "",
		      mode == CAREFUL_XDP_NATIVE ? port->native_refused :
		      rc == -ENOTSUPP		 ? "not supported" :
						   strerror(-rc));
}

uint32_t xsk_attached_mode(const struct xsk_port *port)
{
	struct other other;

	if (!find_other(port->netdev.ifindex, &other) || !is_ours(&other))
		return 0;
	return !strcmp(other.mode, "xdpgeneric") ? CAREFUL_XDP_GENERIC : CAREFUL_XDP_NATIVE;
}

/* After `bpftool link detach` the link has no interface. */
bool xsk_attached(const struct xsk_port *port)
{
	struct bpf_link_info info = { 0 };
	uint32_t bytes = sizeof(info);

	if (xsk_dispatcher_joins(port)) /* the first queue's engine reports this */
		return true;
	return port->link >= 0 &&
	       (bpf_obj_get_info_by_fd(port->link, &info, &bytes) || info.xdp.ifindex);
}

/* Detaches even if a child of fork() also holds the link. */
void xsk_take_off(struct xsk_port *port)
{
	bpf_link_detach(port->link);
	xsk_detach(port);
}

void xsk_detach(struct xsk_port *port)
{
	if (port->link >= 0)
		close(port->link);
	port->link = -1;
}
