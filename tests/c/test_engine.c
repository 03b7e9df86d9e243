// SPDX-License-Identifier: BSD-2-Clause
/*
 * Two instances across a veth, polled in turn by one thread: requests, stores and
 * gets between memory and files, kept messages, errors, live tuning. Every byte is
 * compared and no frame may be lost.
 */
#include "check.h"
#include "pair.h"

#include <arpa/inet.h>
#include <sys/mman.h>

#include <careful/careful.h>

#include "service/engine.h"

enum { PATIENCE = 20000000, BYTES = 3000001 };

struct ends {
	struct pair pair;
	struct careful *c[2];
	int peer; /* the second, as the first knows it */
};

static uint8_t source[BYTES], target[BYTES];

static void fill(uint8_t *p, uint32_t bytes)
{
	uint32_t x = 12345;

	for (uint32_t i = 0; i < bytes; i++) {
		x = x * 1664525 + 1013904223;
		p[i] = (uint8_t)(x >> 24);
	}
}

static struct careful *open_side(const struct pair *pair, int side)
{
	char instance[32];
	struct careful_options options = { .ifname = "eth1", .instance = instance };
	struct careful_error error;
	struct careful *c = NULL;

	snprintf(instance, sizeof(instance), "engine%d-%d", getpid(), side);
	pair_enter(pair, side);
	if (careful_open(&options, &c, &error))
		fprintf(stderr, "%s\n", error.text);
	pair_leave(pair);
	CHECK(c);
	return c;
}

static void ends_open(struct ends *ends, unsigned int mtu)
{
	struct sockaddr_in to = { .sin_family = AF_INET };

	pair_open(&ends->pair, mtu);
	ends->c[0] = open_side(&ends->pair, 0);
	ends->c[1] = open_side(&ends->pair, 1);
	inet_pton(AF_INET, "10.77.0.2", &to.sin_addr);
	ends->peer = careful_peer(ends->c[0], (struct sockaddr *)&to, sizeof(to));
	CHECK(ends->peer >= 0);
}

static void poll_both(struct ends *ends)
{
	careful_poll(ends->c[0]);
	careful_poll(ends->c[1]);
}

static void ends_close(struct ends *ends)
{
	for (int i = 0; i < 2; i++) {
		struct careful_info info;

		CHECK_EQ(careful_info(ends->c[i], &info), 0);
		CHECK_EQ(info.counters[CAREFUL_C_LOST_FRAMES], 0);
		CHECK_EQ(info.counters[CAREFUL_C_EPOCHS_BROKEN], 0);
		CHECK_EQ(info.counters[CAREFUL_C_TX_BUFFERS_HELD], 0);
	}
	careful_close(ends->c[0]);
	careful_close(ends->c[1]);
	pair_close(&ends->pair);
}

struct outcome {
	int done;
	struct careful_result result;
	uint8_t payload[4096];
};

static void on_done(const struct careful_result *result, void *user)
{
	struct outcome *outcome = user;

	outcome->done++;
	outcome->result = *result;
	if (result->payload)
		memcpy(outcome->payload, result->payload, result->bytes);
}

static void await(struct ends *ends, struct outcome *outcome)
{
	for (int i = 0; i < PATIENCE && !outcome->done; i++)
		poll_both(ends);
	CHECK_EQ(outcome->done, 1);
}

static void echo(const struct careful_message *message, void *user)
{
	(void)user;
	CHECK_EQ(careful_reply(message, 0, message->args, message->payload, message->bytes), 0);
}

static void test_request__payload_and_args_come_back(void)
{
	const uint32_t args[4] = { 1, 0xffffffff, 3, 4 };
	struct outcome outcome = { 0 };
	struct ends ends;

	ends_open(&ends, 3826);
	careful_handle(ends.c[1], 7, echo, NULL);
	CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, 7, args, "frame", 5, on_done,
				 &outcome),
		 0);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, 0);
	CHECK_EQ(outcome.result.bytes, 5);
	CHECK(!memcmp(outcome.payload, "frame", 5));
	CHECK(!memcmp(outcome.result.args, args, sizeof(args)));

	outcome.done = 0;
	careful_request(ends.c[0], (uint32_t)ends.peer, 8, NULL, NULL, 0, on_done, &outcome);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, -ENOSYS);
	CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, 7, args, source, 8192, on_done,
				 &outcome),
		 -EMSGSIZE);
	ends_close(&ends);
}

