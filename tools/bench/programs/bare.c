// SPDX-License-Identifier: BSD-2-Clause
/*
 * Measures the device layer without a protocol. Two spinning threads, each with a core and a veth
 * end, run an echo and then a stream in one direction. Frames carry a careful header, because XDP
 * admits no others. The stream's window is a shared word, not frames. Prints one JSON object.
 *
 *   bare ECHO_BYTES ECHO_FRAMES FRAME_BYTES each|whole
 *
 * The echo sends frames with a kick for each, and returns each frame at once. With "whole" all
 * frames leave in one kick, and return when all have arrived. CAREFUL_XDP names the XDP mode.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "clock.h"
#include "end.h"

enum {
	ECHOES_WARMUP = 2000,
	GIVE_UP_MS = 10000, /* longest wait for an echo or for room in the window */
	ECHOES_MAX = 1000000,
	MTU = 3826,
	RUN_MS = 800,
	BATCH = 8,
	BUFFERS = 512,
};

static uint32_t echo_bytes, echo_frames, frame_bytes;
static bool whole;

static struct end ends[2];
static atomic_bool stop, failed;
static _Alignas(64) atomic_ullong consumed; /* frames returned by the stream's receiver */
static _Alignas(64) atomic_ullong received_bytes;

static void open_end(const struct pair *pair, int side)
{
	char instance[32];
	struct careful_options o = {
		.ifname = "eth1",
		.instance = instance,
		.xdp_mode = clock_xdp_mode(),
		.rx_buffers = BUFFERS,
		.tx_buffers = BUFFERS,
	};
	struct careful_error error = { 0 };
	struct queue *queue;
	int rc;

	snprintf(instance, sizeof(instance), "bare-%d-%d", getpid(), side);
	pair_enter(pair, side);
	rc = xsk_open(&o, &queue, &error);
	pair_leave(pair);
	if (rc) {
		fprintf(stderr, "bare: %s\n", error.text);
		exit(rc == -EPERM ? TEST_SKIP : 1);
	}
	end_init(&ends[side], side, queue);
}

static void send_frames(struct end *end, const struct device_desc *descs, uint32_t n)
{
	CHECK_EQ(end->queue->ops->tx(end->queue, descs, n), n);
	while (end->queue->ops->kick(end->queue) == -EAGAIN && !atomic_load(&stop))
		;
}

/* Sends frames of one size, with a kick for each or one for all. */
static void put_frames(struct end *end, uint32_t frames, uint32_t bytes)
{
	struct device_desc descs[END_BATCH * DEVICE_SEGMENTS_MAX];
	uint32_t n = 0;

	for (uint32_t k = 1; k <= frames; k++) {
		n += end_put(end, bytes, descs + n);
		if (whole && k < frames)
			continue;
		send_frames(end, descs, n);
		n = 0;
	}
}

static void *echo_server(void *arg)
{
	struct end *end = arg;
	uint64_t bytes = 0;
	uint32_t n = 0;

	end_pin(1);
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		end_take_back(end);
		n += end_drain(end, &bytes);
		if (n < (whole ? echo_frames : 1))
			continue;
		put_frames(end, n, (uint32_t)(bytes / n)); /* all have one size */
		n = 0;
		bytes = 0;
	}
	return NULL;
}

static uint32_t echo_client(uint64_t *ns, uint32_t most)
{
	struct end *end = &ends[0];
	struct queue *queue = end->queue;
	uint64_t start = queue->port->ops->now_ns(queue->port), before, now, bytes = 0;
	uint32_t count = 0;

	end_pin(0);
	for (uint32_t i = 0; count < most; i++) {
		before = queue->port->ops->now_ns(queue->port);
		if (before - start > RUN_MS * 1000000ULL)
			break;
		put_frames(end, echo_frames, end_prefix(end) + echo_bytes);
		for (uint32_t came = 0; came < echo_frames;) {
			came += end_drain(end, &bytes);
			now = queue->port->ops->now_ns(queue->port);
			if (now - before > GIVE_UP_MS * 1000000ULL) {
				atomic_store(&failed, true);
				return count;
			}
		}
		now = queue->port->ops->now_ns(queue->port);
		end_take_back(end);
		if (i >= ECHOES_WARMUP)
			ns[count++] = now - before;
	}
	return count;
}

static void *stream_receiver(void *arg)
{
	struct end *end = arg;
	uint64_t bytes = 0, frames = 0;

	end_pin(1);
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		uint32_t n = end_drain(end, &bytes);

		if (!n)
			continue;
		frames += n;
		atomic_store_explicit(&received_bytes, bytes, memory_order_relaxed);
		atomic_store_explicit(&consumed, frames, memory_order_release);
	}
	return NULL;
}

