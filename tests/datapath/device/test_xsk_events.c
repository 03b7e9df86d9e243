// SPDX-License-Identifier: BSD-2-Clause
/*
 * Tests what the AF_XDP device learns from the kernel: neighbours, routes and the link as they
 * change; control messages, and the hosts where nobody listens.
 */
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include "device/xsk/xsk.h"
#include "end.h"

static struct pair pair;
static struct queue *queues[2];
static struct port *ports[2];

static void open_sides(int sides)
{
	struct careful_error error = { 0 };
	char instance[32];
	const struct careful_options options = { .ifname = "eth1", .instance = instance };

	pair_open(&pair, 1500);
	for (int side = 0; side < sides; side++) {
		int rc;

		snprintf(instance, sizeof(instance), "test-events-%d-%d", getpid(), side);
		pair_enter(&pair, side);
		rc = xsk_open(&options, &queues[side], &error);
		pair_leave(&pair);
		if (rc == -EPERM)
			skip(error.text);
		if (rc)
			fprintf(stderr, "%s\n", error.text);
		CHECK_EQ(rc, 0);
		ports[side] = queues[side]->port;
	}
}

static void close_sides(int sides)
{
	for (int side = 0; side < sides; side++)
		device_close(queues[side]);
	pair_close(&pair);
}

static union address address(const char *text)
{
	union address a = { .in = { .sin_family = AF_INET } };

	if (inet_pton(AF_INET, text, &a.in.sin_addr) == 1)
		return a;
	a.in6 = (struct sockaddr_in6){ .sin6_family = AF_INET6 };
	CHECK_EQ(inet_pton(AF_INET6, text, &a.in6.sin6_addr), 1);
	return a;
}

static int resolve(const char *to, struct llhdr *llhdr)
{
	union address a = address(to);

	return ports[0]->ops->resolve(ports[0], &a, llhdr);
}

static int resolve_patiently(const char *to, struct llhdr *llhdr)
{
	int rc = -EAGAIN;

	for (int i = 0; i < 2000 && rc == -EAGAIN; i++) {
		rc = resolve(to, llhdr);
		if (rc)
			usleep(1000);
	}
	return rc;
}

/* Polls like the engine until one of these events comes; returns all that came. */
static uint32_t wait_event(uint32_t want)
{
	uint32_t events = 0;

	for (int i = 0; i < 300 && !(events & want); i++) {
		struct pollfd fds[DEVICE_WAIT_FDS_MAX];
		int raw[DEVICE_WAIT_FDS_MAX];
		uint32_t n = ports[0]->ops->wait_fds(ports[0], raw, DEVICE_WAIT_FDS_MAX);

		for (uint32_t k = 0; k < n; k++)
			fds[k] = (struct pollfd){ .fd = raw[k], .events = POLLIN };
		poll(fds, n, 10);
		events |= ports[0]->ops->events(ports[0]);
	}
	CHECK(events & want);
	return events;
}

static void settle(void)
{
	usleep(50000);
	ports[0]->ops->events(ports[0]);
}

static uint16_t be16_at(const struct llhdr *llhdr, uint32_t at)
{
	return (uint16_t)(llhdr->data[at] << 8 | llhdr->data[at + 1]);
}

static void test_resolve__ipv4_headers(void)
{
	struct llhdr h = { .bytes = 0 };
	uint32_t sum = 0;

	open_sides(1);
	/* The first call makes the kernel ask for the address. */
	CHECK_EQ(resolve("10.77.0.2", &h), -EAGAIN);
	CHECK_EQ(h.bytes, 0);
	CHECK_EQ(resolve_patiently("10.77.0.2", &h), 0);
	CHECK_EQ(h.bytes, 42);
	CHECK_EQ(be16_at(&h, 12), 0x0800);
	CHECK_EQ(h.data[14], 0x45);
	CHECK_EQ(be16_at(&h, 16), 28);
	CHECK_EQ(h.data[23], 17);
	CHECK(!memcmp(&h.data[26], "\x0a\x4d\x00\x01\x0a\x4d\x00\x02", 8));
	CHECK_EQ(be16_at(&h, 34), CAREFUL_PORT_DEFAULT);
	CHECK_EQ(be16_at(&h, 36), CAREFUL_PORT_DEFAULT);
	CHECK_EQ(be16_at(&h, 38), 8);
	for (uint32_t i = 14; i < 34; i += 2)
		sum += be16_at(&h, i);
	CHECK_EQ((sum & 0xffff) + (sum >> 16), 0xffff);
	close_sides(1);
}

