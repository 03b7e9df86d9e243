// SPDX-License-Identifier: BSD-2-Clause
/* The XDP program and its maps: loads the embedded object, freezes its configuration, pins maps and
 * maps some into memory. */
#include <assert.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/compat.h"
#include "device/xsk/xsk.h"

enum {
	TUNE_BYTES = (CAREFUL_PEERS_MAX + 1) * sizeof(struct careful_tune_entry),
	PEERS_BYTES = CAREFUL_PEERS_MAX * sizeof(struct careful_peer_entry),
};

/* ebpf/careful.bpf.c, compiled (datapath/CMakeLists.txt). */
extern const unsigned char bpf_careful_start[], bpf_careful_end[];

static const char *const pinned[] = { "tune", "peers",	  "live",     "groups",
				      "xsks", "counters", "captures", "arrivals" };

struct xsk_bpf {
	struct bpf_object *object;
	int program;
	int dispatcher; /* the attached program, if this is the first of several queues */
	int xsks, groups;
	bool frags;
	int grace[2]; /* a map of maps, and its inner map */
};

static int discard_message(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level;
	(void)format;
	(void)args;
	return 0;
}

static int set_rodata(struct bpf_object *object, const struct careful_xdp_start *start)
{
	struct bpf_map *map;

	bpf_object__for_each_map(map, object) {
		const char *name = bpf_map__name(map);
		size_t length = strlen(name);

		if (length < 7 || strcmp(name + length - 7, ".rodata") != 0)
			continue;
		return bpf_map__set_initial_value(map, start, sizeof(*start));
	}
	return -ENOENT;
}

/* Loads the object with the named program and, if `leads`, the dispatcher of several queues. */
static int load(struct xsk_bpf *bpf, const char *name, const struct careful_xdp_start *start,
		bool leads)
{
	const char *dispatcher = !strcmp(name, "careful_frags") ? "careful_queues_frags" :
								  "careful_queues_plain";
	size_t bytes = (size_t)(bpf_careful_end - bpf_careful_start);
	struct bpf_program *program;
	int rc;

	bpf->object = bpf_object__open_mem(bpf_careful_start, bytes, NULL);
	if (!bpf->object)
		return -errno;
	bpf_object__for_each_program(program, bpf->object)
		bpf_program__set_autoload(
			program,
			!strcmp(bpf_program__name(program), name) ||
				(leads && !strcmp(bpf_program__name(program), dispatcher)));
	bpf_map__set_autocreate(bpf_object__find_map_by_name(bpf->object, "queues"), leads);
	bpf_map__set_autocreate(bpf_object__find_map_by_name(bpf->object, "spread"), leads);
	rc = set_rodata(bpf->object, start);
	if (!rc)
		rc = bpf_map__set_max_entries(bpf_object__find_map_by_name(bpf->object, "live"),
					      start->config.peers);
	if (!rc)
		rc = bpf_object__load(bpf->object);
	if (rc) {
		bpf_object__close(bpf->object);
		bpf->object = NULL;
		return rc;
	}
	program = bpf_object__find_program_by_name(bpf->object, name);
	bpf->program = bpf->dispatcher = bpf_program__fd(program);
	if (leads)
		bpf->dispatcher =
			bpf_program__fd(bpf_object__find_program_by_name(bpf->object, dispatcher));
	return 0;
}

static int load_best(struct xsk_port *port, uint16_t queue, struct careful_error *error)
{
	const struct spread *spread = &port->port.spread;
	const struct careful_xdp_start start = {
		.config.port = port->udp,
		.config.queue = queue,
		.config.peers = port->peers_count,
		.first_port = (uint16_t)(port->udp - spread->index),
		.ports = spread->count,
	};
	bool leads = spread->count && !spread->index;
	libbpf_print_fn_t print = libbpf_set_print(discard_message);
	int rc = -EINVAL;

	if (!(port->without & XSK_WITHOUT_FRAGS))
		rc = load(port->bpf, "careful_frags", &start, leads);
	port->bpf->frags = !rc;
	if (rc && rc != -EPERM)
		rc = load(port->bpf, "careful_plain", &start, leads);
	libbpf_set_print(print);
	if (rc)
		return explain(error, rc, "%s: the kernel refuses the XDP program: %s",
			       port->netdev.name, strerror(-rc));
	return 0;
}

static void *map_memory(const struct xsk_port *port, const char *name, size_t bytes)
{
	return xsk_map_memory(bpf_object__find_map_fd_by_name(port->bpf->object, name), bytes);
}

static int pin(const struct xsk_port *port, const char *name, struct careful_error *error)
{
	struct bpf_map *map = bpf_object__find_map_by_name(port->bpf->object, name);
	char path[XSK_PATH_BYTES];
	int rc;

	assert(map);
	xsk_pin_path(port->instance, name, path, sizeof(path));
	rc = bpf_map__pin(map, path);
	return rc ? explain(error, rc, "cannot pin %s: %s", path, strerror(-rc)) : 0;
}

static int share_maps(struct xsk_port *port, struct careful_error *error)
{
	for (size_t i = 0; i < sizeof(pinned) / sizeof(pinned[0]); i++) {
		int rc = pin(port, pinned[i], error);

		if (rc)
			return rc;
	}
	port->tune = map_memory(port, "tune", TUNE_BYTES);
	port->peers = map_memory(port, "peers", PEERS_BYTES);
	port->live = map_memory(port, "live", port->peers_count * sizeof(*port->live));
	port->arrivals = map_memory(port, "arrivals", sizeof(*port->arrivals));
	if (!port->tune || !port->peers || !port->live || !port->arrivals)
		return explain(error, -errno, "cannot map the instance's BPF maps: %s",
			       strerror(errno));
	port->port.control = &port->peers[0].control;
	return 0;
}

