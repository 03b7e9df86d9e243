// SPDX-License-Identifier: BSD-2-Clause
/* Fuzzes active messages and bulk messages, in and out, within sessions. */
#include "node.h"

/* Checks that an intact message is accepted; otherwise the target would test nothing. */
static void check_made(void)
{
	const uint8_t store[] = { 0x05, 1, 64 }; /* with its digest */
	struct input in = { store, sizeof(store) };
	struct node *node = node_open();
	const uint64_t *counters = node->c->link.counters;

	MUST(node_session(node, 0));
	node_bulk(node, &in);
	MUST(counters[CAREFUL_C_RX_FRAMES] == 2 && !counters[CAREFUL_C_DROP_MALFORMED] &&
	     !counters[CAREFUL_C_DROP_MESSAGE] && !counters[CAREFUL_C_DIGEST_BAD]);
	node_close(node);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct input in = { data, bytes };
	static bool checked;
	struct node *node;
	uint8_t steps = 0;

	if (!checked)
		check_made();
	checked = true;
	node = node_open();
	MUST(node_session(node, 0));
	MUST(node_session(node, 1));
	while (in.bytes && steps++ < 200) {
		uint8_t what = take8(&in);

		switch (what & 15) {
		case 0:
		case 1:
		case 2:
		case 3:
		case 4:
		case 5:
		case 6:
			node_frame(node, &in);
			break;
		case 7:
			node_release(node, &in);
			break;
		case 8:
			node_time(node, 1u << (what >> 4));
			break;
		case 9:
			node_ctrl(node, &in);
			break;
		case 10:
			node_leave(node, what >> 4);
			node_poll(node, 1);
			break;
		case 11:
			node_device(node, &in);
			break;
		case 12:
			node_bulk(node, &in);
			break;
		default:
			node_operation(node, &in);
		}
	}
	node_close(node);
	return 0;
}
