// SPDX-License-Identifier: BSD-2-Clause
/* Fuzzes the frame parser and the link's state machine: handshakes, epochs, time. */
#include "node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct input in = { data, bytes };
	struct node *node = node_open();
	uint8_t steps = 0;

	if (take8(&in) & 1)
		node_session(node, 0);
	while (in.bytes && steps++ < 200) {
		uint8_t what = take8(&in);

		switch (what & 7) {
		case 0:
			node_raw_frame(node, &in);
			break;
		case 1:
			node_frame(node, &in);
			break;
		case 2:
		case 3:
			node_ctrl(node, &in);
			break;
		case 4:
			node_raw_ctrl(node, &in);
			break;
		case 5:
			node_time(node, 1u << (what >> 4));
			break;
		case 6:
			node_operation(node, &in);
			break;
		default:
			if (what & 0x40)
				node_ping(node, &in);
			else
				node_device(node, &in);
		}
		node_poll(node, what >> 3 & 1);
	}
	node_close(node);
	return 0;
}
