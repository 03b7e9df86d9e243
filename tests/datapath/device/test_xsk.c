// SPDX-License-Identifier: BSD-2-Clause
/*
 * Frames through the AF_XDP device, over a veth between two namespaces: contents, frames of several
 * buffers, and admission.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "two_ends.h"

/* Returns a byte of frame `seq`'s body, which depends on its place. */
static uint8_t pattern(uint32_t seq, uint32_t at)
{
	return (uint8_t)(seq * 31 + at * 7 + (at >> 8));
}

/* Writes bytes [at, at + n) of the body. */
static void write_body(struct end *end, const struct device_desc *descs, uint32_t n)
{
	uint32_t at = 0, from = end_prefix(end);

	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t k = from; k < descs[i].bytes; k++)
			end->queue->umem[descs[i].addr + k] = pattern(end->seq, at++);
		from = 0;
	}
}

static void send_frame(struct end *end, uint32_t frame_bytes)
{
	struct device_desc descs[DEVICE_SEGMENTS_MAX];
	uint32_t n = end_put(end, frame_bytes, descs);

	write_body(end, descs, n);
	CHECK_EQ(end->queue->ops->tx(end->queue, descs, n), n);
}

/* Waits for one frame and compares it; gives its buffers back. */
static void expect_frame(struct end *end, uint32_t seq, uint32_t frame_bytes)
{
	struct queue *queue = end->queue;
	struct device_desc descs[DEVICE_SEGMENTS_MAX];
	uint64_t addrs[DEVICE_SEGMENTS_MAX];
	uint32_t n = 0, at = 0, got = 0, skip_bytes = end_prefix(end);

	for (int i = 0; i < 2000 && !n; i++) {
		n = queue->ops->rx(queue, descs, DEVICE_SEGMENTS_MAX);
		if (!n)
			usleep(1000);
	}
	CHECK_EQ(n, (frame_bytes + queue->buffer_bytes - 1) / queue->buffer_bytes);
	for (uint32_t i = 0; i < n; i++) {
		CHECK_EQ(descs[i].options, i + 1 < n ? DEVICE_DESC_MORE : 0);
		CHECK_EQ(descs[i].bytes, i + 1 < n ? queue->buffer_bytes : frame_bytes - got);
		CHECK(descs[i].addr < (uint64_t)queue->rx_chunks * queue->chunk_bytes);
		for (uint32_t k = skip_bytes; k < descs[i].bytes; k++)
			CHECK_EQ(queue->umem[descs[i].addr + k], pattern(seq, at++));
		skip_bytes = 0;
		got += descs[i].bytes;
		addrs[i] = descs[i].addr;
	}
	CHECK_EQ(got, frame_bytes);
	queue->ops->fill(queue, addrs, n);
}

/* Sends frames of all interesting sizes both ways. */
static void exchange(uint32_t largest)
{
	uint32_t smallest = end_prefix(&ends[0]), buffer = ends[0].queue->buffer_bytes;
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
	CHECK_EQ(queue_frame_bytes(ends[0].queue), 1514);
	exchange(1514);
	close_both();
}

static void test_frames__ipv6_mtu_9000(void)
{
	open_both(9000, true);
	if (ends[0].queue->segments_max > 1)
		CHECK_EQ(queue_frame_bytes(ends[0].queue), 9014);
	else /* headroom and tail of a page, at most */
		CHECK_EQ(queue_frame_bytes(ends[0].queue), 4096 - 256 - 320);
	CHECK_EQ(ends[0].queue->buffer_bytes, 4096 - 256);
	exchange(queue_frame_bytes(ends[0].queue));
	close_both();
}

/* rx() cuts no frame unless its room is smaller than the frame. */
static void test_rx__whole_frames(void)
{
	struct device_desc descs[8];
	struct queue *queue;

	open_both(9000, false);
	queue = ends[1].queue;
	if (queue->segments_max > 1) {
		for (int i = 0; i < 2; i++)
			send_frame(&ends[0], 9014); /* three buffers each */
		kick_all(&ends[0]);
		usleep(20000);
		CHECK_EQ(queue->ops->rx(queue, descs, 5), 3);
		CHECK_EQ(descs[2].options, 0);
		CHECK_EQ(queue->ops->rx(queue, descs, 2), 2);
		CHECK_EQ(descs[1].options, DEVICE_DESC_MORE);
		CHECK_EQ(queue->ops->rx(queue, descs, 8), 1);
		CHECK_EQ(queue->ops->rx(queue, descs, 8), 0);
	}
	close_both();
}

