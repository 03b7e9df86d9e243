/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests bursts over a LogP machine in virtual time, where every time is known. */
#include "check.h"

#include <errno.h>
#include <string.h>

#include "measure/signature.h"

enum { SEND_NS = 3, RECEIVE_NS = 2, GAP_NS = 50, TRIP_NS = 200, REPLIES = 4096 };

/* Sends each request after SEND_NS; replies come TRIP_NS later, GAP_NS apart. */
static struct {
	struct signature_layer layer;
	uint64_t now_ns, last_ns;
	uint64_t replies[REPLIES];
	uint32_t first, count;
	int refuses; /* -EAGAIN to return */
	bool silent;
} machine;

static uint64_t machine_now(void)
{
	return machine.now_ns++; /* reading the clock takes time, so waits end */
}

static int machine_issue(struct signature_layer *layer)
{
	(void)layer;
	if (machine.refuses) {
		machine.refuses--;
		return -EAGAIN;
	}
	machine.now_ns += SEND_NS;
	if (machine.count && machine.last_ns + GAP_NS > machine.now_ns)
		machine.last_ns += GAP_NS;
	else
		machine.last_ns = machine.now_ns;
	machine.replies[machine.count++ % REPLIES] = machine.last_ns + TRIP_NS;
	return 0;
}

static int machine_poll(struct signature_layer *layer)
{
	while (!machine.silent && machine.first < machine.count &&
	       machine.replies[machine.first % REPLIES] <= machine.now_ns) {
		machine.first++;
		machine.now_ns += RECEIVE_NS;
		layer->outstanding--;
		layer->arrived_ns = machine.first;
	}
	return 1;
}

static void machine_init(uint32_t capacity)
{
	memset(&machine, 0, sizeof(machine));
	machine.layer = (struct signature_layer){
		.issue = machine_issue,
		.poll = machine_poll,
		.now_ns = machine_now,
		.capacity = capacity,
	};
}

static struct answer {
	struct careful_burst burst;
	struct careful_mark marks[3];
} answers[8];

static struct careful_signature signature_of(uint32_t first, uint32_t second, uint32_t third)
{
	return (struct careful_signature){
		.bursts = 3, .capacity = 1, .marks_count = 3, .marks = { first, second, third }
	};
}

static int run(const struct careful_signature *s)
{
	CHECK_EQ(signature_check(s), 0);
	CHECK_EQ(signature_burst_bytes(s), sizeof(answers[0]));
	return signature_run(&machine.layer, s, answers, sizeof(answers));
}

static void test_signature__marks_are_timed_and_replies_awaited(void)
{
	struct careful_signature s = signature_of(1, 10, 40);

	machine_init(64);
	CHECK_EQ(run(&s), 3);
	for (int i = 0; i < 3; i++) {
		CHECK(answers[i].marks[0].elapsed_ns <= SEND_NS + 2);
		/* No reply comes before the tenth request; all forty come later. */
		CHECK(answers[i].marks[1].elapsed_ns <= 10 * SEND_NS + 4);
		CHECK(answers[i].marks[2].elapsed_ns < TRIP_NS);
		CHECK(answers[i].burst.done_ns >= 39 * GAP_NS + TRIP_NS);
		CHECK(answers[i].burst.done_ns <=
		      39 * GAP_NS + TRIP_NS + SEND_NS + 2 * RECEIVE_NS + 8);
		CHECK_EQ(answers[i].burst.arrived_ns, 40 * (i + 1));
	}
	CHECK_EQ(machine.layer.outstanding, 0);
}

static void test_signature__a_full_network_stalls_the_sender(void)
{
	struct careful_signature s = signature_of(4, 5, 30);

	machine_init(4);
	CHECK_EQ(run(&s), 3);
	CHECK(answers[2].marks[0].elapsed_ns <= 4 * (SEND_NS + 1));
	CHECK(answers[2].marks[1].elapsed_ns >= TRIP_NS);
	CHECK(answers[2].marks[2].elapsed_ns >= 25 * GAP_NS + TRIP_NS);
}

