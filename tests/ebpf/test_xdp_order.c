// SPDX-License-Identifier: BSD-2-Clause
/*
 * The compiled order in which the XDP program reads and writes a peers entry. If the CPU needs
 * barriers, a full one stands between the loads of a cookie and of the values that were written
 * before it. Another stands before the store of a ping's number. Else there is none.
 * Both builds load and admit frames.
 */
#include <stddef.h>

#include "xdp.h"

enum {
	LOAD_U64 = BPF_LDX | BPF_MEM | BPF_DW,
	LOAD_U32 = BPF_LDX | BPF_MEM | BPF_W,
	LOAD_U16 = BPF_LDX | BPF_MEM | BPF_H,
	STORE_U32 = BPF_STX | BPF_MEM | BPF_W,
	ATOMIC = BPF_STX | BPF_ATOMIC | BPF_DW,
};

/* Returns the first instruction of this kind from `at` on. */
static size_t find(const struct bpf_insn *insns, size_t count, size_t at, uint8_t code, int off)
{
	while (at < count && !(insns[at].code == code && insns[at].off == off))
		at++;
	return at;
}

/* Returns the first barrier from `at` on: an atomic fetch on the stack. */
static size_t find_barrier(const struct bpf_insn *insns, size_t count, size_t at)
{
	while (at < count && !(insns[at].code == ATOMIC && insns[at].imm == (BPF_ADD | BPF_FETCH) &&
			       insns[at].dst_reg == BPF_REG_10))
		at++;
	return at;
}

/* Returns the barrier between the load of a cookie and the loads of values written before it. */
static size_t ordered(const struct bpf_insn *insns, size_t count, int cookie, uint8_t load,
		      int before)
{
	size_t at = find(insns, count, 0, LOAD_U64, cookie);
	size_t barrier = find_barrier(insns, count, at);

	CHECK(barrier < find(insns, count, at, load, before));
	CHECK(find(insns, count, at, load, before) < count);
	return barrier;
}

/* Returns where admit() begins: behind the program itself, in the order of the file. */
static size_t admit_at(const char *name)
{
	struct bpf_object *object = xdp_open();
	size_t at = bpf_program__insn_cnt(bpf_object__find_program_by_name(object, name));

	bpf_object__close(object);
	return at;
}

/* Checks that a barrier stands between a sealed frame's cookie and the engine's published number. */
static void expect_sealed(const struct bpf_insn *insns, size_t count)
{
	const int taken = offsetof(struct careful_peer_entry, seq_taken);
	size_t at = find(insns, count, 0, LOAD_U32, taken), cookie = at;

	CHECK(at < count);
	while (cookie && !(insns[cookie].code == LOAD_U64 &&
			   insns[cookie].off == offsetof(struct careful_peer_entry, cookie)))
		cookie--;
	CHECK(cookie && find_barrier(insns, count, cookie) < at);
}

static void expect_order(const char *name, bool barriers)
{
	const struct bpf_program *program = bpf_object__find_program_by_name(xdp.object, name);
	const struct bpf_insn *insns = bpf_program__insns(program) + admit_at(name);
	size_t count = bpf_program__insn_cnt(program) - admit_at(name);
	size_t session, group, number, barrier, all = 0, last = count;

	/* No other field that admit() uses has this offset. */
	number = find(insns, count, 0, STORE_U32, offsetof(struct careful_peer_entry, probe_last));
	CHECK(number < count);
	if (!barriers) {
		CHECK_EQ(find_barrier(insns, count, 0), count);
		return;
	}
	session = ordered(insns, count, offsetof(struct careful_peer_entry, cookie), LOAD_U32,
			  offsetof(struct careful_peer_entry, window));
	group = ordered(insns, count, offsetof(struct careful_peer_entry, group_cookie), LOAD_U16,
			offsetof(struct careful_peer_entry, group_source));
	for (barrier = find_barrier(insns, count, 0); barrier < count;
	     barrier = find_barrier(insns, count, barrier + 1)) {
		all++;
		if (barrier < number)
			last = barrier;
	}
	CHECK_EQ(all, 4); /* and a sealed frame's cookie */
	expect_sealed(insns, count);
	CHECK(session != group && last != session && last != group);
}

static void test_ordered__as_built_here(const char *name)
{
#if defined(__x86_64__) || defined(__i386__)
	expect_order(name, false);
#else
	expect_order(name, true);
#endif
	CHECK_EQ(JUDGE(.frag_bytes = 9), CAREFUL_XDP_ADMITTED);
}

static void test_unordered__has_its_barriers(const char *name)
{
	expect_order(name, true);
	CHECK_EQ(JUDGE(.frag_bytes = 9), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(entry_of(FRAME_NODE).filled, 1);
	CHECK_EQ(JUDGE(.type = CAREFUL_PING, .stage_limit = CAREFUL_STAGE_NET_RX, .msg_id = 7),
		 CAREFUL_XDP_PASS_PING);
	CHECK_EQ(entry_of(FRAME_NODE).probe_last, 7);
}

int main(void)
{
	printf("as built here\n");
	xdp_each(test_ordered__as_built_here);
	printf("as for a CPU that keeps no order\n");
	xdp_file = UNORDERED;
	xdp_each(test_unordered__has_its_barriers);
	return 0;
}
