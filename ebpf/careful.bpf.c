// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The XDP program: which of the frames that reach the NIC queue are ours, and which of those
 * may take a receive buffer. It admits frames of a session by the rule of frame.h, passes what
 * is not ours, our control messages and (stamped) the pings that end at XDP, and counts why it
 * dropped the rest, trains by their number. It owns the maps that the datapath and the controller share (abi.h) and
 * reads no kernel structure.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include <careful/abi.h>
#include <careful/frame.h>
#include <careful/wire.h>

const volatile struct careful_xdp_config config;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CAREFUL_PEERS_MAX + 1);
	__type(key, __u32);
	__type(value, struct careful_tune_entry);
} tune SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CAREFUL_PEERS_MAX);
	__type(key, __u32);
	__type(value, struct careful_peer_entry);
} peers SEC(".maps");

/* Of these, as many as there are peers: the loader says. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CAREFUL_PEERS_MAX);
	__type(key, __u32);
	__type(value, struct careful_live_entry);
} live SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, CAREFUL_QUEUES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CAREFUL_XDP_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* Keeps the counters' names in BTF, where the tests look for them. */
const enum careful_xdp_counter *careful_counter_btf __attribute__((unused));

static __always_inline void count(__u32 what)
{
	__u64 *counter = bpf_map_lookup_elem(&counters, &what);

	if (counter)
		(*counter)++;
}

static __always_inline int drop(__u32 why)
{
	count(why);
	return XDP_DROP;
}

static __always_inline int pass(__u32 why)
{
	count(why);
	return XDP_PASS;
}

/* A function of its own, so that BTF knows careful_hdr. */
static __noinline __u32 admit(const struct careful_hdr *hdr)
{
	__u32 slot = CAREFUL_BE16(hdr->src_node);
	struct careful_peer_entry *peer;
	__u32 verdict;

	if (slot >= config.peers)
		return CAREFUL_XDP_DROP_NODE;
	peer = bpf_map_lookup_elem(&peers, &slot);
	if (!peer)
		return CAREFUL_XDP_DROP_NODE;
	verdict = careful_frame_admit(peer, hdr);
	if (hdr->type >= CAREFUL_PING && careful_frame_right(verdict))
		careful_frame_stamp(peer, hdr, bpf_ktime_get_ns(), bpf_get_smp_processor_id());
	return verdict;
}

/* A frame of the datapath: admitted, a ping that ends here, or why not. */
static __always_inline __u32 judge(const struct careful_datagram *datagram)
{
	const struct careful_hdr *hdr = (const void *)datagram->at;
	__u32 verdict = careful_frame_readable(datagram);

	if (verdict != CAREFUL_XDP_ADMITTED)
		return verdict;
	verdict = careful_frame_judge(hdr, datagram->bytes - sizeof(*hdr));
	if (!careful_frame_right(verdict))
		return verdict;
	return admit(hdr);
}

static __always_inline int receive(struct xdp_md *ctx, __u32 frame_bytes)
{
	struct careful_datagram datagram;
	const __u8 *type;
	__u32 verdict;

	if (!careful_frame_find((void *)(long)ctx->data, (void *)(long)ctx->data_end, frame_bytes,
				&datagram) ||
	    datagram.port != config.port)
		return pass(CAREFUL_XDP_PASS_OTHER);
	type = datagram.at + 1; /* version, type: so in every version */
	if (type + 1 > datagram.end)
		return drop(CAREFUL_XDP_DROP_SHORT);
	if (*type & CAREFUL_CTRL_BIT)
		return pass(CAREFUL_XDP_PASS_CONTROL);
	if (ctx->rx_queue_index != config.queue)
		return pass(CAREFUL_XDP_PASS_QUEUE);
	verdict = judge(&datagram);
	if (verdict == CAREFUL_XDP_PASS_PING)
		return pass(verdict);
	if (verdict != CAREFUL_XDP_ADMITTED)
		return drop(verdict);
	if (bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_DROP) != XDP_REDIRECT)
		return drop(CAREFUL_XDP_DROP_REDIRECT);
	count(CAREFUL_XDP_ADMITTED);
	return XDP_REDIRECT;
}

/* For drivers and kernels with multi-buffer frames … */
SEC("xdp.frags")
int careful_frags(struct xdp_md *ctx)
{
	return receive(ctx, bpf_xdp_get_buff_len(ctx));
}

/* … and for those without. */
SEC("xdp")
int careful_plain(struct xdp_md *ctx)
{
	return receive(ctx, ctx->data_end - ctx->data);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
