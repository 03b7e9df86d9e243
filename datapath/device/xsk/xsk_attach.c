// SPDX-License-Identifier: BSD-2-Clause
/* Attaches the program by a link that ends with this process. If the interface has another program,
 * the message names it and says how to remove it. */
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

struct program {
	uint32_t id;
	const char *mode; /* in the words of `ip link set` */
	char name[BPF_OBJ_NAME_LEN];
};

/* Finds the program on the interface; false: none. Only root sees its name. */
static bool find_program(uint32_t ifindex, struct program *program)
{
	LIBBPF_OPTS(bpf_xdp_query_opts, query);
	struct bpf_prog_info info = { 0 };
	uint32_t bytes = sizeof(info);
	int fd;

	memset(program, 0, sizeof(*program));
	if (bpf_xdp_query((int)ifindex, 0, &query))
		return false;
	program->id = query.drv_prog_id ? query.drv_prog_id :
		      query.skb_prog_id ? query.skb_prog_id :
					  query.hw_prog_id;
	program->mode = query.drv_prog_id ? "xdpdrv" :
			query.skb_prog_id ? "xdpgeneric" :
					    "xdpoffload";
	if (!program->id)
		program->id = query.prog_id;
	fd = program->id ? bpf_prog_get_fd_by_id(program->id) : -1;
	if (fd >= 0) {
		if (!bpf_obj_get_info_by_fd(fd, &info, &bytes))
			snprintf(program->name, sizeof(program->name), "%s", info.name);
		close(fd);
	}
	return program->id;
}

static bool is_ours(const struct program *program)
{
	return !strncmp(program->name, "careful_", 8);
}

/* Returns the id of the link that holds a program; 0: we see none. */
static uint32_t find_link(uint32_t program)
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

static int refuse_program(const struct xsk_port *port, const struct program *program,
			  struct careful_error *error)
{
	const char *ifname = port->netdev.name;
	const char *name = program->name[0] ? program->name : "unnamed";
	uint32_t link;
	int rc = xsk_lock_check(port, error);

	if (rc)
		return rc;
	link = find_link(program->id);
	if (link)
		return explain(error, -EBUSY,
			       "%s has another XDP program, %s (id %u); end its owner, or run: "
			       "bpftool link detach id %u",
			       ifname, name, program->id, link);
	return explain(error, -EBUSY,
		       "%s has another XDP program, %s (id %u); end its owner, or run: "
		       "ip link set dev %s %s off",
		       ifname, name, program->id, ifname, program->mode);
}

int xsk_attach_check(const struct xsk_port *port, struct careful_error *error)
{
	struct program program;

	if (find_program(port->netdev.ifindex, &program))
		return refuse_program(port, &program, error);
	return explain(error, 0, "no program on %s", port->netdev.name);
}

static int attach_mode(struct xsk_port *port, int program, uint32_t flags)
{
	LIBBPF_OPTS(bpf_link_create_opts, options, .flags = flags);

	port->link = bpf_link_create(program, (int)port->netdev.ifindex, BPF_XDP, &options);
	return port->link < 0 ? -errno : 0;
}

/* The kernel's message for an error, as libbpf prints it. */
static char kernel_message[96];

static int save_message(enum libbpf_print_level level, const char *format, va_list args)
{
	static const char prefix[] = "Kernel error message: ";
	char line[256];
	const char *message;

	(void)level;
	vsnprintf(line, sizeof(line), format, args);
	message = strstr(line, prefix);
	if (message) {
		message += strlen(prefix);
		snprintf(kernel_message, sizeof(kernel_message), "%.*s",
			 (int)strcspn(message, "\n"), message);
	}
	return 0;
}

/* Finds out why the driver refuses the program: netlink reports a reason, a link does not. */
static void find_refusal(struct xsk_port *port, int program, int rc)
{
	const uint32_t flags = XDP_FLAGS_DRV_MODE | XDP_FLAGS_UPDATE_IF_NOEXIST;
	int ifindex = (int)port->netdev.ifindex;
	libbpf_print_fn_t print = libbpf_set_print(save_message);

	kernel_message[0] = '\0';
	if (!bpf_xdp_attach(ifindex, program, flags, NULL))
		bpf_xdp_detach(ifindex, XDP_FLAGS_DRV_MODE, NULL);
	libbpf_set_print(print);
	snprintf(port->native_refused, sizeof(port->native_refused), "%s",
		 kernel_message[0] ? kernel_message :
		 rc == -ENOTSUPP   ? "not supported" :
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
		find_refusal(port, program, rc);
	}
	if (mode == CAREFUL_XDP_NATIVE)
		return rc;
	rc = attach_mode(port, program, XDP_FLAGS_SKB_MODE);
	port->xdp_mode = CAREFUL_XDP_GENERIC;
	return rc;
}

/* Generic XDP runs behind RPS. On several CPUs at once, XDP would miscount the frames of a peer. */
static int check_rps(const struct xsk_port *port, struct careful_error *error)
{
	for (uint32_t i = 0; i < port->netdev.rx_queues; i++) {
		uint32_t cpus = netdev_rps_cpus(&port->netdev, i);

		if (cpus > 1)
			return explain(error, -EOPNOTSUPP,
				       "RPS spreads queue %u of %s over %u CPUs, where generic XDP "
				       "would miscount a peer's frames: `echo 1 > "
				       "/sys/class/net/%s/queues/rx-%u/rps_cpus`",
				       i, port->netdev.name, cpus, port->netdev.name, i);
	}
	return 0;
}

int xsk_attach(struct xsk_port *port, int program, uint32_t mode, struct careful_error *error)
{
	struct program present = { 0 };
	int rc;

	for (int i = 0; i < ATTACH_TRIES; i++) {
		rc = attach_once(port, program, mode);
		if (rc != -EBUSY && rc != -EEXIST)
			break;
		/* Wait only for a program of careful. */
		if (find_program(port->netdev.ifindex, &present) && !is_ours(&present))
			break;
		usleep(ATTACH_PAUSE_US);
	}
	if (rc == -EBUSY || rc == -EEXIST)
		return refuse_program(port, &present, error);
	if (rc)
		return explain(error, rc == -ENOTSUPP ? -EOPNOTSUPP : rc,
			       "%s (driver %s, MTU %u) accepts no XDP program%s: %s",
			       port->netdev.name, port->netdev.driver, port->netdev.mtu,
			       mode == CAREFUL_XDP_NATIVE ? " in native mode" : "",
			       mode == CAREFUL_XDP_NATIVE ? port->native_refused :
			       rc == -ENOTSUPP		  ? "not supported" :
							    strerror(-rc));
	rc = port->xdp_mode == CAREFUL_XDP_GENERIC ? check_rps(port, error) : 0;
	if (rc)
		xsk_detach(port);
	return rc;
}

uint32_t xsk_attached_mode(const struct xsk_port *port)
{
	struct program program;

	if (!find_program(port->netdev.ifindex, &program) || !is_ours(&program))
		return 0;
	return !strcmp(program.mode, "xdpgeneric") ? CAREFUL_XDP_GENERIC : CAREFUL_XDP_NATIVE;
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

void xsk_detach(struct xsk_port *port)
{
	bpf_link_detach(port->link);
	xsk_link_close(port);
}

void xsk_link_close(struct xsk_port *port)
{
	if (port->link >= 0)
		close(port->link);
	port->link = -1;
}
