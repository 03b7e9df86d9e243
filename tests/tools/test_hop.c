/* SPDX-License-Identifier: BSD-2-Clause */
/* The lab's emulated link, in virtual time: service, queue, mishaps, what it reports. */
#include "../../tools/hop/way.h"
#include "check.h"

#include <math.h>
#include <string.h>

#include <careful/wire.h>

static const struct hop_config PLAIN = {
	.rates = { { 0, 1000, 2 } }, /* 1 µs and 2 ns a byte */
	.rates_count = 1,
	.careful_port = CAREFUL_PORT_DEFAULT,
	.queue_frames = 100,
	.seed = 1,
};

static uint8_t frame_bytes[9014];

static struct hop_way *make(const struct hop_config *config)
{
	struct hop_way *way = malloc(sizeof(*way));

	CHECK(way);
	CHECK_EQ(hop_way_init(way, config, 0, 0), 0);
	return way;
}

static void unmake(struct hop_way *way)
{
	hop_way_deinit(way);
	free(way);
}

/* Lets the next frame leave, late_ns late. Returns when it was due. */
static uint64_t leave(struct hop_way *way, uint64_t late_ns)
{
	struct hop_frame *frame = hop_next(way);
	uint64_t due;

	CHECK(frame);
	due = frame->due_ns;
	hop_left(way, frame, due + late_ns, due + late_ns);
	return due;
}

static void test_service__lone_frame_takes_g_and_G(void)
{
	struct hop_config config = PLAIN;
	struct hop_way *way;

	config.delay_ns = 500;
	way = make(&config);
	CHECK_EQ(hop_arrive(way, frame_bytes, 100, 10000), 1);
	CHECK_EQ(hop_peek(way)->due_ns, 10000 + 1000 + 200 + 500);
	leave(way, 0);
	CHECK(!hop_peek(way));
	unmake(way);
}

static void test_service__frames_wait_for_each_other(void)
{
	struct hop_way *way = make(&PLAIN);

	hop_arrive(way, frame_bytes, 100, 0);
	hop_arrive(way, frame_bytes, 1000, 0);
	hop_arrive(way, frame_bytes, 100, 10000);
	CHECK_EQ(leave(way, 0), 1200);
	CHECK_EQ(leave(way, 700), 1200 + 3000); /* late: delays no other */
	CHECK_EQ(leave(way, 0), 11200);
	unmake(way);
}

static void test_service__delay_occupies_nothing(void)
{
	struct hop_config config = PLAIN;
	struct hop_way *way;

	config.delay_ns = 1000000;
	way = make(&config);
	hop_arrive(way, frame_bytes, 100, 0);
	hop_arrive(way, frame_bytes, 100, 0);
	CHECK_EQ(leave(way, 0), 1001200);
	CHECK_EQ(leave(way, 0), 1002400);
	unmake(way);
}

/* P3's eager DMA: the first frame goes alone; all that came meanwhile follow as one. */
static void test_service__eager_takes_all_that_waits_for_one_g(void)
{
	struct hop_config config = PLAIN;
	struct hop_way *way;

	config.eager = true;
	way = make(&config);
	hop_arrive(way, frame_bytes, 100, 0); /* in service until 1200 */
	hop_arrive(way, frame_bytes, 100, 0); /* waits: the next transfer */
	hop_arrive(way, frame_bytes, 100, 1199); /* joins it */
	hop_arrive(way, frame_bytes, 100, 1200); /* too late: it has begun, until 2600 */
	hop_arrive(way, frame_bytes, 100, 2599); /* joins the third */
	hop_arrive(way, frame_bytes, 100, 10000); /* finds the link idle */
	hop_arrive(way, frame_bytes, 100, 10001);
	CHECK_EQ(leave(way, 0), 1200);
	CHECK_EQ(leave(way, 0), 1200 + 1200);
	CHECK_EQ(leave(way, 0), 2400 + 200);
	CHECK_EQ(leave(way, 0), 2600 + 1200);
	CHECK_EQ(leave(way, 0), 3800 + 200);
	CHECK_EQ(leave(way, 0), 11200);
	CHECK_EQ(leave(way, 0), 12400);
	CHECK_EQ(way->fit.count, 5); /* those that paid no g tell no rate */
	unmake(way);
}

