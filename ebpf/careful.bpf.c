// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The XDP program, and the maps that it shares with the datapath and the controller (abi.h). It
 * admits frames of a session to receive buffers by the rules of frame.h. It passes to the kernel
 * frames that are not ours, control messages and (stamped) pings that end at XDP. It drops any
 * other frame and counts why. It reads no kernel structure. */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include <careful/abi.h>
#include <careful/frame.h>
#include <careful/wire.h>

enum { CAREFUL_AF_INET = 2, CAREFUL_AF_INET6 = 10 };

const volatile struct careful_xdp_start start;

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

/* One entry for each peer; the loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CAREFUL_PEERS_MAX);
	__type(key, __u32);
	__type(value, struct careful_live_entry);
} live SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct careful_arrivals);
} arrivals SEC(".maps");

/* The sender of each group, by cookie. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CAREFUL_PEERS_MAX);
	__type(key, __u64);
	__type(value, __u32);
} groups SEC(".maps");

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

/* The ring buffer of a running capture. */
struct frames {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct frames);
} captures SEC(".maps");

/* The program of each queue, if the interface has several. Unused queues have the first queue's
 * program, which counts their frames. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, CAREFUL_QUEUES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} queues SEC(".maps");

/* The hosts that have a session with each queue, if the interface has several. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CAREFUL_SPREAD_MAX);
	__type(key, __u32);
	__type(value, struct careful_queue_entry);
} spread SEC(".maps");

/* Keeps the counters' names in BTF, for the tests. */
const enum careful_xdp_counter *careful_counter_btf __attribute__((unused));

static __always_inline void count(__u32 verdict)
{
	__u64 *counter = bpf_map_lookup_elem(&counters, &verdict);

	if (counter)
		(*counter)++;
}

static __always_inline void copy_frame(struct xdp_md *ctx, void *frames, __u32 frame_bytes,
				       __u32 verdict, const __u32 bytes_max)
{
	const __u32 size = __builtin_offsetof(struct careful_caught, data) + bytes_max;
	struct careful_caught *copy = bpf_ringbuf_reserve(frames, size, 0);
	__u32 last = frame_bytes - 1;

	if (!copy)
		return;
	if (last > bytes_max - 1)
		last = bytes_max - 1;
	/* Linux 6.1's verifier does not learn from a test that a size is not 0 */
	barrier_var(last);
	copy->time_ns = bpf_ktime_get_ns();
	copy->bytes = frame_bytes;
	copy->verdict = verdict;
	copy->reserved = 0;
	copy->caught_bytes = last + 1;
	if (bpf_xdp_load_bytes(ctx, 0, copy->data, last + 1))
		copy->caught_bytes = 0;
	bpf_ringbuf_submit(copy, BPF_RB_NO_WAKEUP); /* the reader polls */
}

/* Copies a frame and its verdict to a running capture. */
static __noinline int capture(struct xdp_md *ctx, void *frames, __u32 frame_bytes, __u32 verdict)
{
	if (bpf_ringbuf_query(frames, BPF_RB_RING_SIZE) < CAREFUL_CAUGHT_SHORT_RING)
		copy_frame(ctx, frames, frame_bytes, verdict, CAREFUL_CAUGHT_BYTES);
	else
		copy_frame(ctx, frames, frame_bytes, verdict, CAREFUL_CAUGHT_SHORT_BYTES);
	return 0;
}

/* Returns the entry of the slot that a frame names, or NULL. */
static __always_inline struct careful_peer_entry *find_peer(const struct careful_hdr *hdr)
{
	__u32 slot = CAREFUL_BE16(hdr->src_node);

	return slot < start.config.peers ? bpf_map_lookup_elem(&peers, &slot) : NULL;
}

/* Admits a frame to a group, whose cookie names the sender. */
static __noinline __u32 admit_group(const struct careful_hdr *hdr, __u32 frame_bytes,
				    const __u8 *ip, const __u8 *end)
{
	__u64 cookie = CAREFUL_BE64(hdr->cookie);
	__u32 *slot = bpf_map_lookup_elem(&groups, &cookie);
	struct careful_peer_entry *peer = slot ? bpf_map_lookup_elem(&peers, slot) : NULL;

	if (!peer)
		return CAREFUL_XDP_DROP_COOKIE;
	return careful_frame_admit_group(peer, hdr, frame_bytes, ip, end);
}

