// SPDX-License-Identifier: BSD-2-Clause
/*
 * The AF_XDP device when something is full: the kernel's budget, the other end's ring, the window,
 * the receive buffers. Within the window nothing is lost; losses beyond it are counted.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "two_ends.h"

static void queue_frame(struct end *end, uint32_t frame_bytes)
{
	struct device_desc descs[DEVICE_SEGMENTS_MAX];
	uint32_t n = end_put(end, frame_bytes, descs);

	CHECK_EQ(end->queue->ops->tx(end->queue, descs, n), n);
}

/* More frames than the kernel takes at once: EAGAIN, and none is lost. */
static void test_kick__again_until_all_left(void)
{
	const uint32_t burst = 300;

	open_both(1500, false);
	for (int round = 0; round < 5; round++) {
		uint64_t bytes = 0;
		uint32_t got = 0;

		for (uint32_t i = 0; i < burst; i++)
			queue_frame(&ends[0], 200);
		CHECK_EQ(to_xsk(ends[0].queue)->tx_held, burst);
		if (!to_xsk(ends[0].queue)->tx_budget)
			CHECK_EQ(ends[0].queue->ops->kick(ends[0].queue), -EAGAIN);
		kick_all(&ends[0]);
		for (int i = 0; i < 2000 && got < burst; i++) {
			got += end_drain(&ends[1], &bytes);
			if (got < burst)
				usleep(100);
		}
		CHECK_EQ(got, burst);
		CHECK_EQ(bytes, burst * 200);
		expect_chunks_back(&ends[0]);
	}
	expect_nothing_lost(&ends[1]);
	close_both();
}

static atomic_uint flood_received;
static atomic_bool flood_over;

static void *flood_receiver(void *arg)
{
	struct end *end = arg;
	const uint32_t total = 50000;
	uint64_t bytes = 0;
	uint32_t got = 0;
	uint64_t start = end->queue->port->ops->now_ns(end->queue->port);

	while (got < total &&
	       end->queue->port->ops->now_ns(end->queue->port) - start < 30000000000ULL) {
		uint32_t n = end_drain(end, &bytes);

		got += n;
		atomic_store(&flood_received, got);
		/* Pauses now and then, so that rings fill up. */
		if (n && got % 5000 < n)
			usleep(500);
	}
	return NULL;
}

/* Keeps a window of R full until this many frames have left; the receiver is in another thread. */
static void flood(uint32_t total)
{
	struct queue *queue = ends[0].queue;
	uint64_t start = queue->port->ops->now_ns(queue->port);
	struct device_desc desc;
	uint32_t sent = 0;

	while (sent < total) {
		CHECK(queue->port->ops->now_ns(queue->port) - start < 30000000000ULL);
		end_take_back(&ends[0]);
		while (sent < total && ends[0].free_count &&
		       sent - atomic_load(&flood_received) < ends[1].queue->info.receive_buffers) {
			CHECK_EQ(end_put(&ends[0], 128, &desc), 1);
			CHECK_EQ(queue->ops->tx(queue, &desc, 1), 1);
			sent++;
		}
		queue->ops->kick(queue);
	}
	kick_all(&ends[0]);
}

static void *other_sender(void *arg)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htobe16(9) };
	static const uint8_t data[1400];
	int fd;

	(void)arg;
	pair_enter(&pair, 0);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	inet_pton(AF_INET, "10.77.0.2", &to.sin_addr);
	while (!atomic_load(&flood_over))
		sendto(fd, data, sizeof(data), MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));
	close(fd);
	return NULL;
}

/* A full window from another core, next to a UDP flood over the same link or alone: all of it
 * arrives. */
static void check_flood(bool beside)
{
	const uint32_t total = 50000;
	struct careful_device_statistics s;
	pthread_t receiver, other;

	open_both(1500, false);
	atomic_store(&flood_received, 0);
	atomic_store(&flood_over, false);
	CHECK(!pthread_create(&receiver, NULL, flood_receiver, &ends[1]));
	if (beside)
		CHECK(!pthread_create(&other, NULL, other_sender, NULL));
	flood(total);
	pthread_join(receiver, NULL);
	atomic_store(&flood_over, true);
	if (beside)
		pthread_join(other, NULL);
	ends[0].queue->ops->statistics(ends[0].queue, &s);
	printf("  %llu kicks, %llu again\n", (unsigned long long)s.kicks,
	       (unsigned long long)s.kicks_again);
	CHECK_EQ(atomic_load(&flood_received), total);
	expect_nothing_lost(&ends[0]);
	expect_nothing_lost(&ends[1]);
	expect_chunks_back(&ends[0]);
	close_both();
}

static void test_flood__nothing_lost(void)
{
	check_flood(false);
}

static void test_flood__next_to_other_traffic(void)
{
	check_flood(true);
}

