// SPDX-License-Identifier: BSD-2-Clause
/* The probes, kept out of the hot path. */
#include "device/trace.h"

#include "device/sdt.h"

uint16_t trace_listeners[CAREFUL_STAGES] __attribute__((section(".probes"), used));

uint16_t trace_frame_listeners __attribute__((section(".probes"), used));

/* The probes below contain twice these numbers, as offsets in bytes. */
_Static_assert(CAREFUL_STAGE_HOST_TX == 0 && CAREFUL_STAGE_NET_TX == 1 &&
		       CAREFUL_STAGE_HOST_RX == 3 && CAREFUL_STAGE_STORE == 4,
	       "indices of trace_listeners");

static void fire(const struct careful_trace *span)
{
	switch (span->stage) {
	case CAREFUL_STAGE_HOST_TX:
		SDT_PROBE("careful", "hostTx", "trace_listeners", span);
		break;
	case CAREFUL_STAGE_NET_TX:
		SDT_PROBE("careful", "netTx", "trace_listeners + 2", span);
		break;
	case CAREFUL_STAGE_HOST_RX:
		SDT_PROBE("careful", "hostRx", "trace_listeners + 6", span);
		break;
	case CAREFUL_STAGE_STORE:
		SDT_PROBE("careful", "store", "trace_listeners + 8", span);
		break;
	default:
		break;
	}
}

TRACE_COLD void trace_end(struct careful_trace span)
{
	span.end_ns = clock_now_ns();
	span.clock_ns = (uint32_t)(clock_now_ns() - span.end_ns);
	fire(&span);
}

TRACE_COLD void trace_sent(const struct careful_trace_frame *frame)
{
	SDT_PROBE("careful", "frameTx", "trace_frame_listeners", frame);
}
