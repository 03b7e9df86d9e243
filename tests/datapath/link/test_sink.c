// SPDX-License-Identifier: BSD-2-Clause
/* The minpulse rule alone (P3 section 3). */
#include "link/sink.h"

#include "check.h"

enum { PULSE = 1000 };

static void test_sink__nothing_is_never_due(void)
{
	const struct sink sink = { 0 };

	CHECK(!sink_due(&sink, PULSE, false));
	CHECK(!sink_due(&sink, 0, false));
	CHECK(!sink_due(&sink, PULSE, true));
}

static void test_sink__idle_takes_at_the_threshold(void)
{
	struct sink sink = { 0 };

	sink_add(&sink, PULSE - 1);
	CHECK(!sink_due(&sink, PULSE, false));
	sink_add(&sink, 1);
	CHECK(sink_due(&sink, PULSE, false));
	CHECK(!sink_due(&sink, PULSE + 1, false)); /* another class's threshold */
}

static void test_sink__the_tail_does_not_wait(void)
{
	struct sink sink = { 0 };

	sink_add(&sink, 1);
	CHECK(sink_due(&sink, PULSE, true));
	CHECK(sink_due(&sink, 0, false)); /* no threshold: any bytes are due */
}

/* Bytes that come while the stage works become one pulse when it is done (P5 figure 3). */
static void test_sink__busy_takes_nothing_then_all(void)
{
	struct sink sink = { 0 };

	sink_add(&sink, PULSE);
	sink_take(&sink, PULSE);
	for (int i = 0; i < 5; i++) {
		sink_add(&sink, PULSE);
		CHECK(!sink_due(&sink, PULSE, false));
		CHECK(!sink_due(&sink, PULSE, true));
	}
	sink_idle(&sink);
	CHECK(sink_due(&sink, PULSE, false));
	CHECK_EQ(sink.waiting_bytes, 5 * PULSE);
	sink_take(&sink, sink.waiting_bytes);
	sink_idle(&sink);
	CHECK(!sink_due(&sink, PULSE, true));
}

/* A stage that cannot take all bytes at once continues with the rest. */
static void test_sink__takes_a_part(void)
{
	struct sink sink = { 0 };

	sink_add(&sink, 3 * PULSE);
	sink_take(&sink, 2 * PULSE + 1);
	sink_idle(&sink);
	CHECK_EQ(sink.waiting_bytes, PULSE - 1);
	CHECK(!sink_due(&sink, PULSE, false));
	CHECK(sink_due(&sink, PULSE, true));
}

int main(void)
{
	RUN(test_sink__nothing_is_never_due);
	RUN(test_sink__idle_takes_at_the_threshold);
	RUN(test_sink__the_tail_does_not_wait);
	RUN(test_sink__busy_takes_nothing_then_all);
	RUN(test_sink__takes_a_part);
	return 0;
}
