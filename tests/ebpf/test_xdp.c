// SPDX-License-Identifier: BSD-2-Clause
/*
 * The XDP program, both variants, on frames of every kind (BPF_PROG_TEST_RUN): what
 * it does with each, which counter says so, and that nothing else is ever admitted.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <careful/abi.h>
#include <errno.h>
#include <linux/bpf.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "device/compat.h"
#include "frame.h"
#include "link/parse.h"

extern const unsigned char bpf_careful_start[], bpf_careful_end[];

enum {
	PEERS = 4,
	WINDOW = 8,
	CPUS_MAX = 1024,
};

struct xdp {
	struct bpf_object *object;
	int program, peers, xsks, counters;
	bool frags;
};

static struct xdp xdp; /* under test */
static int xsk = -1;
static uint64_t seen[CAREFUL_XDP_COUNTERS]; /* which counters were reached at all */

static int xdp_load(const char *name, uint32_t queue)
{
	const struct careful_xdp_config config = {
		.port = CAREFUL_PORT_DEFAULT,
		.queue = (uint16_t)queue,
		.peers = PEERS,
	};
	struct bpf_program *program;
	struct bpf_map *map;
	int rc;

	xdp = (struct xdp){ .frags = !strcmp(name, "careful_frags") };
	xdp.object = bpf_object__open_mem(bpf_careful_start,
					  (size_t)(bpf_careful_end - bpf_careful_start), NULL);
	CHECK(xdp.object);
	bpf_object__for_each_map(map, xdp.object)
		if (strstr(bpf_map__name(map), ".rodata"))
			CHECK(!bpf_map__set_initial_value(map, &config, sizeof(config)));
	bpf_object__for_each_program(program, xdp.object)
		bpf_program__set_autoload(program, !strcmp(bpf_program__name(program), name));
	rc = bpf_object__load(xdp.object);
	if (rc) {
		bpf_object__close(xdp.object);
		return rc;
	}
	program = bpf_object__find_program_by_name(xdp.object, name);
	xdp.program = bpf_program__fd(program);
	xdp.peers = bpf_object__find_map_fd_by_name(xdp.object, "peers");
	xdp.xsks = bpf_object__find_map_fd_by_name(xdp.object, "xsks");
	xdp.counters = bpf_object__find_map_fd_by_name(xdp.object, "counters");
	return 0;
}

static void xdp_socket(bool there)
{
	const uint32_t key = 0, value = (uint32_t)xsk;

	if (there)
		CHECK(!bpf_map_update_elem(xdp.xsks, &key, &value, BPF_ANY));
	else
		CHECK(!bpf_map_delete_elem(xdp.xsks, &key));
}

static void set_peer(uint32_t slot, uint64_t cookie, uint32_t seq_last)
{
	const struct careful_peer_entry entry = {
		.cookie = cookie,
		.seq_last = seq_last,
		.window = WINDOW,
	};

	CHECK(!bpf_map_update_elem(xdp.peers, &slot, &entry, BPF_ANY));
}

static struct careful_peer_entry entry_of(uint32_t slot)
{
	struct careful_peer_entry entry;

	CHECK(!bpf_map_lookup_elem(xdp.peers, &slot, &entry));
	return entry;
}

static uint32_t seq_last(uint32_t slot)
{
	return entry_of(slot).seq_last;
}

static void read_counters(uint64_t *sums)
{
	static uint64_t values[CPUS_MAX];

	CHECK(libbpf_num_possible_cpus() <= CPUS_MAX);
	for (uint32_t i = 0; i < CAREFUL_XDP_COUNTERS; i++) {
		sums[i] = 0;
		CHECK(!bpf_map_lookup_elem(xdp.counters, &i, values));
		for (int cpu = 0; cpu < libbpf_num_possible_cpus(); cpu++)
			sums[i] += values[cpu];
	}
}

static uint32_t action_of(uint32_t counter)
{
	if (counter <= CAREFUL_XDP_PASS_PING)
		return XDP_PASS;
	return counter == CAREFUL_XDP_ADMITTED ? XDP_REDIRECT : XDP_DROP;
}