/* Gives this thread the highest priority on CPU 0, or undoes that. */
static void rule_cpu0(bool on)
{
	const struct sched_param param = { .sched_priority = on ? 1 : 0 };
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int cpu = 0; cpu < (on ? 1 : CPU_SETSIZE); cpu++)
		CPU_SET(cpu, &set);
	CHECK(!sched_setaffinity(0, sizeof(set), &set));
	CHECK(!sched_setscheduler(0, on ? SCHED_FIFO : SCHED_OTHER, &param));
}

/* The other end's NAPI on CPU 0, in a thread that we keep from running: its ring of 256
 * is full. That is EAGAIN, thanks to the qdisc, and nothing is lost. */
static void test_kick__full_ring_is_not_a_loss(void)
{
	const uint32_t burst = 400;
	uint64_t bytes = 0;
	uint32_t got = 0;
	int rc = 0;

	if (setting->mode != CAREFUL_XDP_NATIVE || setting->without)
		return;
	open_both(1500, false);
	if (!to_xsk(ends[0].queue)->tx_budget ||
	    pair_run(&pair, 1,
		     "unshare -m sh -c 'mount -t sysfs sysfs /sys &&"
		     " echo 1 >/sys/class/net/eth1/threaded' &&"
		     "taskset -cp 0 $(pgrep -n napi/eth1) >/dev/null")) {
		skip_part("no NAPI threads, or a veth without back-pressure");
		close_both();
		return;
	}
	for (uint32_t i = 0; i < burst; i++)
		queue_frame(&ends[0], 200);
	rule_cpu0(true);
	for (int i = 0; i < 20; i++)
		rc |= ends[0].queue->ops->kick(ends[0].queue);
	got = end_drain(&ends[1], &bytes);
	rule_cpu0(false);
	CHECK_EQ(rc, -EAGAIN);
	CHECK_EQ(got, 0);
	for (int i = 0; i < 200000 && got < burst; i++) {
		rc = ends[0].queue->ops->kick(ends[0].queue);
		got += end_drain(&ends[1], &bytes);
		usleep(100);
	}
	CHECK_EQ(rc, 0);
	CHECK_EQ(got, burst);
	expect_nothing_lost(&ends[0]);
	expect_nothing_lost(&ends[1]);
	close_both();
}

static void send_and_drain(uint32_t frames)
{
	uint64_t bytes = 0;
	uint32_t got = 0;

	for (uint32_t i = 0; i < frames; i++)
		queue_frame(&ends[0], 128);
	kick_all(&ends[0]);
	for (int i = 0; i < 2000 && got < frames; i++) {
		got += end_drain(&ends[1], &bytes);
		if (got < frames)
			usleep(100);
	}
	CHECK_EQ(got, frames);
	expect_chunks_back(&ends[0]);
}

/* Receives all frames, and checks that each has its own buffer. Returns their number, and an address. */
static uint32_t take_all(struct end *end, uint64_t *addr)
{
	static uint8_t seen[4096];
	struct device_desc desc;
	uint32_t got = 0;

	memset(seen, 0, sizeof(seen));
	for (; end->queue->ops->rx(end->queue, &desc, 1); got++) {
		CHECK(desc.addr / end->queue->chunk_bytes < end->queue->rx_chunks);
		CHECK(!seen[desc.addr / end->queue->chunk_bytes]++);
		*addr = desc.addr;
	}
	return got;
}

/* If no buffer is released, only as many frames arrive as there are buffers, also after long use;
 * the loss of the others is counted. */
static void test_fill__bounds_arriving_frames(void)
{
	struct careful_device_statistics s;
	struct queue *queue;
	struct device_desc desc;
	uint64_t addr = 0;

	open_both(1500, false);
	queue = ends[1].queue;
	for (int round = 0; round < 10; round++)
		send_and_drain(200);
	for (uint32_t i = 0; i < queue->rx_chunks + 8; i++) {
		while (!ends[0].free_count)
			end_take_back(&ends[0]);
		queue_frame(&ends[0], 128);
		kick_all(&ends[0]);
	}
	usleep(20000);
	CHECK_EQ(take_all(&ends[1], &addr), queue->rx_chunks);
	queue->ops->statistics(queue, &s);
	CHECK_EQ(s.rx_dropped + s.rx_ring_full, 8);
	/* A released buffer takes the next frame. */
	addr = (addr & ~(uint64_t)(queue->chunk_bytes - 1)) + 17;
	queue->ops->fill(queue, &addr, 1);
	end_take_back(&ends[0]);
	queue_frame(&ends[0], 128);
	kick_all(&ends[0]);
	usleep(20000);
	CHECK_EQ(queue->ops->rx(queue, &desc, 1), 1);
	CHECK_EQ(desc.addr / queue->chunk_bytes, addr / queue->chunk_bytes);
	close_both();
}

int main(void)
{
	EACH_SETTING
	{
		RUN(test_kick__again_until_all_left);
		RUN(test_kick__full_ring_is_not_a_loss);
		RUN(test_flood__nothing_lost);
		RUN(test_flood__next_to_other_traffic);
		RUN(test_fill__bounds_arriving_frames);
	}
	return 0;
}