static void test_request__more_than_the_window_all_answered(void)
{
	static struct outcome outcomes[500];
	struct ends ends;

	memset(outcomes, 0, sizeof(outcomes));
	ends_open(&ends, 1500);
	careful_handle(ends.c[1], 7, echo, NULL);
	for (uint32_t i = 0; i < 500; i++)
		CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, 7, NULL, &i, sizeof(i),
					 on_done, &outcomes[i]),
			 0);
	for (uint32_t i = 0; i < 500; i++) {
		await(&ends, &outcomes[i]);
		CHECK(!memcmp(outcomes[i].payload, &i, sizeof(i)));
	}
	ends_close(&ends);
}

/* Gets and stores between each kind of span, at one MTU. */
static void bulk(unsigned int mtu, uint32_t flags)
{
	int fd = memfd_create("target", 0);
	int from = memfd_create("source", 0);
	struct careful_span spans[2] = { { .base = target, .fd = -1 }, { .fd = fd } };
	struct ends ends;

	CHECK(fd >= 0 && from >= 0 && write(from, source, BYTES) == BYTES);
	ends_open(&ends, mtu);
	for (int k = 0; k < 4; k++) {
		struct careful_region region = {
			.span = k & 1 ? (struct careful_span){ .fd = from } :
					(struct careful_span){ .base = source, .fd = -1 },
			.bytes = BYTES,
			.access = CAREFUL_REGION_READ,
			.peer = CAREFUL_ANY_PEER,
		};
		struct outcome outcome = { 0 };
		uint32_t key;

		memset(target, 0, sizeof(target));
		CHECK(!ftruncate(fd, 0));
		CHECK_EQ(careful_region_add(ends.c[1], &region, &key), 0);
		CHECK_EQ(careful_get(ends.c[0], (uint32_t)ends.peer, key, 0, &spans[k >> 1], BYTES,
				     flags, on_done, &outcome),
			 0);
		await(&ends, &outcome);
		CHECK_EQ(outcome.result.status, 0);
		CHECK_EQ(outcome.result.bytes, BYTES);
		if (k >> 1)
			CHECK_EQ(pread(fd, target, BYTES, 0), BYTES);
		CHECK(!memcmp(source, target, BYTES));
		CHECK_EQ(careful_region_remove(ends.c[1], key), 0);
		CHECK_EQ(careful_region_remove(ends.c[1], key), -ENOENT);
	}
	ends_close(&ends);
	close(fd);
	close(from);
}

static void test_get__memory_and_files(void)
{
	bulk(3826, 0);
	bulk(1500, CAREFUL_NO_DIGEST);
	bulk(9000, 0);
}

static void test_store__to_memory_checked_by_region(void)
{
	struct careful_region region = {
		.span = { .base = target, .fd = -1 },
		.bytes = BYTES,
		.access = CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
	};
	struct careful_span local = { .base = source, .fd = -1 };
	struct outcome outcome = { 0 };
	struct ends ends;
	uint32_t key;

	memset(target, 0, sizeof(target));
	ends_open(&ends, 3826);
	CHECK_EQ(careful_region_add(ends.c[1], &region, &key), 0);
	careful_store(ends.c[0], (uint32_t)ends.peer, key, 0, &local, BYTES, CAREFUL_HANDLERS, NULL,
		      0, on_done, &outcome);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, 0);
	CHECK_EQ(outcome.result.bytes, BYTES);
	CHECK(!memcmp(source, target, BYTES));

	outcome.done = 0; /* beyond its end */
	careful_store(ends.c[0], (uint32_t)ends.peer, key, 1, &local, BYTES, CAREFUL_HANDLERS, NULL,
		      0, on_done, &outcome);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, -ERANGE);
	outcome.done = 0; /* not readable */
	careful_get(ends.c[0], (uint32_t)ends.peer, key, 0, &local, 10, 0, on_done, &outcome);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, -EACCES);
	ends_close(&ends);
}