/* Shows the program a frame; returns the one counter that moved. */
static uint32_t judge_bytes(const uint8_t *data, uint32_t bytes)
{
	static uint64_t before[CAREFUL_XDP_COUNTERS], after[CAREFUL_XDP_COUNTERS];
	LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = data, .data_size_in = bytes, .repeat = 1);
	uint32_t moved = CAREFUL_XDP_COUNTERS;

	read_counters(before);
	CHECK_EQ(bpf_prog_test_run_opts(xdp.program, &run), 0);
	read_counters(after);
	for (uint32_t i = 0; i < CAREFUL_XDP_COUNTERS; i++) {
		if (after[i] == before[i])
			continue;
		CHECK_EQ(after[i], before[i] + 1);
		CHECK_EQ(moved, CAREFUL_XDP_COUNTERS);
		moved = i;
	}
	CHECK(moved < CAREFUL_XDP_COUNTERS);
	CHECK_EQ(run.retval, action_of(moved));
	seen[moved]++;
	return moved;
}

/* The same for a shape, in a fresh session. */
static uint32_t judge(const struct shape *shape)
{
	static struct frame frame;

	frame_build(&frame, shape);
	set_peer(FRAME_NODE, frame_cookie, 0);
	return judge_bytes(frame.data, frame.bytes);
}

#define JUDGE(...) judge(&(struct shape){ __VA_ARGS__ })

/* Well-formed frames, one of each kind; a test of damage starts from these. */
static const struct shape good[] = {
	{ .frag_bytes = 100 },
	{ .frag_bytes = 0 },
	{ .frag_bytes = 64, .flags = CAREFUL_F_FIRST },
	{ .frag_bytes = 64, .flags = CAREFUL_F_FIRST | CAREFUL_F_LAST | CAREFUL_F_DIGEST },
	{ .frag_bytes = 64, .flags = CAREFUL_F_DIGEST },
	{ .type = CAREFUL_UPDATE },
	{ .type = CAREFUL_UPDATE, .flags = CAREFUL_F_FIRST },
	{ .frag_bytes = 4, .flags = CAREFUL_F_ABORT },
	{ .vlans = 1, .frag_bytes = 100 },
	{ .vlans = 2, .frag_bytes = 100 },
	{ .option_words = 10, .frag_bytes = 100 },
	{ .frag_off = 0x4000, .frag_bytes = 100 }, /* don't fragment */
	{ .ipv6 = true, .frag_bytes = 100 },
	{ .ipv6 = true, .vlans = 2, .frag_bytes = 100 },
	{ .ipv6 = true, .exts = 1, .ext = { 0xff }, .frag_bytes = 10 },
	{ .ipv6 = true, .exts = 4, .ext = { 0xff, 60, 43, 60 }, .ext_units = 3 },
	{ .ipv6 = true, .exts = 6, .ext = { 0xff, 60, 43, 60, 60, 60 }, .ext_units = 1 },
	{ .ipv6 = true, .exts = 1, .ext = { 44 }, .frag_bytes = 10 }, /* RFC 6946 */
	{ .frag_bytes = 1, .padding = 20 }, /* Ethernet's padding */
	{ .frag_bytes = 3000 },
};

#define GOOD (sizeof(good) / sizeof(good[0]))

static void test_good__admitted(void)
{
	static struct frame frame;
	uint32_t body;

	for (size_t i = 0; i < GOOD; i++) {
		/* What XDP lets in, the engine must be able to read. */
		frame_build(&frame, &good[i]);
		CHECK_EQ(parse_frame(frame.data, frame.bytes, &body), frame.hdr_at);
		CHECK_EQ(judge(&good[i]), CAREFUL_XDP_ADMITTED);
		CHECK_EQ(seq_last(FRAME_NODE), 1);
	}
}

