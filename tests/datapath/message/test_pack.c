// SPDX-License-Identifier: BSD-2-Clause
/* Small messages that wait together share a frame, and each stays a message. */
#include "instances.h"

#include <errno.h>

enum { ECHO = 3, KEEP = 4, IN_TURN = 5, COUNT = 40, MANY = 2000, FLOOD = 20000 };

static struct outcome outcomes[COUNT];
static struct careful_kept *kept[MANY];
static struct careful_reply_to names[MANY];
static uint32_t kept_count, came;

/* Checks that messages arrive in order. */
static void on_echo(const struct careful_message *message, void *user)
{
	uint32_t number;

	(void)user;
	CHECK_EQ(message->bytes, sizeof(number) + message->args[0] % 7);
	memcpy(&number, message->payload, sizeof(number));
	CHECK_EQ(number, came++);
	CHECK_EQ(careful_reply(message, 0, message->args, message->payload, message->bytes), 0);
}

static void on_keep(const struct careful_message *message, void *user)
{
	(void)user;
	careful_reply_name(message, &names[kept_count]);
	kept[kept_count] = careful_keep(message);
	CHECK(kept[kept_count]);
	CHECK(careful_keep(message) == kept[kept_count]);
	kept_count++;
}

/* Opens an idle session. */
static void open_up(struct ends *ends, struct careful_options options)
{
	struct outcome outcome = { 0 };
	uint32_t none = 0;

	memset(outcomes, 0, sizeof(outcomes));
	came = kept_count = 0;
	pair_open(&ends->pair, 1500);
	for (int side = 0; side < 2; side++) {
		ends->c[side] = instance_open(&ends->pair, side, options);
		CHECK_EQ(careful_handle(ends->c[side], ECHO, on_echo, NULL), 0);
		CHECK_EQ(careful_handle(ends->c[side], KEEP, on_keep, NULL), 0);
	}
	ends->peer = peer_at(ends->c[0], "10.77.0.2", 0);
	CHECK_EQ(careful_request(ends->c[0], (uint32_t)ends->peer, ECHO, NULL, &none, sizeof(none),
				 on_done, &outcome),
		 0);
	await(ends, &outcome);
	came = 0;
}

/* Returns the data frames that the first instance has sent. */
static uint64_t frames(const struct ends *ends)
{
	const struct link *link = &ends->c[0]->link;

	return link->counters[CAREFUL_C_TX_FRAMES] - link->counters[CAREFUL_C_TX_UPDATES];
}

static void ask(const struct ends *ends, uint16_t handler, uint32_t i, careful_done_fn *done,
		void *user)
{
	uint32_t payload[3] = { i }, args[4] = { i };
	uint32_t bytes = (uint32_t)sizeof(i) + (handler == ECHO ? i % 7 : 0);

	CHECK_EQ(careful_request(ends->c[0], (uint32_t)ends->peer, handler, args, payload, bytes,
				 done, user),
		 0);
}

/* Sends this many requests at once. Returns the number of frames. */
static uint64_t ask_all(struct ends *ends, uint32_t count)
{
	uint64_t before = frames(ends);

	for (uint32_t i = 0; i < count; i++)
		ask(ends, ECHO, i, on_done, &outcomes[i]);
	for (uint32_t i = 0; i < count; i++) {
		await(ends, &outcomes[i]);
		CHECK_EQ(outcomes[i].result.status, 0);
		CHECK_EQ(outcomes[i].result.args[0], i);
		CHECK_EQ(outcomes[i].result.bytes, sizeof(i) + i % 7);
		CHECK(!memcmp(outcomes[i].payload, &i, sizeof(i)));
	}
	CHECK_EQ(came, count);
	return frames(ends) - before;
}

/* The first message can leave at once, in its own frame; the others share frames. */
static void shared(struct careful_options options)
{
	struct ends ends;

	open_up(&ends, options);
	CHECK_EQ(ask_all(&ends, COUNT),
		 1 + (COUNT - 1 + CAREFUL_PACKED_MAX - 1) / CAREFUL_PACKED_MAX);
	CHECK_EQ(ends.c[0]->messages.parked_share.free, ends.c[0]->messages.parked_share.count);
	if (!options.protocol) { /* traditional keeps frames longer */
		ends_close(&ends);
		return;
	}
	careful_close(ends.c[0]);
	careful_close(ends.c[1]);
	pair_close(&ends.pair);
}

static void test_pack__those_behind_the_first_share_frames(void)
{
	shared((struct careful_options){ 0 });
}

static void test_pack__in_the_traditional_protocol(void)
{
	shared((struct careful_options){ .protocol = CAREFUL_PROTOCOL_TRADITIONAL });
}

static void test_pack__not_with_the_option_unpacked(void)
{
	struct ends ends;

	open_up(&ends, (struct careful_options){ .unpacked = 1 });
	CHECK_EQ(ask_all(&ends, COUNT), COUNT);
	ends_close(&ends);
}

