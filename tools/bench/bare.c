// SPDX-License-Identifier: BSD-2-Clause
/*
 * The yardstick: what the device layer does with no protocol above it. Two threads,
 * each on a core and a veth end of its own, both spinning: (a) an echo of a frame, or of
 * several, each sent back as it comes, or all of them in one kick when they are here (--whole),
 * (b) a stream one way. Frames carry a careful header, since XDP admits no others; the stream's
 * window is a shared word, not frames. Prints one JSON object.
 */
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/utsname.h>

#include "end.h"

enum {
	ECHOES_WARMUP = 2000,
	GIVE_UP_MS = 10000, /* without an echo, or without room in the window */
};

static struct {
	unsigned int mtu, mode, echo_bytes, echo_frames, frame_bytes, ms, batch, buffers, cpu[2];
	unsigned int whole;
} options = { 9000, CAREFUL_XDP_AUTO, 64, 1, 3840, 1000, 8, 512, { 0, 1 }, 0 };

static struct end ends[2];
static atomic_bool stop, failed;
static _Alignas(64) atomic_ullong consumed; /* frames the stream's receiver gave back */
static _Alignas(64) atomic_ullong received_bytes;

static void open_end(const struct pair *pair, int side)
{
	char instance[32];
	struct careful_options o = {
		.ifname = "eth1",
		.instance = instance,
		.xdp_mode = options.mode,
		.rx_buffers = options.buffers,
		.tx_buffers = options.buffers,
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

/* As many frames of one size: a kick for each, or one for all. */
static void put_frames(struct end *end, uint32_t frames, uint32_t bytes)
{
	struct device_desc descs[END_BATCH * DEVICE_SEGMENTS_MAX];
	uint32_t n = 0;

	for (uint32_t k = 1; k <= frames; k++) {
		n += end_put(end, bytes, descs + n);
		if (options.whole && k < frames)
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

	end_pin(options.cpu[1]);
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		end_take_back(end);
		n += end_drain(end, &bytes);
		if (n < (options.whole ? options.echo_frames : 1))
			continue;
		put_frames(end, n, (uint32_t)(bytes / n)); /* all are of one size */
		n = 0;
		bytes = 0;
	}
	return NULL;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static uint32_t echo_client(double *us, uint32_t most)
{
	struct end *end = &ends[0];
	struct queue *queue = end->queue;
	uint64_t start = queue->port->ops->now_ns(queue->port), before, now, bytes = 0;
	uint32_t count = 0;

	end_pin(options.cpu[0]);
	for (uint32_t i = 0; count < most; i++) {
		before = queue->port->ops->now_ns(queue->port);
		if (before - start > options.ms * 1000000ULL)
			break;
		put_frames(end, options.echo_frames, end_prefix(end) + options.echo_bytes);
		for (uint32_t came = 0; came < options.echo_frames;) {
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
			us[count++] = (double)(now - before) / 1000;
	}
	return count;
}

static void *stream_receiver(void *arg)
{
	struct end *end = arg;
	uint64_t bytes = 0, frames = 0;

	end_pin(options.cpu[1]);
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

/* Sends for so long; returns the seconds until all of it was received. */
static double stream_sender(unsigned int ms, uint64_t *sent)
{
	struct device_desc descs[END_BATCH * DEVICE_SEGMENTS_MAX];
	struct end *end = &ends[0];
	struct queue *queue = end->queue;
	uint32_t chunks = (options.frame_bytes + queue->chunk_bytes - 1) / queue->chunk_bytes;
	uint32_t cost = (options.frame_bytes + queue->buffer_bytes - 1) / queue->buffer_bytes;
	uint64_t window = queue->info.receive_buffers / cost;
	uint64_t start = queue->port->ops->now_ns(queue->port), now = start, last = start;

	while (now - start < ms * 1000000ULL && now - last < GIVE_UP_MS * 1000000ULL) {
		uint64_t room = window - (*sent - atomic_load(&consumed));
		uint32_t n = 0, k = 0;

		end_take_back(end);
		while (k < options.batch && k < room && end->free_count >= chunks) {
			n += end_put(end, options.frame_bytes, descs + n);
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
	const uint32_t most = 1000000;
	double *us = malloc(most * sizeof(*us));
	pthread_t server;
	uint32_t n;

	CHECK(us);
	atomic_store(&stop, false);
	CHECK(!pthread_create(&server, NULL, echo_server, &ends[1]));
	n = echo_client(us, most);
	atomic_store(&stop, true);
	pthread_join(server, NULL);
	qsort(us, n, sizeof(*us), compare);
	printf("\"echo_count\": %u, \"echo_p50_us\": %.3f, \"echo_p99_us\": %.3f, "
	       "\"echo_p999_us\": %.3f, \"echo_max_us\": %.3f, \"echo_min_us\": %.3f, ",
	       n, n ? us[n / 2] : 0, n ? us[n - 1 - n / 100] : 0, n ? us[n - 1 - n / 1000] : 0,
	       n ? us[n - 1] : 0, n ? us[0] : 0);
	free(us);
}

static void run_stream(void)
{
	uint64_t sent = 0, before, bytes;
	pthread_t receiver;
	double s;

	atomic_store(&stop, false);
	CHECK(!pthread_create(&receiver, NULL, stream_receiver, &ends[1]));
	end_pin(options.cpu[0]);
	/* The kernel's memory for packets grows warm first: that takes a while. */
	stream_sender(options.ms / 2, &sent);
	before = sent;
	bytes = atomic_load(&received_bytes);
	s = stream_sender(options.ms, &sent);
	atomic_store(&stop, true);
	pthread_join(receiver, NULL);
	printf("\"stream_frames\": %llu, \"stream_lost_frames\": %lld, \"stream_Gbit_per_s\": %.3f, "
	       "\"stream_frames_per_s\": %.0f, ",
	       (unsigned long long)(sent - before), (long long)(sent - atomic_load(&consumed)),
	       (double)(atomic_load(&received_bytes) - bytes) * 8 / s / 1e9,
	       (double)(sent - before) / s);
}

static unsigned int mode_of(const char *name)
{
	return !strcmp(name, "native")	? CAREFUL_XDP_NATIVE :
	       !strcmp(name, "generic") ? CAREFUL_XDP_GENERIC :
					  CAREFUL_XDP_AUTO;
}

static void read_options(int argc, char **argv)
{
	static const struct option names[] = {
		{ "mtu", 1, NULL, 'm' },
		{ "xdp", 1, NULL, 'x' },
		{ "echo-bytes", 1, NULL, 'e' },
		{ "echo-frames", 1, NULL, 'k' },
		{ "frame-bytes", 1, NULL, 'f' },
		{ "ms", 1, NULL, 't' },
		{ "batch", 1, NULL, 'b' },
		{ "buffers", 1, NULL, 'r' },
		{ "cpus", 1, NULL, 'c' },
		{ "whole", 0, NULL, 'w' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		const char *text = optarg ? optarg : "";
		unsigned int value = (unsigned int)strtoul(text, NULL, 10);

		switch (c) {
		case 'm':
			options.mtu = value;
			break;
		case 'x':
			options.mode = mode_of(text);
			break;
		case 'e':
			options.echo_bytes = value;
			break;
		case 'k':
			options.echo_frames = value;
			break;
		case 'f':
			options.frame_bytes = value;
			break;
		case 't':
			options.ms = value;
			break;
		case 'b':
			options.batch = value;
			break;
		case 'r':
			options.buffers = value;
			break;
		case 'w':
			options.whole = 1;
			break;
		case 'c':
			if (sscanf(text, "%u,%u", &options.cpu[0], &options.cpu[1]) == 2) // NOLINT
				break;
			/* fall through */
		default:
			fprintf(stderr,
				"usage: bare [--mtu N] [--xdp auto|native|generic] "
				"[--echo-bytes N] [--echo-frames N] [--frame-bytes N] "
				"[--ms N] [--batch N] [--buffers N] [--cpus A,B] [--whole]\n");
			exit(2);
		}
	}
	if (options.echo_frames > END_BATCH)
		options.echo_frames = END_BATCH;
	if (!options.batch || options.batch > END_BATCH)
		options.batch = END_BATCH;
}

int main(int argc, char **argv)
{
	struct careful_device_statistics statistics;
	const struct careful_device_info *info;
	struct utsname kernel;
	struct pair pair;

	read_options(argc, argv);
	pair_open(&pair, options.mtu);
	for (int side = 0; side < 2; side++)
		open_end(&pair, side);
	for (int side = 0; side < 2; side++)
		end_resolve(&ends[side], false);
	info = &ends[0].queue->info;
	if (options.frame_bytes > info->frame_bytes)
		options.frame_bytes = info->frame_bytes;
	uname(&kernel);
	printf("{\"schema\": 1, \"kernel\": \"%s\", \"driver\": \"%s\", \"xdp\": \"%s\", "
	       "\"zerocopy\": %s, \"mtu_bytes\": %u, \"window_frames\": %u, \"echo_bytes\": %u, "
	       "\"frame_bytes\": %u, \"batch_frames\": %u, \"run_ms\": %u, ",
	       kernel.release, info->driver,
	       info->xdp_mode == CAREFUL_XDP_NATIVE ? "native" : "generic",
	       info->zerocopy ? "true" : "false", info->mtu, info->receive_buffers,
	       options.echo_bytes, options.frame_bytes, options.batch, options.ms);
	run_echo();
	run_stream();
	ends[0].queue->ops->statistics(ends[0].queue, &statistics);
	printf("\"kicks\": %llu, \"kicks_again\": %llu, \"kicks_failed\": %llu}\n",
	       (unsigned long long)statistics.kicks, (unsigned long long)statistics.kicks_again,
	       (unsigned long long)statistics.kicks_failed);
	for (int side = 0; side < 2; side++)
		end_deinit(&ends[side]);
	pair_close(&pair);
	return atomic_load(&failed) || atomic_load(&consumed) == 0;
}
