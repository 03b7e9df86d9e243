// SPDX-License-Identifier: BSD-2-Clause
/*
 * Opens and closes the AF_XDP device: refusals and their messages, the remains of a dead owner, the
 * settings in effect, and that nothing is left behind.
 */
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "device/compat.h"
#include "device/xsk/xsk.h"
#include "pair.h"

static struct pair pair;
static char instance[32];
static struct careful_error error;

static struct careful_options defaults(void)
{
	return (struct careful_options){ .ifname = "eth1", .instance = instance };
}

static int try_open(const struct careful_options *options, struct queue **queue)
{
	int rc;

	error.text[0] = '\0';
	pair_enter(&pair, 0);
	rc = xsk_open(options, queue, &error);
	pair_leave(&pair);
	return rc;
}

static struct queue *open_good(const struct careful_options *options)
{
	struct queue *queue = NULL;
	int rc = try_open(options, &queue);

	if (rc)
		fprintf(stderr, "%s\n", error.text);
	CHECK_EQ(rc, 0);
	return queue;
}

/* Checks that opening fails with this errno, and a line that contains these words. */
static void refused(const struct careful_options *options, int want, const char *words)
{
	struct queue *queue = NULL;
	int rc = try_open(options, &queue);

	if (rc != want || !strstr(error.text, words))
		fprintf(stderr, "said: %s\n", error.text);
	CHECK_EQ(rc, want);
	CHECK(strstr(error.text, words));
	CHECK(!strchr(error.text, '\n'));
	CHECK(strlen(error.text) < sizeof(error.text) - 1);
}

/* The same, about an option. */
static void refused_option(const struct careful_options *options, const char *option,
			   const char *words)
{
	refused(options, -EINVAL, words);
	CHECK(error.option && !strcmp(error.option, option));
}

static bool exists(const char *format)
{
	char path[128];

	snprintf(path, sizeof(path), format, instance);
	return !access(path, F_OK);
}

static uint32_t program_on(int side)
{
	uint32_t id = 0;

	pair_enter(&pair, side);
	CHECK(!bpf_xdp_query_id((int)if_nametoindex("eth1"), 0, &id));
	pair_leave(&pair);
	return id;
}

static bool qdisc_is(const char *words)
{
	return !pair_run(&pair, 0, "tc qdisc show dev eth1 root | grep -q '%s'", words);
}

static void expect_nothing_left(void)
{
	CHECK(!exists("/sys/fs/bpf/careful/%s"));
	CHECK(!exists("/run/careful/%s.lock"));
	CHECK_EQ(program_on(0), 0);
	CHECK(qdisc_is("noqueue"));
	CHECK(pair_run(&pair, 0, "ss -uanH | grep -q 51966"));
}

static void test_open__settings_in_effect(void)
{
	struct careful_options options = defaults();
	struct queue *queue = open_good(&options);
	const struct careful_device_info *info = &queue->info;

	CHECK(!strcmp(info->ifname, "eth1"));
	CHECK(!strcmp(info->driver, "veth"));
	CHECK_EQ(info->mtu, 1500);
	CHECK_EQ(info->xdp_mode, CAREFUL_XDP_NATIVE);
	CHECK_EQ(info->zerocopy, 0);
	CHECK_EQ(info->need_wakeup, 1);
	CHECK_EQ(info->umem_bytes, 1024 * 4096);
	CHECK_EQ(info->receive_buffers, to_xsk(queue)->tx_budget ? 512 : 256);
	CHECK_EQ(info->bounds[CAREFUL_BOUND_UMEM], 512);
	CHECK(info->bounds[CAREFUL_BOUND_FILL_RING] >= 512);
	CHECK(info->bounds[CAREFUL_BOUND_RX_RING] >= 512);
	CHECK_EQ(info->bounds[CAREFUL_BOUND_BACKLOG], 0);
	CHECK(exists("/sys/fs/bpf/careful/%s/tune"));
	CHECK(exists("/sys/fs/bpf/careful/%s/peers"));
	CHECK(exists("/sys/fs/bpf/careful/%s/xsks"));
	CHECK(exists("/sys/fs/bpf/careful/%s/counters"));
	CHECK(exists("/run/careful/%s.lock"));
	CHECK(program_on(0));
	CHECK(qdisc_is("pfifo ca00:"));
	device_close(queue);
	expect_nothing_left();
}

