// SPDX-License-Identifier: BSD-2-Clause
/*
 * The XDP program on frames to a group: admission by cookie, address and number, and the charge to
 * the sender's window.
 */
#include "xdp.h"

enum { GROUP_SLOT = 3 };

static const uint64_t group_cookie = 0x8877665544332211ULL;
/* IPv4 and IPv6; sender_as_ipv6 is the first one mapped to IPv6. */
static const uint8_t senders[2][16] = { { 10, 77, 0, 3 }, { 0xfd, 0x77, [15] = 3 } },
		     members[2][16] = { { 10, 77, 0, 2 }, { 0xfd, 0x77, [15] = 2 } },
		     all[2][16] = { { 239, 255, 202, 254 },
				    { 0xff, 0x12, [12] = 0x80, [14] = 0xca, 0xfe } },
		     sender_as_ipv6[16] = { [10] = 0xff, 0xff, 10, 77, 0, 3 };
static bool ipv6;

/* Sets a session in a slot, whose peer sends to a group. */
static void set_group(uint64_t session)
{
	struct careful_peer_entry entry = {
		.cookie = session,
		.window = WINDOW,
		.buffer_bytes = BUFFER_BYTES,
		.may_fill = CREDITS,
		.group_cookie = group_cookie,
	};
	const uint8_t *from = ipv6 ? senders[1] : sender_as_ipv6;
	const uint32_t slot = GROUP_SLOT;

	for (int i = 0; i < 8; i++)
		entry.group_source[i] = (uint16_t)(from[2 * i] << 8 | from[2 * i + 1]);
	CHECK(!bpf_map_update_elem(xdp.peers, &slot, &entry, BPF_ANY));
	CHECK(!bpf_map_update_elem(xdp.groups, &group_cookie, &slot, BPF_ANY));
}

static uint32_t judge_shape(struct shape shape)
{
	static struct frame frame;

	shape.ipv6 ^= ipv6;
	shape.to = all[shape.ipv6];
	frame_build(&frame, &shape);
	return judge_bytes(frame.data, frame.bytes);
}

/* Judges a frame, by default to the group. src_node names the slot of another session, and does not
 * count. */
static uint32_t judge_group(struct shape shape)
{
	shape.flags |= CAREFUL_F_BCAST_EVENT;
	if (!shape.cookie)
		shape.cookie = group_cookie;
	if (!shape.from)
		shape.from = senders[ipv6];
	return judge_shape(shape);
}

#define JUDGE_GROUP(...) judge_group((struct shape){ __VA_ARGS__ })
#define JUDGE_SHAPE(...) judge_shape((struct shape){ .from = senders[ipv6], __VA_ARGS__ })

