/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The XDP program in both variants for tests, a session in its peers map, and its verdict on a
 * frame (BPF_PROG_TEST_RUN).
 */
#ifndef CAREFUL_TESTS_XDP_H
#define CAREFUL_TESTS_XDP_H

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <careful/abi.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>

#include "check.h"
#include "device/compat.h"
#include "frame.h"

extern const unsigned char bpf_careful_start[], bpf_careful_end[];

enum {
	PEERS = 4,
	WINDOW = 8,
	BUFFER_BYTES = 2048,
	PORTS = 4, /* of the queues of the interface */
	CREDITS = 8, /* the buffers of a frame of 15000 bytes */
	CPUS_MAX = 1024,
};

struct xdp {
	struct bpf_object *object;
	int program, peers, groups, xsks, counters;
	bool frags;
};

static struct xdp xdp; /* under test */
static const char *xdp_file; /* instead of the built-in program */
static int xsk = -1;
static uint64_t seen[CAREFUL_XDP_COUNTERS]; /* counters that were reached */

static inline struct bpf_object *xdp_open(void)
{
	size_t bytes = (size_t)(bpf_careful_end - bpf_careful_start);
	struct bpf_object *object = xdp_file ? bpf_object__open_file(xdp_file, NULL) :
					       bpf_object__open_mem(bpf_careful_start, bytes, NULL);

	CHECK(object);
	return object;
}

static inline int xdp_load(const char *name, uint32_t queue)
{
	const struct careful_xdp_start start = {
		.config.port = CAREFUL_PORT_DEFAULT,
		.config.queue = (uint16_t)queue,
		.config.peers = PEERS,
		.first_port = CAREFUL_PORT_DEFAULT - (uint16_t)queue,
		.ports = PORTS,
	};
	struct bpf_program *program;
	struct bpf_map *map;
	int rc;

	xdp = (struct xdp){ .frags = !strcmp(name, "careful_frags") };
	xdp.object = xdp_open();
	bpf_object__for_each_map(map, xdp.object)
		if (strstr(bpf_map__name(map), ".rodata"))
			CHECK(!bpf_map__set_initial_value(map, &start, sizeof(start)));
	bpf_object__for_each_program(program, xdp.object)
		bpf_program__set_autoload(program, !strcmp(bpf_program__name(program), name));
	rc = bpf_object__load(xdp.object);
	if (rc) {
		bpf_object__close(xdp.object);
		return rc;
	}
	program = bpf_object__find_program_by_name(xdp.object, name);
	xdp.program = bpf_program__fd(program);
	xdp.peers = bpf_object__find_map_fd_by_name(xdp.object, "peers");
	xdp.groups = bpf_object__find_map_fd_by_name(xdp.object, "groups");
	xdp.xsks = bpf_object__find_map_fd_by_name(xdp.object, "xsks");
	xdp.counters = bpf_object__find_map_fd_by_name(xdp.object, "counters");
	return 0;
}

/* Returns the instructions that the verifier processed. */
static inline uint32_t verified_insns(void)
{
	struct bpf_prog_info info = { 0 };
	uint32_t bytes = sizeof(info);

	CHECK_EQ(bpf_obj_get_info_by_fd(xdp.program, &info, &bytes), 0);
	return info.verified_insns;
}

static inline void xdp_socket(bool there)
{
	const uint32_t key = 0, value = (uint32_t)xsk;

	if (there)
		CHECK(!bpf_map_update_elem(xdp.xsks, &key, &value, BPF_ANY));
	else
		CHECK(!bpf_map_delete_elem(xdp.xsks, &key));
}

static inline void set_peer(uint32_t slot, uint64_t cookie, uint32_t seq_last)
{
	const struct careful_peer_entry entry = {
		.cookie = cookie,
		.seq_last = seq_last,
		.seq_taken = seq_last,
		.window = WINDOW,
		.buffer_bytes = BUFFER_BYTES,
		.may_fill = CREDITS,
	};

	CHECK(!bpf_map_update_elem(xdp.peers, &slot, &entry, BPF_ANY));
}

static inline struct careful_peer_entry entry_of(uint32_t slot)
{
	struct careful_peer_entry entry;

	CHECK(!bpf_map_lookup_elem(xdp.peers, &slot, &entry));
	return entry;
}

static inline uint32_t seq_last(uint32_t slot)
{
	return entry_of(slot).seq_last;
}

static inline void read_counters(uint64_t *sums)
{
	static uint64_t values[CAREFUL_XDP_COUNTERS * CPUS_MAX];
	static uint32_t keys[CAREFUL_XDP_COUNTERS];
	const uint32_t cpus = (uint32_t)libbpf_num_possible_cpus();
	uint32_t next, count = CAREFUL_XDP_COUNTERS;

	CHECK(cpus <= CPUS_MAX);
	/* One call: thousands of frames are checked, each against all counters. ENOENT: the end. */
	CHECK(!bpf_map_lookup_batch(xdp.counters, NULL, &next, keys, values, &count, NULL) ||
	      errno == ENOENT);
	CHECK_EQ(count, CAREFUL_XDP_COUNTERS);
	for (uint32_t i = 0; i < count; i++) {
		sums[i] = 0;
		for (uint32_t cpu = 0; cpu < cpus; cpu++)
			sums[i] += values[i * cpus + cpu];
	}
}