/* Falls back to generic mode with the driver's own reason. */
static void test_open__reports_why_not_native(void)
{
	struct careful_options options = defaults();
	struct queue *queue;

	CHECK(!pair_run(&pair, 0, "ip link add d0 type bridge && ip link set d0 up"));
	options.ifname = "d0";
	queue = open_good(&options);
	CHECK_EQ(queue->info.xdp_mode, CAREFUL_XDP_GENERIC);
	CHECK(strstr(queue->info.native_refused, "does not support XDP in native mode"));
	device_close(queue);
	options.require_zerocopy = 1;
	refused(&options, -EOPNOTSUPP, "needs native XDP, which was refused: Underlying driver");
	options.require_zerocopy = 0;
	options.xdp_mode = CAREFUL_XDP_GENERIC;
	queue = open_good(&options);
	CHECK(!queue->info.native_refused[0]);
	device_close(queue);
	options.xdp_mode = CAREFUL_XDP_NATIVE;
	refused(&options, -EOPNOTSUPP, "native mode: Underlying driver does not support");
	CHECK(!pair_run(&pair, 0, "ip link del d0"));
}

static void test_open__program_detached(void)
{
	struct careful_options options = defaults();
	struct queue *queue = open_good(&options);
	struct careful_device_statistics s;

	queue->ops->statistics(queue, &s);
	CHECK_EQ(s.program_detached, 0);
	CHECK(!bpf_link_detach(to_xsk_port(queue->port)->link));
	queue->ops->statistics(queue, &s);
	CHECK_EQ(s.program_detached, 1);
	device_close(queue);
	expect_nothing_left();
}

static void test_open__generic_is_bounded_by_the_backlog(void)
{
	struct careful_options options = defaults();
	struct queue *queue;

	options.xdp_mode = CAREFUL_XDP_GENERIC;
	options.rx_buffers = 4096;
	queue = open_good(&options);
	CHECK_EQ(queue->info.xdp_mode, CAREFUL_XDP_GENERIC);
	CHECK(queue->info.bounds[CAREFUL_BOUND_BACKLOG] > 0);
	if (queue->info.bounds[CAREFUL_BOUND_BACKLOG] < 4096) {
		CHECK_EQ(queue->info.receive_bound, CAREFUL_BOUND_BACKLOG);
		CHECK_EQ(queue->info.receive_buffers, queue->info.bounds[CAREFUL_BOUND_BACKLOG]);
	}
	device_close(queue);
	expect_nothing_left();
}

static void test_open__bad_options(void)
{
	struct careful_options options = defaults();

	options.ifname = "eth9";
	refused(&options, -ENODEV, "eth9: no such interface");
	options.ifname = "a-name-that-is-too-long";
	refused(&options, -ENODEV, "no such interface");
	options.ifname = "lo";
	refused(&options, -EINVAL, "lo is a loopback");
	options = defaults();
	options.queue = 7;
	refused(&options, -EINVAL, "eth1 has no receive queue 7");
	CHECK(!error.option);
	options.queues = 1 + 1;
	refused_option(&options, "queues", "send queues: use at most 1");
	options = defaults();
	options.rx_buffers = 500;
	refused_option(&options, "rx_buffers", "500 must be a power of two up to");
	options = defaults();
	options.tx_buffers = 3;
	refused_option(&options, "tx_buffers", "3 must be a power of two up to");
	options = defaults();
	options.peers = 257;
	refused_option(&options, "peers", "257 is more than 256");
	options = defaults();
	options.port = 70000;
	refused_option(&options, "port", "70000 is more than 65535");
	options = defaults();
	options.instance = "../../etc";
	refused_option(&options, "instance", "no / or leading dot");
	options = defaults();
	options.require_zerocopy = 1;
	refused(&options, -EOPNOTSUPP, "driver veth refuses zero-copy (Operation not supported)");
	options.xdp_mode = CAREFUL_XDP_GENERIC;
	refused(&options, -EOPNOTSUPP, "zero-copy needs native XDP, but the XDP mode is generic");
	expect_nothing_left();
}

