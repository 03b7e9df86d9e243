// SPDX-License-Identifier: BSD-2-Clause
/*
 * Shows where the time of a round trip goes. Two ends of a veth are in one process, each on a core
 * of its own. Either end notes the processor's counter when it sees a frame, and when the device is
 * first told to send. So a trip has five stages, whatever is above the device:
 *
 *   ask      from the caller's call until the device is told to send
 *   there    until the last frame is seen at the other end
 *   answer   until the device there is told to send
 *   back     until the last frame is seen here
 *   take     until the caller has its answer
 *
 *   stages WHAT BYTES COUNT
 *
 * WHAT: bare (frames alone, as many bytes each way), read (each end writes all of what it sends,
 * and reads all of what comes: what any program does that has a message), request, store (and one
 * back); and of a block: bare-block, read-block, get (from memory), block (from a file), the same
 * without a digest (-plain), and so of bytes that the caches still have (-warm). Prints JSON: the
 * medians, and how long a look for frames takes that finds none. CAREFUL_XDP: native or generic.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "clock.h"
#include "end.h"
#include "noted.h"
#include "engine/engine.h"

enum {
	MTU = 9000,
	ECHO = 1,
	THERE = 2, /* a store that is stored back */
	BACK = 3,
	AM_BYTES = 48, /* what a message has before its payload */
	FRAME_PAYLOAD = 3640, /* of a frame by the default plan */
	FILE_BYTES = 64 << 20,
	WARM_BYTES = 256 << 10,
	WARMUP = 2000,
	GIVE_UP_MS = 10000,
	ASK_BYTES = 64, /* of a block */
	STAGES = 5,
};

static struct end ends[2];
static struct careful *c[2];
static uint8_t *memory[2];
static uint32_t region[2];
static atomic_bool stop;
static bool answered;
static uint32_t bytes;
static const char *what;
static bool engine, reads, block, file, plain, warm; /* what `what` says */

static void give_up(const char *why)
{
	fprintf(stderr, "stages: %s\n", why);
	exit(1);
}

/* --- over the bare device */

static uint32_t frames_of(uint32_t nbytes)
{
	return (nbytes + FRAME_PAYLOAD - 1) / FRAME_PAYLOAD;
}

static void write_all(struct end *end, const struct device_desc *descs, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		memcpy(end->queue->umem + descs[i].addr + end_prefix(end),
		       memory[end->side] + i * FRAME_PAYLOAD, descs[i].bytes - end_prefix(end));
}

static void bare_send(struct end *end, uint32_t nbytes)
{
	struct device_desc descs[END_BATCH];
	uint32_t frames = frames_of(nbytes), n = 0;

	end_take_back(end);
	for (uint32_t i = 0; i < frames; i++)
		n += end_put(end, end_prefix(end) + AM_BYTES + (nbytes + frames - 1) / frames,
			     descs + n);
	if (reads)
		write_all(end, descs, n);
	CHECK_EQ(end->queue->ops->tx(end->queue, descs, n), n);
	while (end->queue->ops->kick(end->queue) == -EAGAIN && !atomic_load(&stop))
		;
}

static void read_all(const uint8_t *p, uint32_t nbytes)
{
	uint64_t sum = 0, word;

	for (uint32_t i = 0; i + sizeof(word) <= nbytes; i += sizeof(word)) {
		memcpy(&word, p + i, sizeof(word));
		sum += word;
	}
	__asm__ volatile("" : : "r"(sum));
}

/* Takes what arrived, each frame of one buffer, and gives it back. */
static uint32_t bare_take(struct end *end)
{
	struct device_desc descs[END_BATCH];
	uint64_t addrs[END_BATCH];
	uint32_t n = end->queue->ops->rx(end->queue, descs, END_BATCH);

	for (uint32_t i = 0; i < n; i++) {
		addrs[i] = descs[i].addr;
		if (reads)
			read_all(end->queue->umem + descs[i].addr, descs[i].bytes);
	}
	if (n)
		end->queue->ops->fill(end->queue, addrs, n);
	return n;
}

static void bare_await(struct end *end, uint32_t nbytes)
{
	for (uint32_t left = frames_of(nbytes); left && !atomic_load(&stop);)
		left -= bare_take(end);
}

static void bare_trip(void)
{
	bare_send(&ends[0], block ? ASK_BYTES : bytes);
	bare_await(&ends[0], bytes);
}

static void bare_serve(void)
{
	while (!atomic_load(&stop)) {
		bare_await(&ends[1], block ? ASK_BYTES : bytes);
		if (!atomic_load(&stop))
			bare_send(&ends[1], bytes);
	}
}

