// SPDX-License-Identifier: BSD-2-Clause
/* R, and its bound, of a queue that was never opened. */
#include <string.h>

#include "check.h"
#include "device/xsk/xsk.h"

static struct xsk_port port;
static struct xsk_queue xsk;

/* Returns the bounds of a queue in native mode, whose device's ring has this size. The queue has
 * 512 receive buffers, or 1024 with zero-copy. */
static const struct careful_device_info *bounds(uint32_t ring, bool zerocopy)
{
	memset(&port, 0, sizeof(port));
	memset(&xsk, 0, sizeof(xsk));
	port.xdp_mode = CAREFUL_XDP_NATIVE;
	port.netdev.rx_ring = ring;
	xsk.queue.port = &port.port;
	xsk.queue.rx_chunks = zerocopy ? 1024 : 512;
	xsk.queue.info.zerocopy = zerocopy;
	xsk.fill.size = 2048;
	xsk.rx.size = 1024;
	xsk_bounds(&xsk);
	return &xsk.queue.info;
}

static void test_bounds__copy_mode_has_all_buffers(void)
{
	CHECK_EQ(bounds(1024, false)->receive_buffers, 512);
	CHECK_EQ(xsk.queue.info.receive_bound, CAREFUL_BOUND_UMEM);
}

static void test_bounds__zero_copy_has_half_of_them(void)
{
	CHECK_EQ(bounds(1024, true)->receive_buffers, 512);
	CHECK_EQ(xsk.queue.info.receive_bound, CAREFUL_BOUND_UMEM);
}

static void test_bounds__small_device_ring(void)
{
	for (int zerocopy = 0; zerocopy < 2; zerocopy++) {
		CHECK_EQ(bounds(256, zerocopy)->receive_buffers, 192);
		CHECK_EQ(xsk.queue.info.receive_bound, CAREFUL_BOUND_DEVICE_RING);
	}
}

int main(void)
{
	RUN(test_bounds__copy_mode_has_all_buffers);
	RUN(test_bounds__zero_copy_has_half_of_them);
	RUN(test_bounds__small_device_ring);
	return 0;
}