/* Admits a frame of this kind. Not inlined, so that BTF has careful_hdr. */
static __noinline __u32 admit(const struct careful_hdr *hdr, __u32 kind, __u32 frame_bytes,
			      const __u8 *ip, const __u8 *end)
{
	struct careful_peer_entry *peer = find_peer(hdr);
	__u32 verdict;

	if (!peer)
		return CAREFUL_XDP_DROP_NODE;
	switch (kind) {
	case CAREFUL_FRAME_SEALED:
		verdict = careful_frame_admit_sealed(peer, hdr, frame_bytes);
		break;
	case CAREFUL_FRAME_GROUP:
		if (peer->cookie != CAREFUL_BE64(hdr->cookie))
			return admit_group(hdr, frame_bytes, ip, end);
		__attribute__((fallthrough));
	default: /* plain */
		verdict = careful_frame_admit(peer, hdr, frame_bytes);
	}
	if (hdr->type >= CAREFUL_PING && careful_frame_is_valid(verdict))
		careful_frame_stamp(peer, hdr, bpf_ktime_get_ns(), bpf_get_smp_processor_id());
	return verdict;
}

/* Returns the verdict on a frame of the datapath: admitted, a ping that ends here, or the fault. */
static __always_inline __u32 classify(const struct careful_datagram *datagram, __u32 frame_bytes)
{
	const struct careful_hdr *hdr = (const void *)datagram->at;
	__u32 kind = careful_frame_readable(datagram);

	if (kind != CAREFUL_XDP_ADMITTED)
		return kind;
	kind = careful_frame_classify(hdr, datagram->bytes - sizeof(*hdr));
	if (kind < CAREFUL_FRAME_PLAIN)
		return kind;
	return admit(hdr, kind, frame_bytes, careful_frame_ip(datagram), datagram->end);
}

/* Reports whether the kernel would forward a datagram to another host. */
static __always_inline int is_forwarded(struct xdp_md *ctx, const struct careful_datagram *datagram)
{
	const __u8 *ip = careful_frame_ip(datagram);
	struct bpf_fib_lookup fib = { .ifindex = ctx->ingress_ifindex, .l4_protocol = 17 };
	int rc;

	if (ip + CAREFUL_FRAME_IPV4 > datagram->end)
		return 0;
	if (ip[0] >> 4 == 6) {
		if (ip + CAREFUL_FRAME_IPV6 > datagram->end)
			return 0;
		fib.family = CAREFUL_AF_INET6;
		__builtin_memcpy(fib.ipv6_src, ip + 8, sizeof(fib.ipv6_src));
		__builtin_memcpy(fib.ipv6_dst, ip + 24, sizeof(fib.ipv6_dst));
	} else {
		fib.family = CAREFUL_AF_INET;
		__builtin_memcpy(&fib.ipv4_src, ip + 12, sizeof(fib.ipv4_src));
		__builtin_memcpy(&fib.ipv4_dst, ip + 16, sizeof(fib.ipv4_dst));
	}
	rc = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
	return rc >= 0 && rc != BPF_FIB_LKUP_RET_NOT_FWDED && rc != BPF_FIB_LKUP_RET_FWD_DISABLED;
}

/* Returns the verdict on an invalid frame to our port. Passes a datagram that is not ours: on its
 * way to another host, or another service's answer to a program that happens to use our port. */
static __always_inline __u32 refuse(struct xdp_md *ctx, const struct careful_datagram *datagram,
				    __u32 fault)
{
	/* Later faults are found only in a frame with a valid check, which a careful host built. */
	int is_frame = fault > CAREFUL_XDP_DROP_CHECK;

	if ((!is_frame && datagram->source != start.config.port) || is_forwarded(ctx, datagram))
		return CAREFUL_XDP_PASS_OTHER;
	return fault;
}

