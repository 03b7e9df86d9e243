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
	struct window_tx tx = { .size = 4, .sent = UINT32_MAX, .credits = UINT32_MAX, .reserve = 3 };
	struct window_rx rx = { .size = 4,
				.threshold = 2,
				.received = UINT32_MAX,
				.returned = UINT32_MAX,
				.announced = UINT32_MAX };

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

/* While the receiver's program keeps fewer buffers than the threshold, the sender never stalls: when
 * it may not send, an update is due, of at least two buffers. */
static void test_update__is_early_if_buffers_are_kept(void)
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
			const uint32_t begin = UINT32_MAX - 50;
			struct window_tx tx = { .size = size, .sent = begin, .credits = begin };
			struct window_rx rx = { .size = size,
						.threshold = (uint16_t)window_threshold(size),
						.received = begin,
						.returned = begin,
						.announced = begin };

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

/* Sends as much as the window allows, and returns all buffers. Returns the number sent. */
static uint32_t filled(struct window_tx *tx, struct window_rx *rx)
{
	uint32_t n = 0;

	while (window_tx_may_send(tx, 1)) {
		window_tx_send(tx, 1);
		CHECK_EQ(window_rx_receive(rx, 1), 0);
		n++;
	}
	window_rx_return(rx, n);
	if (window_rx_update_due(rx))
		CHECK_EQ(window_tx_credit(tx, window_rx_announce(rx)), 0);
	return n;
}

/* Credits that were announced stay; then the sender has w, and the whole window again. */
static void test_withhold__the_sender_has_w(void)
{
	struct window_tx tx;
	struct window_rx rx;

	window_tx_init(&tx, 16);
	window_rx_init(&rx, 16);
	CHECK_EQ(filled(&tx, &rx), 15);
	window_rx_withhold(&rx, 4, true);
	CHECK_EQ(rx.threshold, 3); /* half of T while frames are lost */
	window_rx_withhold(&rx, 10, true);
	CHECK_EQ(rx.threshold, 2);
	window_rx_withhold(&rx, 10, false);
	CHECK_EQ(rx.threshold, 3);
	CHECK_EQ(window_rx_owed(&rx), 0);
	CHECK_EQ(filled(&tx, &rx), 15);
	for (int i = 0; i < 10; i++)
		CHECK_EQ(filled(&tx, &rx), 5);
	window_rx_withhold(&rx, 9, false);
	CHECK_EQ(filled(&tx, &rx), 5);
	CHECK_EQ(filled(&tx, &rx), 6);
	window_rx_withhold(&rx, 0, false);
	filled(&tx, &rx);
	CHECK_EQ(filled(&tx, &rx), 15);
	CHECK_EQ(window_tx_outstanding(&tx), 0);
}

/* The rule holds for w as for W: each frame of at most the greatest cost leaves some time. */
static void test_withhold__no_w_stalls(void)
{
	for (uint32_t size = WINDOW_MIN; size <= 20; size++)
		for (uint32_t withheld = 0; withheld <= size - WINDOW_MIN; withheld++)
			for (uint32_t cost = 1; cost <= window_cost_max(size - withheld); cost++) {
				struct window_tx tx;
				struct window_rx rx;

				window_tx_init(&tx, size);
				window_rx_init(&rx, size);
				window_rx_withhold(&rx, withheld, cost & 1);
				for (int i = 0; i < 200; i++) {
					CHECK(window_tx_may_send(&tx, cost));
					window_tx_send(&tx, cost);
					CHECK_EQ(window_rx_receive(&rx, cost), 0);
					window_rx_return(&rx, cost);
					if (window_rx_update_due(&rx))
						CHECK_EQ(window_tx_credit(&tx,
									  window_rx_announce(&rx)),
							 0);
				}
			}
}

int main(void)
{
	RUN(test_withhold__the_sender_has_w);
	RUN(test_withhold__no_w_stalls);
	RUN(test_threshold__half_but_at_least_two);
	RUN(test_send__data_leaves_one_credit);
	RUN(test_credit__impossible_ones_are_refused);
	RUN(test_receive__more_than_granted_is_refused);
	RUN(test_grant__credits_run_ahead);
	RUN(test_update__is_early_if_buffers_are_kept);
	RUN(test_rule__counters_wrap_and_nothing_stalls);
	return 0;
}