static void test_service__rate_changes_at_its_time(void)
{
	struct hop_config config = PLAIN;
	struct hop_way *way;

	config.rates[1] = (struct hop_rate){ 50000, 4000, 10 };
	config.rates_count = 2;
	way = make(&config);
	hop_arrive(way, frame_bytes, 100, 49999);
	hop_arrive(way, frame_bytes, 100, 60000);
	CHECK_EQ(leave(way, 0), 49999 + 1200);
	CHECK_EQ(leave(way, 0), 60000 + 5000);
	hop_way_reset(way, 100000); /* the rates begin again */
	hop_arrive(way, frame_bytes, 100, 100000);
	CHECK_EQ(leave(way, 0), 101200);
	unmake(way);
}

static void test_queue__one_more_is_dropped(void)
{
	struct hop_config config = PLAIN;
	struct hop_way *way;

	config.queue_frames = 2;
	way = make(&config);
	CHECK_EQ(hop_arrive(way, frame_bytes, 100, 0), 1);
	CHECK_EQ(hop_arrive(way, frame_bytes, 100, 0), 1);
	CHECK_EQ(hop_arrive(way, frame_bytes, 100, 1199), 0);
	CHECK_EQ(hop_arrive(way, frame_bytes, 100, 1200), 1); /* the first was served by now */
	CHECK_EQ(way->queue_dropped, 1);
	CHECK_EQ(leave(way, 0), 1200);
	CHECK_EQ(leave(way, 0), 2400);
	CHECK_EQ(leave(way, 0), 3600);
	unmake(way);
}

static void test_mishaps__about_as_often_as_asked(void)
{
	struct hop_config config = PLAIN;
	struct hop_way *way;
	uint64_t due, last = 0, backwards = 0, left = 0, damaged = 0;

	config.loss = 0.1;
	config.duplicate = 0.2;
	config.reorder = 0.05;
	config.reorder_ns = 2000;
	config.corrupt = 0.15;
	way = make(&config);
	for (uint64_t i = 0; i < 10000; i++) {
		hop_arrive(way, frame_bytes, 100, i * 10000);
		for (struct hop_frame *frame; (frame = hop_next(way)); left++) {
			due = frame->due_ns;
			backwards += due < last;
			last = due;
			damaged += memcmp(frame->data, frame_bytes, 100) != 0;
			CHECK(!memcmp(frame->data, frame_bytes, 14));
			hop_left(way, frame, due, due);
		}
	}
	CHECK_EQ(backwards, 0);
	CHECK(way->lost > 800 && way->lost < 1200);
	CHECK(way->duplicated > 1600 && way->duplicated < 2000); /* of those not lost */
	CHECK(way->reordered > 400 && way->reordered < 700);
	CHECK_EQ(left, 10000 - way->lost + way->duplicated);
	CHECK_EQ(damaged, way->corrupted);
	CHECK(damaged > 1400 && damaged < 1800);
	unmake(way);
}

static void test_mishaps__held_back_comes_after_the_next(void)
{
	struct hop_config config = PLAIN;
	struct hop_way *way;

	config.reorder = 1;
	config.reorder_ns = 5000;
	way = make(&config);
	hop_arrive(way, frame_bytes, 100, 0);
	config.reorder = 0;
	hop_arrive(way, frame_bytes, 200, 0);
	CHECK_EQ(hop_peek(way)->bytes, 200);
	CHECK_EQ(leave(way, 0), 2600);
	CHECK_EQ(leave(way, 0), 6200);
	unmake(way);
}

/* Returns where the report continues behind a key. */
static const char *behind(const struct hop_way *way, const char *key)
{
	static char text[4096];
	FILE *out = fmemopen(text, sizeof(text), "w");
	const char *at;

	CHECK(out);
	hop_report(way, "forward", out);
	fclose(out);
	at = strstr(text, key);
	CHECK(at);
	return at + strlen(key) + 2;
}

static double reported(const struct hop_way *way, const char *key)
{
	return strtod(behind(way, key), NULL);
}

static void test_report__applied_includes_lateness(void)
{
	struct hop_way *way = make(&PLAIN);

	/* Each frame alone, late by 300 ns and 1 ns a byte. */
	for (uint64_t i = 0; i < 300; i++) {
		uint32_t bytes = 64 + (uint32_t)(i * 37 % 1000);

		hop_arrive(way, frame_bytes, bytes, i * 100000);
		leave(way, 300 + bytes);
	}
	CHECK(fabs(reported(way, "\"g_us\"") - 1.3) < 1e-3);
	CHECK(fabs(reported(way, "\"G_us_per_KiB\"") - 3 * 1.024) < 1e-4);
	CHECK(reported(way, "\"residual_us\"") < 1e-3);
	CHECK_EQ(reported(way, "\"frames_count\""), 300);
	CHECK(fabs(reported(way, "\"lateness_max_us\"") - 1.363) < 0.002);
	unmake(way);
}