/* careful_check() reports the same as opening, except what only opening shows. */
static void test_check__zerocopy(void)
{
	struct careful_options options = defaults();
	struct careful_error said;

	pair_enter(&pair, 0);
	CHECK_EQ(careful_check(&options, CAREFUL_CHECK_ZEROCOPY, &said), 0);
	CHECK(strstr(said.text, "not required"));
	options.require_zerocopy = 1;
	CHECK_EQ(careful_check(&options, CAREFUL_CHECK_ZEROCOPY, &said), -EAGAIN);
	CHECK(strstr(said.text, "driver veth"));
	options.xdp_mode = CAREFUL_XDP_GENERIC;
	CHECK_EQ(careful_check(&options, CAREFUL_CHECK_ZEROCOPY, &said), -EOPNOTSUPP);
	pair_leave(&pair);
	refused(&options, -EOPNOTSUPP, said.text);
}

static void test_open__unsuitable_interface(void)
{
	struct careful_options options = defaults();

	CHECK(!pair_run(&pair, 0, "ip link set eth1 down"));
	refused(&options, -ENETDOWN, "eth1 is down: `ip link set eth1 up`");
	CHECK(!pair_run(&pair, 0, "ip link set eth1 mtu 150 up"));
	refused(&options, -EMSGSIZE, "an MTU of 150 is too small");
	pair_up(&pair, 0, 1500);
	CHECK(!pair_run(&pair, 0, "ethtool -L eth1 rx 2 >/dev/null"));
	refused(&options, -EOPNOTSUPP, "`ethtool -L eth1 rx 1`");
	CHECK(!pair_run(&pair, 0, "ethtool -L eth1 rx 1 >/dev/null"));
	CHECK(!pair_run(&pair, 0, "ip link add br9 type bridge && ip link set eth1 master br9"));
	refused(&options, -EBUSY, "eth1 is a port of br9 (bridge), which takes all");
	CHECK(!pair_run(&pair, 0, "ip link set eth1 nomaster && ip link del br9"));
	if (!pair_run(&pair, 0, "ip tuntap add tun9 mode tun 2>/dev/null")) {
		CHECK(!pair_run(&pair, 0, "ip link set tun9 up"));
		options.ifname = "tun9";
		refused(&options, -EINVAL, "tun9 (driver tun) is not an Ethernet interface");
		options.ifname = "eth1";
		CHECK(!pair_run(&pair, 0, "ip link del tun9"));
	}
	/* A VRF leaves packets and addresses to its interfaces. */
	if (!pair_run(&pair, 0, "ip link add vrf9 type vrf table 9 2>/dev/null")) {
		CHECK(!pair_run(&pair, 0, "ip link set eth1 master vrf9"));
		device_close(open_good(&options));
		CHECK(!pair_run(&pair, 0, "ip link del vrf9"));
	}
	expect_nothing_left();
}

static void test_open__port_in_use(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(51966) };
	struct careful_options options = defaults();
	int fd;

	pair_enter(&pair, 0);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(!bind(fd, (struct sockaddr *)&any, sizeof(any)));
	pair_leave(&pair);
	refused(&options, -EADDRINUSE, "UDP port 51966 on eth1 is in use");
	close(fd);
	expect_nothing_left();
}

/* A program that passes everything. */
static int load_stranger(void)
{
	const struct bpf_insn pass[] = {
		{ .code = 0xb7, .imm = XDP_PASS }, /* r0 = XDP_PASS */
		{ .code = 0x95 }, /* exit */
	};
	int program = bpf_prog_load(BPF_PROG_TYPE_XDP, "stranger", "GPL", pass, 2, NULL);

	CHECK(program >= 0);
	return program;
}

/* Attaches the program like `ip link set eth1 xdp`. */
static void attach_by_netlink(uint32_t flags)
{
	int program = load_stranger();

	pair_enter(&pair, 0);
	CHECK(!bpf_xdp_attach((int)if_nametoindex("eth1"), program, flags, NULL));
	pair_leave(&pair);
	close(program);
}