static void test_resolve__ipv6_headers(void)
{
	struct llhdr h = { .bytes = 0 };

	open_sides(1);
	CHECK_EQ(resolve_patiently("fd77::2", &h), 0);
	CHECK_EQ(h.bytes, 62);
	CHECK_EQ(be16_at(&h, 12), 0x86dd);
	CHECK_EQ(h.data[14] >> 4, 6);
	CHECK_EQ(be16_at(&h, 18), 8);
	CHECK_EQ(h.data[20], 17);
	CHECK_EQ(h.data[37], 1);
	CHECK_EQ(h.data[53], 2);
	CHECK_EQ(be16_at(&h, 58), 8);
	CHECK_EQ(be16_at(&h, 60), 0);
	close_sides(1);
}

static void test_resolve__ipv6_link_local(void)
{
	struct llhdr h = { .bytes = 0 };

	open_sides(1);
	CHECK(!pair_run(&pair, 0, "ip addr add fe80::77:1/64 dev eth1 nodad"));
	CHECK(!pair_run(&pair, 1, "ip addr add fe80::77:2/64 dev eth1 nodad"));
	CHECK_EQ(resolve_patiently("fe80::77:2", &h), 0);
	CHECK_EQ(h.bytes, 62);
	CHECK(!memcmp(&h.data[22], "\xfe\x80", 2));
	CHECK_EQ(be16_at(&h, 52), 2);
	close_sides(1);
}

static void test_resolve__port_of_the_address(void)
{
	union address to = address("10.77.0.2");
	struct llhdr h;

	open_sides(1);
	CHECK_EQ(resolve_patiently("10.77.0.2", &h), 0);
	to.in.sin_port = htobe16(4711);
	CHECK_EQ(ports[0]->ops->resolve(ports[0], &to, &h), 0);
	CHECK_EQ(be16_at(&h, 36), 4711);
	close_sides(1);
}

/* Checks that a frame to the host leaves from this address, of so many bytes. */
static void check_source(union address *to, const char *from, uint32_t at, uint32_t bytes)
{
	uint8_t want[16];
	struct llhdr h;

	CHECK_EQ(inet_pton(to->sa.sa_family, from, want), 1);
	CHECK_EQ(ports[0]->ops->resolve(ports[0], to, &h), 0);
	CHECK(!memcmp(&h.data[at], want, bytes));
	ports[0]->ops->source(ports[0], to);
	CHECK(!memcmp(to->ours, want, bytes));
}

