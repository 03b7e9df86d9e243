/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Steps that only one of the two protocols takes for a frame, as P2's appendix A lists them.
 * `tools/bench/run operations` builds link with CAREFUL_OPERATIONS and times each step.
 */
#pragma once

enum timed_operation {
	OPERATION_SEND, /* a frame's number, and its credits; or what is kept of it, and its ask */
	OPERATION_LEFT, /* send buffers whose frames the device has sent */
	OPERATION_HEED, /* what the peer has of ours, by its frame; with careful part of TAKE */
	OPERATION_TAKE, /* a frame is the one that is due, and has its place */
	OPERATION_CHECK, /* its bytes are what was sent; careful does that above, once */
	OPERATION_TELL, /* whether an update or an acknowledgement is due, and that */
	OPERATION_TICK, /* what is asked for again by time */
	OPERATIONS,
};

#ifdef CAREFUL_OPERATIONS
struct timed_span {
	enum timed_operation what;
	unsigned long long began, inner;
};

struct timed_span timed_begin(enum timed_operation what);
void timed_end(struct timed_span *span);
/* Times from here to the end of the block, less what is timed within. */
#define OPERATION(what)                                                             \
	__attribute__((cleanup(timed_end), unused)) struct timed_span timed_span_ = \
		timed_begin(what)
#else
#define OPERATION(what) ((void)0)
#endif