static void bare_open(int side)
{
	char instance[32];
	const struct careful_options options = {
		.ifname = "eth1",
		.instance = instance,
		.xdp_mode = clock_xdp_mode(),
	};
	struct careful_error error = { 0 };
	struct queue *queue;

	snprintf(instance, sizeof(instance), "stages-%d-%d", getpid(), side);
	if (xsk_open(&options, &queue, &error))
		give_up(error.text);
	noted_watch(side, queue);
	end_init(&ends[side], side, queue);
}

/* --- over an engine */

static void on_echo(const struct careful_message *message, void *user)
{
	(void)user;
	if (careful_reply(message, 0, NULL, message->payload, message->bytes))
		abort(); /* one request at a time: there is always room */
}

static void store(int side, uint32_t peer, uint16_t handler)
{
	const struct careful_span span = { .base = memory[side], .fd = -1 };

	if (careful_store(c[side], peer, region[!side], 0, &span, bytes, handler, NULL,
			  CAREFUL_NO_DIGEST, NULL, NULL))
		give_up("a store was refused");
}

static void on_there(const struct careful_message *message, void *user)
{
	(void)user;
	store(1, message->peer, BACK);
}

static void on_back(const struct careful_message *message, void *user)
{
	(void)message;
	(void)user;
	answered = true;
}

static void on_done(const struct careful_result *result, void *user)
{
	(void)user;
	if (result->status)
		give_up(strerror(-result->status));
	answered = true;
}

static void engine_trip(void)
{
	static uint64_t at;
	const struct careful_span span = { .base = memory[0], .fd = -1 };
	uint32_t flags = plain ? CAREFUL_NO_DIGEST : 0;
	int rc = 0;

	answered = false;
	if (block) {
		rc = careful_get(c[0], 0, region[1], at, &span, bytes, flags, on_done, NULL);
		at = (at + bytes) % ((warm ? WARM_BYTES : FILE_BYTES) / bytes * bytes);
	} else if (what[0] == 'r') {
		rc = careful_request(c[0], 0, ECHO, NULL, memory[0], bytes, on_done, NULL);
	} else {
		store(0, 0, THERE);
	}
	if (rc)
		give_up(strerror(-rc));
	while (!answered)
		careful_poll(c[0]);
}

static void engine_open_at(int side)
{
	char instance[32];
	const struct careful_options options = {
		.ifname = "eth1",
		.instance = instance,
		.wait_mode = CAREFUL_WAIT_SPIN,
		.xdp_mode = clock_xdp_mode(),
		.protocol = clock_protocol(),
	};
	struct careful_region whole = {
		.span = { .fd = -1 },
		.bytes = FILE_BYTES,
		.access = CAREFUL_REGION_READ | CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
	};
	struct careful_error error = { 0 };

	snprintf(instance, sizeof(instance), "stages-%d-%d", getpid(), side);
	if (careful_open(&options, &c[side], &error))
		give_up(error.text);
	noted_watch(side, c[side]->queue);
	whole.span.base = memory[side];
	if (file) {
		whole.span.base = NULL;
		whole.span.fd = memfd_create("stages", MFD_CLOEXEC);
		CHECK_EQ(write(whole.span.fd, memory[side], FILE_BYTES), FILE_BYTES);
	}
	CHECK(!careful_region_add(c[side], &whole, &region[side]));
	careful_handle(c[side], ECHO, on_echo, NULL);
	careful_handle_store(c[side], THERE, on_there, NULL);
	careful_handle_store(c[side], BACK, on_back, NULL);
}

static void engine_meet(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct careful_peer_info info = { 0 };
	uint64_t until = clock_ns() + GIVE_UP_MS * 1000000ull;

	inet_pton(AF_INET, "10.77.0.2", &to.sin_addr);
	CHECK_EQ(careful_peer(c[0], (struct sockaddr *)&to, sizeof(to)), 0);
	while (info.state != CAREFUL_PEER_UP && clock_ns() < until) {
		careful_poll(c[0]);
		careful_peer_info(c[0], 0, &info);
	}
	CHECK_EQ(info.state, CAREFUL_PEER_UP);
}

/* --- both */

static void *serve(void *arg)
{
	(void)arg;
	end_pin(1);
	if (!engine)
		bare_serve();
	while (!atomic_load(&stop))
		careful_poll(c[1]);
	return NULL;
}