/* The address that the other end knows stays while it is ours. Then the kernel chooses. */
static void test_resolve__a_source_that_is_no_longer_ours(void)
{
	union address to = address("10.77.0.2"), to6 = address("fd77::2");
	uint8_t want6[16];
	struct llhdr h;

	CHECK_EQ(inet_pton(AF_INET6, "fd77::1", want6), 1);

	open_sides(1);
	CHECK(!pair_run(&pair, 0, "ip addr add 10.77.0.7/24 dev eth1"));
	CHECK(!pair_run(&pair, 0, "ip addr add fd77::7/128 dev eth1 nodad"));
	CHECK_EQ(resolve_patiently("10.77.0.2", &h), 0);
	CHECK_EQ(resolve_patiently("fd77::2", &h), 0);
	CHECK_EQ(inet_pton(AF_INET, "10.77.0.7", to.ours), 1);
	CHECK_EQ(inet_pton(AF_INET6, "fd77::7", to6.ours), 1);
	check_source(&to, "10.77.0.7", 26, 4);
	check_source(&to6, "fd77::7", 22, 16);
	CHECK(!pair_run(&pair, 0, "ip addr del 10.77.0.7/24 dev eth1"));
	CHECK(!pair_run(&pair, 0, "ip addr del fd77::7/128 dev eth1"));
	check_source(&to, "10.77.0.1", 26, 4);
	check_source(&to6, "fd77::1", 22, 16);
	/* An address that is being checked for duplicates is ours. Others cannot answer to the
	 * addresses of the link or of this host, which the kernel would choose without it. */
	CHECK(!pair_run(&pair, 0,
			"echo 1 >/proc/sys/net/ipv6/conf/eth1/accept_dad &&"
			"ip addr del fd77::1/64 dev eth1 && ip addr add fd77::1/64 dev eth1 &&"
			"ip -6 addr show dev eth1 tentative | grep -q fd77::1/64 &&"
			"ip route replace fd77::/64 dev eth1"));
	ports[0]->ops->source(ports[0], &to6);
	CHECK(!memcmp(to6.ours, want6, sizeof(want6)));
	CHECK(!pair_run(&pair, 0,
			"ip addr del fd77::1/64 dev eth1; ip route replace fd77::/64 dev eth1"));
	ports[0]->ops->source(ports[0], &to6);
	CHECK(!memcmp(to6.ours, want6, sizeof(want6)));
	close_sides(1);
}

static void test_resolve__unreachable_addresses(void)
{
	struct llhdr h;

	open_sides(1);
	CHECK_EQ(resolve("192.0.2.1", &h), -ENETUNREACH);
	CHECK_EQ(resolve("2001:db8::1", &h), -ENETUNREACH);
	CHECK_EQ(resolve("10.77.0.1", &h), -ENOTUNIQ);
	CHECK_EQ(resolve("10.77.0.255", &h), -ENETUNREACH);
	CHECK_EQ(resolve("224.0.0.1", &h), -ENETUNREACH);
	CHECK_EQ(resolve("127.0.0.1", &h), -ENOTUNIQ);
	CHECK(!pair_run(&pair, 0,
			"ip link add other type veth peer name another && ip link set another up &&"
			"ip link set other up &&"
			"ip route add 198.51.100.0/24 dev other &&"
			"ip route add blackhole 203.0.113.0/24"));
	CHECK_EQ(resolve("198.51.100.1", &h), -EXDEV);
	CHECK_EQ(resolve("203.0.113.1", &h), -ENETUNREACH);
	/* A host that does not exist never resolves, and the call does not wait. */
	for (int i = 0; i < 20; i++)
		CHECK_EQ(resolve("10.77.0.9", &h), -EAGAIN);
	close_sides(1);
}

/* The best route leaves by another interface, but ours has one too. */
static void test_resolve__by_our_interface(void)
{
	struct llhdr h;

	open_sides(1);
	CHECK(!pair_run(&pair, 0,
			"ip link add other type veth peer name another && ip link set another up &&"
			"ip link set other up && ip addr add 10.77.0.7/24 dev other &&"
			"ip route add 10.77.0.2/32 dev other &&"
			"ip -6 route add fd77::2/128 dev other"));
	CHECK_EQ(resolve_patiently("10.77.0.2", &h), 0);
	CHECK(!memcmp(&h.data[26], "\x0a\x4d\x00\x01\x0a\x4d\x00\x02", 8));
	CHECK_EQ(resolve_patiently("fd77::2", &h), 0);
	CHECK_EQ(h.data[37], 1);
	close_sides(1);
}