static int prepare_grace(struct xsk_bpf *bpf, struct careful_error *error)
{
	LIBBPF_OPTS(bpf_map_create_opts, options);

	bpf->grace[1] = bpf_map_create(BPF_MAP_TYPE_ARRAY, "careful_inner", 4, 4, 1, NULL);
	options.inner_map_fd = (uint32_t)bpf->grace[1];
	bpf->grace[0] =
		bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "careful_grace", 4, 4, 1, &options);
	if (bpf->grace[0] < 0)
		return explain(error, -errno, "cannot create a BPF map: %s", strerror(errno));
	return 0;
}

/* Returns when every running XDP program has ended, redirects included. An update of a map of maps
 * waits for exactly that (kernel commit 1ae80cf31938), even if membarrier() refuses (nohz_full). */
void xsk_bpf_wait_rcu(struct xsk_port *port)
{
	const uint32_t key = 0, value = (uint32_t)port->bpf->grace[1];
	int rc;

	rc = bpf_map_update_elem(port->bpf->grace[0], &key, &value, BPF_ANY);
	assert(!rc);
	(void)rc;
}

static int share_queues(struct xsk_port *port, struct careful_error *error)
{
	const struct bpf_object *object = port->bpf->object;
	int rc;

	if (!port->port.spread.count || xsk_dispatcher_joins(port))
		return 0;
	rc = pin(port, "queues", error);
	if (!rc)
		rc = pin(port, "spread", error);
	return rc ? rc :
		    xsk_dispatcher_lead(port, bpf_object__find_map_fd_by_name(object, "queues"),
					bpf_object__find_map_fd_by_name(object, "spread"),
					port->bpf->program, error);
}

int xsk_bpf_open(struct xsk_port *port, uint16_t queue, uint32_t mode, struct careful_error *error)
{
	int rc;

	port->bpf = calloc(1, sizeof(*port->bpf));
	if (!port->bpf)
		return explain(error, -ENOMEM, "out of memory");
	port->bpf->grace[0] = port->bpf->grace[1] = -1;
	rc = load_best(port, queue, error);
	if (rc)
		return rc;
	port->bpf->xsks = bpf_object__find_map_fd_by_name(port->bpf->object, "xsks");
	port->bpf->groups = bpf_object__find_map_fd_by_name(port->bpf->object, "groups");
	rc = prepare_grace(port->bpf, error);
	if (rc)
		return rc;
	rc = xsk_dispatcher_joins(port) ? xsk_dispatcher_join(port, port->bpf->program, error) :
					  xsk_attach(port, port->bpf->dispatcher, mode, error);
	if (!rc)
		rc = xsk_pins_prepare(port, error);
	if (!rc)
		rc = share_maps(port, error);
	return rc ? rc : share_queues(port, error);
}

bool xsk_bpf_frags(const struct xsk_port *port)
{
	return port->bpf->frags;
}

int xsk_bpf_program(const struct xsk_port *port)
{
	return port->bpf->program;
}

int xsk_bpf_groups(const struct xsk_port *port)
{
	return port->bpf->groups;
}

int xsk_bpf_redirect(struct xsk_port *port, uint16_t queue, int fd, struct careful_error *error)
{
	const uint32_t key = queue, value = (uint32_t)fd;

	if (bpf_map_update_elem(port->bpf->xsks, &key, &value, BPF_ANY))
		return explain(error, -errno, "cannot enter the socket into the xsks map: %s",
			       strerror(errno));
	return 0;
}

void xsk_bpf_close(struct xsk_port *port)
{
	struct xsk_bpf *bpf = port->bpf;

	if (!bpf)
		return;
	xsk_dispatcher_close(port);
	xsk_link_close(port);
	if (port->tune)
		munmap(port->tune, TUNE_BYTES);
	if (port->peers)
		munmap(port->peers, PEERS_BYTES);
	if (port->live)
		munmap(port->live, port->peers_count * sizeof(*port->live));
	if (port->arrivals)
		munmap(port->arrivals, sizeof(*port->arrivals));
	if (bpf->object)
		bpf_object__close(bpf->object);
	for (int i = 0; i < 2; i++)
		if (bpf->grace[i] >= 0)
			close(bpf->grace[i]);
	if (xsk_is_owner(port))
		xsk_pins_remove(port);
	free(bpf);
}

/* Reports whether a verdict means no loss. With a single queue, a frame on another queue is lost:
 * the NIC got more queues (ethtool -L), or lost its rules. */
static bool harmless(const struct xsk_port *port, uint32_t why)
{
	if (why == CAREFUL_XDP_PASS_QUEUE)
		return port->port.spread.count;
	return why <= CAREFUL_XDP_ADMITTED || why == CAREFUL_XDP_DROP_TRAIN;
}

/* Counts the refused frames: from strangers, duplicate, late, excess, or on another queue; but not
 * those of trains. */
uint64_t xsk_bpf_refused(const struct xsk_port *port)
{
	uint64_t each[CPU_SETSIZE], sum = 0;
	int cpus = libbpf_num_possible_cpus();
	int fd = bpf_object__find_map_fd_by_name(port->bpf->object, "counters");

	if (cpus < 0 || cpus > CPU_SETSIZE)
		return 0;
	for (uint32_t why = 0; why < CAREFUL_XDP_COUNTERS; why++) {
		if (harmless(port, why) || bpf_map_lookup_elem(fd, &why, each))
			continue;
		for (int i = 0; i < cpus; i++)
			sum += each[i];
	}
	return sum;
}