/* Sends for this long. Returns the seconds until all frames were received. */
static double stream_sender(unsigned int ms, uint64_t *sent)
{
	struct device_desc descs[END_BATCH * DEVICE_SEGMENTS_MAX];
	struct end *end = &ends[0];
	struct queue *queue = end->queue;
	uint32_t chunks = (frame_bytes + queue->chunk_bytes - 1) / queue->chunk_bytes;
	uint32_t cost = (frame_bytes + queue->buffer_bytes - 1) / queue->buffer_bytes;
	uint64_t window = queue->info.receive_buffers / cost;
	uint64_t start = queue->port->ops->now_ns(queue->port), now = start, last = start;

	while (now - start < ms * 1000000ULL && now - last < GIVE_UP_MS * 1000000ULL) {
		uint64_t room = window - (*sent - atomic_load(&consumed));
		uint32_t n = 0, k = 0;

		end_take_back(end);
		while (k < BATCH && k < room && end->free_count >= chunks) {
			n += end_put(end, frame_bytes, descs + n);
			k++;
		}
		now = queue->port->ops->now_ns(queue->port);
		if (!k)
			continue;
		send_frames(end, descs, n);
		*sent += k;
		last = now;
	}
	while (atomic_load(&consumed) < *sent && now - last < GIVE_UP_MS * 1000000ULL)
		now = queue->port->ops->now_ns(queue->port);
	return (double)(queue->port->ops->now_ns(queue->port) - start) / 1e9;
}

static void run_echo(void)
{
	uint64_t *ns = malloc(ECHOES_MAX * sizeof(*ns));
	pthread_t server;
	uint32_t n;

	CHECK(ns);
	atomic_store(&stop, false);
	CHECK(!pthread_create(&server, NULL, echo_server, &ends[1]));
	n = echo_client(ns, ECHOES_MAX);
	atomic_store(&stop, true);
	pthread_join(server, NULL);
	printf("{\"schema\": 1, \"echo_count\": %u", n);
	if (n)
		clock_print(ns, n);
	free(ns);
}

static void run_stream(void)
{
	uint64_t sent = 0, before, bytes;
	pthread_t receiver;
	double s;

	atomic_store(&stop, false);
	CHECK(!pthread_create(&receiver, NULL, stream_receiver, &ends[1]));
	end_pin(0);
	/* The first second warms the kernel's packet memory. */
	stream_sender(RUN_MS / 2, &sent);
	before = sent;
	bytes = atomic_load(&received_bytes);
	s = stream_sender(RUN_MS, &sent);
	atomic_store(&stop, true);
	pthread_join(receiver, NULL);
	printf(", \"stream_lost_frames\": %lld, \"stream_Gbit_per_s\": %.3f, "
	       "\"stream_frames_per_s\": %.0f",
	       (long long)(sent - atomic_load(&consumed)),
	       (double)(atomic_load(&received_bytes) - bytes) * 8 / s / 1e9,
	       (double)(sent - before) / s);
}

int main(int argc, char **argv)
{
	const struct careful_device_info *info;
	struct pair pair;

	if (argc != 5) {
		fprintf(stderr, "usage: bare ECHO_BYTES ECHO_FRAMES FRAME_BYTES each|whole\n");
		return 2;
	}
	echo_bytes = (uint32_t)strtoul(argv[1], NULL, 10);
	echo_frames = (uint32_t)strtoul(argv[2], NULL, 10);
	frame_bytes = (uint32_t)strtoul(argv[3], NULL, 10);
	whole = !strcmp(argv[4], "whole");
	if (echo_frames > END_BATCH)
		echo_frames = END_BATCH;
	pair_open(&pair, MTU);
	for (int side = 0; side < 2; side++)
		open_end(&pair, side);
	for (int side = 0; side < 2; side++)
		end_resolve(&ends[side], false);
	info = &ends[0].queue->info;
	if (frame_bytes > info->frame_bytes)
		frame_bytes = info->frame_bytes;
	run_echo();
	run_stream();
	printf(", \"xdp\": \"%s\"}\n", info->xdp_mode == CAREFUL_XDP_NATIVE ? "native" : "generic");
	for (int side = 0; side < 2; side++)
		end_deinit(&ends[side]);
	pair_close(&pair);
	return atomic_load(&failed) || atomic_load(&consumed) == 0;
}
