// SPDX-License-Identifier: BSD-2-Clause
/* A link on the way that takes smaller frames than both ends, and tells nobody. */
#include "device/device.h"
#include "sim.h"

static uint32_t most_sent; /* largest frame that the nodes would send at last */

static void look(struct node *node)
{
	struct careful_peer_info info;

	if (careful_peer_info(node->c, 0, &info) || info.state != CAREFUL_PEER_UP)
		return;
	if (info.flags & CAREFUL_PEER_IS_NARROW)
		most_sent = info.frame_bytes;
}

/* Every large frame of both directions vanishes; the search ends below the limit, and near it. */
static void test_path__large_frames_that_vanish_get_smaller(void)
{
	enum { NEAR = 8 };
	uint32_t found = 0;

	for (uint32_t seed = 0; seed < 10; seed++) {
		uint32_t limit;

		sim_scene(seed);
		limit = scene->shape.frame_bytes - 40;
		scene->on_round = look;
		most_sent = 0;
		sim_op(OP_STORE, 0, 12000, 0);
		sim_op(OP_GET, 0, 12000, 0);
		for (uint32_t from = 0; from < 2; from++)
			sim_fault(SIM_LOSS, from, !from, 0, 1000 * 1000)->longer = limit;
		EXPECT_WELL(sim_play());
		CHECK(most_sent <= limit);
		if (most_sent) {
			CHECK(most_sent + NEAR >= limit);
			found++;
		}
	}
	CHECK_EQ(found, 10);
}

int main(void)
{
	sim_init();
	RUN(test_path__large_frames_that_vanish_get_smaller);
	return 0;
}