/* Attaches the program by a BPF link and returns the link. */
static int attach_stranger(void)
{
	LIBBPF_OPTS(bpf_link_create_opts, options, .flags = XDP_FLAGS_DRV_MODE);
	int program = load_stranger();
	int link;

	pair_enter(&pair, 0);
	link = bpf_link_create(program, (int)if_nametoindex("eth1"), BPF_XDP, &options);
	pair_leave(&pair);
	CHECK(link >= 0);
	close(program);
	return link;
}

static void test_open__another_program_is_named(void)
{
	struct careful_options options = defaults();
	struct queue *queue = NULL;
	int link = attach_stranger();
	uint32_t id = program_on(0);
	char words[64];

	snprintf(words, sizeof(words), "another XDP program, stranger (id %u)", id);
	refused(&options, -EBUSY, words);
	options.xdp_mode = CAREFUL_XDP_GENERIC;
	refused(&options, -EBUSY, words);
	CHECK_EQ(program_on(0), id);
	/* The command in the message works. */
	try_open(&options, &queue);
	CHECK(strstr(error.text, "bpftool link detach id "));
	CHECK(!pair_run(&pair, 0, "%s", strstr(error.text, "bpftool")));
	CHECK_EQ(program_on(0), 0);
	close(link);
	attach_by_netlink(XDP_FLAGS_SKB_MODE);
	try_open(&options, &queue);
	CHECK(strstr(error.text, "ip link set dev eth1 xdpgeneric off"));
	CHECK(!pair_run(&pair, 0, "%s", strstr(error.text, "ip link")));
	CHECK_EQ(program_on(0), 0);
	attach_by_netlink(XDP_FLAGS_DRV_MODE);
	try_open(&options, &queue);
	CHECK(strstr(error.text, "ip link set dev eth1 xdpdrv off"));
	CHECK(!pair_run(&pair, 0, "%s", strstr(error.text, "ip link")));
	expect_nothing_left();
}

/* Names of VLANs contain a dot, which bpffs refuses. */
static void test_open__name_with_a_dot(void)
{
	struct careful_options options = defaults();
	struct queue *queue;
	char was[sizeof(instance)], dotted[sizeof(instance)];

	snprintf(was, sizeof(was), "%s", instance);
	snprintf(dotted, sizeof(dotted), "test-%d.1%%", getpid());
	options.instance = dotted;
	queue = open_good(&options);
	snprintf(instance, sizeof(instance), "test-%d%%2e1%%25", getpid());
	CHECK(exists("/sys/fs/bpf/careful/%s/tune"));
	device_close(queue);
	CHECK(!exists("/sys/fs/bpf/careful/%s"));
	snprintf(instance, sizeof(instance), "%s", dotted);
	expect_nothing_left();
	snprintf(instance, sizeof(instance), "%s", was);
}