static void test_report__copying_counts_and_is_no_lateness(void)
{
	struct hop_way *way = make(&PLAIN);
	struct hop_frame *frame;

	for (uint64_t i = 0; i < 100; i++) {
		uint32_t bytes = 64 + (uint32_t)(i * 37 % 1000);

		hop_arrive(way, frame_bytes, bytes, i * 100000);
		frame = hop_next(way);
		hop_left(way, frame, frame->due_ns, frame->due_ns + 200 + bytes);
	}
	CHECK(fabs(reported(way, "\"g_us\"") - 1.2) < 1e-3);
	CHECK(fabs(reported(way, "\"G_us_per_KiB\"") - 3 * 1.024) < 1e-4);
	CHECK_EQ(reported(way, "\"lateness_max_us\""), 0);
	CHECK_EQ(way->fit_lone.count, 99); /* at 0 the link is busy */
	hop_arrive(way, frame_bytes, 64, 20000000);
	frame = hop_next(way);
	hop_left(way, frame, frame->due_ns, frame->due_ns + HOP_PUNCTUAL_NS + 1);
	CHECK_EQ(way->fit_punctual.count, 100);
	CHECK_EQ(way->fit_lone.count, 99);
	unmake(way);
}

static void test_report__punctual_leaves_late_frames_out(void)
{
	struct hop_way *way = make(&PLAIN);

	for (uint64_t i = 0; i < 300; i++) {
		hop_arrive(way, frame_bytes, 64 + (uint32_t)(i * 37 % 1000), i * 1000000);
		leave(way, i % 7 ? 300 : 300000 + i * 1000);
	}
	/* One behind a late one in the queue: its service seems short. */
	hop_arrive(way, frame_bytes, 64, 400000000);
	hop_arrive(way, frame_bytes, 1000, 400000000);
	leave(way, 500000);
	leave(way, 501500);
	CHECK(fabs(strtod(strstr(behind(way, "\"punctual\""), "g_us") + 7, NULL) - 1.3) < 1e-3);
	CHECK(reported(way, "\"g_us\"") > 10); /* applied: all of them */
	CHECK_EQ(way->fit_punctual.count, 300 - 43);
	CHECK_EQ(way->fit_lone.count, 300 - 43);
	CHECK_EQ(way->fit.count, 302);
	unmake(way);
}

static void test_report__backlog_is_not_lateness(void)
{
	struct hop_way *way = make(&PLAIN);

	for (uint64_t i = 0; i < 90; i++)
		hop_arrive(way, frame_bytes, 64 + (uint32_t)(i * 37 % 1000), 0);
	for (uint64_t i = 0; i < 90; i++)
		leave(way, 0);
	CHECK_EQ(way->fit_lone.count, 0);
	CHECK(fabs(reported(way, "\"g_us\"") - 1) < 1e-3);
	CHECK(fabs(reported(way, "\"G_us_per_KiB\"") - 2.048) < 1e-4);
	unmake(way);
}

static void test_report__lost_and_late_frames_do_not_bias_it(void)
{
	struct hop_config config = PLAIN;
	struct hop_way *way;

	config.loss = 0.2;
	config.reorder = 0.1;
	config.reorder_ns = 9000;
	config.duplicate = 0.1;
	way = make(&config);
	for (uint64_t i = 0; i < 2000; i += 20) {
		for (uint64_t j = 0; j < 20; j++)
			hop_arrive(way, frame_bytes, 64 + (uint32_t)((i + j) * 37 % 1000),
				   i * 10000);
		while (hop_peek(way))
			leave(way, 0);
	}
	CHECK(fabs(reported(way, "\"g_us\"") - 1) < 1e-3);
	CHECK(fabs(reported(way, "\"G_us_per_KiB\"") - 2.048) < 1e-4);
	unmake(way);
}

static void test_report__says_nothing_of_one_size(void)
{
	struct hop_way *way = make(&PLAIN);

	for (uint64_t i = 0; i < 10; i++) {
		hop_arrive(way, frame_bytes, 100, i * 10000);
		leave(way, 0);
	}
	CHECK_EQ(way->fit.count, 10);
	CHECK(!strncmp(behind(way, "\"applied\""), "null", 4));
	unmake(way);
}

