// SPDX-License-Identifier: BSD-2-Clause
/* Fuzzes the frame parser and the link's state machine: handshakes, epochs, time. */
#include "node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct input in = { data, bytes };
	struct node *node = node_open();

	if (take8(&in) & 1)
		node_session(node, 0);
	node_steps(node, &in);
	node_close(node);
	return 0;
}
