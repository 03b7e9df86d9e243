/* SPDX-License-Identifier: BSD-2-Clause */
/* Rules for frames, besides the wire format: how to find the datagram, which headers are valid, and
 * which frames of a session are admitted. The XDP program, the engine and the virtual device
 * include this file, so all three admit the same frames. */
#ifndef CAREFUL_FRAME_H
#define CAREFUL_FRAME_H

#include <careful/abi.h>
#include <careful/wire.h>

#define CAREFUL_FRAME_FN static inline __attribute__((always_inline))

enum {
	CAREFUL_FRAME_ETHERNET = 14,
	CAREFUL_FRAME_VLAN = 4,
	CAREFUL_FRAME_VLANS_MAX = 2, /* two tags: 802.1ad */
	CAREFUL_FRAME_IPV4 = 20,
	CAREFUL_FRAME_IPV6 = 40,
	CAREFUL_FRAME_IPV6_EXT_MAX = 6, /* IPv6 extension headers; a longer chain is not ours */
	CAREFUL_FRAME_UDP = 8,
	CAREFUL_FRAME_AT_MAX = 0x3fff, /* a mask: all headers end below this offset */
	/* Flags that a fragment of a message can have; CAREFUL_F_LARGE_EVENT is reserved. */
	CAREFUL_FRAME_DATA_FLAGS = CAREFUL_F_FIRST | CAREFUL_F_LAST | CAREFUL_F_BULK |
				   CAREFUL_F_DIGEST | CAREFUL_F_ABORT | CAREFUL_F_ASK |
				   CAREFUL_F_BCAST_EVENT,
};

/* Kinds of frames, numbered above enum careful_xdp_counter. The cookie of a frame to a group is the
 * group's; that of its repair, the session's. */
enum careful_frame_kind {
	CAREFUL_FRAME_PLAIN = CAREFUL_XDP_COUNTERS,
	CAREFUL_FRAME_SEALED,
	CAREFUL_FRAME_GROUP,
};

/* A UDP datagram in a frame.
 *
 * @frame:     start of the frame
 * @at:        first byte after the UDP header
 * @end:       end of the readable bytes (the first buffer, if a frame has several)
 * @ip_at:     offset of the IP header in the frame
 * @bytes:     bytes after the UDP header, by UDP's length
 * @spare:     negative if the frame or IP packet is shorter than @bytes, or @bytes than careful_hdr
 * @port:      destination port, host order; @source: source port
 * @fragment:  1: first fragment of an IP packet */
struct careful_datagram {
	const __u8 *frame;
	const __u8 *at;
	const __u8 *end;
	__u32 ip_at;
	__u32 bytes;
	__s32 spare;
	__u16 port;
	__u16 source;
	__u8 fragment;
};

/* The position while headers are parsed. @ip_bytes: bytes from `at` on, by the IP header */
struct careful_cursor {
	const __u8 *frame;
	const __u8 *at;
	const __u8 *end;
	__u32 ip_bytes;
	__u8 fragment;
};

/* Acquire and release, for the fields of a peers entry that XDP and the engine share. BPF has
 * instructions for them since Linux 6.15 and clang 21 (-mcpu=v4), which we cannot require. In older
 * BPF an atomic that fetches is a full barrier on every CPU, as in the kernel's
 * tools/testing/selftests/bpf/bpf_atomic.h. The fetched value must be used, or clang before 20
 * emits an atomic that does not fetch and orders nothing (LLVM pull request 101428). On x86 loads
 * stay in order, and so do stores, so a compiler barrier is enough. */
#ifdef __bpf__

CAREFUL_FRAME_FN void careful_frame_barrier(void)
{
#ifndef __TARGET_ARCH_x86
	volatile __u64 word = 0;
	__u64 fetched = __sync_fetch_and_add(&word, 1);

	asm volatile("" : : "r"(fetched));
#endif
	asm volatile("" : : : "memory");
}

CAREFUL_FRAME_FN __u64 careful_frame_acquire(const __u64 *p)
{
	__u64 value = *(const volatile __u64 *)p;

	careful_frame_barrier();
	return value;
}

CAREFUL_FRAME_FN void careful_frame_release(__u32 *p, __u32 value)
{
	careful_frame_barrier();
	*(volatile __u32 *)p = value;
}

#else