/* An Ethernet frame of IPv4 and `protocol` with this many bytes behind the IPv4 header. */
static uint32_t packet(uint8_t *data, uint8_t protocol, uint16_t inner)
{
	memset(data, 0, 9014);
	data[12] = 0x08;
	data[14] = 0x45;
	data[16] = (uint8_t)((20 + inner) >> 8);
	data[17] = (uint8_t)(20 + inner);
	data[23] = protocol;
	return 14 + 20 + inner;
}

static void test_charge__every_byte_or_payload(void)
{
	struct hop_config config = PLAIN;
	struct careful_hdr hdr = { .version = 1, .type = CAREFUL_DATA };
	uint8_t data[9014];
	uint32_t bytes = packet(data, 17, 8 + 500);

	CHECK_EQ(hop_charged(&config, data, bytes), bytes);
	config.payload_only = true;
	CHECK_EQ(hop_charged(&config, data, bytes), 500);
	CHECK_EQ(hop_charged(&config, data, packet(data, 1, 8 + 56)), 56);
	bytes = packet(data, 6, 32 + 100);
	data[34 + 12] = 8 << 4;
	CHECK_EQ(hop_charged(&config, data, bytes), 100);
	data[12] = 0x86;
	CHECK_EQ(hop_charged(&config, data, bytes), 0);

	bytes = packet(data, 17, 8 + 48 + 48 + 300);
	data[34 + 2] = (uint8_t)(CAREFUL_PORT_DEFAULT >> 8);
	data[34 + 3] = (uint8_t)CAREFUL_PORT_DEFAULT;
	hdr.frag_bytes = __builtin_bswap16(300);
	memcpy(data + 42, &hdr, sizeof(hdr));
	CHECK_EQ(hop_charged(&config, data, bytes), 300);
	hdr.type = CAREFUL_HELLO;
	memcpy(data + 42, &hdr, sizeof(hdr));
	CHECK_EQ(hop_charged(&config, data, bytes), 0);
}

/* The same with IPv6, whose header has 40 bytes. */
static uint32_t packet6(uint8_t *data, uint8_t protocol, uint16_t inner)
{
	memset(data, 0, 9014);
	data[12] = 0x86;
	data[13] = 0xdd;
	data[14] = 0x60;
	data[18] = (uint8_t)(inner >> 8);
	data[19] = (uint8_t)inner;
	data[20] = protocol;
	return 14 + 40 + inner;
}

static void test_charge__of_ipv6(void)
{
	struct hop_config config = PLAIN;
	uint8_t data[9014];
	uint32_t bytes = packet6(data, 17, 8 + 500);

	CHECK_EQ(hop_charged(&config, data, bytes), bytes);
	config.payload_only = true;
	CHECK_EQ(hop_charged(&config, data, bytes), 500);
	for (uint32_t n = 0; n < bytes; n++)
		CHECK_EQ(hop_charged(&config, data, n), 0);
	CHECK_EQ(hop_charged(&config, data, packet6(data, 58, 8 + 56)), 56);
}

static void test_charge__truncated_frames_are_safe(void)
{
	struct hop_config config = PLAIN;
	uint8_t data[9014];
	uint32_t bytes = packet(data, 17, 8 + 500);

	config.payload_only = true;
	for (uint32_t n = 0; n < bytes; n++)
		CHECK_EQ(hop_charged(&config, data, n), 0);
	CHECK_EQ(hop_charged(&config, data, packet(data, 17, 5)), 0);
	CHECK_EQ(hop_charged(&config, data, packet(data, 1, 5)), 0);
	CHECK_EQ(hop_charged(&config, data, packet(data, 6, 19)), 0);
}

int main(void)
{
	RUN(test_service__lone_frame_takes_g_and_G);
	RUN(test_service__frames_wait_for_each_other);
	RUN(test_service__delay_occupies_nothing);
	RUN(test_service__eager_takes_all_that_waits_for_one_g);
	RUN(test_service__rate_changes_at_its_time);
	RUN(test_queue__one_more_is_dropped);
	RUN(test_mishaps__about_as_often_as_asked);
	RUN(test_mishaps__held_back_comes_after_the_next);
	RUN(test_report__applied_includes_lateness);
	RUN(test_report__copying_counts_and_is_no_lateness);
	RUN(test_report__punctual_leaves_late_frames_out);
	RUN(test_report__backlog_is_not_lateness);
	RUN(test_report__lost_and_late_frames_do_not_bias_it);
	RUN(test_report__says_nothing_of_one_size);
	RUN(test_charge__every_byte_or_payload);
	RUN(test_charge__of_ipv6);
	RUN(test_charge__truncated_frames_are_safe);
	return 0;
}
