// SPDX-License-Identifier: BSD-2-Clause
/* The first fragment of an untuned message needs one receive buffer, over IPv6, too. */
#include "check.h"
#include "node.h"

static void done(const struct careful_result *result, void *user)
{
	(void)result;
	((struct node *)user)->ended++;
}

/* Stores this many bytes. Returns the frames, and the peer's buffers that they fill. */
static void store(uint32_t host, uint32_t bytes, bool digest, uint64_t *frames, uint32_t *buffers)
{
	struct node *node = node_open();
	struct careful_span span = { .base = node->memory, .fd = -1 };
	struct careful_peer_info info;
	struct careful_ctrl hello = node_hello(host);

	CHECK(node_ask(node, host, &hello));
	CHECK_EQ(careful_store(node->c, 0, 1, 0, &span, bytes, CAREFUL_HANDLERS, NULL,
			       digest ? 0 : CAREFUL_NO_DIGEST, done, node),
		 0);
	node->begun++;
	node_poll(node, 4);
	CHECK_EQ(careful_peer_info(node->c, 0, &info), 0);
	*frames = info.tx_frames;
	*buffers = info.credits_window - info.credits_free;
	node_close(node);
}

static void test_first__fills_one_buffer(void)
{
	static const uint32_t hosts[] = { 0, 3 }; /* IPv4, IPv6 */
	const uint32_t most = 5 * (NODE_BUFFER - LINK_IPV4_BYTES - LINK_HDR_BYTES);

	for (uint32_t i = 0; i < 2; i++) {
		for (uint32_t bytes = 1; bytes <= most; bytes += 7) {
			for (uint32_t digest = 0; digest < 2; digest++) {
				uint64_t frames;
				uint32_t buffers;

				store(hosts[i], bytes, digest, &frames, &buffers);
				CHECK(frames >= 1 + (bytes - 1) / NODE_BUFFER);
				CHECK_EQ(buffers, frames);
			}
		}
	}
}

int main(void)
{
	RUN(test_first__fills_one_buffer);
	return 0;
}
