// SPDX-License-Identifier: BSD-2-Clause
/* The window rule: thresholds, wrap-around, impossible credits, no deadlock. */
#include "check.h"

#include "link/window.h"

static void test_threshold__half_but_at_least_two(void)
{
	CHECK_EQ(window_threshold(4), 2);
	CHECK_EQ(window_threshold(5), 2);
	CHECK_EQ(window_threshold(64), 32);
	CHECK_EQ(window_cost_max(4), 1);
	CHECK_EQ(window_cost_max(64), 31);
}

static void test_send__data_leaves_one_credit(void)
{
	struct window_tx tx;

	window_tx_init(&tx, 4);
	CHECK(window_tx_may_send(&tx, 3));
	CHECK(!window_tx_may_send(&tx, 4));
	window_tx_send(&tx, 3);
	CHECK(!window_tx_may_send(&tx, 1));
	CHECK(window_tx_may_update(&tx));
	window_tx_send(&tx, WINDOW_UPDATE_COST);
	CHECK(!window_tx_may_update(&tx));
}

static void test_credit__impossible_ones_are_refused(void)
{
	struct window_tx tx;

	window_tx_init(&tx, 8);
	window_tx_send(&tx, 3);
	CHECK_EQ(window_tx_credit(&tx, 4), -EPROTO);
	CHECK_EQ(window_tx_credit(&tx, 2), 0);
	CHECK_EQ(window_tx_credit(&tx, 1), -EPROTO);
	CHECK_EQ(window_tx_credit(&tx, 2), 0);
	CHECK_EQ(window_tx_free(&tx), 7);
}

static void test_receive__more_than_granted_is_refused(void)
{
	struct window_rx rx;

	window_rx_init(&rx, 4);
	CHECK_EQ(window_rx_receive(&rx, 4), 0);
	CHECK_EQ(window_rx_receive(&rx, 1), -EPROTO);
	window_rx_return(&rx, 1);
	CHECK_EQ(window_rx_receive(&rx, 1), -EPROTO); /* returned, not yet announced */
	window_rx_announce(&rx);
	CHECK_EQ(window_rx_receive(&rx, 1), 0);
}

/* A grant gives credits before buffers came back; both counters pass 2^32. */
static void test_grant__credits_run_ahead(void)
{
	struct window_tx tx = { 4, UINT32_MAX, UINT32_MAX, 3 };
	struct window_rx rx = { 4, 2, UINT32_MAX, UINT32_MAX, UINT32_MAX };

	CHECK_EQ(window_tx_unused(&tx), 0);
	window_rx_return(&rx, 3);
	CHECK_EQ(window_tx_credit(&tx, window_rx_announce(&rx)), 0);
	CHECK_EQ(window_tx_free(&tx), 7);
	CHECK_EQ(window_tx_unused(&tx), 3);
	CHECK_EQ(window_tx_credit(&tx, 3), -EPROTO); /* more than may be granted */
	window_tx_send(&tx, 7);
	CHECK(!window_tx_free(&tx) && !window_tx_unused(&tx));
	CHECK_EQ(window_rx_receive(&rx, 7), 0);
	CHECK_EQ(window_rx_receive(&rx, 1), -EPROTO);
	/* Three of the seven buffers repay it. */
	window_rx_return(&rx, 4);
	CHECK_EQ(window_tx_credit(&tx, window_rx_announce(&rx)), 0);
	CHECK_EQ(window_tx_free(&tx), 4);
}

/* While fewer buffers than the threshold are kept, frames continue: an update is due in time, and
 * never for a single buffer. */
static void test_update__early_where_buffers_are_kept(void)
{
	for (uint32_t size = WINDOW_MIN; size <= 64; size++)
		for (uint32_t cost = 1; cost <= window_cost_max(size); cost++)
			for (uint32_t kept = 0; kept < window_threshold(size); kept++) {
				struct window_tx tx = { .size = size, .sent = kept };
				struct window_rx rx = { .size = size, .received = kept };

				while (window_tx_may_send(&tx, cost)) {
					window_tx_send(&tx, cost);
					CHECK_EQ(window_rx_receive(&rx, cost), 0);
					window_rx_return(&rx, cost);
				}
				CHECK(window_rx_owed(&rx) >= 2);
				CHECK(window_rx_update_early(&rx, kept, cost));
			}
}

/* Two ends send data and updates by the rule; their counters pass 2^32. */
static void test_rule__counters_wrap_and_nothing_stalls(void)
{
	for (uint32_t size = WINDOW_MIN; size <= 9; size++)
		for (uint32_t cost = 1; cost <= window_cost_max(size); cost++) {
			struct window_tx tx = { size, UINT32_MAX - 50, UINT32_MAX - 50, 0 };
			struct window_rx rx = { size, window_threshold(size), UINT32_MAX - 50,
						UINT32_MAX - 50, UINT32_MAX - 50 };

			for (int i = 0; i < 200; i++) {
				CHECK(window_tx_may_send(&tx, cost));
				window_tx_send(&tx, cost);
				CHECK_EQ(window_rx_receive(&rx, cost), 0);
				window_rx_return(&rx, cost);
				if (window_rx_update_due(&rx))
					CHECK_EQ(window_tx_credit(&tx, window_rx_announce(&rx)), 0);
				CHECK(window_tx_free(&tx) <= size);
			}
		}
}

int main(void)
{
	RUN(test_threshold__half_but_at_least_two);
	RUN(test_send__data_leaves_one_credit);
	RUN(test_credit__impossible_ones_are_refused);
	RUN(test_receive__more_than_granted_is_refused);
	RUN(test_grant__credits_run_ahead);
	RUN(test_update__early_where_buffers_are_kept);
	RUN(test_rule__counters_wrap_and_nothing_stalls);
	return 0;
}