/* One trip's stages, in ticks; where they do not follow each other, something else came between. */
static bool once(uint64_t *stages, uint64_t *round)
{
	struct noted *here = &noted[0], *there = &noted[1];
	uint64_t began, done, sent, came, seen, left;

	atomic_store_explicit(&here->sent, 0, memory_order_relaxed);
	began = noted_ticks();
	if (engine)
		engine_trip();
	else
		bare_trip();
	done = noted_ticks();
	sent = atomic_load_explicit(&here->sent, memory_order_relaxed);
	came = atomic_load_explicit(&here->came, memory_order_relaxed);
	seen = atomic_load_explicit(&there->came, memory_order_relaxed);
	left = atomic_load_explicit(&there->sent, memory_order_relaxed);
	*round = here->looks > 1 ? (came - here->began) / (here->looks - 1) : 0;
	if (!(began < sent && sent < seen && seen < left && left < came && came < done))
		return false;
	stages[0] = sent - began;
	stages[1] = seen - sent;
	stages[2] = left - seen;
	stages[3] = came - left;
	stages[4] = done - came;
	return true;
}

static void measure(uint32_t count)
{
	static const char *const names[] = { "ask", "there", "answer", "back", "take" };
	uint64_t *took[STAGES + 2], stages[STAGES], round;
	double each_ns = clock_tick_ns();
	uint32_t n = 0;

	for (int i = 0; i < STAGES + 2; i++) {
		took[i] = calloc(count, sizeof(*took[i]));
		CHECK(took[i]);
	}
	for (uint32_t i = 0; i < count + WARMUP; i++) {
		if (!once(stages, &round) || i < WARMUP)
			continue;
		took[STAGES][n] = 0;
		for (int k = 0; k < STAGES; k++) {
			took[k][n] = stages[k];
			took[STAGES][n] += stages[k];
		}
		took[STAGES + 1][n++] = round;
	}
	printf("{\"schema\": 1, \"what\": \"%s\", \"bytes\": %u, \"count\": %u", what, bytes, n);
	for (int k = 0; k < STAGES + 2; k++) {
		printf(", \"%s_ns\": %.1f",
		       k < STAGES  ? names[k] :
		       k == STAGES ? "trip" :
				     "round",
		       clock_quantile(took[k], n, 50) * each_ns);
		free(took[k]);
	}
	printf("}\n");
}

static int usage(void)
{
	fprintf(stderr, "usage: stages bare|read|request|store|bare-block|read-block|get|get-plain|"
			"get-warm|block|block-plain|block-warm BYTES COUNT\n");
	return 2;
}

/* Understands `what`; returns false if there is no such word. */
static bool understand(void)
{
	static const char *const known[] = {
		"bare", "read",	     "request",	 "store", "bare-block",	 "read-block",
		"get",	"get-plain", "get-warm", "block", "block-plain", "block-warm",
	};
	bool found = false;

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		found |= !strcmp(what, known[i]);
	engine = strncmp(what, "bare", 4) != 0 && strncmp(what, "read", 4) != 0;
	reads = !strncmp(what, "read", 4);
	file = !strncmp(what, "block", 5);
	block = strstr(what, "block") || what[0] == 'g';
	warm = strstr(what, "-warm");
	plain = warm || strstr(what, "-plain");
	return found;
}

int main(int argc, char **argv)
{
	uint32_t count = argc == 4 ? (uint32_t)atoi(argv[3]) : 0;
	struct pair pair;
	pthread_t server;

	what = argc == 4 ? argv[1] : "";
	bytes = argc == 4 ? (uint32_t)atoi(argv[2]) : 0;
	if (!understand() || !count || !bytes || frames_of(bytes) > END_BATCH)
		return usage();
	pair_open(&pair, MTU);
	for (int side = 0; side < 2; side++) {
		memory[side] = malloc(FILE_BYTES);
		CHECK(memory[side]);
		memset(memory[side], 1, FILE_BYTES);
		pair_enter(&pair, side);
		if (engine)
			engine_open_at(side);
		else
			bare_open(side);
		pair_leave(&pair);
	}
	for (int side = 0; side < 2 && !engine; side++)
		end_resolve(&ends[side], false);
	end_pin(0);
	CHECK(!pthread_create(&server, NULL, serve, NULL));
	if (engine)
		engine_meet();
	measure(count);
	atomic_store(&stop, true);
	pthread_join(server, NULL);
	for (int side = 0; side < 2; side++) {
		if (engine)
			careful_close(c[side]);
		else
			end_deinit(&ends[side]);
		free(memory[side]);
	}
	pair_close(&pair);
	return 0;
}
