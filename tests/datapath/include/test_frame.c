// SPDX-License-Identifier: BSD-2-Clause
/*
 * One rule for frames: the rule itself, the engine and the virtual device's XDP judge every header
 * as the table of frame_rule.h does. tests/ebpf/test_xdp_session.c asks the XDP program.
 */
#include <careful/frame.h>

#include "check.h"
#include "device/sim_private.h"
#include "frame_rule.h"
#include "node.h"

static const char *case_text(const struct rule_case *at)
{
	static char text[128];

	snprintf(text, sizeof(text), "type %u, flags 0x%02x, limit %u, %u bytes, %u follow",
		 at->type, at->flags, at->limit, at->frag_bytes, at->body_bytes);
	return text;
}

#define CHECK_CASE(at, found, wanted)                                                       \
	do {                                                                                \
		if ((found) != (wanted)) {                                                  \
			fprintf(stderr, "%s: %s: is %d, not %d\n", __func__, case_text(at), \
				(int)(found), (int)(wanted));                               \
			exit(1);                                                            \
		}                                                                           \
	} while (0)

static enum careful_xdp_counter verdict_of(enum rule rule)
{
	static const enum careful_xdp_counter verdicts[] = {
		[RULE_IN] = CAREFUL_XDP_ADMITTED,	[RULE_PING] = CAREFUL_XDP_PASS_PING,
		[RULE_TYPE] = CAREFUL_XDP_DROP_TYPE,	[RULE_LIMIT] = CAREFUL_XDP_DROP_PING,
		[RULE_LENGTH] = CAREFUL_XDP_DROP_SHORT, [RULE_TRAIN] = CAREFUL_XDP_DROP_TRAIN,
	};

	return verdicts[rule];
}

static enum rule rule_case_of(const struct rule_case *at)
{
	return rule_of(at->type, at->flags, at->limit, at->frag_bytes, at->body_bytes);
}

static uint32_t kind_of(const struct rule_case *at)
{
	enum rule rule = rule_case_of(at);

	if (rule != RULE_IN && rule != RULE_PING && rule != RULE_TRAIN)
		return verdict_of(rule);
	return at->flags & 0x10 ? CAREFUL_FRAME_GROUP : CAREFUL_FRAME_PLAIN;
}

static void test_classify__every_type_flag_limit_and_length(void)
{
	uint32_t step = 0, found[RULE_LENGTH + 1] = { 0 };
	struct rule_case at;

	while (rule_next(&at, &step, 255)) {
		struct careful_hdr hdr = {
			.version = CAREFUL_WIRE_VERSION,
			.type = at.type,
			.flags = at.flags,
			.stage_limit = at.limit,
			.frag_bytes = htobe16(at.frag_bytes),
		};

		hdr.check = htobe32(careful_hdr_check(&hdr));
		found[rule_case_of(&at)]++;
		CHECK_CASE(&at, careful_frame_classify(&hdr, at.body_bytes), kind_of(&at));
	}
	for (uint32_t i = 0; i <= RULE_LENGTH; i++)
		CHECK(found[i]);
}

static void test_classify__another_version_and_a_damaged_header(void)
{
	struct careful_hdr hdr = { .version = CAREFUL_WIRE_VERSION, .type = CAREFUL_DATA };

	hdr.check = htobe32(careful_hdr_check(&hdr));
	CHECK_EQ(careful_frame_classify(&hdr, 0), CAREFUL_FRAME_PLAIN);
	hdr.seq = 1;
	CHECK_EQ(careful_frame_classify(&hdr, 0), CAREFUL_XDP_DROP_CHECK);
	for (uint32_t version = 0; version < 256; version++) {
		hdr.version = (uint8_t)version;
		if (version != CAREFUL_WIRE_VERSION && version != CAREFUL_WIRE_SEALED)
			CHECK_EQ(careful_frame_classify(&hdr, 0), CAREFUL_XDP_DROP_VERSION);
	}
}

