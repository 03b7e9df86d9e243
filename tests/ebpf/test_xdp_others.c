// SPDX-License-Identifier: BSD-2-Clause
/*
 * The XDP program passes some frames although they name our port: frames that a router forwards to
 * other hosts, and answers of other services to a random port.
 */
#include <stdlib.h>

#include "xdp.h"

static const uint8_t here[] = { 10, 77, 0, 1 }, there[] = { 10, 99, 0, 5 };
static const uint8_t here6[16] = { 0xfd, 0x77, [15] = 1 }, there6[16] = { 0xfd, 0x99, [15] = 5 };

/* Turns forwarding on or off. Test frames come in on lo of own_network(). */
static void be_router(bool router)
{
	char command[256];

	snprintf(command, sizeof(command),
		 "for f in ipv4 ipv6; do echo %d >/proc/sys/net/$f/conf/all/forwarding; done",
		 router);
	CHECK(!system(command)); // NOLINT: a test's own words
}

static void test_another_host__passes_if_forwarded(void)
{
	/* Frames to our port with a bad header, and datagrams that are no frames. */
	const struct shape bad[] = {
		{ .bad_check = true, .to = there },
		{ .cookie = 7, .to = there },
		{ .version = CAREFUL_WIRE_VERSION + 1, .to = there },
		{ .node = 999, .to = there },
		{ .frag_bytes = 9, .udp_bytes_delta = -40, .to = there },
		{ .bad_check = true, .ipv6 = true, .to = there6 },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct shape ours = bad[i];

		ours.to = bad[i].ipv6 ? here6 : here;
		be_router(false);
		CHECK(judge(&bad[i]) > CAREFUL_XDP_ADMITTED);
		be_router(true);
		CHECK_EQ(judge(&bad[i]), CAREFUL_XDP_PASS_OTHER);
		CHECK(judge(&ours) > CAREFUL_XDP_ADMITTED);
		CHECK_EQ(seq_last(FRAME_NODE), 0);
	}
	/* A frame of a session is admitted, whatever its address. */
	CHECK_EQ(JUDGE(.frag_bytes = 9, .to = here), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(JUDGE(.frag_bytes = 9, .to = here6, .ipv6 = true), CAREFUL_XDP_ADMITTED);
}

static void test_answer_of_another_service__passes(void)
{
	be_router(false);
	CHECK_EQ(JUDGE(.source = 53, .to = here, .version = 0x81), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.source = 53, .to = here, .bad_check = true), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.source = 53, .to = here6, .ipv6 = true, .udp_bytes_delta = -40),
		 CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.source = 53, .to = here, .cookie = 7), CAREFUL_XDP_DROP_COOKIE);
	CHECK_EQ(JUDGE(.to = here, .bad_check = true), CAREFUL_XDP_DROP_CHECK);
	/* Peers may have a port of their own. */
	CHECK_EQ(JUDGE(.source = 4000, .to = here, .frag_bytes = 9), CAREFUL_XDP_ADMITTED);
}

/* Each queue has its port: a frame to another queue's port is not for this one. */
static void test_another_queue__passes_counted(void)
{
	be_router(false);
	CHECK_EQ(JUDGE(.port = CAREFUL_PORT_DEFAULT + 1, .frag_bytes = 9), CAREFUL_XDP_PASS_QUEUE);
	CHECK_EQ(JUDGE(.port = CAREFUL_PORT_DEFAULT + PORTS - 1, .frag_bytes = 9),
		 CAREFUL_XDP_PASS_QUEUE);
	CHECK_EQ(JUDGE(.port = CAREFUL_PORT_DEFAULT + PORTS, .frag_bytes = 9),
		 CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.port = CAREFUL_PORT_DEFAULT - 1, .frag_bytes = 9), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.port = CAREFUL_PORT_DEFAULT + 1, .type = CAREFUL_HELLO),
		 CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(seq_last(FRAME_NODE), 0);
}

static void run_all(const char *name)
{
	(void)name;
	RUN(test_another_host__passes_if_forwarded);
	RUN(test_answer_of_another_service__passes);
	RUN(test_another_queue__passes_counted);
}

int main(void)
{
	own_network();
	// NOLINTNEXTLINE: a test's own words
	CHECK(!system("ip link set lo up && ip addr add 10.77.0.1/24 dev lo &&"
		      "ip route add 10.99.0.0/16 dev lo && ip addr add fd77::1/64 dev lo nodad &&"
		      "ip route add fd99::/64 dev lo"));
	xdp_each(run_all);
	return 0;
}