/* Returns the verdict on a datagram to another port, which may be the port of another queue. */
static __always_inline __u32 classify_other_port(const struct careful_datagram *datagram)
{
	const __u8 *type = datagram->at + 1;

	if ((__u16)(datagram->port - start.first_port) < start.ports && type + 1 <= datagram->end &&
	    !(*type & CAREFUL_CTRL_BIT))
		return CAREFUL_XDP_PASS_QUEUE;
	return CAREFUL_XDP_PASS_OTHER;
}

/* Counts a control message in slot 0's entry, so that the engine reads its socket. */
static __always_inline void announce_control(void)
{
	struct careful_peer_entry *first;
	__u32 slot = 0;

	first = bpf_map_lookup_elem(&peers, &slot);
	if (first)
		__sync_fetch_and_add(&first->control, 1);
}

/* Records an arrival for a measurement. */
static __always_inline void record(const struct careful_datagram *datagram)
{
	const struct careful_hdr *hdr = (const void *)datagram->at;
	struct careful_arrivals *recorded;
	__u32 zero = 0;

	recorded = bpf_map_lookup_elem(&arrivals, &zero);
	if (recorded && recorded->cookie)
		careful_frame_record(recorded, hdr, datagram->bytes - sizeof(*hdr),
				     bpf_ktime_get_ns());
}

static __always_inline __u32 receive(struct xdp_md *ctx, __u32 frame_bytes)
{
	struct careful_datagram datagram;
	const __u8 *type;
	__u32 verdict;

	if (!careful_frame_find((void *)(long)ctx->data, (void *)(long)ctx->data_end, frame_bytes,
				&datagram))
		return CAREFUL_XDP_PASS_OTHER;
	if (datagram.port != start.config.port)
		return classify_other_port(&datagram);
	type = datagram.at + 1; /* version, then type, in every version */
	if (type + 1 > datagram.end)
		return refuse(ctx, &datagram, CAREFUL_XDP_DROP_SHORT);
	if (*type & CAREFUL_CTRL_BIT) {
		announce_control();
		return CAREFUL_XDP_PASS_CONTROL;
	}
	if (ctx->rx_queue_index != start.config.queue)
		return CAREFUL_XDP_PASS_QUEUE;
	verdict = classify(&datagram, frame_bytes);
	if (verdict == CAREFUL_XDP_PASS_PING || verdict == CAREFUL_XDP_DROP_TRAIN)
		return verdict;
	if (verdict != CAREFUL_XDP_ADMITTED)
		return refuse(ctx, &datagram, verdict);
	record(&datagram);
	if (bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_DROP) != XDP_REDIRECT)
		return CAREFUL_XDP_DROP_REDIRECT;
	return CAREFUL_XDP_ADMITTED;
}

static __always_inline int handle(struct xdp_md *ctx, __u32 frame_bytes)
{
	__u32 verdict = receive(ctx, frame_bytes), zero = 0;
	void *frames;

	count(verdict);
	if (verdict == CAREFUL_XDP_PASS_OTHER)
		return XDP_PASS;
	frames = bpf_map_lookup_elem(&captures, &zero);
	if (frames)
		capture(ctx, frames, frame_bytes, verdict);
	if (verdict == CAREFUL_XDP_ADMITTED)
		return XDP_REDIRECT;
	return verdict < CAREFUL_XDP_ADMITTED ? XDP_PASS : XDP_DROP;
}

/* For drivers and kernels with multi-buffer frames. */
SEC("xdp.frags")
int careful_frags(struct xdp_md *ctx)
{
	return handle(ctx, bpf_xdp_get_buff_len(ctx));
}

/* For drivers and kernels without multi-buffer frames. */
SEC("xdp")
int careful_plain(struct xdp_md *ctx)
{
	return handle(ctx, ctx->data_end - ctx->data);
}

/* The dispatchers of an interface with several queues. */
SEC("xdp.frags")
int careful_queues_frags(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &queues, ctx->rx_queue_index);
	return XDP_PASS;
}

SEC("xdp")
int careful_queues_plain(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &queues, ctx->rx_queue_index);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