static void test_resolve__through_a_gateway(void)
{
	struct llhdr direct, h;

	open_sides(1);
	CHECK_EQ(resolve_patiently("10.77.0.2", &direct), 0);
	CHECK(!pair_run(&pair, 0,
			"ip route add 192.0.2.0/24 via 10.77.0.2 &&"
			"ip route add 198.51.100.0/24 via inet6 fd77::2 dev eth1"));
	CHECK_EQ(resolve_patiently("192.0.2.1", &h), 0);
	CHECK(!memcmp(h.data, direct.data, 12));
	CHECK(!memcmp(&h.data[30], "\xc0\x00\x02\x01", 4));
	CHECK_EQ(resolve_patiently("198.51.100.1", &h), 0); /* RFC 5549 */
	CHECK(!memcmp(h.data, direct.data, 12));
	close_sides(1);
}

static void test_events__neighbour_moves(void)
{
	static const uint8_t moved[6] = { 2, 0, 0, 0, 0xca, 0xfe };
	struct llhdr before, after;

	open_sides(1);
	CHECK_EQ(resolve_patiently("10.77.0.2", &before), 0);
	settle();
	CHECK_EQ(ports[0]->ops->events(ports[0]), 0);
	CHECK(!pair_run(&pair, 0, "ip neigh replace 10.77.0.2 lladdr 02:00:00:00:ca:fe dev eth1"));
	CHECK_EQ(wait_event(DEVICE_ROUTES), DEVICE_ROUTES);
	CHECK_EQ(resolve("10.77.0.2", &after), 0);
	CHECK(memcmp(before.data, moved, 6));
	CHECK(!memcmp(after.data, moved, 6));
	CHECK(!memcmp(before.data + 6, after.data + 6, 36));
	/* A forgotten neighbour is asked for again. */
	CHECK(!pair_run(&pair, 0, "ip neigh del 10.77.0.2 dev eth1"));
	wait_event(DEVICE_ROUTES);
	CHECK_EQ(resolve_patiently("10.77.0.2", &after), 0);
	CHECK(!memcmp(after.data, before.data, 6));
	close_sides(1);
}

static void test_distrust__resolves_the_neighbour_again(void)
{
	static const char *const addresses[] = { "10.77.0.2", "fd77::2" };
	struct llhdr right, h;

	open_sides(1);
	for (int i = 0; i < 2; i++) {
		union address to = address(addresses[i]);

		CHECK_EQ(resolve_patiently(addresses[i], &right), 0);
		for (int by_hand = 0; by_hand < 2; by_hand++) {
			CHECK(!pair_run(&pair, 0,
					"ip neigh replace %s lladdr 02:00:00:00:ca:fe dev eth1 "
					"nud %s",
					addresses[i], by_hand ? "permanent" : "reachable"));
			CHECK_EQ(resolve(addresses[i], &h), 0);
			CHECK(memcmp(h.data, right.data, 6));
			ports[0]->ops->distrust(ports[0], &to);
			CHECK_EQ(resolve_patiently(addresses[i], &h), 0);
			CHECK_EQ(!memcmp(h.data, right.data, 6), !by_hand);
		}
	}
	close_sides(1);
}

static void test_events__own_address_and_route(void)
{
	struct llhdr h;

	open_sides(1);
	CHECK_EQ(resolve_patiently("10.77.0.2", &h), 0);
	settle();
	CHECK(!pair_run(&pair, 0, "ip link set eth1 address 02:00:00:00:00:77"));
	wait_event(DEVICE_ROUTES);
	CHECK_EQ(resolve_patiently("10.77.0.2", &h), 0);
	CHECK(!memcmp(h.data + 6, "\x02\x00\x00\x00\x00\x77", 6));
	settle();
	CHECK(!pair_run(&pair, 0, "ip route add 192.0.2.0/24 via 10.77.0.2"));
	wait_event(DEVICE_ROUTES);
	close_sides(1);
}

