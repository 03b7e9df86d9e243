/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The AF_XDP device at both ends of a pair for tests, in each of some settings, and checks at the
 * end.
 */
#ifndef CAREFUL_TESTS_TWO_ENDS_H
#define CAREFUL_TESTS_TWO_ENDS_H

#include "device/xsk/xsk.h"
#include "end.h"

static struct pair pair;
static struct end ends[2];

static const struct setting {
	const char *name;
	uint32_t mode;
	uint32_t without;
} * setting;

static inline void open_side(int side)
{
	char instance[32];
	const struct careful_options options = {
		.ifname = "eth1",
		.instance = instance,
		.xdp_mode = setting->mode,
	};
	struct careful_error error = { 0 };
	struct queue *queue;
	int rc;

	snprintf(instance, sizeof(instance), "test-%d-%d", getpid(), side);
	pair_enter(&pair, side);
	rc = xsk_open_without(&options, setting->without, &queue, &error);
	pair_leave(&pair);
	if (rc == -EPERM)
		skip(error.text);
	if (rc)
		fprintf(stderr, "%s\n", error.text);
	CHECK_EQ(rc, 0);
	end_init(&ends[side], side, queue);
}

static inline void open_both(unsigned int mtu, bool ipv6)
{
	pair_open(&pair, mtu);
	for (int side = 0; side < 2; side++)
		open_side(side);
	for (int side = 0; side < 2; side++)
		end_resolve(&ends[side], ipv6);
}

static inline void close_both(void)
{
	for (int side = 0; side < 2; side++)
		end_deinit(&ends[side]);
	pair_close(&pair);
}

static inline void kick_all(struct end *end)
{
	int rc;

	for (int i = 0; i < 1000000; i++) {
		rc = end->queue->ops->kick(end->queue);
		if (!rc)
			return;
		CHECK_EQ(rc, -EAGAIN);
	}
	CHECK(!"the kick ends");
}

static inline void expect_nothing_lost(struct end *end)
{
	struct careful_device_statistics s;

	end->queue->ops->statistics(end->queue, &s);
	CHECK_EQ(s.rx_dropped, 0);
	CHECK_EQ(s.rx_ring_full, 0);
	CHECK_EQ(s.rx_fill_ring_empty, 0);
	CHECK_EQ(s.rx_invalid_descs, 0);
	CHECK_EQ(s.tx_invalid_descs, 0);
	CHECK_EQ(s.kicks_failed, 0);
}

static inline void expect_chunks_back(struct end *end)
{
	static uint8_t seen[4096];

	for (int i = 0; i < 1000 && end->free_count < end->queue->tx_chunks; i++) {
		end_take_back(end);
		usleep(1000);
	}
	CHECK_EQ(end->free_count, end->queue->tx_chunks);
	memset(seen, 0, sizeof(seen));
	for (uint32_t i = 0; i < end->free_count; i++) {
		uint64_t chunk = end->free[i] / end->queue->chunk_bytes;

		CHECK(chunk >= end->queue->rx_chunks);
		CHECK(chunk < end->queue->rx_chunks + end->queue->tx_chunks);
		CHECK(!seen[chunk]++);
	}
}

/* XDP modes, with the features that older kernels lack. */
static const struct setting settings[] = {
	{ "native", CAREFUL_XDP_NATIVE, 0 },
	{ "generic", CAREFUL_XDP_GENERIC, 0 },
	{ "native, without multi-buffer sockets", CAREFUL_XDP_NATIVE, XSK_WITHOUT_SG },
	{ "auto, as on 6.1", CAREFUL_XDP_AUTO,
	  XSK_WITHOUT_SG | XSK_WITHOUT_BUDGET | XSK_WITHOUT_HUGEPAGES },
	{ "generic, as before 5.18", CAREFUL_XDP_GENERIC,
	  XSK_WITHOUT_FRAGS | XSK_WITHOUT_SG | XSK_WITHOUT_BUDGET },
};

#define EACH_SETTING                                                             \
	for (size_t each = 0; each < sizeof(settings) / sizeof(settings[0]) &&   \
			      printf("%s\n", (setting = &settings[each])->name); \
	     each++)

#endif /* CAREFUL_TESTS_TWO_ENDS_H */
