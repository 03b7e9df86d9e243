/* SPDX-License-Identifier: BSD-2-Clause */
/* Times the operations of each protocol on a frame, as in P2's appendix A. Only `tools/bench/run
 * operations` builds link with CAREFUL_OPERATIONS. */
#pragma once

enum timed_operation {
	OPERATION_SEND, /* number a frame and add credits, or keep a copy and request an answer */
	OPERATION_LEFT, /* take back the send buffers of frames that have left */
	OPERATION_HEED, /* read which of our frames the peer has; careful: part of TAKE */
	OPERATION_TAKE, /* check a frame's number and its receive buffers */
	OPERATION_CHECK, /* check a frame's bytes; careful checks a whole message, above link */
	OPERATION_TELL, /* send an update or an acknowledgement if one is due */
	OPERATION_TICK, /* repeat requests by the clock */
	OPERATIONS,
};

#ifdef CAREFUL_OPERATIONS
struct timed_span {
	enum timed_operation what;
	unsigned long long began, inner;
};

struct timed_span timed_begin(enum timed_operation what);
void timed_end(struct timed_span *span);
/* Times from here to the end of the block, without the operations within. */
#define OPERATION(what)                                                             \
	__attribute__((cleanup(timed_end), unused)) struct timed_span timed_span_ = \
		timed_begin(what)
#else
#define OPERATION(what) ((void)0)
#endif
