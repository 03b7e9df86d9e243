// SPDX-License-Identifier: BSD-2-Clause
/*
 * The built BPF object, by its BTF, and this C compiler agree on size, fields and offsets of every
 * shared structure, and on the maps' sizes. Needs no privilege.
 */
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <careful/abi.h>
#include <careful/wire.h>
#include <stddef.h>
#include <string.h>

#include "check.h"

extern const unsigned char bpf_careful_start[], bpf_careful_end[];

struct field {
	const char *name;
	size_t offset;
};

#define F(type, name)                              \
	{                                          \
#name, offsetof(struct type, name) \
	}

static struct bpf_object *object;
static const struct btf *btf;

static void check_struct(const char *name, size_t bytes, const struct field *fields, size_t n)
{
	int id = btf__find_by_name_kind(btf, name, BTF_KIND_STRUCT);
	const struct btf_type *type = btf__type_by_id(btf, (uint32_t)id);
	const struct btf_member *members;

	CHECK(id > 0);
	CHECK_EQ(type->size, bytes);
	CHECK_EQ(btf_vlen(type), n);
	members = btf_members(type);
	for (size_t i = 0; i < n; i++) {
		CHECK(!strcmp(btf__name_by_offset(btf, members[i].name_off), fields[i].name));
		CHECK_EQ(btf_member_bit_offset(type, (uint32_t)i), fields[i].offset * 8);
	}
}

