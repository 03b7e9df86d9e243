// SPDX-License-Identifier: BSD-2-Clause
/*
 * Messages that a handler keeps are copied out when buffers run short, in the accounts of their own
 * instance.
 */
#include "instances.h"

#include <sys/mman.h>

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
	ends.c[0]->messages.packed_max = 1;
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

static struct {
	struct ends *ends;
	struct careful_kept *kept[2];
	bool inner_keeps;
	int inner_runs;
} nest;

static void inner(const struct careful_message *message, void *user)
{
	(void)user;
	nest.inner_runs++;
	if (nest.inner_keeps)
		nest.kept[0] = careful_keep(message);
}

/* Polls the other instance, whose handler then runs inside this one. */
static void outer(const struct careful_message *message, void *user)
{
	(void)user;
	if (!nest.inner_keeps)
		nest.kept[1] = careful_keep(message);
	for (int i = 0; i < PATIENCE && !nest.inner_runs; i++)
		careful_poll(nest.ends->c[0]);
	if (nest.inner_keeps)
		nest.kept[1] = careful_keep(message);
}

static uint32_t buffers_kept(struct careful *c, int peer)
{
	struct careful_peer_info info;

	CHECK_EQ(careful_peer_info(c, (uint32_t)peer, &info), 0);
	return info.buffers_kept;
}

static void nested(bool inner_keeps)
{
	struct outcome outcome = { 0 };
	struct ends ends;
	const char *payloads[2] = { "to the first", "to the second" };

	memset(&nest, 0, sizeof(nest));
	nest.ends = &ends;
	nest.inner_keeps = inner_keeps;
	ends_open(&ends, 1500);
	careful_handle(ends.c[1], 7, echo, NULL);
	careful_handle(ends.c[0], 8, inner, NULL);
	careful_handle(ends.c[1], 9, outer, NULL);
	careful_request(ends.c[0], (uint32_t)ends.peer, 7, NULL, NULL, 0, on_done, &outcome);
	await(&ends, &outcome); /* opens a session, in slot 0 of the second instance */

	for (int i = 0; i < 2; i++) {
		CHECK_EQ(careful_request(ends.c[!i], i ? (uint32_t)ends.peer : 0, i ? 9 : 8, NULL,
					 payloads[i], (uint32_t)strlen(payloads[i]), NULL, NULL),
			 0);
		link_kick(&ends.c[!i]->link);
	}
	for (int i = 0; i < PATIENCE && !nest.kept[1]; i++)
		careful_poll(ends.c[1]);
	CHECK_EQ(nest.inner_runs, 1);
	for (int i = 0; i < 2; i++) {
		struct careful_kept *held = nest.kept[i];

		CHECK_EQ(held != NULL, i || inner_keeps);
		CHECK_EQ(buffers_kept(ends.c[i], i ? 0 : ends.peer), held != NULL);
		if (!held)
			continue;
		CHECK(!memcmp(careful_kept_payload(held), payloads[i], strlen(payloads[i])));
		careful_release(ends.c[i], held);
		CHECK_EQ(buffers_kept(ends.c[i], i ? 0 : ends.peer), 0);
	}
	for (int i = 0; i < 2; i++) { /* each buffer was returned once */
		const struct window_rx *rx = &ends.c[i]->link.peers[i ? 0 : ends.peer].flow.rx;

		careful_poll(ends.c[i]);
		CHECK(rx->received);
		CHECK_EQ(rx->returned, rx->received);
	}
	ends_close(&ends);
}

static void test_keep__two_instances_do_not_mix(void)
{
	nested(true);
	nested(false);
}

static void release_all(const struct careful_result *result, void *user)
{
	struct ends *ends = user;

	CHECK_EQ(result->status, -ENODATA);
	while (kept_count)
		careful_release(ends->c[1], kept[--kept_count]);
}

/* A callback releases kept messages while messages are being sent. They are too few for an update,
 * but their credits are owed all the same. */
static void test_keep__released_between_publishing_and_updates(void)
{
	const struct careful_span empty = { .fd = memfd_create("empty", 0) };
	const struct window_rx *rx;
	struct ends ends;

	kept_count = 0;
	ends_open(&ends, 1500);
	ends.c[0]->messages.packed_max = 1;
	careful_handle(ends.c[1], 9, keep, NULL);
	for (uint32_t i = 0; i < 20; i++)
		CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, 9, NULL, NULL, 0, NULL,
					 NULL),
			 0);
	for (int i = 0; i < PATIENCE && kept_count < 20; i++)
		poll_both(&ends);
	CHECK_EQ(kept_count, 20);
	CHECK_EQ(careful_store(ends.c[1], 0, 1, 0, &empty, 100, CAREFUL_HANDLERS, NULL, 0,
			       release_all, &ends),
		 0);
	for (int i = 0; i < PATIENCE && kept_count; i++)
		careful_poll(ends.c[1]);
	CHECK_EQ(kept_count, 0);
	rx = &ends.c[1]->link.peers[0].flow.rx;
	CHECK_EQ(rx->received, 20);
	CHECK_EQ(rx->returned, 20);
	ends_close(&ends);
	close(empty.fd);
}

/* A request that waited for room for its answer can be kept like any other. */
static void test_keep__deferred(void)
{
	static const char text[] = "waits";
	struct outcome outcome = { 0 };
	const struct window_rx *rx;
	struct ends ends;
	uint32_t free_count;
	struct careful *c;

	kept_count = 0;
	ends_open(&ends, 1500);
	c = ends.c[1];
	careful_handle(c, 9, keep, NULL);
	free_count = c->messages.parked_share.free;
	c->messages.parked_share.free = 0;
	c->messages.peers[0].parked = c->messages.parked_share.each;
	CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, 9, NULL, text, sizeof(text),
				 on_done, &outcome),
		 0);
	for (int i = 0; i < PATIENCE && !c->deferred_count; i++)
		poll_both(&ends);
	CHECK_EQ(c->deferred_count, 1);
	c->messages.parked_share.free = free_count;
	c->messages.peers[0].parked = 0;
	for (int i = 0; i < PATIENCE && !kept_count; i++)
		poll_both(&ends);
	CHECK_EQ(kept_count, 1);
	CHECK_EQ(buffers_kept(c, 0), 1);
	CHECK(!memcmp(careful_kept_payload(kept[0]), text, sizeof(text)));
	CHECK_EQ(careful_reply_late(c, &names[0], 0, NULL, NULL, 0), 0);
	careful_release(c, kept[0]);
	CHECK_EQ(buffers_kept(c, 0), 0);
	await(&ends, &outcome);
	rx = &c->link.peers[0].flow.rx;
	for (int i = 0; i < PATIENCE && rx->returned != rx->received; i++)
		poll_both(&ends);
	CHECK_EQ(rx->returned, rx->received);
	ends_close(&ends);
}

int main(void)
{
	RUN(test_keep__copied_out_when_buffers_run_short);
	RUN(test_keep__two_instances_do_not_mix);
	RUN(test_keep__deferred);
	RUN(test_keep__released_between_publishing_and_updates);
	return 0;
}