/* tx() takes only whole frames, and returns how many descriptors. */
static void test_tx__whole_frames(void)
{
	struct device_desc descs[3] = { { .bytes = 4096, .options = DEVICE_DESC_MORE },
					{ .bytes = 4096, .options = DEVICE_DESC_MORE },
					{ .bytes = 100 } };
	struct queue *queue;

	open_both(1500, false);
	queue = ends[0].queue;
	CHECK_EQ(queue->ops->tx(queue, descs, 2), 0);
	CHECK_EQ(queue->ops->tx(queue, descs, 0), 0);
	CHECK_EQ(to_xsk(queue)->tx_held, 0);
	CHECK_EQ(queue->ops->kick(queue), 0);
	close_both();
}

/* Waits until a program on another CPU has ended. */
static void close_slot(struct port *port, uint32_t slot)
{
	port->ops->admit(port, slot, 0, 0, 4096, false);
	for (int i = 0; i < 10000 && !port->ops->closed(port, slot); i++)
		usleep(1000);
	CHECK(port->ops->closed(port, slot));
}

/* A closed slot admits nothing, and a new epoch starts from 1. */
static void test_admit__closes_and_opens(void)
{
	struct queue *queue;
	uint64_t bytes = 0;

	open_both(1500, false);
	queue = ends[1].queue;
	close_slot(queue->port, 0);
	send_frame(&ends[0], 200);
	kick_all(&ends[0]);
	usleep(20000);
	CHECK_EQ(end_drain(&ends[1], &bytes), 0);
	queue->port->ops->admit(queue->port, 0, 2, 4, 4096, false);
	send_frame(&ends[0], 200); /* 2: within the window */
	kick_all(&ends[0]);
	expect_frame(&ends[1], 2, 200);
	close_slot(queue->port, 0); /* again: a new epoch under the same cookie */
	queue->port->ops->admit(queue->port, 0, 2, 4, 4096, false);
	ends[0].seq = 4;
	send_frame(&ends[0], 200); /* 5: beyond */
	ends[0].seq = 3;
	send_frame(&ends[0], 200); /* 4: the last that is admitted */
	kick_all(&ends[0]);
	expect_frame(&ends[1], 4, 200);
	CHECK_EQ(end_drain(&ends[1], &bytes), 0);
	CHECK_EQ(to_xsk_port(queue->port)->peers[0].filled, 1);
	close_both();
}

/* Occupies CPU 1 with real-time priority until it is told to stop. */
static void *hog(void *stop)
{
	while (!atomic_load((atomic_bool *)stop))
		;
	return NULL;
}

static bool start_hog(pthread_t *thread, atomic_bool *stop)
{
	const struct sched_param priority = { .sched_priority = 50 };
	pthread_attr_t attr;
	cpu_set_t there;
	int rc;

	CPU_ZERO(&there);
	CPU_SET(1, &there);
	pthread_attr_init(&attr);
	pthread_attr_setaffinity_np(&attr, sizeof(there), &there);
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, SCHED_FIFO);
	pthread_attr_setschedparam(&attr, &priority);
	rc = pthread_create(thread, &attr, hog, stop);
	pthread_attr_destroy(&attr);
	if (rc)
		skip_part("no real-time task on another CPU");
	return !rc;
}

/* A real-time task on another CPU can delay the end of closing a slot without limit. The engine
 * does not wait for that, and serves other peers meanwhile. */
static void test_admit__closing_waits_for_no_other_cpu(void)
{
	atomic_bool stop = false;
	cpu_set_t before, here;
	struct port *port;
	pthread_t thread;
	bool closed;

	open_both(1500, false);
	port = ends[1].queue->port;
	close_slot(port, 0); /* the first close may choose the method */
	port->ops->admit(port, 0, 2, 4, 4096, false);
	CPU_ZERO(&here);
	CPU_SET(0, &here);
	CHECK(!sched_getaffinity(0, sizeof(before), &before));
	CHECK(!sched_setaffinity(0, sizeof(here), &here));
	if (start_hog(&thread, &stop)) {
		usleep(1000);
		port->ops->admit(port, 0, 0, 0, 4096, false);
		closed = port->ops->closed(port, 0);
		atomic_store(&stop, true);
		pthread_join(thread, NULL);
		CHECK(!closed);
	}
	CHECK(!sched_setaffinity(0, sizeof(before), &before));
	for (int i = 0; i < 10000 && !port->ops->closed(port, 0); i++)
		usleep(1000);
	CHECK(port->ops->closed(port, 0));
	close_both();
}

int main(void)
{
	EACH_SETTING
	{
		RUN(test_frames__ipv4_mtu_1500);
		RUN(test_frames__ipv6_mtu_9000);
		RUN(test_rx__whole_frames);
		RUN(test_tx__whole_frames);
		RUN(test_admit__closes_and_opens);
		RUN(test_admit__closing_waits_for_no_other_cpu);
	}
	return 0;
}
