// SPDX-License-Identifier: BSD-2-Clause
/* Changes the XDP mode of open instances: data before and after the change is right. */
#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "check.h"
#include "instances.h"
#include "engine/xdp_mode.h"

enum { ECHO = 7, MTU = 1500, BYTES = 1000 };

static uint32_t xdp_mode_of(struct careful *c)
{
	struct careful_info info;

	CHECK_EQ(careful_info(c, &info), 0);
	return info.device.xdp_mode;
}

static bool detached(struct careful *c)
{
	struct careful_info info;

	CHECK_EQ(careful_info(c, &info), 0);
	return info.statistics.program_detached;
}

static void ask(struct ends *ends)
{
	static uint8_t payload[BYTES];
	struct outcome outcome = { 0 };

	for (uint32_t i = 0; i < BYTES; i++)
		payload[i] = (uint8_t)(payload[i] + i + 1);
	CHECK_EQ(careful_request(ends->c[0], (uint32_t)ends->peer, ECHO, NULL, payload, BYTES,
				 on_done, &outcome),
		 0);
	await(ends, &outcome);
	CHECK_EQ(outcome.result.status, 0);
	CHECK_EQ(outcome.result.bytes, BYTES);
	CHECK(!memcmp(outcome.payload, payload, BYTES));
}

static uint32_t epochs(struct ends *ends)
{
	struct careful_peer_info info;

	CHECK_EQ(careful_peer_info(ends->c[0], (uint32_t)ends->peer, &info), 0);
	return info.epochs;
}

/* Changes the mode, and waits for the next epoch. */
static int change(struct ends *ends, int side, uint32_t mode)
{
	struct careful_error error = { 0 };
	uint32_t before = epochs(ends);
	int rc = -EAGAIN;

	for (int i = 0; i < PATIENCE && rc == -EAGAIN; i++) {
		poll_both(ends);
		pair_enter(&ends->pair, side); /* the namespace of the interface's number */
		rc = xdp_mode_change(ends->c[side], mode, &error);
		pair_leave(&ends->pair);
	}
	for (int i = 0; i < PATIENCE && !rc && epochs(ends) == before; i++)
		poll_both(ends);
	return rc;
}

static void test_mode__changes_at_either_end_and_nothing_is_lost(void)
{
	struct careful_peer_info peer;
	struct ends ends;

	ends_open(&ends, MTU);
	careful_handle(ends.c[1], ECHO, echo, NULL);
	ask(&ends);
	CHECK_EQ(xdp_mode_of(ends.c[1]), CAREFUL_XDP_NATIVE);
	for (uint32_t i = 0; i < 6; i++) {
		uint32_t mode = i % 4 < 2 ? CAREFUL_XDP_GENERIC : CAREFUL_XDP_NATIVE;

		CHECK_EQ(change(&ends, (int)i % 2, mode), 0);
		CHECK_EQ(xdp_mode_of(ends.c[i % 2]), mode);
		CHECK(!detached(ends.c[i % 2]));
		ask(&ends);
	}
	CHECK_EQ(careful_peer_info(ends.c[0], (uint32_t)ends.peer, &peer), 0);
	CHECK_EQ(peer.epochs, 7);
	CHECK_EQ(peer.lost_here + peer.lost_there, 0);
	ends_close(&ends); /* nothing lost, no epoch broken */
}

/* A request made before there is a session also waits for the mode. */
static void test_mode__change_before_the_first_session(void)
{
	struct outcome outcome = { 0 };
	struct ends ends;

	ends_open(&ends, MTU);
	careful_handle(ends.c[1], ECHO, echo, NULL);
	CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, ECHO, NULL, "x", 1, on_done,
				 &outcome),
		 0);
	CHECK_EQ(change(&ends, 0, CAREFUL_XDP_GENERIC), 0);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, 0);
	CHECK_EQ(xdp_mode_of(ends.c[0]), CAREFUL_XDP_GENERIC);
	ends_close(&ends);
}