/* A probe measures frames, so it never shares one. */
static void test_pack__no_probes(void)
{
	struct ends ends;
	uint64_t before;

	open_up(&ends, (struct careful_options){ 0 });
	before = frames(&ends);
	for (uint32_t i = 0; i < 10; i++)
		ask(&ends, CAREFUL_PROBE, i, on_done, &outcomes[i]);
	for (uint32_t i = 0; i < 10; i++) {
		await(&ends, &outcomes[i]);
		CHECK_EQ(outcomes[i].result.status, -ENOSYS);
	}
	CHECK_EQ(frames(&ends) - before, 10);
	ends_close(&ends);
}

/* A frame has as many messages as fit the session's frame size. */
static void test_pack__no_more_than_a_frame_holds(void)
{
	static uint8_t payload[600];
	struct ends ends;
	uint64_t before;

	open_up(&ends, (struct careful_options){ 0 });
	before = frames(&ends);
	for (uint32_t i = 0; i < 9; i++)
		CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, KEEP, NULL, payload,
					 sizeof(payload), NULL, NULL),
			 0);
	for (int i = 0; i < PATIENCE && kept_count < 9; i++)
		poll_both(&ends);
	CHECK_EQ(frames(&ends) - before, 1 + 8 / 2);
	while (kept_count)
		careful_release(ends.c[1], kept[--kept_count]);
	ends_close(&ends);
}

/* If a peer packs more messages into a frame than allowed, none of them runs. */
static void test_pack__too_many(void)
{
	struct ends ends;

	open_up(&ends, (struct careful_options){ 0 });
	ends.c[0]->messages.packed_max = CAREFUL_PACKED_MAX + 1;
	for (uint32_t i = 0; i < CAREFUL_PACKED_MAX + 2; i++)
		ask(&ends, ECHO, i, on_done, &outcomes[i]);
	for (uint32_t i = 0; i < CAREFUL_PACKED_MAX + 2; i++)
		await(&ends, &outcomes[i]);
	CHECK_EQ(came, 1); /* the first has its own frame */
	CHECK_EQ(outcomes[1].result.status, -ECONNRESET);
	CHECK(ends.c[1]->link.counters[CAREFUL_C_EPOCHS_BROKEN] > 0);
	careful_close(ends.c[0]);
	careful_close(ends.c[1]);
	pair_close(&ends.pair);
}

static uint32_t buffers_kept(const struct ends *ends)
{
	struct careful_peer_info info;

	CHECK_EQ(careful_peer_info(ends->c[1], 0, &info), 0);
	return info.buffers_kept;
}

/* A frame's buffer is released with the last of its messages. */
static void test_keep__each_holds_its_frame(void)
{
	struct ends ends;

	open_up(&ends, (struct careful_options){ 0 });
	for (uint32_t i = 0; i < 3; i++)
		ask(&ends, KEEP, i, on_done, &outcomes[i]);
	for (int i = 0; i < PATIENCE && kept_count < 3; i++)
		poll_both(&ends);
	CHECK_EQ(buffers_kept(&ends), 2);
	careful_release(ends.c[1], kept[1]);
	CHECK_EQ(buffers_kept(&ends), 2);
	careful_release(ends.c[1], kept[0]);
	CHECK_EQ(buffers_kept(&ends), 1);
	CHECK_EQ(*(const uint8_t *)careful_kept_payload(kept[2]), 2);
	careful_release(ends.c[1], kept[2]);
	CHECK_EQ(buffers_kept(&ends), 0);
	for (uint32_t i = 0; i < 3; i++) {
		CHECK_EQ(careful_reply_late(ends.c[1], &names[i], 0, NULL, NULL, 0), 0);
		await(&ends, &outcomes[i]);
	}
	ends_close(&ends);
}

/* A frame is copied out once, with all its messages. */
static void test_keep__copied_out(void)
{
	struct careful_info info;
	struct ends ends;

	open_up(&ends, (struct careful_options){ 0 });
	for (uint32_t sent = 0; sent < MANY;) {
		for (uint32_t i = 0; i < 50; i++)
			ask(&ends, KEEP, sent++, NULL, NULL);
		for (int i = 0; i < PATIENCE && kept_count < sent; i++)
			poll_both(&ends);
	}
	careful_info(ends.c[1], &info);
	CHECK(info.counters[CAREFUL_C_COPIED_OUT] > MANY / 50 * 4 / 2);
	CHECK(info.counters[CAREFUL_C_COPIED_OUT] < MANY / 4);
	for (uint32_t i = 0; i < MANY; i++) {
		CHECK(!memcmp(careful_kept_payload(kept[i]), &i, sizeof(i)));
		careful_release(ends.c[1], kept[i]);
	}
	ends_close(&ends);
}

/* Sends requests to the second instance, which has no room for answers; *room: its share before. */
static void ask_without_room(struct ends *ends, uint32_t count, struct share *room)
{
	struct message_state *m = &ends->c[1]->messages;

	*room = m->parked_share;
	m->parked_share.free = 0;
	m->peers[0].parked = m->parked_share.each;
	for (uint32_t i = 0; i < count; i++)
		ask(ends, ECHO, i, on_done, &outcomes[i]);
	for (int i = 0; i < PATIENCE && ends->c[1]->deferred_count < 4; i++)
		poll_both(ends);
	CHECK_EQ(ends->c[1]->deferred_count, 4);
	CHECK_EQ(came, 0);
}