CAREFUL_FRAME_FN __u64 careful_frame_acquire(const __u64 *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the store is a builtin */
CAREFUL_FRAME_FN void careful_frame_release(__u32 *p, __u32 value)
{
	__atomic_store_n(p, value, __ATOMIC_RELEASE);
}

#endif

/* Reads 16 bits of a frame. BPF may assume an alignment of 2 bytes, and would read byte by byte
 * otherwise; other code assumes no alignment. */
CAREFUL_FRAME_FN __u16 careful_frame_be16(const __u8 *p)
{
	__be16 value;

#ifdef __bpf__
	value = *(const __be16 *)p;
#else
	__builtin_memcpy(&value, p, sizeof(value));
#endif
	return CAREFUL_BE16(value);
}

/* Returns `at`, recomputed from the start of the frame, for BPF's verifier: the verifier follows
 * each sum of header sizes separately, but a masked difference only once, as an unknown value. */
CAREFUL_FRAME_FN const __u8 *careful_frame_place(const __u8 *frame, const __u8 *at)
{
#ifdef __bpf__
	return frame + ((at - frame) & CAREFUL_FRAME_AT_MAX);
#else
	(void)frame;
	return at;
#endif
}

/* Parses Ethernet and its tags. Returns the type of the next header, or -1. */
CAREFUL_FRAME_FN int careful_frame_ethernet(struct careful_cursor *cursor)
{
	const __u8 *eth = cursor->at;
	__u16 type;

	if (eth + CAREFUL_FRAME_ETHERNET > cursor->end)
		return -1;
	type = careful_frame_be16(eth + 12);
	cursor->at = eth + CAREFUL_FRAME_ETHERNET;
#pragma GCC unroll 2
	for (int i = 0; i < CAREFUL_FRAME_VLANS_MAX; i++) {
		const __u8 *vlan = cursor->at;

		if (type != 0x8100 && type != 0x88a8)
			break;
		if (vlan + CAREFUL_FRAME_VLAN > cursor->end)
			return -1;
		type = careful_frame_be16(vlan + 2);
		cursor->at = vlan + CAREFUL_FRAME_VLAN;
	}
	return type;
}

/* Parses IPv4 and its options. Returns the protocol of the next header, or -1. */
CAREFUL_FRAME_FN int careful_frame_ipv4(struct careful_cursor *cursor)
{
	const __u8 *ip = cursor->at;
	__u32 header, total, offset;

	if (ip + CAREFUL_FRAME_IPV4 > cursor->end || ip[0] >> 4 != 4)
		return -1;
	header = (ip[0] & 15) * 4;
	total = careful_frame_be16(ip + 2);
	offset = careful_frame_be16(ip + 6);
	if (header < CAREFUL_FRAME_IPV4 || total < header)
		return -1;
	if (offset & 0x1fff) /* only a first fragment has a UDP header */
		return -1;
	cursor->fragment = (offset & 0x2000) >> 13; /* more fragments follow */
	cursor->ip_bytes = total - header;
	cursor->at = ip + header;
	return ip[9];
}

/* Parses an IPv6 extension header of type `next`. Returns the type of the next header, or `next`
 * if that is no extension header, or -1. */
CAREFUL_FRAME_FN int careful_frame_ipv6_ext(struct careful_cursor *cursor, int next)
{
	enum { HOP_BY_HOP = 0, ROUTING = 43, FRAGMENT = 44, DESTINATION = 60 };

	const __u8 *ext = cursor->at;
	__u32 bytes = 8;

	if (next != HOP_BY_HOP && next != ROUTING && next != FRAGMENT && next != DESTINATION)
		return next;
	if (ext + 8 > cursor->end)
		return -1;
	if (next == FRAGMENT) {
		__u32 offset = careful_frame_be16(ext + 2);

		if (offset & 0xfff8)
			return -1;
		/* An "atomic" fragment (RFC 6946) is a whole packet. */
		cursor->fragment |= offset & 1;
	} else {
		bytes += ext[1] * 8;
	}
	if (bytes > cursor->ip_bytes)
		return -1;
	cursor->ip_bytes -= bytes;
	cursor->at = careful_frame_place(cursor->frame, ext + bytes);
	return ext[0];
}

/* Parses IPv6 and its extension headers. Returns the protocol of the next header, or -1. */
CAREFUL_FRAME_FN int careful_frame_ipv6(struct careful_cursor *cursor)
{
	const __u8 *ip = cursor->at;
	int next;

	if (ip + CAREFUL_FRAME_IPV6 > cursor->end || ip[0] >> 4 != 6)
		return -1;
	next = ip[6];
	cursor->ip_bytes = careful_frame_be16(ip + 4);
	cursor->at = ip + CAREFUL_FRAME_IPV6;
	for (int i = 0; i < CAREFUL_FRAME_IPV6_EXT_MAX; i++) {
		if (next < 0 || next == 17)
			break;
		next = careful_frame_ipv6_ext(cursor, next);
	}
	return next;
}

/* Finds the UDP datagram in a frame of frame_bytes that is readable up to `end`; 0: none. */
CAREFUL_FRAME_FN int careful_frame_find(const void *frame, const void *end, __u32 frame_bytes,
					struct careful_datagram *datagram)
{
	struct careful_cursor cursor = { .frame = frame, .at = frame, .end = end };
	int type = careful_frame_ethernet(&cursor);
	int protocol = -1;
	const __u8 *udp;
	__u32 udp_bytes, before;

	datagram->frame = frame;
	datagram->ip_at = (__u32)(cursor.at - cursor.frame);
	if (type == 0x0800)
		protocol = careful_frame_ipv4(&cursor);
	else if (type == 0x86dd)
		protocol = careful_frame_ipv6(&cursor);
	udp = careful_frame_place(frame, cursor.at);
	if (protocol != 17 || udp + CAREFUL_FRAME_UDP > cursor.end)
		return 0;
	udp_bytes = careful_frame_be16(udp + 4);
	before = (__u32)(udp - cursor.frame);
	datagram->at = udp + CAREFUL_FRAME_UDP;
	datagram->end = cursor.end;
	datagram->bytes = udp_bytes - CAREFUL_FRAME_UDP;
	datagram->port = careful_frame_be16(udp + 2);
	datagram->source = careful_frame_be16(udp);
	/* All numbers are below 2^31, so the sign of the differences' OR replaces three branches,
	 * each of which would double the verifier's work. */
	datagram->spare =
		(__s32)((udp_bytes - CAREFUL_FRAME_UDP - sizeof(struct careful_hdr)) |
			(cursor.ip_bytes - udp_bytes) | (frame_bytes - before - udp_bytes));
	datagram->fragment = cursor.fragment;
	return 1;
}

CAREFUL_FRAME_FN const __u8 *careful_frame_ip(const struct careful_datagram *datagram)
{
	return datagram->frame + (datagram->ip_at & CAREFUL_FRAME_AT_MAX);
}

/* Reports whether an IP packet that is readable up to `end` comes from an address of a peers entry.
 * An address whose first number is 0 is IPv4: no host's IPv6 address begins with 0. */
CAREFUL_FRAME_FN int careful_frame_is_from(const __u8 *ip, const __u8 *end, const __u16 *address)
{
	int same = address[0] != 0;

	if (ip + CAREFUL_FRAME_IPV4 > end)
		return 0;
	if (ip[0] >> 4 != 6)
		return !same && address[6] == careful_frame_be16(ip + 12) &&
		       address[7] == careful_frame_be16(ip + 14);
	if (ip + CAREFUL_FRAME_IPV6 > end)
		return 0;
#pragma GCC unroll 8
	for (int i = 0; i < 8; i++)
		same &= address[i] == careful_frame_be16(ip + 8 + 2 * i);
	return same;
}

/* Returns CAREFUL_XDP_ADMITTED if a whole frame header is readable, or the reason why not. */
CAREFUL_FRAME_FN enum careful_xdp_counter
careful_frame_readable(const struct careful_datagram *datagram)
{
	if (datagram->spare < 0 && !datagram->fragment)
		return CAREFUL_XDP_DROP_SHORT;
	if (datagram->at + sizeof(struct careful_hdr) > datagram->end)
		return CAREFUL_XDP_DROP_SHORT;
	return datagram->fragment ? CAREFUL_XDP_DROP_FRAGMENT : CAREFUL_XDP_ADMITTED;
}

/* Reports whether a frame ends at XDP: it then has no sequence number and takes no buffer. */
CAREFUL_FRAME_FN int careful_frame_ends_at_xdp(const struct careful_hdr *hdr)
{
	return (hdr->type == CAREFUL_PING && hdr->stage_limit == CAREFUL_STAGE_NET_RX) ||
	       hdr->type == CAREFUL_TRAIN;
}

/* Returns the flags that a frame of this type may have. */
CAREFUL_FRAME_FN __u8 careful_frame_flags(const struct careful_hdr *hdr)
{
	return hdr->type == CAREFUL_DATA  ? CAREFUL_FRAME_DATA_FLAGS :
	       hdr->type == CAREFUL_ACK	  ? CAREFUL_F_ASK :
	       hdr->type == CAREFUL_TRAIN ? CAREFUL_F_BCAST_EVENT :
					    0;
}

/* Returns the bytes that follow the header, by its own fields. */
CAREFUL_FRAME_FN __u32 careful_frame_body(const struct careful_hdr *hdr)
{
	const __u8 digest = CAREFUL_F_LAST | CAREFUL_F_DIGEST;
	__u32 bytes = CAREFUL_BE16(hdr->frag_bytes);

	if (hdr->flags & CAREFUL_F_FIRST)
		bytes += sizeof(struct careful_am);
	if ((hdr->flags & digest) == digest)
		bytes += CAREFUL_DIGEST_BYTES;
	if (hdr->flags & CAREFUL_F_BCAST_EVENT && hdr->type == CAREFUL_DATA)
		bytes += CAREFUL_BE32(hdr->msg_bytes) * (__u32)sizeof(__be16);
	return bytes;
}

/* Returns the kind of a frame whose header is valid, or CAREFUL_XDP_DROP_VERSION. */
CAREFUL_FRAME_FN __u32 careful_frame_kind(const struct careful_hdr *hdr)
{
	if (hdr->version == CAREFUL_WIRE_VERSION)
		return hdr->flags & CAREFUL_F_BCAST_EVENT ? CAREFUL_FRAME_GROUP :
							    CAREFUL_FRAME_PLAIN;
	return hdr->version == CAREFUL_WIRE_SEALED ? CAREFUL_FRAME_SEALED :
						     CAREFUL_XDP_DROP_VERSION;
}

/* Classifies a frame by its header, which body_bytes follow. Only a ping has a stage limit; an
 * update has no body. Frames outside the session, and frames to a group, are never sealed. Returns
 * the kind (enum careful_frame_kind), or the fault (enum careful_xdp_counter). */
CAREFUL_FRAME_FN __u32 careful_frame_classify(const struct careful_hdr *hdr, __u32 body_bytes)
{
	const __u32 kind = careful_frame_kind(hdr);

	if (kind == CAREFUL_XDP_DROP_VERSION)
		return kind;
	if (kind == CAREFUL_FRAME_SEALED) {
		if (body_bytes < sizeof(struct careful_seal_end))
			return CAREFUL_XDP_DROP_SHORT;
		if (hdr->flags & CAREFUL_F_BCAST_EVENT)
			return CAREFUL_XDP_DROP_TYPE;
		body_bytes -= sizeof(struct careful_seal_end);
	}
	if (CAREFUL_BE32(hdr->check) != careful_hdr_check(hdr))
		return CAREFUL_XDP_DROP_CHECK;
	if (hdr->type < CAREFUL_DATA || hdr->type > CAREFUL_ACK)
		return CAREFUL_XDP_DROP_TYPE;
	if (hdr->flags & ~careful_frame_flags(hdr))
		return CAREFUL_XDP_DROP_TYPE;
	if (hdr->type == CAREFUL_PING) {
		if (hdr->stage_limit < CAREFUL_STAGE_NET_RX ||
		    hdr->stage_limit > CAREFUL_STAGE_STORE)
			return CAREFUL_XDP_DROP_PING;
	} else if (hdr->stage_limit) {
		return CAREFUL_XDP_DROP_TYPE;
	}
	if (careful_frame_body(hdr) != body_bytes || (hdr->type == CAREFUL_UPDATE && body_bytes))
		return CAREFUL_XDP_DROP_SHORT;
	if (kind == CAREFUL_FRAME_SEALED && careful_frame_ends_at_xdp(hdr))
		return CAREFUL_XDP_DROP_TYPE;
	return kind;
}

/* Reports whether a frame was admitted, or ends at XDP as it should. */
CAREFUL_FRAME_FN int careful_frame_is_valid(enum careful_xdp_counter verdict)
{
	return verdict == CAREFUL_XDP_ADMITTED || verdict == CAREFUL_XDP_PASS_PING ||
	       verdict == CAREFUL_XDP_DROP_TRAIN;
}

/* Charges the sender for the buffers that a frame of frame_bytes fills. Returns 0 if too many. */
CAREFUL_FRAME_FN int careful_frame_charge(struct careful_peer_entry *peer, __u32 frame_bytes)
{
	__u32 filled = peer->filled + 1;

	if (frame_bytes > peer->buffer_bytes && peer->buffer_bytes)
		filled += (frame_bytes - 1) / peer->buffer_bytes;
	if ((__s32)(filled - peer->limit) > 0) {
		peer->limit = *(const volatile __u32 *)&peer->may_fill;
		if ((__s32)(filled - peer->limit) > 0)
			return 0;
	}
	peer->filled = filled;
	return 1;
}

/* Admits a frame with a valid header if it belongs to the session in its slot, and its number is in
 * the window after the last number that the engine took in order. A lost frame is sent again under
 * its number, so a number may arrive late or twice; the engine drops the second copy and adds its
 * buffers to may_fill again. The caller then calls careful_frame_stamp() for a ping or a train's
 * frame. Returns CAREFUL_XDP_ADMITTED, CAREFUL_XDP_PASS_PING for a ping that ends at XDP,
 * CAREFUL_XDP_DROP_TRAIN, or the fault. */
CAREFUL_FRAME_FN enum careful_xdp_counter careful_frame_admit(struct careful_peer_entry *peer,
							      const struct careful_hdr *hdr,
							      __u32 frame_bytes)
{
	__u32 seq = CAREFUL_BE32(hdr->seq);
	/* Acquires the cookie: the engine wrote the epoch's other fields before it. */
	__u64 cookie = careful_frame_acquire(&peer->cookie);

	if (!cookie || cookie != CAREFUL_BE64(hdr->cookie))
		return CAREFUL_XDP_DROP_COOKIE;
	if (hdr->type == CAREFUL_TRAIN)
		return CAREFUL_XDP_DROP_TRAIN;
	if (hdr->type == CAREFUL_PING &&
	    !careful_is_newer(CAREFUL_BE32(hdr->msg_id), peer->probe_last) &&
	    (careful_frame_ends_at_xdp(hdr) || peer->window != CAREFUL_WINDOW_ANY) &&
	    !peer->sealed_window)
		return CAREFUL_XDP_DROP_PING;
	if (careful_frame_ends_at_xdp(hdr))
		return CAREFUL_XDP_PASS_PING;
	if (peer->window == CAREFUL_WINDOW_ANY) {
		/* A frame that was sent again does not move seq_last. */
		if (!careful_seq_near(seq, peer->seq_last))
			return CAREFUL_XDP_DROP_SEQ;
		if (!careful_is_newer(seq, peer->seq_last))
			return CAREFUL_XDP_ADMITTED;
	} else {
		if (!careful_seq_ahead(seq, peer->seq_last, peer->window)) {
			peer->seq_last = *(const volatile __u32 *)&peer->seq_taken;
			if (!careful_seq_ahead(seq, peer->seq_last, peer->window))
				return CAREFUL_XDP_DROP_SEQ;
		}
		return careful_frame_charge(peer, frame_bytes) ? CAREFUL_XDP_ADMITTED :
								 CAREFUL_XDP_DROP_CREDIT;
	}
	*(volatile __u32 *)&peer->seq_last = seq;
	return CAREFUL_XDP_ADMITTED;
}

/* Like careful_frame_admit(), for a sealed frame. The engine checks the tag later, so a forged frame
 * must change nothing for good: XDP uses the engine's number (seq_taken), not seq_last. The engine
 * updates seq_taken before it returns credits that allow a number more than sealed_window ahead, so
 * no genuine frame is refused here. The engine adds the buffers of a forged frame to may_fill
 * again. */
CAREFUL_FRAME_FN enum careful_xdp_counter
careful_frame_admit_sealed(struct careful_peer_entry *peer, const struct careful_hdr *hdr,
			   __u32 frame_bytes)
{
	__u32 seq = CAREFUL_BE32(hdr->seq);
	__u64 cookie = careful_frame_acquire(&peer->cookie);
	__u32 taken = *(const volatile __u32 *)&peer->seq_taken;

	if (!cookie || cookie != CAREFUL_BE64(hdr->cookie) || !peer->sealed_window)
		return CAREFUL_XDP_DROP_COOKIE;
	if (peer->sealed_window == CAREFUL_WINDOW_ANY)
		return careful_seq_near(seq, taken) ? CAREFUL_XDP_ADMITTED : CAREFUL_XDP_DROP_SEQ;
	if (!careful_seq_ahead(seq, taken, peer->sealed_window))
		return CAREFUL_XDP_DROP_SEQ;
	return careful_frame_charge(peer, frame_bytes) ? CAREFUL_XDP_ADMITTED :
							 CAREFUL_XDP_DROP_CREDIT;
}

/* Like careful_frame_admit(), for a frame to a group, in its sender's slot. The IP source address
 * must match too, because all members know the cookie. The frame counts towards the sender's
 * window. The engine checks the number and drops a second copy. */
CAREFUL_FRAME_FN enum careful_xdp_counter careful_frame_admit_group(struct careful_peer_entry *peer,
								    const struct careful_hdr *hdr,
								    __u32 frame_bytes,
								    const __u8 *ip, const __u8 *end)
{
	__u64 cookie = careful_frame_acquire(&peer->group_cookie);

	if (!cookie || cookie != CAREFUL_BE64(hdr->cookie) || !peer->cookie ||
	    !careful_frame_is_from(ip, end, peer->group_source))
		return CAREFUL_XDP_DROP_COOKIE;
	if (hdr->type == CAREFUL_TRAIN) {
		*(volatile __u32 *)&peer->group_probe = CAREFUL_BE32(hdr->msg_id);
		return CAREFUL_XDP_DROP_TRAIN;
	}
	return careful_frame_charge(peer, frame_bytes) ? CAREFUL_XDP_ADMITTED :
							 CAREFUL_XDP_DROP_CREDIT;
}

/* Counts a frame of a train, if the engine asked for that train. */
CAREFUL_FRAME_FN void careful_frame_count(struct careful_peer_entry *peer,
					  const struct careful_hdr *hdr, __u64 now_ns)
{
	if (!hdr->msg_id || CAREFUL_BE32(hdr->msg_id) != *(volatile __u32 *)&peer->train)
		return;
	if (CAREFUL_BE32(hdr->frag_off) == peer->train_whole)
		peer->train_whole++;
	if (!peer->train_frames)
		peer->train_first_ns = now_ns;
	peer->train_last_ns = now_ns;
	*(volatile __u32 *)&peer->train_frames = peer->train_frames + 1;
}

/* Records when and on which CPU a ping arrived, for the engine, which answers it; counts a train's
 * frame. A ping is recorded once, except in a sealed session: a forged number must not prevent that
 * genuine pings are recorded. */
CAREFUL_FRAME_FN void careful_frame_stamp(struct careful_peer_entry *peer,
					  const struct careful_hdr *hdr, __u64 now_ns, __u32 cpu)
{
	if (hdr->type == CAREFUL_TRAIN) {
		careful_frame_count(peer, hdr, now_ns);
		return;
	}
	if (hdr->type != CAREFUL_PING ||
	    (!careful_is_newer(CAREFUL_BE32(hdr->msg_id), peer->probe_last) &&
	     !peer->sealed_window))
		return;
	peer->probe_ns = now_ns;
	peer->probe_cpu = cpu;
	careful_frame_release(&peer->probe_last, CAREFUL_BE32(hdr->msg_id));
}

/* Records an admitted frame's arrival if its session is recorded. */
CAREFUL_FRAME_FN void careful_frame_record(struct careful_arrivals *arrivals,
					   const struct careful_hdr *hdr, __u32 body_bytes,
					   __u64 now_ns)
{
	const __u32 count = arrivals->count;
	struct careful_arrival *at = &arrivals->ring[count & (CAREFUL_ARRIVALS_MAX - 1)];

	if (count == arrivals->until)
		return;
	if (CAREFUL_BE64(hdr->cookie) != arrivals->cookie) {
		arrivals->others++;
		return;
	}
	at->at_ns = now_ns;
	at->bytes = body_bytes;
	at->others = arrivals->others;
	arrivals->others = 0;
	careful_frame_release(&arrivals->count, count + 1);
}

#endif /* CAREFUL_FRAME_H */
