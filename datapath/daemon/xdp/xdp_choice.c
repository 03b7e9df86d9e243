/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/xdp/xdp_choice.h"

/* The product of two ratios must be below this: about 3 % less for each of them. */
static const double XDP_MARGIN = 0.94;

static bool generic_wins(const struct xdp_figures *generic, const struct xdp_figures *native)
{
	double product;

	if (!(generic->trip_ns > 0 && native->trip_ns > 0 && generic->rate > 0 && native->rate > 0))
		return false;
	product = generic->trip_ns / native->trip_ns * (native->rate / generic->rate);
	return product < XDP_MARGIN;
}

uint32_t xdp_choose(const struct xdp_figures arms[XDP_ARMS])
{
	const uint32_t pairs = XDP_ARMS - 1;
	uint32_t wins = 0;

	for (uint32_t i = 0; i < pairs; i++)
		wins += i % 2 ? generic_wins(&arms[i], &arms[i + 1]) :
				generic_wins(&arms[i + 1], &arms[i]);
	return wins + 1 >= pairs ? CAREFUL_XDP_GENERIC :
	       wins <= 1	 ? CAREFUL_XDP_NATIVE :
				   CAREFUL_XDP_AUTO;
}
