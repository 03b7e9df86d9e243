// SPDX-License-Identifier: BSD-2-Clause
/* Fuzzes active messages and bulk messages, in and out, within sessions. */
#include "node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct input in = { data, bytes };
	struct node *node = node_open();
	uint8_t steps = 0;

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
		default:
			node_operation(node, &in);
		}
	}
	node_close(node);
	return 0;
}