static void test_alone__another_peer_waits_until_the_end(void)
{
	struct outcome outcome = { 0 };
	struct ends ends;

	ends_open(&ends, MTU);
	careful_handle(ends.c[1], ECHO, echo, NULL);
	xdp_mode_alone(ends.c[1], 3);
	CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, ECHO, NULL, "x", 1, on_done,
				 &outcome),
		 0);
	for (int i = 0; i < 50000; i++)
		poll_both(&ends);
	CHECK(!outcome.done);
	xdp_mode_alone(ends.c[1], CAREFUL_ANY_PEER);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, 0);
	ends_close(&ends);
}

static struct careful *open_bridge(struct pair *pair)
{
	struct careful_options options = { .ifname = "dum0", .instance = "dum0" };
	struct careful_error error;
	struct careful *c = NULL;
	int rc;

	pair_open(pair, MTU);
	if (pair_run(pair, 0, "ip link add dum0 type bridge && ip link set dum0 up"))
		skip("no bridges");
	pair_enter(pair, 0);
	rc = careful_open(&options, &c, &error);
	pair_leave(pair);
	CHECK_EQ(rc, 0);
	return c;
}

static void test_mode__a_refused_mode_changes_nothing(void)
{
	struct careful_error error = { 0 };
	struct pair pair;
	struct careful *c = open_bridge(&pair);

	CHECK_EQ(xdp_mode_of(c), CAREFUL_XDP_GENERIC);
	pair_enter(&pair, 0);
	CHECK(xdp_mode_change(c, CAREFUL_XDP_NATIVE, &error) < 0);
	pair_leave(&pair);
	CHECK(strstr(error.text, "native"));
	CHECK_EQ(xdp_mode_of(c), CAREFUL_XDP_GENERIC);
	CHECK(!detached(c));
	careful_close(c);
	pair_close(&pair);
}

static void test_decided__equals_info(void)
{
	struct careful_info info;
	struct ends ends;

	ends_open(&ends, MTU);
	CHECK_EQ(careful_info(ends.c[0], &info), 0);
	CHECK_EQ(info.device.xdp_by, CAREFUL_XDP_BY_DRIVER);
	xdp_mode_decided(ends.c[0], CAREFUL_XDP_BY_MEASURED);
	CHECK_EQ(careful_info(ends.c[0], &info), 0);
	CHECK_EQ(info.device.xdp_by, CAREFUL_XDP_BY_MEASURED);
	careful_close(ends.c[1]);
	ends.c[1] = instance_open(&ends.pair, 1,
				  (struct careful_options){ .xdp_mode = CAREFUL_XDP_GENERIC });
	CHECK_EQ(careful_info(ends.c[1], &info), 0);
	CHECK_EQ(info.device.xdp_by, CAREFUL_XDP_BY_OPTION);
	ends_close(&ends);
}

/* Drops every capability, for good. */
static void drop_all(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { 0 } };

	CHECK(!syscall(SYS_capset, &header, data));
}

/* Needs no capability after opening, as xsk_mode.c states. */
static void test_mode__needs_no_capability_after_opening(void)
{
	struct careful_error error = { 0 };
	struct ends ends;
	int rc = -EAGAIN;

	ends_open(&ends, MTU);
	careful_handle(ends.c[1], ECHO, echo, NULL);
	ask(&ends);
	pair_enter(&ends.pair, 0);
	drop_all();
	for (int i = 0; i < PATIENCE && rc == -EAGAIN; i++) {
		poll_both(&ends);
		rc = xdp_mode_change(ends.c[0], CAREFUL_XDP_GENERIC, &error);
	}
	CHECK_EQ(rc, 0);
	CHECK_EQ(xdp_mode_of(ends.c[0]), CAREFUL_XDP_GENERIC);
	CHECK(!detached(ends.c[0]));
	exit(0); /* cleans up, without any capability */
}

int main(void)
{
	RUN(test_mode__changes_at_either_end_and_nothing_is_lost);
	RUN(test_mode__change_before_the_first_session);
	RUN(test_alone__another_peer_waits_until_the_end);
	RUN(test_mode__a_refused_mode_changes_nothing);
	RUN(test_decided__equals_info);
	RUN(test_mode__needs_no_capability_after_opening);
	return 0;
}