/* The engine checks its numbers. */
static void test_group__admitted_by_its_cookie(void)
{
	struct careful_peer_entry entry;

	set_peer(FRAME_NODE, frame_cookie, 5);
	set_group(7);
	CHECK_EQ(JUDGE_GROUP(.seq = 1), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(JUDGE_GROUP(.seq = 1), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(JUDGE_GROUP(.seq = 2 + WINDOW), CAREFUL_XDP_ADMITTED);
	entry = entry_of(GROUP_SLOT);
	CHECK_EQ(entry.seq_last, 0);
	CHECK_EQ(entry.filled, 3);
	CHECK_EQ(seq_last(FRAME_NODE), 5);
}

/* Frames to the group and to one member share a window. */
static void test_group__charged_to_its_sender_s_window(void)
{
	set_group(7);
	for (uint32_t seq = 1; seq < CREDITS; seq++)
		CHECK_EQ(JUDGE_GROUP(.seq = seq), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(JUDGE_GROUP(.seq = CREDITS, .padding = BUFFER_BYTES), CAREFUL_XDP_DROP_CREDIT);
	CHECK_EQ(JUDGE_SHAPE(.node = GROUP_SLOT, .cookie = 7), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(JUDGE_GROUP(.seq = CREDITS), CAREFUL_XDP_DROP_CREDIT);
	CHECK_EQ(judge_shape((struct shape){
			 .node = GROUP_SLOT, .cookie = 7, .seq = 2, .frag_bytes = 9 }),
		 CAREFUL_XDP_DROP_CREDIT);
}

static void test_group__refuses_other_users(void)
{
	set_group(7);
	/* A member that uses the cookie itself; and the cookie over the other family. */
	CHECK_EQ(JUDGE_GROUP(.from = members[ipv6]), CAREFUL_XDP_DROP_COOKIE);
	CHECK_EQ(JUDGE_GROUP(.ipv6 = true), CAREFUL_XDP_DROP_COOKIE);
	CHECK_EQ(JUDGE_GROUP(.ipv6 = true, .from = sender_as_ipv6), CAREFUL_XDP_DROP_COOKIE);
	/* Another cookie, 0, or the session's; the group's cookie on a frame to one. */
	CHECK_EQ(JUDGE_GROUP(.cookie = group_cookie + 1), CAREFUL_XDP_DROP_COOKIE);
	CHECK_EQ(JUDGE_GROUP(.cookie = 7), CAREFUL_XDP_DROP_COOKIE);
	CHECK_EQ(JUDGE_SHAPE(.cookie = group_cookie), CAREFUL_XDP_DROP_COOKIE);
	CHECK_EQ(JUDGE_SHAPE(.cookie = group_cookie, .node = GROUP_SLOT), CAREFUL_XDP_DROP_COOKIE);
	CHECK_EQ(JUDGE_GROUP(.bad_check = true), CAREFUL_XDP_DROP_CHECK);
	CHECK_EQ(JUDGE_GROUP(.type = CAREFUL_UPDATE), CAREFUL_XDP_DROP_TYPE);
	CHECK_EQ(JUDGE_GROUP(.udp_bytes_delta = -1), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(entry_of(GROUP_SLOT).filled, 0);
	/* The sender's session is over. */
	set_group(0);
	CHECK_EQ(JUDGE_GROUP(.seq = 1), CAREFUL_XDP_DROP_COOKIE);
}

/* A group ends with its entry or its session, whichever is removed first. */
static void test_group__removed(void)
{
	const uint32_t slot = GROUP_SLOT;
	struct careful_peer_entry entry;

	set_group(7);
	CHECK(!bpf_map_delete_elem(xdp.groups, &group_cookie));
	CHECK_EQ(JUDGE_GROUP(.seq = 1), CAREFUL_XDP_DROP_COOKIE);
	set_group(7);
	entry = entry_of(GROUP_SLOT);
	entry.group_cookie = 0;
	CHECK(!bpf_map_update_elem(xdp.peers, &slot, &entry, BPF_ANY));
	CHECK_EQ(JUDGE_GROUP(.seq = 1), CAREFUL_XDP_DROP_COOKIE);
	CHECK_EQ(entry_of(GROUP_SLOT).filled, 0);
}

/* A probe is recorded, and uses no buffer and no number. */
static void test_group__probe(void)
{
	set_group(7);
	CHECK_EQ(JUDGE_GROUP(.type = CAREFUL_TRAIN, .msg_id = 5, .from = members[ipv6]),
		 CAREFUL_XDP_DROP_COOKIE);
	CHECK_EQ(entry_of(GROUP_SLOT).group_probe, 0);
	CHECK_EQ(JUDGE_GROUP(.type = CAREFUL_TRAIN, .msg_id = 5), CAREFUL_XDP_DROP_TRAIN);
	CHECK_EQ(entry_of(GROUP_SLOT).group_probe, 5);
	CHECK_EQ(entry_of(GROUP_SLOT).filled, 0);
}

/* The whole address is compared. */
static void test_group__from_an_address_that_differs_in_one_byte(void)
{
	set_group(7);
	for (uint32_t i = 0; i < (ipv6 ? 16 : 4); i++) {
		uint8_t other[16];

		memcpy(other, senders[ipv6], sizeof(other));
		other[i] ^= 1;
		CHECK_EQ(JUDGE_GROUP(.from = other), CAREFUL_XDP_DROP_COOKIE);
	}
	CHECK_EQ(JUDGE_GROUP(.seq = 1), CAREFUL_XDP_ADMITTED);
}

static void run_family(void)
{
	RUN(test_group__admitted_by_its_cookie);
	RUN(test_group__charged_to_its_sender_s_window);
	RUN(test_group__refuses_other_users);
	RUN(test_group__removed);
	RUN(test_group__probe);
	RUN(test_group__from_an_address_that_differs_in_one_byte);
}

static void run_all(const char *name)
{
	(void)name;
	ipv6 = false;
	run_family();
	ipv6 = true;
	run_family();
}

int main(void)
{
	xdp_each(run_all);
	return 0;
}
