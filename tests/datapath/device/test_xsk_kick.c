// SPDX-License-Identifier: BSD-2-Clause
/*
 * The kick and the wake-up of a sleeping driver when the kernel refuses them. The test owns the
 * rings, and its system calls fail as it wants.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "check.h"
#include "device/compat.h"
#include "device/xsk/xsk.h"

enum { SLOTS = 8 };

static struct xsk_port port;
static struct xsk_queue xsk;
static uint32_t tx_producer, tx_consumer, tx_flags, fill_producer, fill_consumer, fill_flags;
static uint32_t rx_producer, rx_consumer;
static struct xdp_desc descs[SLOTS];
static uint64_t addrs[SLOTS];

/* The errno of the next system calls, and their number. */
static int failing;
static uint32_t sends, receives;
static uint32_t sent_takes; /* descriptors that the kernel takes, even if the call fails */

ssize_t sendto(int fd, const void *buf, size_t bytes, int flags, const struct sockaddr *to,
	       socklen_t to_bytes)
{
	(void)fd, (void)buf, (void)bytes, (void)flags, (void)to, (void)to_bytes;
	sends++;
	tx_consumer += sent_takes;
	errno = failing;
	return failing ? -1 : 0;
}

ssize_t recvfrom(int fd, void *buf, size_t bytes, int flags, struct sockaddr *from,
		 socklen_t *from_bytes) // NOLINT: declared so by libc
{
	(void)fd, (void)buf, (void)bytes, (void)flags, (void)from, (void)from_bytes;
	receives++;
	errno = failing;
	return failing ? -1 : 0;
}

static void start(bool zerocopy)
{
	memset(&xsk, 0, sizeof(xsk));
	tx_producer = tx_consumer = fill_producer = fill_consumer = 0;
	rx_producer = rx_consumer = 0;
	tx_flags = fill_flags = XDP_RING_NEED_WAKEUP;
	sends = receives = sent_takes = 0;
	failing = 0;
	port.route.up = true;
	xsk.queue.port = &port.port;
	xsk.queue.chunk_bytes = XSK_CHUNK_BYTES;
	xsk.queue.info.zerocopy = zerocopy;
	xsk.tx = (struct xsk_ring_prod){ .cached_cons = SLOTS,
					 .mask = SLOTS - 1,
					 .size = SLOTS,
					 .producer = &tx_producer,
					 .consumer = &tx_consumer,
					 .ring = descs,
					 .flags = &tx_flags };
	xsk.fill = (struct xsk_ring_prod){ .cached_cons = SLOTS,
					   .mask = SLOTS - 1,
					   .size = SLOTS,
					   .producer = &fill_producer,
					   .consumer = &fill_consumer,
					   .ring = addrs,
					   .flags = &fill_flags };
	xsk.rx = (struct xsk_ring_cons){ .mask = SLOTS - 1,
					 .size = SLOTS,
					 .producer = &rx_producer,
					 .consumer = &rx_consumer,
					 .ring = descs };
}

static void send_one(void)
{
	const struct device_desc desc = { .bytes = 64 };

	CHECK_EQ(xsk_tx(&xsk.queue, &desc, 1), 1);
}

static void test_kick__zerocopy_only_wakes_the_driver(void)
{
	start(true);
	send_one();
	CHECK_EQ(xsk_kick(&xsk.queue), 0);
	CHECK_EQ(sends, 1);
	CHECK_EQ(xsk.kicks_again, 0);
}

static void test_kick__zerocopy_repeats_a_failed_wake_up(void)
{
	static const int errors[] = { EAGAIN, EBUSY, ENOBUFS, ENETDOWN, EINTR };

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		start(true);
		send_one();
		failing = errors[i];
		CHECK_EQ(xsk_kick(&xsk.queue), -EAGAIN);
		CHECK_EQ(xsk_kick(&xsk.queue), -EAGAIN);
		CHECK_EQ(sends, 2);
		CHECK_EQ(xsk.kicks_again, 2);
		CHECK_EQ(xsk.kicks_failed, 0); /* the frame is still in the ring */
		failing = 0;
		CHECK_EQ(xsk_kick(&xsk.queue), 0);
		CHECK_EQ(sends, 3);
	}
}

static void test_kick__zerocopy_other_errors_count_and_are_tried_again(void)
{
	start(true);
	send_one();
	failing = ENXIO;
	CHECK_EQ(xsk_kick(&xsk.queue), -EAGAIN);
	CHECK_EQ(xsk.kicks_failed, 1);
	/* The driver found the frame by itself, so nothing waits. */
	tx_consumer = 1;
	CHECK_EQ(xsk_kick(&xsk.queue), 0);
	CHECK_EQ(sends, 1);
}

static void test_kick__copy_again_while_frames_wait(void)
{
	start(false);
	send_one();
	send_one();
	failing = EAGAIN;
	sent_takes = 1;
	CHECK_EQ(xsk_kick(&xsk.queue), -EAGAIN);
	CHECK_EQ(xsk.kicks_failed, 0);
	/* A device without a queue discipline dropped the frame. */
	failing = EBUSY;
	CHECK_EQ(xsk_kick(&xsk.queue), 0);
	CHECK_EQ(xsk.kicks_failed, 1);
}

static void test_fill__repeats_a_failed_wake_up(void)
{
	struct device_desc desc;
	uint64_t addr = 0;

	start(true);
	failing = EAGAIN;
	xsk_fill(&xsk.queue, &addr, 1);
	CHECK_EQ(receives, 1);
	CHECK_EQ(xsk_rx(&xsk.queue, &desc, 1), 0);
	CHECK_EQ(receives, 2);
	failing = 0;
	CHECK_EQ(xsk_rx(&xsk.queue, &desc, 1), 0);
	CHECK_EQ(receives, 3);
	/* The driver is awake. */
	CHECK_EQ(xsk_rx(&xsk.queue, &desc, 1), 0);
	CHECK_EQ(receives, 3);
}

int main(void)
{
	RUN(test_kick__zerocopy_only_wakes_the_driver);
	RUN(test_kick__zerocopy_repeats_a_failed_wake_up);
	RUN(test_kick__zerocopy_other_errors_count_and_are_tried_again);
	RUN(test_kick__copy_again_while_frames_wait);
	RUN(test_fill__repeats_a_failed_wake_up);
	return 0;
}
