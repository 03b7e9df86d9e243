// SPDX-License-Identifier: BSD-2-Clause
/* A peer with a session that misbehaves: what it cannot do to the instance, and to others. */
#include <endian.h>

#include "hostile.h"

enum { FILE_REGION = 1 }; /* of node->keys: it has no memory */

static uint32_t ran;

static void on_run(const struct careful_message *message, void *user)
{
	(void)message;
	(void)user;
	ran++;
}

static struct hostile store(const struct node *node, uint16_t handler)
{
	return (struct hostile){
		.flags = CAREFUL_F_BULK,
		.am = { .kind = CAREFUL_AM_STORE,
			.handler = htobe16(handler),
			.token = htobe32(7),
			.region = htobe32(node->keys[FILE_REGION]) },
		.bytes = 64,
	};
}

/* A handler of requests finds their payload in memory: a store to a file has none there. */
static void test_store__runs_no_handler_of_requests(void)
{
	struct node *node = node_open();
	struct hostile what = store(node, CAREFUL_HANDLERS_APP + 4);

	CHECK(node_session(node, 0));
	ran = 0;
	CHECK_EQ(careful_handle(node->c, CAREFUL_HANDLERS_APP + 4, on_run, NULL), 0);
	hostile_send(node, &what);
	CHECK_EQ(ran, 0);
	CHECK_EQ(careful_handle_store(node->c, CAREFUL_HANDLERS_APP + 4, on_run, NULL), 0);
	hostile_send(node, &what);
	CHECK_EQ(ran, 1);
	node_close(node);
}

int main(void)
{
	RUN(test_store__runs_no_handler_of_requests);
	return 0;
}