static void test_events__link_and_mtu(void)
{
	const struct device_desc desc = { .bytes = 100 };
	struct careful_device_statistics s;
	struct pollfd wait;
	uint64_t addr;

	open_sides(1);
	settle();
	CHECK(!pair_run(&pair, 1, "ip link set eth1 down")); /* the carrier goes */
	wait_event(DEVICE_DOWN);
	/* A frame that is queued now waits. It is not dropped even by a poll() for received frames,
	 * which in copy mode sends the ring. */
	CHECK_EQ(queues[0]->ops->tx(queues[0], &desc, 1), 1);
	CHECK_EQ(queues[0]->ops->kick(queues[0]), -EAGAIN);
	wait = (struct pollfd){ .fd = queues[0]->fd, .events = POLLIN };
	CHECK(poll(&wait, 1, 0) >= 0);
	CHECK_EQ(queues[0]->ops->complete(queues[0], &addr, 1), 0);
	queues[0]->ops->statistics(queues[0], &s);
	CHECK_EQ(s.kicks, 0);
	CHECK(!pair_run(&pair, 1, "ip link set eth1 up"));
	wait_event(DEVICE_UP);
	CHECK_EQ(queues[0]->ops->kick(queues[0]), 0);
	CHECK(!pair_run(&pair, 0, "ip link set eth1 down"));
	wait_event(DEVICE_DOWN);
	CHECK(!pair_run(&pair, 0, "ip link set eth1 up"));
	/* The kick read the event first; events() still reports it. */
	CHECK_EQ(queues[0]->ops->tx(queues[0], &desc, 1), 1);
	for (int i = 0; i < 2000 && queues[0]->ops->kick(queues[0]); i++)
		usleep(1000);
	wait_event(DEVICE_UP);
	settle();
	CHECK(!pair_run(&pair, 0, "ip link set eth1 mtu 1400"));
	wait_event(DEVICE_MTU);
	CHECK_EQ(ports[0]->mtu, 1400); /* frames follow it down */
	CHECK_EQ(queue_frame_bytes(queues[0]), 1414);
	CHECK(!pair_run(&pair, 0, "ip link del eth1"));
	CHECK(wait_event(DEVICE_GONE) & DEVICE_DOWN);
	CHECK_EQ(queues[0]->ops->tx(queues[0], &desc, 1), 1);
	CHECK_EQ(queues[0]->ops->kick(queues[0]), -EAGAIN);
	close_sides(1);
}

/* Frames on another queue count as refused, and the log says why. */
static void test_statistics__frames_on_another_queue_are_refused(void)
{
	uint64_t each[CPU_SETSIZE] = { 3 };
	const uint32_t why = CAREFUL_XDP_PASS_QUEUE, pings = CAREFUL_XDP_PASS_PING;
	struct careful_device_statistics s;
	char path[128];
	int fd;

	open_sides(1);
	snprintf(path, sizeof(path), "/sys/fs/bpf/careful/test-events-%d-0/counters", getpid());
	fd = bpf_obj_get(path);
	CHECK(fd >= 0);
	CHECK_EQ(bpf_map_update_elem(fd, &pings, each, BPF_ANY), 0);
	queues[0]->ops->statistics(queues[0], &s);
	CHECK_EQ(s.rx_refused, 0);
	CHECK_EQ(bpf_map_update_elem(fd, &why, each, BPF_ANY), 0);
	queues[0]->ops->statistics(queues[0], &s);
	CHECK_EQ(s.rx_refused, 3);
	close(fd);
	close_sides(1);
}

static void test_events__overflow_reads_the_state_again(void)
{
	open_sides(1);
	settle();
	/* More events than the socket holds; the important one comes last. */
	CHECK(!pair_run(&pair, 0,
			"for i in $(seq 3000); do echo route add 192.0.2.1 dev eth1;"
			" echo route del 192.0.2.1 dev eth1; done | ip -batch - &&"
			" ip link set eth1 mtu 1300"));
	wait_event(DEVICE_MTU);
	close_sides(1);
}

