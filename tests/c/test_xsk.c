// SPDX-License-Identifier: BSD-2-Clause
/*
 * Frames through the AF_XDP device, over a veth between two namespaces: contents,
 * frames of several buffers, conservation of buffers, back-pressure, and what a
 * kernel without the newer features does.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "device/compat.h"
#include "device/xsk.h"
#include "end.h"

static struct pair pair;
static struct end ends[2];

static const struct setting {
	const char *name;
	uint32_t mode;
	uint32_t without;
} * setting;

static void open_side(int side)
{
	char instance[32];
	const struct careful_options options = {
		.ifname = "eth1",
		.instance = instance,
		.xdp_mode = setting->mode,
	};
	struct careful_error error = { "" };
	struct careful_device *dev;
	int rc;

	snprintf(instance, sizeof(instance), "test-%d-%d", getpid(), side);
	pair_enter(&pair, side);
	rc = xsk_open_without(&options, setting->without, &dev, &error);
	pair_leave(&pair);
	if (rc == -EPERM)
		skip(error.text);
	if (rc)
		fprintf(stderr, "%s\n", error.text);
	CHECK_EQ(rc, 0);
	end_init(&ends[side], side, dev);
}

static void open_both(unsigned int mtu, bool ipv6)
{
	pair_open(&pair, mtu);
	for (int side = 0; side < 2; side++)
		open_side(side);
	for (int side = 0; side < 2; side++)
		end_resolve(&ends[side], ipv6);
}

static void close_both(void)
{
	for (int side = 0; side < 2; side++)
		end_deinit(&ends[side]);
	pair_close(&pair);
}

static void kick_all(struct end *end)
{
	int rc;

	for (int i = 0; i < 1000000; i++) {
		rc = end->dev->ops->kick(end->dev);
		if (!rc)
			return;
		CHECK_EQ(rc, -EAGAIN);
	}
	CHECK(!"the kick ends");
}

/* A byte of the body of frame `seq` that a mistake in placing would change. */
static uint8_t pattern(uint32_t seq, uint32_t at)
{
	return (uint8_t)(seq * 31 + at * 7 + (at >> 8));
}

/* Writes bytes [at, at + n) of the body. */
static void write_body(struct end *end, const struct careful_desc *descs, uint32_t n)
{
	uint32_t at = 0, from = end_prefix(end);

	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t k = from; k < descs[i].bytes; k++)
			end->dev->umem[descs[i].addr + k] = pattern(end->seq, at++);
		from = 0;
	}
}

static void send_frame(struct end *end, uint32_t frame_bytes)
{
	struct careful_desc descs[CAREFUL_SEGMENTS_MAX];
	uint32_t n = end_put(end, frame_bytes, descs);

	write_body(end, descs, n);
	CHECK_EQ(end->dev->ops->tx(end->dev, descs, n), n);
}

/* Waits for one frame and compares it; gives its buffers back. */
static void expect_frame(struct end *end, uint32_t seq, uint32_t frame_bytes)
{
	struct careful_device *dev = end->dev;
	struct careful_desc descs[CAREFUL_SEGMENTS_MAX];
	uint64_t addrs[CAREFUL_SEGMENTS_MAX];
	uint32_t n = 0, at = 0, got = 0, skip_bytes = end_prefix(end);

	for (int i = 0; i < 2000 && !n; i++) {
		n = dev->ops->rx(dev, descs, CAREFUL_SEGMENTS_MAX);
		if (!n)
			usleep(1000);
	}
	CHECK_EQ(n, (frame_bytes + dev->buffer_bytes - 1) / dev->buffer_bytes);
	for (uint32_t i = 0; i < n; i++) {
		CHECK_EQ(descs[i].options, i + 1 < n ? CAREFUL_DESC_MORE : 0);
		CHECK_EQ(descs[i].bytes, i + 1 < n ? dev->buffer_bytes : frame_bytes - got);
		CHECK(descs[i].addr < (uint64_t)dev->rx_chunks * dev->chunk_bytes);
		for (uint32_t k = skip_bytes; k < descs[i].bytes; k++)
			CHECK_EQ(dev->umem[descs[i].addr + k], pattern(seq, at++));
		skip_bytes = 0;
		got += descs[i].bytes;
		addrs[i] = descs[i].addr;
	}
	CHECK_EQ(got, frame_bytes);
	dev->ops->fill(dev, addrs, n);
}

