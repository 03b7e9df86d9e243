// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The XDP program: which of the frames that reach the NIC queue are ours, and which
 * of those may take a receive buffer. It admits frames of an established session, by
 * cookie and sequence number, passes what is not ours, our control messages and the probes of
 * a session that end at XDP (stamped), and counts why it dropped the rest. It owns the maps that the datapath and the
 * controller share (abi.h) and reads no kernel structure.
 */
#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include <careful/abi.h>
#include <careful/wire.h>

#include "cursor.h"

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

/* Where a datagram to our port stands. */
struct datagram {
	void *at; /* after the UDP header */
	void *end; /* of what can be read */
	__u32 bytes; /* after the UDP header, as UDP says */
	__u8 whole; /* the frame and the IP packet hold that many */
	__u8 fragment; /* it is the first piece of one */
};

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

/* Is this a datagram to our port? */
static __always_inline int find_datagram(struct xdp_md *ctx, __u32 frame_bytes,
					 struct datagram *datagram)
{
	struct cursor cursor = {
		.at = (void *)(long)ctx->data,
		.end = (void *)(long)ctx->data_end,
	};
	struct udphdr *udp = cursor_udp(&cursor);
	__u32 udp_bytes, before;

	if (!udp || bpf_ntohs(udp->dest) != config.port)
		return 0;
	udp_bytes = bpf_ntohs(udp->len);
	before = (void *)udp - (void *)(long)ctx->data;
	datagram->at = cursor.at;
	datagram->end = cursor.end;
	datagram->fragment = cursor.fragment;
	datagram->bytes = udp_bytes - sizeof(*udp);
	datagram->whole = udp_bytes >= sizeof(*udp) + sizeof(struct careful_hdr) &&
			  udp_bytes <= cursor.ip_bytes && before + udp_bytes <= frame_bytes;
	return 1;
}

/* Bytes that the header says follow it. */
static __always_inline __u32 body_bytes(const struct careful_hdr *hdr)
{
	__u32 bytes = bpf_ntohs(hdr->frag_bytes);

	if (hdr->type == CAREFUL_UPDATE)
		return bytes ? ~0U : 0;
	if (hdr->flags & CAREFUL_F_FIRST)
		bytes += sizeof(struct careful_am);
	if ((hdr->flags & CAREFUL_F_LAST) && (hdr->flags & CAREFUL_F_DIGEST))
		bytes += CAREFUL_DIGEST_BYTES;
	return bytes;
}

static __always_inline int is_ping(const struct careful_hdr *hdr)
{
	return hdr->type == CAREFUL_PING;
}

/* Does it end here, at XDP? Then it has no sequence number and takes no buffer. */
static __always_inline int ends_here(const struct careful_hdr *hdr)
{
	return is_ping(hdr) && hdr->stage_limit == CAREFUL_STAGE_NET_RX;
}

/* Notes when a ping came; the engine, which answers it, reads that in place. */
static __always_inline void stamp(struct careful_peer_entry *peer, __u32 probe)
{
	peer->probe_ns = bpf_ktime_get_ns();
	peer->probe_cpu = bpf_get_smp_processor_id();
	barrier();
	*(volatile __u32 *)&peer->probe_last = probe;
}

/* Does the session that the header names exist, and is its frame due? Then it is
 * the last one that was. A function of its own, so that BTF knows careful_hdr. */
static __noinline __u32 admit(const struct careful_hdr *hdr)
{
	__u32 slot = bpf_ntohs(hdr->src_node);
	__u32 seq = bpf_ntohl(hdr->seq);
	__u32 probe = bpf_ntohl(hdr->msg_id);
	struct careful_peer_entry *peer;
	__u64 cookie;

	if (slot >= config.peers)
		return CAREFUL_XDP_DROP_NODE;
	peer = bpf_map_lookup_elem(&peers, &slot);
	if (!peer)
		return CAREFUL_XDP_DROP_NODE;
	cookie = *(volatile __u64 *)&peer->cookie;
	if (!cookie || cookie != bpf_be64_to_cpu(hdr->cookie))
		return CAREFUL_XDP_DROP_COOKIE;
	if (is_ping(hdr) && !careful_ping_new(probe, peer->probe_last))
		return CAREFUL_XDP_DROP_PING;
	if (!ends_here(hdr)) {
		if (!careful_seq_ahead(seq, peer->seq_last, peer->window))
			return CAREFUL_XDP_DROP_SEQ;
		*(volatile __u32 *)&peer->seq_last = seq;
	}
	if (is_ping(hdr))
		stamp(peer, probe);
	return ends_here(hdr) ? CAREFUL_XDP_PASS_PING : CAREFUL_XDP_ADMITTED;
}

/* A frame of the datapath: admitted, a probe that ends here, or why not. */
static __always_inline __u32 judge(const struct datagram *datagram)
{
	const struct careful_hdr *hdr = datagram->at;

	if (!datagram->whole && !datagram->fragment)
		return CAREFUL_XDP_DROP_SHORT;
	if ((void *)(hdr + 1) > datagram->end)
		return CAREFUL_XDP_DROP_SHORT;
	if (datagram->fragment)
		return CAREFUL_XDP_DROP_FRAGMENT;
	if (hdr->version != CAREFUL_WIRE_VERSION)
		return CAREFUL_XDP_DROP_VERSION;
	if (bpf_ntohl(hdr->check) != careful_hdr_check(hdr))
		return CAREFUL_XDP_DROP_CHECK;
	if (hdr->type != CAREFUL_DATA && hdr->type != CAREFUL_UPDATE && !is_ping(hdr))
		return CAREFUL_XDP_DROP_TYPE;
	if (is_ping(hdr) &&
	    (hdr->stage_limit < CAREFUL_STAGE_NET_RX || hdr->stage_limit > CAREFUL_STAGE_STORE))
		return CAREFUL_XDP_DROP_PING;
	if (sizeof(*hdr) + body_bytes(hdr) != datagram->bytes)
		return CAREFUL_XDP_DROP_SHORT;
	return admit(hdr);
}

static __always_inline int receive(struct xdp_md *ctx, __u32 frame_bytes)
{
	struct datagram datagram;
	const __u8 *type;
	__u32 verdict;

	if (!find_datagram(ctx, frame_bytes, &datagram))
		return pass(CAREFUL_XDP_PASS_OTHER);
	type = datagram.at + 1; /* version, type: so in every version */
	if ((void *)(type + 1) > datagram.end)
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
