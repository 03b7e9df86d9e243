/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two instances across a veth for tests, polled in turn by one thread; and results of operations.
 */
#ifndef CAREFUL_TESTS_INSTANCES_H
#define CAREFUL_TESTS_INSTANCES_H

#include <arpa/inet.h>
#include <careful/careful.h>

#include "pair.h"
#include "engine/engine.h"

enum { PATIENCE = 20000000 };

struct ends {
	struct pair pair;
	struct careful *c[2];
	int peer; /* the second instance at the first */
};

/* Opens an instance with these options; 0 means the default. */
static inline struct careful *instance_open(const struct pair *pair, int side,
					    struct careful_options options)
{
	char instance[32];
	struct careful_error error;
	struct careful *c = NULL;

	snprintf(instance, sizeof(instance), "test%d-%d", getpid(), side);
	options.ifname = "eth1";
	options.instance = instance;
	pair_enter(pair, side);
	if (careful_open(&options, &c, &error))
		fprintf(stderr, "%s\n", error.text);
	pair_leave(pair);
	CHECK(c);
	return c;
}

static inline int peer_at(struct careful *c, const char *ip, uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };

	CHECK_EQ(inet_pton(AF_INET, ip, &to.sin_addr), 1);
	return careful_peer(c, (struct sockaddr *)&to, sizeof(to));
}

static inline void ends_open(struct ends *ends, unsigned int mtu)
{
	pair_open(&ends->pair, mtu);
	for (int side = 0; side < 2; side++)
		ends->c[side] = instance_open(&ends->pair, side, (struct careful_options){ 0 });
	ends->peer = peer_at(ends->c[0], "10.77.0.2", 0);
	CHECK(ends->peer >= 0);
}

static inline void poll_both(struct ends *ends)
{
	careful_poll(ends->c[0]);
	careful_poll(ends->c[1]);
}

static inline void ends_close(struct ends *ends)
{
	for (int i = 0; i < 2; i++) {
		struct careful_info info;

		CHECK_EQ(careful_info(ends->c[i], &info), 0);
		CHECK_EQ(info.counters[CAREFUL_C_LOST_FRAMES], 0);
		CHECK_EQ(info.counters[CAREFUL_C_EPOCHS_BROKEN], 0);
		CHECK_EQ(info.counters[CAREFUL_C_TX_BUFFERS_HELD], 0);
	}
	careful_close(ends->c[0]);
	careful_close(ends->c[1]);
	pair_close(&ends->pair);
}

struct outcome {
	int done;
	struct careful_result result;
	uint8_t payload[4096];
};

static inline void on_done(const struct careful_result *result, void *user)
{
	struct outcome *outcome = user;

	outcome->done++;
	outcome->result = *result;
	if (result->payload)
		memcpy(outcome->payload, result->payload, result->bytes);
}

static inline void await(struct ends *ends, struct outcome *outcome)
{
	for (int i = 0; i < PATIENCE && !outcome->done; i++)
		poll_both(ends);
	CHECK_EQ(outcome->done, 1);
}

static inline void echo(const struct careful_message *message, void *user)
{
	(void)user;
	CHECK_EQ(careful_reply(message, 0, message->args, message->payload, message->bytes), 0);
}

#endif /* CAREFUL_TESTS_INSTANCES_H */