static void test_large__admitted_with_frags(void)
{
	if (!xdp.frags)
		return;
	CHECK_EQ(JUDGE(.frag_bytes = 8900), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(JUDGE(.ipv6 = true, .frag_bytes = 15000), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(JUDGE(.frag_bytes = 8900, .frag_bytes_delta = 1), CAREFUL_XDP_DROP_SHORT);
}

static void test_truncated__never_admitted(void)
{
	static struct frame frame;

	for (size_t i = 0; i < GOOD; i++) {
		frame_build(&frame, &good[i]);
		set_peer(FRAME_NODE, frame_cookie, 0);
		/* The kernel brings no frame without a whole Ethernet header to XDP. */
		for (uint32_t n = 14; n < frame.bytes - good[i].padding; n++) {
			uint32_t what = judge_bytes(frame.data, n);

			CHECK(what == CAREFUL_XDP_PASS_OTHER || what == CAREFUL_XDP_DROP_SHORT);
			if (n >= frame.hdr_at)
				CHECK_EQ(what, CAREFUL_XDP_DROP_SHORT);
		}
		CHECK_EQ(seq_last(FRAME_NODE), 0);
	}
}

static void test_damaged_header__never_admitted(void)
{
	static struct frame frame;

	for (size_t i = 0; i < GOOD; i += 5) {
		frame_build(&frame, &good[i]);
		set_peer(FRAME_NODE, frame_cookie, 0);
		for (uint32_t bit = 0; bit < 8 * sizeof(struct careful_hdr); bit++) {
			uint8_t *byte = &frame.data[frame.hdr_at + bit / 8];
			uint32_t what;

			*byte ^= (uint8_t)(1 << bit % 8);
			what = judge_bytes(frame.data, frame.bytes);
			*byte ^= (uint8_t)(1 << bit % 8);
			if (bit / 8 == offsetof(struct careful_hdr, version))
				CHECK_EQ(what, CAREFUL_XDP_DROP_VERSION);
			else if (bit == 8 * offsetof(struct careful_hdr, type) + 7)
				CHECK_EQ(what, CAREFUL_XDP_PASS_CONTROL);
			else
				CHECK_EQ(what, CAREFUL_XDP_DROP_CHECK);
		}
	}
}

static void test_random__never_admitted(void)
{
	static struct frame frame;
	uint64_t state = 1;

	for (uint32_t i = 0; i < 20000; i++) {
		frame_build(&frame, &good[i % GOOD]);
		set_peer(FRAME_NODE, frame_cookie, 0);
		/* A few bytes up to the end of the careful header, wildly. */
		for (uint32_t k = 0; k < 1 + i % 7; k++) {
			state = state * 6364136223846793005ULL + 1442695040888963407ULL;
			frame.data[(state >> 33) % frame.bytes] ^= (uint8_t)(state >> 25);
		}
		state = state * 6364136223846793005ULL + 1442695040888963407ULL;
		frame.bytes = 14 + (uint32_t)(state >> 33) % (frame.bytes - 13);
		if (judge_bytes(frame.data, frame.bytes) == CAREFUL_XDP_ADMITTED) {
			/* Damage where nobody looks: addresses, padding, payload. */
			struct careful_hdr hdr;
			static struct frame again;

			frame_build(&again, &good[i % GOOD]);
			memcpy(&hdr, again.data + again.hdr_at, sizeof(hdr));
			CHECK(memmem(frame.data, frame.bytes, &hdr, sizeof(hdr)));
		}
	}
}

static void test_other__passes(void)
{
	static const uint8_t nothing[64] = { 0 };

	CHECK_EQ(judge_bytes(nothing, 14), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(judge_bytes(nothing, 64), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.port = 53, .frag_bytes = 9), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.protocol = 6, .frag_bytes = 9), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.protocol = 6, .ipv6 = true), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.ethertype = 0x0806), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.vlans = 3, .frag_bytes = 9), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.ip_version = 6, .frag_bytes = 9), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.ipv6 = true, .ip_version = 4), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.ihl = 4, .frag_bytes = 9), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.ip_bytes_delta = -60), CAREFUL_XDP_PASS_OTHER);
	/* One extension header more than is followed, and one that says too much. */
	CHECK_EQ(JUDGE(.ipv6 = true, .exts = 7, .ext = { 0xff, 60, 60, 60, 60, 60, 60 }),
		 CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.ipv6 = true, .exts = 1, .ext = { 60 }, .ip_bytes_delta = -60),
		 CAREFUL_XDP_PASS_OTHER);
}

/* An IPv4 header that says it is shorter than one can be: what would then stand where
 * the port does, half of an address, must not be taken for it. */
static void test_short_ipv4_header__passes(void)
{
	static struct frame frame;

	frame_build(&frame, &(struct shape){ .ihl = 4, .frag_bytes = 9 });
	frame.data[32] = CAREFUL_PORT_DEFAULT >> 8;
	frame.data[33] = CAREFUL_PORT_DEFAULT & 0xff;
	CHECK_EQ(judge_bytes(frame.data, frame.bytes), CAREFUL_XDP_PASS_OTHER);
}

static void test_control__passes_in_any_version(void)
{
	for (uint32_t version = 1; version < 256; version += 2)
		for (uint32_t type = CAREFUL_CTRL_BIT; type < 256; type += 5)
			CHECK_EQ(JUDGE(.version = (uint8_t)version, .type = (uint8_t)type,
				       .bad_check = true),
				 CAREFUL_XDP_PASS_CONTROL);
	CHECK_EQ(JUDGE(.type = CAREFUL_HELLO, .ipv6 = true), CAREFUL_XDP_PASS_CONTROL);
	CHECK_EQ(JUDGE(.type = CAREFUL_HELLO, .vlans = 1), CAREFUL_XDP_PASS_CONTROL);
}