#define CHECK_STRUCT(type, fields) \
	check_struct(#type, sizeof(struct type), fields, sizeof(fields) / sizeof((fields)[0]))

static void test_hdr__fields(void)
{
	static const struct field fields[] = {
		F(careful_hdr, version),     F(careful_hdr, type),	 F(careful_hdr, flags),
		F(careful_hdr, stage_limit), F(careful_hdr, src_node),	 F(careful_hdr, queue),
		F(careful_hdr, cookie),	     F(careful_hdr, seq),	 F(careful_hdr, credits),
		F(careful_hdr, msg_id),	     F(careful_hdr, msg_bytes),	 F(careful_hdr, frag_off),
		F(careful_hdr, payload_crc), F(careful_hdr, frag_bytes), F(careful_hdr, extra),
		F(careful_hdr, check),
	};

	CHECK_STRUCT(careful_hdr, fields);
}

static void test_config__fields(void)
{
	static const struct field fields[] = {
		F(careful_xdp_config, port),
		F(careful_xdp_config, queue),
		F(careful_xdp_config, peers),
	};

	CHECK_STRUCT(careful_xdp_config, fields);
}

static void test_peer_entry__fields(void)
{
	static const struct field fields[] = {
		F(careful_peer_entry, cookie),	       F(careful_peer_entry, seq_last),
		F(careful_peer_entry, window),	       F(careful_peer_entry, filled),
		F(careful_peer_entry, limit),	       F(careful_peer_entry, buffer_bytes),
		F(careful_peer_entry, probe_cpu),      F(careful_peer_entry, probe_ns),
		F(careful_peer_entry, probe_last),     F(careful_peer_entry, train_frames),
		F(careful_peer_entry, train_first_ns), F(careful_peer_entry, train_last_ns),
		F(careful_peer_entry, may_fill),       F(careful_peer_entry, train),
		F(careful_peer_entry, train_whole),    F(careful_peer_entry, seq_taken),
		F(careful_peer_entry, group_cookie),   F(careful_peer_entry, group_probe),
		F(careful_peer_entry, sealed_window),  F(careful_peer_entry, group_source),
		F(careful_peer_entry, control),	       F(careful_peer_entry, pad),
	};

	CHECK_STRUCT(careful_peer_entry, fields);
}

static void test_tune__fields(void)
{
	static const struct field plan[] = {
		F(careful_plan, first_bytes),	 F(careful_plan, ratio_q16),
		F(careful_plan, step_bytes),	 F(careful_plan, peak_bytes),
		F(careful_plan, down_ratio_q16), F(careful_plan, down_step_bytes),
	};
	static const struct field class[] = {
		F(careful_class, plan),
		F(careful_class, minpulse_bytes),
	};
	static const struct field tune[] = { F(careful_tune, classes) };
	static const struct field entry[] = {
		F(careful_tune_entry, active),
		F(careful_tune_entry, pad),
		F(careful_tune_entry, version),
	};

	CHECK_STRUCT(careful_plan, plan);
	CHECK_STRUCT(careful_class, class);
	CHECK_STRUCT(careful_tune, tune);
	CHECK_STRUCT(careful_tune_entry, entry);
}

static void test_live__fields(void)
{
	static const struct field cell[] = {
		F(careful_live_cell, count),	       F(careful_live_cell, asked),
		F(careful_live_cell, sum_ns),	       F(careful_live_cell, sum_square_low),
		F(careful_live_cell, sum_square_high),
	};
	static const struct field stored[] = {
		F(careful_live_stored, count),		F(careful_live_stored, frames),
		F(careful_live_stored, writes),		F(careful_live_stored, bytes),
		F(careful_live_stored, sum_came_ns),	F(careful_live_stored, sum_ns),
		F(careful_live_stored, sum_square_low), F(careful_live_stored, sum_square_high),
	};
	static const struct field write[] = {
		F(careful_live_write, count),		F(careful_live_write, bytes),
		F(careful_live_write, sum_ns),		F(careful_live_write, sum_square_low),
		F(careful_live_write, sum_square_high),
	};
	static const struct field entry[] = {
		F(careful_live_entry, sequence),
		F(careful_live_entry, cells),
		F(careful_live_entry, stored),
		F(careful_live_entry, writes),
	};

	CHECK_STRUCT(careful_live_cell, cell);
	CHECK_STRUCT(careful_live_stored, stored);
	CHECK_STRUCT(careful_live_write, write);
	CHECK_STRUCT(careful_live_entry, entry);
}

static void check_map(const char *name, enum bpf_map_type type, uint32_t value, uint32_t entries,
		      uint32_t flags)
{
	const struct bpf_map *map = bpf_object__find_map_by_name(object, name);

	CHECK(map);
	CHECK_EQ(bpf_map__type(map), type);
	CHECK_EQ(bpf_map__key_size(map), 4);
	CHECK_EQ(bpf_map__value_size(map), value);
	CHECK_EQ(bpf_map__max_entries(map), entries);
	CHECK_EQ(bpf_map__map_flags(map), flags);
}

static void test_maps__sizes(void)
{
	check_map("tune", BPF_MAP_TYPE_ARRAY, sizeof(struct careful_tune_entry),
		  CAREFUL_PEERS_MAX + 1, BPF_F_MMAPABLE);
	check_map("peers", BPF_MAP_TYPE_ARRAY, sizeof(struct careful_peer_entry), CAREFUL_PEERS_MAX,
		  BPF_F_MMAPABLE);
	check_map("live", BPF_MAP_TYPE_ARRAY, sizeof(struct careful_live_entry), CAREFUL_PEERS_MAX,
		  BPF_F_MMAPABLE);
	CHECK_EQ(bpf_map__key_size(bpf_object__find_map_by_name(object, "groups")), 8);
	CHECK_EQ(bpf_map__value_size(bpf_object__find_map_by_name(object, "groups")), 4);
	CHECK_EQ(bpf_map__max_entries(bpf_object__find_map_by_name(object, "groups")),
		 CAREFUL_PEERS_MAX);
	check_map("xsks", BPF_MAP_TYPE_XSKMAP, 4, CAREFUL_QUEUES_MAX, 0);
	check_map("counters", BPF_MAP_TYPE_PERCPU_ARRAY, 8, CAREFUL_XDP_COUNTERS, 0);
}

/* The object has no relocation against the running kernel, so it fits all kernels. */
static void test_object__reads_no_kernel_structure(void)
{
	CHECK(btf__find_by_name_kind(btf, "sk_buff", BTF_KIND_STRUCT) < 0);
	CHECK(btf__find_by_name_kind(btf, "xdp_buff", BTF_KIND_STRUCT) < 0);
}

int main(void)
{
	object = bpf_object__open_mem(bpf_careful_start,
				      (size_t)(bpf_careful_end - bpf_careful_start), NULL);
	CHECK(object);
	btf = bpf_object__btf(object);
	CHECK(btf);
	RUN(test_hdr__fields);
	RUN(test_config__fields);
	RUN(test_peer_entry__fields);
	RUN(test_tune__fields);
	RUN(test_live__fields);
	RUN(test_maps__sizes);
	RUN(test_object__reads_no_kernel_structure);
	bpf_object__close(object);
	return 0;
}