static void test_signature__computation_is_counted_apart(void)
{
	struct careful_signature s = signature_of(1, 2, 12);

	machine_init(64);
	s.compute_ns = 1000;
	CHECK_EQ(run(&s), 3);
	CHECK(answers[0].marks[2].computed_ns >= 12000);
	CHECK(answers[0].marks[2].computed_ns <= 12 * 1004);
	CHECK(answers[0].marks[2].elapsed_ns - answers[0].marks[2].computed_ns >=
	      12 * SEND_NS + 11 * RECEIVE_NS);
}

static void test_signature__going_on_leaves_replies_to_the_next(void)
{
	struct careful_signature s = signature_of(1, 2, 20);

	machine_init(64);
	s.flags = CAREFUL_SIGNATURE_GO_ON;
	s.bursts = 1;
	CHECK_EQ(run(&s), 1);
	CHECK_EQ(machine.layer.outstanding, 20);
	CHECK(answers[0].burst.done_ns < TRIP_NS);
	s.flags = 0;
	CHECK_EQ(run(&s), 1);
	CHECK_EQ(machine.layer.outstanding, 0);
	CHECK_EQ(machine.first, 40);
}

static void test_signature__a_layer_that_is_full_is_asked_again(void)
{
	struct careful_signature s = signature_of(1, 2, 3);

	machine_init(64);
	machine.refuses = 5;
	CHECK_EQ(run(&s), 3);
	CHECK_EQ(machine.first, 9);
}

static uint64_t hurried_now(void)
{
	return machine.now_ns += 1000000;
}

static void test_signature__silence_and_failures_end(void)
{
	struct careful_signature s = signature_of(1, 2, 3);

	machine_init(64);
	machine.silent = true;
	machine.layer.now_ns = hurried_now;
	CHECK_EQ(run(&s), -ETIMEDOUT);
	machine_init(64);
	machine.refuses = 1 << 30;
	machine.layer.now_ns = hurried_now;
	CHECK_EQ(run(&s), -ETIMEDOUT);
	machine_init(64);
	machine.layer.status = -ECONNRESET;
	CHECK_EQ(run(&s), -ECONNRESET);
}

/* The computation of a signature is bounded, since nobody is served meanwhile. */
static void test_signature__computation_ends_too(void)
{
	struct careful_signature s = signature_of(1, 2, 16384);

	machine_init(64);
	s.compute_ns = 1000000000;
	machine.layer.now_ns = hurried_now;
	CHECK_EQ(run(&s), -ETIMEDOUT);
	CHECK(machine.now_ns < 2ull * CAREFUL_BURST_MS * 1000000);
}

static void test_signature__bounds(void)
{
	struct careful_signature s = signature_of(1, 2, 2);

	CHECK_EQ(signature_check(&s), -EINVAL);
	s.marks[2] = 20000;
	CHECK_EQ(signature_check(&s), -EINVAL);
	s.marks[2] = 3;
	CHECK_EQ(signature_check(&s), 0);
	s.capacity = 0;
	CHECK_EQ(signature_check(&s), -EINVAL);
	s.capacity = 1;
	s.compute_ns = UINT64_MAX;
	CHECK_EQ(signature_check(&s), -EINVAL);
	s.compute_ns = 0;
	machine_init(64);
	CHECK_EQ(signature_run(&machine.layer, &s, answers, 10), -EMSGSIZE);
	CHECK_EQ(signature_run(&machine.layer, &s, answers, 2 * sizeof(answers[0])), 2);
}

int main(void)
{
	RUN(test_signature__marks_are_timed_and_replies_awaited);
	RUN(test_signature__a_full_network_stalls_the_sender);
	RUN(test_signature__computation_is_counted_apart);
	RUN(test_signature__going_on_leaves_replies_to_the_next);
	RUN(test_signature__a_layer_that_is_full_is_asked_again);
	RUN(test_signature__silence_and_failures_end);
	RUN(test_signature__computation_ends_too);
	RUN(test_signature__bounds);
	return 0;
}
