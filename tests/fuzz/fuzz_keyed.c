// SPDX-License-Identifier: BSD-2-Clause
/* Fuzzes sessions with keys: hosts that have keys, with sealed frames or without. */
#include "node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const char *const seals[] = { NULL, "auth", "encrypt", "encrypt,off@10.0.0.1" };
	struct input in = { data, bytes };
	uint8_t how = take8(&in);
	struct node *node = node_open_keyed(seals[how >> 1 & 3]);

	if (how & 1)
		MUST(node_session(node, how >> 3 & 1));
	node_steps(node, &in);
	node_close(node);
	return 0;
}