static void give_room(struct ends *ends, const struct share *room)
{
	ends->c[1]->messages.parked_share = *room;
	ends->c[1]->messages.peers[0].parked = 0;
}

/* If there is no room to answer the rest of a frame, the rest waits and is served in order. */
static void test_deferred__from_the_message_on_that_finds_no_room(void)
{
	struct share had;
	uint32_t served = 0;
	struct ends ends;

	open_up(&ends, (struct careful_options){ 0 });
	ask_without_room(&ends, COUNT, &had);
	give_room(&ends, &had);
	for (uint32_t i = 0; i < COUNT; i++) {
		await(&ends, &outcomes[i]);
		served += outcomes[i].result.status == 0;
	}
	CHECK_EQ(served, COUNT);
	CHECK_EQ(came, COUNT);
	CHECK_EQ(buffers_kept(&ends), 0);
	ends_close(&ends);
}

/* Room appears when the next message comes, before the waiting ones are served. */
static void test_deferred__the_next_does_not_overtake(void)
{
	struct share had;
	struct ends ends;

	open_up(&ends, (struct careful_options){ 0 });
	ask_without_room(&ends, COUNT - 2, &had);
	ask(&ends, ECHO, COUNT - 2, on_done, &outcomes[COUNT - 2]);
	ask(&ends, ECHO, COUNT - 1, on_done, &outcomes[COUNT - 1]);
	careful_poll(ends.c[0]);
	give_room(&ends, &had);
	for (uint32_t i = 0; i < COUNT; i++)
		await(&ends, &outcomes[i]);
	CHECK_EQ(came, COUNT);
	CHECK_EQ(buffers_kept(&ends), 0);
	ends_close(&ends);
}

/* Requests, handled messages and answers of each end, in order. */
static struct flood {
	struct careful *c;
	uint32_t peer, asked, handled, wanted, answered;
	uint64_t waited; /* rounds in which something waited for room */
} floods[2];

static void on_flood(const struct careful_message *message, void *user)
{
	struct flood *flood = user;

	CHECK_EQ(message->args[0], flood->handled++);
	if (message->args[1])
		CHECK_EQ(careful_reply(message, 0, NULL, message->payload, message->bytes), 0);
}

static void on_answer(const struct careful_result *result, void *user)
{
	CHECK_EQ(result->status, 0);
	((struct flood *)user)->answered++;
}

/* Sends as many requests as there is room for. */
static void flood_on(struct flood *flood)
{
	static const uint8_t payload[MESSAGE_SMALL_BYTES];

	while (flood->asked < FLOOD) {
		uint32_t args[4] = { flood->asked, flood->asked % 5 > 0 };
		int rc = careful_request(flood->c, flood->peer, IN_TURN, args, payload,
					 flood->asked % 7 * 64, args[1] ? on_answer : NULL, flood);

		if (rc == -EAGAIN)
			break;
		CHECK_EQ(rc, 0);
		flood->asked++;
		flood->wanted += args[1];
	}
	flood->waited += flood->c->deferred_count > 0;
}

static bool is_over(const struct flood *flood)
{
	return flood->asked == FLOOD && flood->handled == FLOOD && flood->answered == flood->wanted;
}

/* Both ends send more requests than there is room for; one in five is one-way. All are handled in
 * order, and neither end waits for the other for ever. */
static void test_deferred__both_flood(void)
{
	struct careful_options options = { .rx_buffers = 256, .tx_buffers = 256, .peers = 4 };
	struct ends ends;

	open_up(&ends, options);
	for (int side = 0; side < 2; side++) {
		floods[side] = (struct flood){ .c = ends.c[side] };
		CHECK_EQ(careful_handle(ends.c[side], IN_TURN, on_flood, &floods[side]), 0);
	}
	floods[0].peer = (uint32_t)ends.peer;
	for (int i = 0; i < PATIENCE && !(is_over(&floods[0]) && is_over(&floods[1])); i++) {
		for (int side = 0; side < 2; side++) {
			flood_on(&floods[side]);
			careful_poll(ends.c[side]);
		}
	}
	CHECK(is_over(&floods[0]) && is_over(&floods[1]));
	CHECK(floods[0].waited + floods[1].waited);
	ends_close(&ends);
}

int main(void)
{
	RUN(test_pack__those_behind_the_first_share_frames);
	RUN(test_pack__in_the_traditional_protocol);
	RUN(test_pack__not_with_the_option_unpacked);
	RUN(test_pack__no_probes);
	RUN(test_pack__no_more_than_a_frame_holds);
	RUN(test_pack__too_many);
	RUN(test_keep__each_holds_its_frame);
	RUN(test_keep__copied_out);
	RUN(test_deferred__from_the_message_on_that_finds_no_room);
	RUN(test_deferred__the_next_does_not_overtake);
	RUN(test_deferred__both_flood);
	return 0;
}
