/* SPDX-License-Identifier: BSD-2-Clause */
/* The probe service between two instances: empty answers, stamped in order of arrival. */
#include "instances.h"

#include <careful/wire.h>

#include "service/probe.h"

static uint64_t stamps;

/* Ticks when it is read: what was read is what must come back. */
static uint64_t ticking(void)
{
	return 0x100000002ULL + 1000 * stamps++;
}

static const struct careful_probe_clock CLOCK = { ticking };

static uint64_t stamp_of(const struct outcome *outcome)
{
	return (uint64_t)outcome->result.args[0] << 32 | outcome->result.args[1];
}

static void test_probe__any_payload_is_answered_empty_with_the_clock(void)
{
	static uint8_t payload[3000];
	struct ends ends;

	ends_open(&ends, 3826);
	stamps = 0;
	CHECK_EQ(careful_probe_serve(ends.c[1], &CLOCK), 0);
	for (uint32_t i = 0; i < 3; i++) {
		struct outcome outcome = { 0 };

		CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, CAREFUL_PROBE, NULL,
					 payload, i * 1500, on_done, &outcome),
			 0);
		await(&ends, &outcome);
		CHECK_EQ(outcome.result.status, 0);
		CHECK_EQ(outcome.result.bytes, 0);
		CHECK_EQ(stamp_of(&outcome), 0x100000002ULL + i * 1000ULL);
	}
	ends_close(&ends);
}

static void test_probe__a_train_is_stamped_in_order(void)
{
	static struct outcome outcomes[16];
	struct ends ends;

	memset(outcomes, 0, sizeof(outcomes));
	ends_open(&ends, 3826);
	stamps = 0;
	careful_probe_serve(ends.c[1], &CLOCK);
	for (uint32_t i = 0; i < 16; i++)
		CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, CAREFUL_PROBE, NULL, &i,
					 sizeof(i), on_done, &outcomes[i]),
			 0);
	for (uint32_t i = 0; i < 16; i++) {
		await(&ends, &outcomes[i]);
		CHECK_EQ(stamp_of(&outcomes[i]), 0x100000002ULL + i * 1000ULL);
	}
	ends_close(&ends);
}

int main(void)
{
	RUN(test_probe__any_payload_is_answered_empty_with_the_clock);
	RUN(test_probe__a_train_is_stamped_in_order);
	return 0;
}