static void expect_nothing_lost(struct end *end)
{
	struct careful_device_statistics s;

	end->dev->ops->statistics(end->dev, &s);
	CHECK_EQ(s.rx_dropped, 0);
	CHECK_EQ(s.rx_ring_full, 0);
	CHECK_EQ(s.rx_fill_ring_empty, 0);
	CHECK_EQ(s.rx_invalid_descs, 0);
	CHECK_EQ(s.tx_invalid_descs, 0);
	CHECK_EQ(s.kicks_failed, 0);
}

static void expect_chunks_back(struct end *end)
{
	static uint8_t seen[4096];

	for (int i = 0; i < 1000 && end->free_count < end->dev->tx_chunks; i++) {
		end_take_back(end);
		usleep(1000);
	}
	CHECK_EQ(end->free_count, end->dev->tx_chunks);
	memset(seen, 0, sizeof(seen));
	for (uint32_t i = 0; i < end->free_count; i++) {
		uint64_t chunk = end->free[i] / end->dev->chunk_bytes;

		CHECK(chunk >= end->dev->rx_chunks);
		CHECK(chunk < end->dev->rx_chunks + end->dev->tx_chunks);
		CHECK(!seen[chunk]++);
	}
}

/* One frame after the other, in every size that matters, both ways. */
static void exchange(uint32_t largest)
{
	uint32_t smallest = end_prefix(&ends[0]), buffer = ends[0].dev->buffer_bytes;
	const uint32_t sizes[] = { smallest,   smallest + 1, 1000,	    largest - 1, largest,
				   buffer - 1, buffer,	     buffer + 1,    4095,	 4096,
				   4097,       2 * buffer,   2 * buffer + 1 };

	for (int round = 0; round < 3; round++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (int side = 0; side < 2; side++) {
				if (sizes[i] > largest)
					continue;
				send_frame(&ends[side], sizes[i]);
				kick_all(&ends[side]);
				expect_frame(&ends[!side], ends[side].seq, sizes[i]);
			}
	for (int side = 0; side < 2; side++) {
		expect_nothing_lost(&ends[side]);
		expect_chunks_back(&ends[side]);
	}
}

static void test_frames__ipv4_mtu_1500(void)
{
	open_both(1500, false);
	CHECK_EQ(ends[0].dev->frame_bytes, 1514);
	exchange(1514);
	close_both();
}

static void test_frames__ipv6_mtu_9000(void)
{
	open_both(9000, true);
	if (ends[0].dev->segments_max > 1)
		CHECK_EQ(ends[0].dev->frame_bytes, 9014);
	else /* headroom and tail of a page, at most */
		CHECK_EQ(ends[0].dev->frame_bytes, 4096 - 256 - 320);
	CHECK_EQ(ends[0].dev->buffer_bytes, 4096 - 256);
	exchange(ends[0].dev->frame_bytes);
	close_both();
}

/* rx() cuts no frame unless its room is smaller than the frame. */
static void test_rx__whole_frames(void)
{
	struct careful_desc descs[8];
	struct careful_device *dev;

	open_both(9000, false);
	dev = ends[1].dev;
	if (dev->segments_max > 1) {
		for (int i = 0; i < 2; i++)
			send_frame(&ends[0], 9014); /* three buffers each */
		kick_all(&ends[0]);
		usleep(20000);
		CHECK_EQ(dev->ops->rx(dev, descs, 5), 3);
		CHECK_EQ(descs[2].options, 0);
		CHECK_EQ(dev->ops->rx(dev, descs, 2), 2);
		CHECK_EQ(descs[1].options, CAREFUL_DESC_MORE);
		CHECK_EQ(dev->ops->rx(dev, descs, 8), 1);
		CHECK_EQ(dev->ops->rx(dev, descs, 8), 0);
	}
	close_both();
}

/* tx() takes no half frames, and says how much it took. */
static void test_tx__whole_frames(void)
{
	struct careful_desc descs[3] = { { .bytes = 4096, .options = CAREFUL_DESC_MORE },
					 { .bytes = 4096, .options = CAREFUL_DESC_MORE },
					 { .bytes = 100 } };
	struct careful_device *dev;

	open_both(1500, false);
	dev = ends[0].dev;
	CHECK_EQ(dev->ops->tx(dev, descs, 2), 0);
	CHECK_EQ(dev->ops->tx(dev, descs, 0), 0);
	CHECK_EQ(to_xsk(dev)->tx_held, 0);
	CHECK_EQ(dev->ops->kick(dev), 0);
	close_both();
}

/* More frames than the kernel takes in one go: EAGAIN, and none is lost. */
static void test_kick__again_until_all_left(void)
{
	const uint32_t burst = 300;

	open_both(1500, false);
	for (int round = 0; round < 5; round++) {
		uint64_t bytes = 0;
		uint32_t got = 0;

		for (uint32_t i = 0; i < burst; i++)
			send_frame(&ends[0], 200);
		CHECK_EQ(to_xsk(ends[0].dev)->tx_held, burst);
		if (!to_xsk(ends[0].dev)->tx_budget)
			CHECK_EQ(ends[0].dev->ops->kick(ends[0].dev), -EAGAIN);
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

static void *flood_receiver(void *arg)
{
	struct end *end = arg;
	const uint32_t total = 50000;
	uint64_t bytes = 0;
	uint32_t got = 0;
	uint64_t start = end->dev->ops->now_ns(end->dev);

	while (got < total && end->dev->ops->now_ns(end->dev) - start < 30000000000ULL) {
		uint32_t n = end_drain(end, &bytes);

		got += n;
		atomic_store(&flood_received, got);
		/* Slow now and then, so that rings run full. */
		if (n && got % 5000 < n)
			usleep(500);
	}
	return NULL;
}

/* A window of R kept full, from another core: all arrive, in order or not at all. */
static void test_flood__nothing_lost(void)
{
	const uint32_t total = 50000;
	struct careful_desc descs[1];
	pthread_t receiver;
	uint32_t sent = 0;
	uint64_t start;

	open_both(1500, false);
	atomic_store(&flood_received, 0);
	CHECK(!pthread_create(&receiver, NULL, flood_receiver, &ends[1]));
	start = ends[0].dev->ops->now_ns(ends[0].dev);
	while (sent < total) {
		CHECK(ends[0].dev->ops->now_ns(ends[0].dev) - start < 30000000000ULL);
		end_take_back(&ends[0]);
		while (sent < total && ends[0].free_count &&
		       sent - atomic_load(&flood_received) < ends[1].dev->info.receive_buffers) {
			CHECK_EQ(ends[0].dev->ops->tx(ends[0].dev, descs,
						      end_put(&ends[0], 128, descs)),
				 1);
			sent++;
		}
		ends[0].dev->ops->kick(ends[0].dev);
	}
	kick_all(&ends[0]);
	pthread_join(receiver, NULL);
	CHECK_EQ(atomic_load(&flood_received), total);
	expect_nothing_lost(&ends[0]);
	expect_nothing_lost(&ends[1]);
	expect_chunks_back(&ends[0]);
	close_both();
}

/* With nothing given back as many frames arrive as there are buffers, and the loss of
 * the others is counted. */
static void test_fill__bounds_what_arrives(void)
{
	struct careful_device_statistics s;
	struct careful_desc desc;
	uint32_t got = 0, buffers;
	uint64_t addr;

	open_both(1500, false);
	buffers = ends[1].dev->rx_chunks;
	for (uint32_t i = 0; i < buffers + 8; i++) {
		while (!ends[0].free_count)
			end_take_back(&ends[0]);
		send_frame(&ends[0], 128);
		kick_all(&ends[0]);
	}
	usleep(20000);
	while (ends[1].dev->ops->rx(ends[1].dev, &desc, 1))
		got++;
	CHECK_EQ(got, buffers);
	ends[1].dev->ops->statistics(ends[1].dev, &s);
	CHECK_EQ(s.rx_dropped + s.rx_ring_full, 8);
	/* One buffer back, one frame more, and in that buffer. */
	addr = desc.addr + 17;
	ends[1].dev->ops->fill(ends[1].dev, &addr, 1);
	end_take_back(&ends[0]);
	send_frame(&ends[0], 128);
	kick_all(&ends[0]);
	usleep(20000);
	CHECK_EQ(ends[1].dev->ops->rx(ends[1].dev, &desc, 1), 1);
	CHECK_EQ(desc.addr / ends[1].dev->chunk_bytes, addr / ends[1].dev->chunk_bytes);
	close_both();
}

/* A closed slot admits nothing, and a new epoch starts from 1. */
static void test_admit__closes_and_opens(void)
{
	struct careful_device *dev;
	uint64_t bytes = 0;

	open_both(1500, false);
	dev = ends[1].dev;
	dev->ops->admit(dev, 0, 0, 0);
	send_frame(&ends[0], 200);
	kick_all(&ends[0]);
	usleep(20000);
	CHECK_EQ(end_drain(&ends[1], &bytes), 0);
	dev->ops->admit(dev, 0, 2, 4);
	send_frame(&ends[0], 200); /* 2: within the window */
	kick_all(&ends[0]);
	expect_frame(&ends[1], 2, 200);
	dev->ops->admit(dev, 0, 2, 4); /* again, a new epoch under the same cookie */
	ends[0].seq = 4;
	send_frame(&ends[0], 200); /* 5: beyond */
	ends[0].seq = 3;
	send_frame(&ends[0], 200); /* 4: the last that can be */
	kick_all(&ends[0]);
	expect_frame(&ends[1], 4, 200);
	CHECK_EQ(end_drain(&ends[1], &bytes), 0);
	CHECK_EQ(to_xsk(dev)->peers[0].seq_last, 4);
	close_both();
}

int main(void)
{
	static const struct setting settings[] = {
		{ "native", CAREFUL_XDP_NATIVE, 0 },
		{ "generic", CAREFUL_XDP_GENERIC, 0 },
		{ "native, without multi-buffer sockets", CAREFUL_XDP_NATIVE, XSK_WITHOUT_SG },
		{ "auto, as on 6.1", CAREFUL_XDP_AUTO,
		  XSK_WITHOUT_SG | XSK_WITHOUT_BUDGET | XSK_WITHOUT_HUGEPAGES },
		{ "generic, as before 5.18", CAREFUL_XDP_GENERIC,
		  XSK_WITHOUT_FRAGS | XSK_WITHOUT_SG | XSK_WITHOUT_BUDGET },
	};

	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		setting = &settings[i];
		printf("%s\n", setting->name);
		RUN(test_frames__ipv4_mtu_1500);
		RUN(test_frames__ipv6_mtu_9000);
		RUN(test_rx__whole_frames);
		RUN(test_tx__whole_frames);
		RUN(test_kick__again_until_all_left);
		RUN(test_flood__nothing_lost);
		RUN(test_fill__bounds_what_arrives);
		RUN(test_admit__closes_and_opens);
	}
	return 0;
}