static inline uint32_t action_of(uint32_t counter)
{
	if (counter <= CAREFUL_XDP_PASS_PING)
		return XDP_PASS;
	return counter == CAREFUL_XDP_ADMITTED ? XDP_REDIRECT : XDP_DROP;
}

/* Runs the program on a frame. Returns the one counter that changed. */
static inline uint32_t judge_bytes(const uint8_t *data, uint32_t bytes)
{
	static uint64_t before[CAREFUL_XDP_COUNTERS], after[CAREFUL_XDP_COUNTERS];
	LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = data, .data_size_in = bytes, .repeat = 1);
	uint32_t moved = CAREFUL_XDP_COUNTERS;

	read_counters(before);
	CHECK_EQ(bpf_prog_test_run_opts(xdp.program, &run), 0);
	read_counters(after);
	for (uint32_t i = 0; i < CAREFUL_XDP_COUNTERS; i++) {
		if (after[i] == before[i])
			continue;
		CHECK_EQ(after[i], before[i] + 1);
		CHECK_EQ(moved, CAREFUL_XDP_COUNTERS);
		moved = i;
	}
	CHECK(moved < CAREFUL_XDP_COUNTERS);
	CHECK_EQ(run.retval, action_of(moved));
	seen[moved]++;
	return moved;
}

/* Runs the program on a shape, in a fresh session. */
static inline uint32_t judge(const struct shape *shape)
{
	static struct frame frame;

	frame_build(&frame, shape);
	set_peer(FRAME_NODE, frame_cookie, 0);
	return judge_bytes(frame.data, frame.bytes);
}

#define JUDGE(...) judge(&(struct shape){ __VA_ARGS__ })

/* Checks that frames have changed each of these counters. */
static inline void expect_seen(uint32_t first, uint32_t last)
{
	for (uint32_t i = first; i <= last; i++) {
		if (!seen[i])
			fprintf(stderr, "counter %u was never reached\n", i);
		CHECK(seen[i]);
	}
}

static inline void xsk_set(int option, const void *value, socklen_t bytes)
{
	CHECK_EQ(setsockopt(xsk, SOL_XDP, option, value, bytes), 0);
}

/* Moves this process to a network namespace of its own. */
static inline void own_network(void)
{
	static bool own;

	if (!own && unshare(CLONE_NEWNET))
		skip(errno == EPERM ? "needs root" : "no network namespaces");
	own = true;
}

/* Opens a bound socket once, since from Linux 7 on the map accepts no other. A queue has one socket
 * and the kernel frees a closed socket late, so this socket is on a private loopback. */
static inline void xsk_open(void)
{
	static uint8_t area[4 * BUFFER_BYTES] __attribute__((aligned(4096)));
	const struct xdp_umem_reg umem = {
		.addr = (uintptr_t)area,
		.len = sizeof(area),
		.chunk_size = BUFFER_BYTES,
	};
	const uint32_t entries = sizeof(area) / BUFFER_BYTES;
	struct sockaddr_xdp at = { .sxdp_family = AF_XDP, .sxdp_flags = XDP_COPY };

	if (xsk >= 0)
		return;
	own_network();
	xsk = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (xsk < 0)
		skip(errno == EPERM ? "needs root" : "no AF_XDP in this kernel");
	xsk_set(XDP_UMEM_REG, &umem, sizeof(umem));
	xsk_set(XDP_UMEM_FILL_RING, &entries, sizeof(entries));
	xsk_set(XDP_UMEM_COMPLETION_RING, &entries, sizeof(entries));
	xsk_set(XDP_RX_RING, &entries, sizeof(entries));
	at.sxdp_ifindex = if_nametoindex("lo");
	CHECK_EQ(bind(xsk, (struct sockaddr *)&at, sizeof(at)), 0);
}

/* Runs the test with each variant that this kernel loads. Skips the test without the privilege. */
static inline void xdp_each(void (*test)(const char *name))
{
	static const char *const names[] = { "careful_plain", "careful_frags" };

	xsk_open();
	for (int i = 0; i < 2; i++) {
		int rc = xdp_load(names[i], 0);

		if (rc == -EPERM)
			skip("needs root");
		if (rc && i) {
			skip_part("no xdp.frags in this kernel");
			continue;
		}
		CHECK_EQ(rc, 0);
		xdp_socket(true);
		printf("program %s\n", names[i]);
		test(names[i]);
		bpf_object__close(xdp.object);
	}
}

#endif /* CAREFUL_TESTS_XDP_H */
