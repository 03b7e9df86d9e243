/* SPDX-License-Identifier: BSD-2-Clause */
/* Arguments of the probes at the datapath's stages (P1 section 5.3.1): each has one, a pointer to a
 * span. The USDT provider `careful` has a probe for each enum careful_stage except netRx:
 * that stage is the kernel's XDP redirect, which has tracepoints.
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
	/* hostTx, store: a device was reading or writing the file's bytes meanwhile */
	CAREFUL_TRACE_WAITED = 2,
	CAREFUL_TRACE_CONTROL = 4, /* a window update, or a frame that was dropped */
};

/* A stage was busy from begin_ns to end_ns. Fields that a stage does not use are 0.
 *
 * @begin_ns:   CLOCK_MONOTONIC, as bpf_ktime_get_ns()
 * @before_ns:  time spent on the span before begin_ns (hostRx: parsing, if frames come in batches)
 * @clock_ns:   duration of a clock read; begin_ns and end_ns each include one
 * @bytes:      payload
 * @frames:     frames handled
 * @peer:       the peer's slot
 * @msg_id, frag_off: the fragment of a bulk message, or the first of several
 * @seq:        number of the last frame, as the sender counts; 0: none was sent
 * @thread:     the thread of the stage
 * @owner:      the process of the stage; the reader of the probe fills in both */
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

/* The argument of the probe `frameTx`: a frame handed to the device.
 *
 * @at:           address of the first part, of @part_bytes
 * @frame_bytes:  length of all parts */
struct careful_trace_frame {
	__u64 at;
	__u32 part_bytes;
	__u32 frame_bytes;
};

#endif /* CAREFUL_TRACE_H */