/* A sealed frame is like a plain one with an end, but never ends at XDP or goes to a group. */
static void test_classify__every_sealed_header(void)
{
	const uint32_t end = sizeof(struct careful_seal_end);
	uint32_t step = 0, found[RULE_LENGTH + 1] = { 0 };
	struct rule_case at;

	while (rule_next(&at, &step, 255)) {
		enum rule rule = rule_case_of(&at);
		struct careful_hdr hdr = {
			.version = CAREFUL_WIRE_SEALED,
			.type = at.type,
			.flags = at.flags,
			.stage_limit = at.limit,
			.frag_bytes = htobe16(at.frag_bytes),
		};

		if (at.flags & 0x10 || rule == RULE_PING || rule == RULE_TRAIN)
			rule = RULE_TYPE;
		found[rule]++;
		hdr.check = htobe32(careful_hdr_check(&hdr));
		CHECK_CASE(&at, careful_frame_classify(&hdr, at.body_bytes + end),
			   rule == RULE_IN ? CAREFUL_FRAME_SEALED : verdict_of(rule));
		hdr.seq = 1;
		CHECK_CASE(&at, careful_frame_classify(&hdr, at.body_bytes + end),
			   at.flags & 0x10 ? CAREFUL_XDP_DROP_TYPE : CAREFUL_XDP_DROP_CHECK);
		CHECK_CASE(&at, careful_frame_classify(&hdr, at.body_bytes % end),
			   CAREFUL_XDP_DROP_SHORT);
	}
	CHECK(found[RULE_IN] && found[RULE_TYPE] && found[RULE_LIMIT] && found[RULE_LENGTH]);
}

static uint64_t some_time(struct port *port)
{
	(void)port;
	return 7;
}

/* Checks what the slot notes about a frame. */
static void expect_noted(const struct careful_peer_entry *peer, const struct rule_case *at)
{
	enum rule rule = rule_case_of(at);
	bool ping = at->type == CAREFUL_PING && (rule == RULE_IN || rule == RULE_PING);

	CHECK_CASE(at, peer->filled, rule == RULE_IN);
	CHECK_CASE(at, peer->probe_last, ping);
	CHECK_CASE(at, peer->probe_ns, ping ? 7 : 0);
	CHECK_CASE(at, peer->train_frames, rule == RULE_TRAIN);
	CHECK_CASE(at, peer->train_whole, rule == RULE_TRAIN);
}

static void test_virtual_device__every_header(void)
{
	static const struct port_ops ops = { .now_ns = some_time };
	static struct sim_device sim = { .nic.ops = &ops, .peers_count = FRAME_NODE + 1 };
	static struct frame frame;
	struct careful_peer_entry *peer = &sim.peers[FRAME_NODE];
	struct rule_case at;
	uint32_t step = 0;

	while (rule_next(&at, &step, CAREFUL_ACK + 1)) {
		*peer = (struct careful_peer_entry){
			.cookie = frame_cookie, .window = 8, .train = 1, .may_fill = 8
		};
		rule_frame(&at, &frame);
		CHECK_CASE(&at, sim_xdp(&sim, frame.data, frame.bytes),
			   verdict_of(rule_case_of(&at)));
		expect_noted(peer, &at);
	}
}

/* There is no session: a valid frame is dropped for that reason, and an invalid one earlier. */
static void test_engine__every_header(void)
{
	struct node *node = node_open();
	const uint64_t *counters = node->c->link.counters;
	static struct frame frame;
	struct rule_case at;
	uint32_t step = 0;

	while (rule_next(&at, &step, CAREFUL_ACK + 1)) {
		uint64_t strange = counters[CAREFUL_C_DROP_COOKIE];
		uint64_t wrong = counters[CAREFUL_C_DROP_MALFORMED];
		bool in = rule_case_of(&at) == RULE_IN;

		rule_frame(&at, &frame);
		node_arrive(node, frame.data, frame.bytes);
		node_poll(node, 1);
		CHECK_CASE(&at, counters[CAREFUL_C_DROP_COOKIE] - strange, in);
		CHECK_CASE(&at, counters[CAREFUL_C_DROP_MALFORMED] - wrong, !in);
	}
	node_close(node);
}

int main(void)
{
	RUN(test_classify__every_type_flag_limit_and_length);
	RUN(test_classify__another_version_and_a_damaged_header);
	RUN(test_classify__every_sealed_header);
	RUN(test_virtual_device__every_header);
	RUN(test_engine__every_header);
	return 0;
}