static void test_get__a_source_that_shrank_is_an_error(void)
{
	int from = memfd_create("source", 0);
	struct careful_region region = {
		.span = { .fd = from },
		.bytes = BYTES,
		.access = CAREFUL_REGION_READ,
		.peer = CAREFUL_ANY_PEER,
	};
	struct careful_span local = { .base = target, .fd = -1 };
	struct outcome outcome = { 0 };
	struct ends ends;
	uint32_t key;

	CHECK(!ftruncate(from, 1000000));
	ends_open(&ends, 3826);
	CHECK_EQ(careful_region_add(ends.c[1], &region, &key), 0);
	careful_get(ends.c[0], (uint32_t)ends.peer, key, 0, &local, BYTES, 0, on_done, &outcome);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, -ENODATA);
	ends_close(&ends);
	close(from);
}

/* A minpulse above any window and fragments of every size, from the next message on. */
static void test_tune__live_and_never_stuck(void)
{
	static const uint32_t sizes[] = { 0, 1, 100, 1000, 3000, 100000, UINT32_MAX };
	struct careful_region region = {
		.span = { .base = source, .fd = -1 },
		.bytes = BYTES,
		.access = CAREFUL_REGION_READ,
		.peer = CAREFUL_ANY_PEER,
	};
	struct careful_span local = { .base = target, .fd = -1 };
	struct ends ends;
	uint32_t key;

	ends_open(&ends, 3826);
	CHECK_EQ(careful_region_add(ends.c[1], &region, &key), 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct outcome outcome = { 0 };
		uint32_t bytes = 100000;

		for (int side = 0; side < 2; side++)
			for (uint32_t slot = 0; slot < 8; slot++) {
				struct careful_device *dev = ends.c[side]->dev;
				struct careful_tune_entry *entry = dev->ops->tune(dev, slot);

				plan_default(entry, sizes[i]);
				entry->version[0].minpulse_bytes[CAREFUL_SINK_NET_TX] = UINT32_MAX;
				entry->version[0].minpulse_bytes[CAREFUL_SINK_STORE] = UINT32_MAX;
			}
		memset(target, 0, bytes);
		careful_get(ends.c[0], (uint32_t)ends.peer, key, 0, &local, bytes, 0, on_done,
			    &outcome);
		await(&ends, &outcome);
		CHECK_EQ(outcome.result.status, 0);
		CHECK(!memcmp(source, target, bytes));
	}
	ends_close(&ends);
}

static struct careful_kept *kept[1000];
static struct careful_reply_to names[1000];
static uint32_t kept_count;

static void keep(const struct careful_message *message, void *user)
{
	(void)user;
	kept[kept_count] = careful_keep(message);
	careful_reply_name(message, &names[kept_count]);
	CHECK(kept[kept_count++]);
}

static void test_keep__copied_out_when_buffers_run_short(void)
{
	static struct outcome outcomes[300];
	struct careful_info info;
	struct ends ends;

	memset(outcomes, 0, sizeof(outcomes));
	ends_open(&ends, 1500);
	careful_handle(ends.c[1], 9, keep, NULL);
	for (uint32_t i = 0; i < 300; i++)
		CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, 9, NULL, &i, sizeof(i),
					 on_done, &outcomes[i]),
			 0);
	for (int i = 0; i < PATIENCE && kept_count < 300; i++)
		poll_both(&ends);
	CHECK_EQ(kept_count, 300);
	careful_info(ends.c[1], &info);
	CHECK(info.counters[CAREFUL_C_COPIED_OUT] > 200);
	for (uint32_t i = 0; i < 300; i++) {
		CHECK(!memcmp(careful_kept_payload(kept[i]), &i, sizeof(i)));
		CHECK_EQ(careful_reply_late(ends.c[1], &names[i], 0, NULL, NULL, 0), 0);
		careful_release(ends.c[1], kept[i]);
	}
	for (uint32_t i = 0; i < 300; i++)
		await(&ends, &outcomes[i]);
	ends_close(&ends);
}

int main(void)
{
	fill(source, BYTES);
	RUN(test_request__payload_and_args_come_back);
	RUN(test_request__more_than_the_window_all_answered);
	RUN(test_get__memory_and_files);
	RUN(test_store__to_memory_checked_by_region);
	RUN(test_get__a_source_that_shrank_is_an_error);
	RUN(test_tune__live_and_never_stuck);
	RUN(test_keep__copied_out_when_buffers_run_short);
	return 0;
}