static void test_fragments(void)
{
	/* The first piece is known by its port … */
	CHECK_EQ(JUDGE(.frag_off = 0x2000, .frag_bytes = 9), CAREFUL_XDP_DROP_FRAGMENT);
	CHECK_EQ(JUDGE(.frag_off = 0x2000, .ip_bytes_delta = -8, .frag_bytes = 9),
		 CAREFUL_XDP_DROP_FRAGMENT);
	CHECK_EQ(JUDGE(.ipv6 = true, .exts = 1, .ext = { 44 }, .frag_off = 1),
		 CAREFUL_XDP_DROP_FRAGMENT);
	CHECK_EQ(JUDGE(.ipv6 = true, .exts = 2, .ext = { 44, 60 }, .frag_off = 1),
		 CAREFUL_XDP_DROP_FRAGMENT);
	/* … the others are not ours to judge. */
	CHECK_EQ(JUDGE(.frag_off = 0x2001, .frag_bytes = 9), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.frag_off = 0x1fff, .frag_bytes = 9), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.ipv6 = true, .exts = 1, .ext = { 44 }, .frag_off = 8),
		 CAREFUL_XDP_PASS_OTHER);
}

static void test_lengths__must_agree(void)
{
	CHECK_EQ(JUDGE(.frag_bytes = 9, .udp_bytes_delta = 1), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.frag_bytes = 9, .udp_bytes_delta = -1), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.frag_bytes = 9, .udp_bytes_delta = -20), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.frag_bytes = 9, .udp_bytes_delta = -65), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.frag_bytes = 9, .ip_bytes_delta = -1), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.frag_bytes = 9, .frag_bytes_delta = 1), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.frag_bytes = 9, .frag_bytes_delta = -1), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.frag_bytes = 9, .frag_bytes_delta = 65535), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.type = CAREFUL_UPDATE, .frag_bytes = 9), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.type = CAREFUL_UPDATE, .frag_bytes = 9, .frag_bytes_delta = -9),
		 CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.type = CAREFUL_UPDATE, .frag_bytes_delta = 9), CAREFUL_XDP_DROP_SHORT);
	/* The room of careful_am and of the digest is only there with their flags. */
	CHECK_EQ(JUDGE(.frag_bytes = 48, .flags = CAREFUL_F_FIRST, .frag_bytes_delta = 48),
		 CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.frag_bytes = 48, .frag_bytes_delta = -48), CAREFUL_XDP_DROP_SHORT);
}

static void test_header__each_reason(void)
{
	CHECK_EQ(JUDGE(.version = 2), CAREFUL_XDP_DROP_VERSION);
	CHECK_EQ(JUDGE(.version = 255, .bad_check = true), CAREFUL_XDP_DROP_VERSION);
	CHECK_EQ(JUDGE(.bad_check = true), CAREFUL_XDP_DROP_CHECK);
	for (uint32_t type = CAREFUL_PING + 1; type < CAREFUL_CTRL_BIT; type++)
		CHECK_EQ(JUDGE(.type = (uint8_t)type), CAREFUL_XDP_DROP_TYPE);
	CHECK_EQ(JUDGE(.node = PEERS), CAREFUL_XDP_DROP_NODE);
	CHECK_EQ(JUDGE(.node = CAREFUL_PEERS_MAX), CAREFUL_XDP_DROP_NODE);
	CHECK_EQ(JUDGE(.node = 65535), CAREFUL_XDP_DROP_NODE);
	CHECK_EQ(JUDGE(.cookie = frame_cookie + 1), CAREFUL_XDP_DROP_COOKIE);
	CHECK_EQ(JUDGE(.node = PEERS - 1), CAREFUL_XDP_DROP_COOKIE);
}

/* A closed slot's cookie is 0, which must not be a key to it. */
static void test_cookie__zero_opens_nothing(void)
{
	static struct frame frame;
	struct careful_hdr hdr;

	frame_build(&frame, &(struct shape){ .frag_bytes = 9 });
	memcpy(&hdr, frame.data + frame.hdr_at, sizeof(hdr));
	hdr.cookie = 0;
	hdr.check = 0;
	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(frame.data + frame.hdr_at, &hdr, sizeof(hdr));
	set_peer(FRAME_NODE, 0, 0);
	CHECK_EQ(judge_bytes(frame.data, frame.bytes), CAREFUL_XDP_DROP_COOKIE);
}

