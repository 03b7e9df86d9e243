/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the probes at the datapath's stages carry (P1 section 5.3.1): one span, by
 * pointer, as their only argument. USDT provider `careful`, one probe for each enum
 * careful_stage but netRx, which is the kernel's (XDP redirect): tracepoints tell of it.
 *
 *     bpftrace --include careful/trace.h -p PID -e 'usdt:*:careful:netTx
 *         { $s = (struct careful_trace *)arg0; @[$s->bytes] = hist($s->end_ns - $s->begin_ns); }'
 */
#ifndef CAREFUL_TRACE_H
#define CAREFUL_TRACE_H

#ifndef CAREFUL_CDEF
#include <careful/wire.h>
#endif

enum {
	CAREFUL_TRACE_AGAIN = 1, /* netTx: frames stayed in the TX ring, or were there before */
	CAREFUL_TRACE_WAITED = 2, /* hostTx, store: a device had the file's bytes meanwhile */
	CAREFUL_TRACE_CONTROL = 4, /* a window update, or a frame that was dropped */
};

/*
 * A stage was busy from begin_ns to end_ns. Which fields are meant depends on the
 * stage; the others are 0.
 *
 * @begin_ns:   CLOCK_MONOTONIC, as bpf_ktime_get_ns()
 * @before_ns:  spent on it before begin_ns (hostRx: parsing, where frames come in batches)
 * @clock_ns:   how long reading the clock takes; each of the two times has it in it once
 * @bytes:      of payload
 * @frames:     that it handled
 * @peer:       its slot
 * @msg_id, frag_off: bulk messages' fragment, the first of several
 * @seq:        of the last of the frames, as the sender counts; 0: none was sent
 * @thread:     that it ran on, and
 * @owner:      whose stage it is: whoever reads the probe fills both in
 */
struct careful_trace {
	__u64 begin_ns;
	__u64 end_ns;
	__u32 before_ns;
	__u32 clock_ns;
	__u32 stage; /* enum careful_stage */
	__u32 flags;
	__u32 bytes;
	__u32 frames;
	__u32 peer;
	__u32 seq;
	__u32 msg_id;
	__u32 frag_off;
	__u32 thread;
	__u32 owner;
};

/*
 * What the probe `frameTx` carries: a frame that is handed to the device.
 *
 * @at:           address of its first part, which has @part_bytes
 * @frame_bytes:  of all parts
 */
struct careful_trace_frame {
	__u64 at;
	__u32 part_bytes;
	__u32 frame_bytes;
};

#endif /* CAREFUL_TRACE_H */