static ssize_t ctrl_recv(int side, union address *from, void *buf, uint32_t bytes)
{
	struct arrival arrival;

	return ports[side]->ops->ctrl_recv(ports[side], from, buf, bytes, &arrival);
}

static ssize_t ctrl_wait(int side, union address *from, void *buf, uint32_t bytes)
{
	ssize_t got = -EAGAIN;

	for (int i = 0; i < 2000 && got == -EAGAIN; i++) {
		got = ctrl_recv(side, from, buf, bytes);
		if (got == -EAGAIN)
			usleep(1000);
	}
	return got;
}

static void check_ctrl(const char *to_text, const char *from_text)
{
	union address to = address(to_text), from, want = address(from_text);
	const struct careful_ctrl ctrl = { .version = 9, .type = CAREFUL_SYNC };
	struct careful_ctrl got;

	to.in.sin_port = htobe16(CAREFUL_PORT_DEFAULT); /* in the same place in both families */
	CHECK_EQ(ctrl_recv(1, &from, &got, sizeof(got)), -EAGAIN);
	CHECK_EQ(ports[0]->ops->ctrl_send(ports[0], &to, &ctrl, sizeof(ctrl)), 0);
	CHECK_EQ(ctrl_wait(1, &from, &got, sizeof(got)), sizeof(got));
	CHECK(!memcmp(&got, &ctrl, sizeof(got)));
	CHECK_EQ(from.sa.sa_family, want.sa.sa_family);
	CHECK_EQ(from.in.sin_port, htobe16(CAREFUL_PORT_DEFAULT));
	if (from.sa.sa_family == AF_INET)
		CHECK_EQ(from.in.sin_addr.s_addr, want.in.sin_addr.s_addr);
	else
		CHECK(!memcmp(&from.in6.sin6_addr, &want.in6.sin6_addr, 16));
}

static void test_ctrl__both_families(void)
{
	open_sides(2);
	check_ctrl("10.77.0.2", "10.77.0.1");
	check_ctrl("fd77::2", "fd77::1");
	close_sides(2);
}

static void send_to_all(const char *to_text)
{
	union address to = address(to_text);
	const struct careful_ctrl ctrl = { .version = 9, .type = CAREFUL_HELLO };
	const int on = 1;
	int fd;

	pair_enter(&pair, 0);
	fd = socket(to.sa.sa_family, SOCK_DGRAM, 0);
	CHECK(fd >= 0);
	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on)), 0);
	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "eth1", 4), 0);
	to.in.sin_port = htobe16(CAREFUL_PORT_DEFAULT); /* in the same place in both families */
	CHECK_EQ(sendto(fd, &ctrl, sizeof(ctrl), 0, &to.sa,
			to.sa.sa_family == AF_INET ? sizeof(to.in) : sizeof(to.in6)),
		 sizeof(ctrl));
	close(fd);
	pair_leave(&pair);
}

/* Every host on the link would answer them. */
static void test_ctrl__broadcast_and_multicast_are_dropped(void)
{
	static const char *const all[] = { "10.77.0.255", "255.255.255.255", "224.0.0.1",
					   "ff02::1" };
	struct careful_ctrl got;
	union address from;

	open_sides(2);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		ssize_t n;

		send_to_all(all[i]);
		for (int k = 0; k < 50 && (n = ctrl_recv(1, &from, &got, sizeof(got))) <= 0; k++)
			usleep(1000);
		CHECK(n <= 0);
	}
	check_ctrl("10.77.0.2", "10.77.0.1");
	close_sides(2);
}