static void check_seq(uint32_t last, uint32_t seq, uint32_t want)
{
	static struct frame frame;

	frame_build(&frame, &(struct shape){ .frag_bytes = 9, .seq = 1 });
	/* By hand: the shape takes 0 for 1. */
	struct careful_hdr hdr;

	memcpy(&hdr, frame.data + frame.hdr_at, sizeof(hdr));
	hdr.seq = htobe32(seq);
	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(frame.data + frame.hdr_at, &hdr, sizeof(hdr));
	set_peer(FRAME_NODE, frame_cookie, last);
	CHECK_EQ(judge_bytes(frame.data, frame.bytes), want);
	CHECK_EQ(seq_last(FRAME_NODE), want == CAREFUL_XDP_ADMITTED ? seq : last);
	if (want == CAREFUL_XDP_ADMITTED) /* the same again is a replay */
		CHECK_EQ(judge_bytes(frame.data, frame.bytes), CAREFUL_XDP_DROP_SEQ);
}

static void test_seq__window_and_wrap_around(void)
{
	static const uint32_t lasts[] = { 0,	      1,	  100,	      0x7ffffffd,
					  0x7fffffff, 0x80000000, 0xfffffff0, 0xfffffff7,
					  0xfffffff8, 0xfffffffe, 0xffffffff };

	for (size_t i = 0; i < sizeof(lasts) / sizeof(lasts[0]); i++) {
		uint32_t last = lasts[i];

		for (uint32_t ahead = 1; ahead <= WINDOW; ahead++)
			check_seq(last, last + ahead, CAREFUL_XDP_ADMITTED);
		check_seq(last, last + WINDOW + 1, CAREFUL_XDP_DROP_SEQ);
		check_seq(last, last, CAREFUL_XDP_DROP_SEQ);
		check_seq(last, last - 1, CAREFUL_XDP_DROP_SEQ);
		check_seq(last, last - WINDOW, CAREFUL_XDP_DROP_SEQ);
		check_seq(last, last + 0x80000000U, CAREFUL_XDP_DROP_SEQ);
	}
}

