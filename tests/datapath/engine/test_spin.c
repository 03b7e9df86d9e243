// SPDX-License-Identifier: BSD-2-Clause
/* Tests when waits spin, with frames at chosen times. */
#include <sys/eventfd.h>
#include <unistd.h>

#include "check.h"
#include "engine/engine.h"

enum { SPIN_NS = 50000, WAITS = 1000 };

/*
 * Runs this many waits. Frames come answer_ns after a wait begins; on a shared CPU the other end
 * runs only when we block. Returns how many waits spun.
 */
static uint32_t run(struct spin *spin, uint32_t waits, uint64_t answer_ns, bool shared)
{
	uint32_t spun = 0;

	for (uint32_t i = 0; i < waits; i++) {
		bool spins = spin_wanted(spin);
		uint64_t spin_ns = spins ? SPIN_NS : 0;

		spun += spins;
		if (!shared && answer_ns <= spin_ns)
			spin_paid(spin, answer_ns, SPIN_NS);
		else
			spin_blocked(spin, spins, shared ? answer_ns : answer_ns - spin_ns,
				     SPIN_NS);
	}
	return spun;
}

static void test_spin__continues_while_it_pays(void)
{
	struct spin spin = { 0 };

	CHECK_EQ(run(&spin, WAITS, 3000, false), WAITS);
}

static void test_spin__stops_if_the_other_end_needs_our_cpu(void)
{
	struct spin spin = { 0 };
	uint32_t spun = run(&spin, WAITS, 15000, true);

	CHECK(spun >= SPIN_VAIN_MAX + WAITS / SPIN_TRY - 1);
	CHECK(spun <= SPIN_VAIN_MAX + WAITS / SPIN_TRY + 1);
}

/* One end moves to another CPU. */
static void test_spin__begins_again_when_it_pays(void)
{
	struct spin spin = { 0 };

	run(&spin, WAITS, 15000, true);
	CHECK(run(&spin, WAITS, 3000, false) >= WAITS - SPIN_TRY);
}

/* After a long pause the first message of a burst still finds us spinning. */
static void test_spin__continues_after_a_long_idle_time(void)
{
	struct spin spin = { 0 };

	CHECK_EQ(run(&spin, WAITS, 20000000, false), WAITS);
	run(&spin, WAITS, 15000, true);
	run(&spin, 1, 20000000, true);
	CHECK_EQ(run(&spin, SPIN_VAIN_MAX, 3000, false), SPIN_VAIN_MAX);
}

/* A stream between ends that share a CPU. Now and then the scheduler gives the CPU to the other end
 * while we spin, or nothing comes for a while. */
static void test_spin__stays_stopped_if_the_scheduler_ends_each_spin(void)
{
	struct spin spin = { 0 };
	uint32_t spun = 0, rounds = WAITS / 20;

	for (uint32_t i = 0; i < rounds; i++) {
		spun += run(&spin, 18, 200000, true);
		if (spin_wanted(&spin)) {
			spin_paid(&spin, 150000, SPIN_NS);
			spun++;
		}
		spun += run(&spin, 1, 1000000, true);
	}
	CHECK(spun <= SPIN_VAIN_MAX + rounds + WAITS / SPIN_TRY + 1);
}

/* Now and then an answer takes longer than the spin. */
static void test_spin__a_few_vain_spins_do_not_stop_it(void)
{
	struct spin spin = { 0 };

	for (uint32_t i = 0; i < WAITS; i++) {
		CHECK_EQ(run(&spin, SPIN_VAIN_MAX - 1, 60000, false), SPIN_VAIN_MAX - 1);
		CHECK_EQ(run(&spin, 1, 3000, false), 1);
	}
}

static struct {
	uint64_t now_ns;
	uint32_t polls;
	bool arrives; /* the 40th poll finds a frame */
	int bell; /* a program rings it when we block */
} fake;

static int fake_poll(struct careful *c)
{
	(void)c;
	fake.now_ns += 100;
	return ++fake.polls >= 40 && fake.arrives;
}

static uint64_t fake_now_ns(const struct careful *c)
{
	(void)c;
	return fake.now_ns;
}

static int fake_fds(struct careful *c, int *fds, uint32_t n, int *timeout_ms)
{
	(void)c, (void)n;
	*fds = -1; /* none */
	*timeout_ms = 1000;
	fake.now_ns += 5000;
	CHECK_EQ(eventfd_write(fake.bell, 1), 0);
	return 0;
}

/* Returns how many polls a wait took. */
static uint32_t wait_once(struct careful *c, bool asked)
{
	eventfd_t rang;

	c->operations_free_count = c->limits.operations - asked;
	fake.polls = 0;
	fake.arrives = asked;
	CHECK_EQ(careful_wait(c, 1000, fake.bell), asked);
	CHECK_EQ(eventfd_read(fake.bell, &rang), asked ? -1 : 0);
	return fake.polls;
}

/* A peer's answers come while we spin. In between, a program on our CPU must run. */
static void test_wait__for_a_peer_and_for_a_program(void)
{
	static struct careful c;
	const struct engine_ops ops = {
		.poll = fake_poll,
		.wait_fds = fake_fds,
		.now_ns = fake_now_ns,
	};
	uint32_t first, last = 0;

	c.ops = &ops;
	c.limits.operations = 16;
	c.options.spin_us = SPIN_NS / 1000;
	fake.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	first = wait_once(&c, false);
	for (int i = 0; i < 2 * SPIN_VAIN_MAX; i++) {
		CHECK_EQ(wait_once(&c, true), 40); /* it spins all the time */
		last = wait_once(&c, false);
	}
	CHECK(first > SPIN_NS / 100 / 2 && last < first / 4);
	close(fake.bell);
}

int main(void)
{
	RUN(test_spin__continues_while_it_pays);
	RUN(test_spin__stops_if_the_other_end_needs_our_cpu);
	RUN(test_spin__begins_again_when_it_pays);
	RUN(test_spin__continues_after_a_long_idle_time);
	RUN(test_wait__for_a_peer_and_for_a_program);
	RUN(test_spin__stays_stopped_if_the_scheduler_ends_each_spin);
	RUN(test_spin__a_few_vain_spins_do_not_stop_it);
	return 0;
}