static void test_open__not_root(void)
{
	struct careful_options options = defaults();
	int status;
	pid_t child = fork();

	if (!child) {
		struct queue *queue;

		pair_enter(&pair, 0);
		if (setgid(65534) || setuid(65534))
			_exit(2);
		_exit(xsk_open(&options, &queue, &error) == -EPERM &&
				      strstr(error.text, "run as root") ?
			      0 :
			      1);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
}

/* Checks that opening and careful_check() give the same error in a child that lacks something. */
static void lacking(void (*take)(void), uint32_t check, int want, const char *words)
{
	struct careful_options options = defaults();
	int status;
	pid_t child = fork();

	if (!child) {
		struct careful_error said = { 0 };
		struct queue *queue;

		pair_enter(&pair, 0);
		take();
		if (xsk_open(&options, &queue, &error) != want || !strstr(error.text, words) ||
		    careful_check(&options, check, &said) != want ||
		    strcmp(said.text, error.text) != 0) {
			fprintf(stderr, "said: %s / %s\n", error.text, said.text);
			_exit(1);
		}
		_exit(0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
}

static void drop(const int *capabilities, size_t n)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	CHECK(!syscall(SYS_capget, &header, data));
	for (size_t i = 0; i < n; i++)
		data[capabilities[i] / 32].effective &= ~(1u << capabilities[i] % 32);
	CHECK(!syscall(SYS_capset, &header, data));
}

static void without_perfmon(void)
{
	drop((const int[]){ CAP_PERFMON, CAP_SYS_ADMIN }, 2);
}

static void without_files(void)
{
	const struct rlimit limit = { 20, 20 };

	CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
}

static void without_memlock(void)
{
	const struct rlimit limit = { 64 << 10, 64 << 10 };

	CHECK(!setrlimit(RLIMIT_MEMLOCK, &limit));
	drop((const int[]){ CAP_IPC_LOCK }, 1);
}

static void test_open__limits_of_the_process(void)
{
	lacking(without_perfmon, CAREFUL_CHECK_PRIVILEGE, -EPERM, "CAP_PERFMON is missing");
	lacking(without_files, CAREFUL_CHECK_FILES, -EMFILE, "at most 20 open files");
	lacking(without_memlock, CAREFUL_CHECK_MEMLOCK, -ENOBUFS,
		"exceed the limit of 64 KiB (ulimit -l)");
}

static void test_open__instance_in_use(void)
{
	struct careful_options options = defaults();
	struct queue *queue = open_good(&options);
	char words[128];

	snprintf(words, sizeof(words), "%s is in use by this program itself; close it, or",
		 instance);
	refused(&options, -EBUSY, words);
	/* The owner's pins and lock still exist … */
	CHECK(exists("/sys/fs/bpf/careful/%s/peers"));
	CHECK(exists("/run/careful/%s.lock"));
	CHECK(qdisc_is("pfifo ca00:"));
	/* … also after a second instance tried the same interface. */
	options.instance = "another";
	options.port = 4711;
	snprintf(words, sizeof(words),
		 "eth1 is in use by instance %s, this program itself; close it", instance);
	refused(&options, -EBUSY, words);
	CHECK(qdisc_is("pfifo ca00:"));
	device_close(queue);
	expect_nothing_left();
}

/* A queue discipline of somebody else stays unchanged. */
static void test_open__leaves_a_qdisc_alone(void)
{
	struct careful_options options = defaults();
	struct queue *queue;

	CHECK(!pair_run(&pair, 0, "tc qdisc add dev eth1 root handle 77: pfifo limit 99"));
	queue = open_good(&options);
	CHECK(qdisc_is("pfifo 77: root .* limit 99p"));
	device_close(queue);
	CHECK(qdisc_is("pfifo 77: root .* limit 99p"));
	CHECK(!pair_run(&pair, 0, "tc qdisc del dev eth1 root"));
}

/* Starts an owner in a process of its own, and waits until it is ready. */
static pid_t start_owner(void)
{
	struct careful_options options = defaults();
	int ready[2];
	char byte;
	pid_t child;

	CHECK(!pipe(ready));
	child = fork();
	if (!child) {
		struct queue *queue;
		ssize_t written;

		pair_enter(&pair, 0);
		if (xsk_open(&options, &queue, &error))
			_exit(1);
		written = write(ready[1], "", 1);
		(void)written;
		for (;;)
			pause();
	}
	close(ready[1]);
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return child;
}

static void test_killed_owner__leaves_no_program(void)
{
	struct careful_options options = defaults();
	struct queue *queue;
	pid_t child = start_owner();
	int status;

	CHECK(program_on(0));
	CHECK(!kill(child, SIGKILL));
	CHECK_EQ(waitpid(child, &status, 0), child);
	/* The next owner starts at once, despite pins, lock and qdisc of the dead one. */
	CHECK(exists("/sys/fs/bpf/careful/%s/peers"));
	CHECK(exists("/run/careful/%s.lock"));
	CHECK(qdisc_is("pfifo ca00:"));
	queue = open_good(&options);
	CHECK_EQ(to_xsk_port(queue->port)->peers[0].cookie, 0);
	device_close(queue);
	expect_nothing_left();
	/* Without a next owner the program disappears too. */
	child = start_owner();
	CHECK(!kill(child, SIGKILL));
	CHECK_EQ(waitpid(child, &status, 0), child);
	for (int i = 0; i < 100 && program_on(0); i++)
		usleep(10000);
	CHECK_EQ(program_on(0), 0);
	queue = open_good(&options);
	device_close(queue);
}

/* Repeats opening and closing: nothing accumulates, and a closed queue can be opened again. */
static void test_open__many_times(void)
{
	struct careful_options options = defaults();
	int first = dup(0), last;

	close(first);
	for (int i = 0; i < 20; i++) {
		struct queue *queue = open_good(&options);

		device_close(queue);
	}
	last = dup(0);
	close(last);
	CHECK_EQ(first, last); /* no descriptor leaked */
	expect_nothing_left();
}

/* Checks that the pinned map is the one into which the engine writes, with a slot for each peer. */
static void expect_live(struct queue *queue)
{
	const uint32_t first = 0, last = 7, beyond = 8; /* of --peers's default */
	static struct careful_live_entry live;
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/sys/fs/bpf/careful/%s/live", instance);
	fd = bpf_obj_get(path);
	CHECK(fd >= 0);
	queue->port->ops->live(queue->port, last)->cells[15][2].sum_square_high = 77;
	CHECK(!bpf_map_lookup_elem(fd, &last, &live));
	CHECK_EQ(live.cells[15][2].sum_square_high, 77);
	CHECK(!bpf_map_lookup_elem(fd, &first, &live));
	CHECK_EQ(live.cells[15][2].sum_square_high, 0);
	CHECK(bpf_map_lookup_elem(fd, &beyond, &live));
	close(fd);
}

/* The controller opens the maps through the pins. */
static void test_pins__are_the_maps_in_use(void)
{
	struct careful_options options = defaults();
	struct queue *queue = open_good(&options);
	const uint32_t key = 3, last = CAREFUL_TUNE_DEFAULT;
	static struct careful_tune_entry entry;
	struct careful_peer_entry peer;
	char path[128];
	int fd;

	queue->port->ops->admit(queue->port, 3, 0xabc, 40, 2048, false);
	snprintf(path, sizeof(path), "/sys/fs/bpf/careful/%s/peers", instance);
	fd = bpf_obj_get(path);
	CHECK(fd >= 0);
	CHECK(!bpf_map_lookup_elem(fd, &key, &peer));
	CHECK_EQ(peer.cookie, 0xabc);
	CHECK_EQ(peer.window, 40);
	close(fd);
	snprintf(path, sizeof(path), "/sys/fs/bpf/careful/%s/tune", instance);
	fd = bpf_obj_get(path);
	CHECK(fd >= 0);
	entry.active = 2;
	entry.version[2].classes[15].plan.down_step_bytes = 99;
	CHECK(!bpf_map_update_elem(fd, &last, &entry, BPF_ANY));
	CHECK_EQ(queue->port->ops->tune(queue->port, last)->active, 2);
	CHECK_EQ(queue->port->ops->tune(queue->port, last)
			 ->version[2]
			 .classes[15]
			 .plan.down_step_bytes,
		 99);
	CHECK_EQ(queue->port->ops->tune(queue->port, 3)->active, 0);
	close(fd);
	expect_live(queue);
	device_close(queue);
}

int main(void)
{
	if (geteuid())
		skip("needs root");
	snprintf(instance, sizeof(instance), "test-open-%d", getpid());
	pair_open(&pair, 1500);
	RUN(test_open__settings_in_effect);
	RUN(test_open__reports_why_not_native);
	RUN(test_open__program_detached);
	RUN(test_open__generic_is_bounded_by_the_backlog);
	RUN(test_open__bad_options);
	RUN(test_check__zerocopy);
	RUN(test_open__unsuitable_interface);
	RUN(test_open__port_in_use);
	RUN(test_open__another_program_is_named);
	RUN(test_open__name_with_a_dot);
	RUN(test_open__not_root);
	RUN(test_open__limits_of_the_process);
	RUN(test_open__instance_in_use);
	RUN(test_open__leaves_a_qdisc_alone);
	RUN(test_killed_owner__leaves_no_program);
	RUN(test_open__many_times);
	RUN(test_pins__are_the_maps_in_use);
	pair_close(&pair);
	return 0;
}