/* A NET_RX probe is stamped and passed; the session's sequence does not notice. */
static void test_ping__net_rx_is_never_redirected(void)
{
	static struct frame frame;
	struct careful_peer_entry entry;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	CHECK_EQ(JUDGE(.type = CAREFUL_PING, .stage_limit = CAREFUL_STAGE_NET_RX, .msg_id = 7,
		       .seq = 1, .frag_bytes = 1400),
		 CAREFUL_XDP_PASS_PING);
	entry = entry_of(FRAME_NODE);
	CHECK_EQ(entry.seq_last, 0);
	CHECK_EQ(entry.probe_last, 7);
	CHECK(entry.probe_ns >= (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
	/* No answer to a replay, nor to what is older. */
	for (uint32_t probe = 7; probe > 4; probe--) {
		frame_build(&frame, &(struct shape){ .type = CAREFUL_PING,
						     .stage_limit = CAREFUL_STAGE_NET_RX,
						     .msg_id = probe });
		CHECK_EQ(judge_bytes(frame.data, frame.bytes), CAREFUL_XDP_DROP_PING);
		CHECK_EQ(entry_of(FRAME_NODE).probe_ns, entry.probe_ns);
	}
}

static void test_ping__further_is_in_sequence(void)
{
	static struct frame frame;

	for (uint32_t limit = CAREFUL_STAGE_HOST_RX; limit <= CAREFUL_STAGE_STORE; limit++) {
		struct shape shape = { .type = CAREFUL_PING,
				       .stage_limit = (uint8_t)limit,
				       .msg_id = 1,
				       .frag_bytes = 600 };

		CHECK_EQ(judge(&shape), CAREFUL_XDP_ADMITTED);
		CHECK_EQ(entry_of(FRAME_NODE).seq_last, 1);
		CHECK_EQ(entry_of(FRAME_NODE).probe_last, 1);
		frame_build(&frame, &shape);
		CHECK_EQ(judge_bytes(frame.data, frame.bytes), CAREFUL_XDP_DROP_PING);
		shape.msg_id = 2; /* as a probe it is new, as a frame it is not */
		frame_build(&frame, &shape);
		CHECK_EQ(judge_bytes(frame.data, frame.bytes), CAREFUL_XDP_DROP_SEQ);
		CHECK_EQ(entry_of(FRAME_NODE).probe_last, 1);
	}
}

static void test_ping__a_stranger_gets_nothing(void)
{
	for (uint32_t limit = 0; limit <= CAREFUL_STAGE_STORE; limit++) {
		struct shape shape = { .type = CAREFUL_PING,
				       .stage_limit = (uint8_t)limit,
				       .msg_id = 1,
				       .frag_bytes = 9 };
		uint32_t right = limit < CAREFUL_STAGE_NET_RX ? CAREFUL_XDP_DROP_PING :
								CAREFUL_XDP_DROP_COOKIE;

		shape.cookie = frame_cookie ^ 1;
		CHECK_EQ(judge(&shape), right);
		CHECK_EQ(entry_of(FRAME_NODE).probe_last, 0);
		shape.bad_check = true;
		CHECK_EQ(judge(&shape), CAREFUL_XDP_DROP_CHECK);
	}
	CHECK_EQ(JUDGE(.type = CAREFUL_PING, .stage_limit = CAREFUL_STAGES, .msg_id = 1),
		 CAREFUL_XDP_DROP_PING);
	CHECK_EQ(JUDGE(.type = CAREFUL_PING, .stage_limit = CAREFUL_STAGE_NET_RX, .node = PEERS,
		       .msg_id = 1),
		 CAREFUL_XDP_DROP_NODE);
	CHECK_EQ(JUDGE(.type = CAREFUL_PING, .stage_limit = CAREFUL_STAGE_NET_RX, .msg_id = 1,
		       .frag_bytes_delta = 1),
		 CAREFUL_XDP_DROP_SHORT);
}

static void test_redirect__no_socket(void)
{
	xdp_socket(false);
	CHECK_EQ(JUDGE(.frag_bytes = 9), CAREFUL_XDP_DROP_REDIRECT);
	xdp_socket(true);
}

static void run_all(const char *name)
{
	printf("program %s\n", name);
	RUN(test_good__admitted);
	RUN(test_large__admitted_with_frags);
	RUN(test_truncated__never_admitted);
	RUN(test_damaged_header__never_admitted);
	RUN(test_random__never_admitted);
	RUN(test_other__passes);
	RUN(test_short_ipv4_header__passes);
	RUN(test_control__passes_in_any_version);
	RUN(test_fragments);
	RUN(test_lengths__must_agree);
	RUN(test_header__each_reason);
	RUN(test_cookie__zero_opens_nothing);
	RUN(test_seq__window_and_wrap_around);
	RUN(test_ping__net_rx_is_never_redirected);
	RUN(test_ping__further_is_in_sequence);
	RUN(test_ping__a_stranger_gets_nothing);
	RUN(test_redirect__no_socket);
}

/* Loaded for queue 1; test frames come on queue 0. */
static void test_queue__not_ours_passes(void)
{
	CHECK_EQ(JUDGE(.frag_bytes = 9), CAREFUL_XDP_PASS_QUEUE);
	CHECK_EQ(seq_last(FRAME_NODE), 0);
	CHECK_EQ(JUDGE(.type = CAREFUL_HELLO), CAREFUL_XDP_PASS_CONTROL);
	CHECK_EQ(JUDGE(.port = 53), CAREFUL_XDP_PASS_OTHER);
}

static void test_counters__each_reached(void)
{
	for (uint32_t i = 0; i < CAREFUL_XDP_COUNTERS; i++) {
		if (!seen[i])
			fprintf(stderr, "counter %u was never reached\n", i);
		CHECK(seen[i]);
	}
}

int main(void)
{
	static const char *const names[] = { "careful_plain", "careful_frags" };

	xsk = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (xsk < 0)
		skip(errno == EPERM ? "needs root" : "no AF_XDP in this kernel");
	for (int i = 0; i < 2; i++) {
		int rc = xdp_load(names[i], 0);

		if (rc == -EPERM)
			skip("needs root");
		if (rc && i) {
			printf("no xdp.frags in this kernel: that variant is not tested\n");
			continue;
		}
		CHECK_EQ(rc, 0);
		xdp_socket(true);
		run_all(names[i]);
		bpf_object__close(xdp.object);
		CHECK_EQ(xdp_load(names[i], 1), 0);
		RUN(test_queue__not_ours_passes);
		bpf_object__close(xdp.object);
	}
	RUN(test_counters__each_reached);
	close(xsk);
	return 0;
}