/* A flood over one family leaves the other family its turn. */
static void test_ctrl__families_take_turns(void)
{
	union address to[2] = { address("10.77.0.2"), address("fd77::2") }, from;
	const struct careful_ctrl ctrl = { .version = 9, .type = CAREFUL_SYNC };
	uint32_t seen[2] = { 0 };
	struct careful_ctrl got;

	open_sides(2);
	check_ctrl("10.77.0.2", "10.77.0.1"); /* neighbours are known */
	check_ctrl("fd77::2", "fd77::1");
	for (int i = 0; i < 32; i++) {
		to[i % 2].in.sin_port = htobe16(CAREFUL_PORT_DEFAULT);
		CHECK_EQ(ports[0]->ops->ctrl_send(ports[0], &to[i % 2], &ctrl, sizeof(ctrl)), 0);
	}
	usleep(100000);
	for (int i = 0; i < 8; i++) {
		CHECK_EQ(ctrl_recv(1, &from, &got, sizeof(got)), sizeof(got));
		seen[from.sa.sa_family == AF_INET6]++;
	}
	CHECK_EQ(seen[0], 4);
	CHECK_EQ(seen[1], 4);
	close_sides(2);
}

static void check_refused(const char *to_text)
{
	const struct careful_ctrl ctrl = { .version = 1, .type = CAREFUL_SYNC, .nonce = 7 };
	union address to = address(to_text), from;
	struct careful_ctrl got = { 0 };

	to.in.sin_port = htobe16(CAREFUL_PORT_DEFAULT);
	CHECK_EQ(ports[0]->ops->ctrl_send(ports[0], &to, &ctrl, sizeof(ctrl)), 0);
	CHECK_EQ(ctrl_wait(0, &from, &got, sizeof(got)), -ECONNREFUSED);
	CHECK_EQ(from.sa.sa_family, to.sa.sa_family);
	CHECK_EQ(from.in.sin_port, to.in.sin_port);
	if (to.sa.sa_family == AF_INET)
		CHECK_EQ(from.in.sin_addr.s_addr, to.in.sin_addr.s_addr);
	else
		CHECK(!memcmp(&from.in6.sin6_addr, &to.in6.sin6_addr, 16));
	CHECK(!memcmp(&got, &ctrl, sizeof(got))); /* the whole message is quoted */
	/* The error is reported once; the next datagram leaves normally. */
	CHECK_EQ(ctrl_recv(0, &from, &got, sizeof(got)), -EAGAIN);
}

static void test_ctrl__port_unreachable(void)
{
	open_sides(1);
	for (int i = 0; i < 3; i++) {
		check_refused("10.77.0.2");
		check_refused("fd77::2");
	}
	close_sides(1);
}

static void test_clock_and_random(void)
{
	uint64_t a[4] = { 0 }, b[4] = { 0 }, before, after;

	open_sides(1);
	before = ports[0]->ops->now_ns(ports[0]);
	usleep(2000);
	after = ports[0]->ops->now_ns(ports[0]);
	CHECK(after - before >= 2000000 && after - before < 2000000000);
	ports[0]->ops->random(ports[0], a, sizeof(a));
	ports[0]->ops->random(ports[0], b, sizeof(b));
	CHECK(memcmp(a, b, sizeof(a)));
	CHECK(a[3] && b[3]);
	close_sides(1);
}

int main(void)
{
	RUN(test_resolve__ipv4_headers);
	RUN(test_resolve__ipv6_headers);
	RUN(test_resolve__ipv6_link_local);
	RUN(test_resolve__port_of_the_address);
	RUN(test_resolve__a_source_that_is_no_longer_ours);
	RUN(test_resolve__unreachable_addresses);
	RUN(test_resolve__by_our_interface);
	RUN(test_resolve__through_a_gateway);
	RUN(test_events__neighbour_moves);
	RUN(test_distrust__resolves_the_neighbour_again);
	RUN(test_events__own_address_and_route);
	RUN(test_events__link_and_mtu);
	RUN(test_statistics__frames_on_another_queue_are_refused);
	RUN(test_events__overflow_reads_the_state_again);
	RUN(test_ctrl__both_families);
	RUN(test_ctrl__broadcast_and_multicast_are_dropped);
	RUN(test_ctrl__families_take_turns);
	RUN(test_ctrl__port_unreachable);
	RUN(test_clock_and_random);
	return 0;
}
