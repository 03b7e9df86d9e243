// SPDX-License-Identifier: BSD-2-Clause
/*
 * Trials of the XDP modes with peers that grant the trial lock, refuse it, or fall silent; and our
 * lock for peers. Checks no figure.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "check.h"
#define on_done on_done_ask /* xdp_trial_arm.c has one, too */
#include "instances.h"
#undef on_done
#include "daemon/log.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/xdp/trial_lock.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/process/rundir.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/xdp/xdp_choice.h"
#define xdp_choose choose /* a test decides which mode is better */
static uint32_t choose(const struct xdp_figures arms[XDP_ARMS]);
#include "daemon/xdp/xdp_trial.c" /* NOLINT(bugprone-suspicious-include) */
#undef xdp_choose
#include "daemon/xdp/xdp_trial_arm.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/xdp/xdp_choice.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/xdp/xdp_memory.c" /* NOLINT(bugprone-suspicious-include) */

enum { MTU = 1500, ECHO = 7 };

#define STATE_DIR "/run/careful-kept" /* on the pair's own file system */

/* Mode changes until the device refuses one; -1: it never does. */
static int changes_left = -1;
static const struct queue_ops *real_ops;
static uint32_t better; /* the choice; CAREFUL_XDP_AUTO: depends on the figures */

static uint32_t choose(const struct xdp_figures arms[XDP_ARMS])
{
	return better == CAREFUL_XDP_AUTO ? xdp_choose(arms) : better;
}

static int some_changes(struct queue *queue, uint32_t mode, struct careful_error *error)
{
	if (!changes_left) {
		snprintf(error->text, sizeof(error->text), "no more");
		return -EBUSY;
	}
	if (changes_left > 0)
		changes_left--;
	return real_ops->mode(queue, mode, error);
}

static struct ends ends;
static struct trial trial, theirs;
static uint8_t held[2][CAREFUL_PEERS_MAX]; /* by us, by the peer */
static struct daemon_options options = { .state_dir = STATE_DIR };

/* The peer: polled by a thread of its own, until it falls silent. */
static atomic_bool stop;
static atomic_int gets_left; /* before it does; -1: never */
static atomic_bool silent;
static atomic_bool slow; /* it answers probes late */
static atomic_int locks; /* requests for the lock */
static int lock_answer;

void ipc_hold(struct ipc *ipc, uint32_t peer, enum ipc_hold why, bool on)
{
	uint8_t *one = &held[ipc != NULL][peer];

	*one = (uint8_t)(on ? *one | why : *one & ~(uint8_t)why);
}

bool ipc_holds(const struct ipc *ipc, uint32_t peer, enum ipc_hold why)
{
	return held[ipc != NULL][peer] & why;
}

static void *peer_thread(void *arg)
{
	(void)arg;
	while (!stop) {
		silent = !gets_left;
		if (!silent)
			careful_wait(ends.c[1], 1, -1);
	}
	return NULL;
}

static void on_their_probe(const struct careful_message *message, void *user)
{
	const uint32_t args[4] = { 0 };

	(void)user;
	if (gets_left > 0)
		gets_left--;
	if (slow)
		usleep(2 * SLOW_NS / 1000);
	careful_reply(message, 0, args, NULL, 0);
}

static void on_lock(const struct careful_message *message, void *user)
{
	(void)user;
	locks += message->args[0] != 0;
	careful_reply(message, message->args[0] ? lock_answer : 0, NULL, NULL, 0);
}

static pthread_t begin_trial(int serves_locks)
{
	pthread_t thread;

	ends_open(&ends, MTU);
	memset(held, 0, sizeof(held));
	gets_left = -1;
	locks = lock_answer = 0;
	stop = false;
	careful_handle(ends.c[1], CAREFUL_PROBE, on_their_probe, NULL);
	CHECK_EQ(scratch_serve(ends.c[1]), 0);
	careful_handle(ends.c[1], ECHO, echo, NULL);
	if (serves_locks)
		careful_handle(ends.c[1], CAREFUL_TRIAL_LOCK, on_lock, NULL);
	CHECK_EQ(xdp_trial_init(&trial, ends.c[0], NULL, &options), 0);
	CHECK(!pthread_create(&thread, NULL, peer_thread, NULL));
	pair_enter(&ends.pair, 0); /* as carefuld is, where the interface's number is its own */
	return thread;
}

static void end_trial(pthread_t thread)
{
	gets_left = -1;
	stop = true;
	pthread_join(thread, NULL);
	pair_leave(&ends.pair);
}

static struct careful_peer_info the_peer(void)
{
	struct careful_peer_info info = { 0 };

	CHECK_EQ(careful_peer_info(ends.c[0], (uint32_t)ends.peer, &info), 0);
	return info;
}

/* Waits until the session is up. */
static void meet_only(void)
{
	for (int i = 0; i < PATIENCE && the_peer().state != CAREFUL_PEER_UP; i++)
		careful_wait(ends.c[0], 1, -1);
	CHECK_EQ(the_peer().state, CAREFUL_PEER_UP);
	xdp_trial_peer_changed(&trial, (uint32_t)ends.peer, CAREFUL_PEER_UP);
}

/* Waits for the session, and runs a trial that is due. */
static void meet(void)
{
	meet_only();
	xdp_trial_poll(&trial);
}

/* Pretends that the path was quiet for long enough. First receives late answers of the last trial,
 * which would otherwise stay under way for ever. */
static void next_try(void)
{
	careful_wait(ends.c[0], 1, -1);
	trial.due_ns[ends.peer] = 1;
	trial.moved[ends.peer] = 0;
	xdp_trial_poll(&trial);
}

static struct careful_device_info device(void)
{
	return device_of(&trial);
}

static void ask(void)
{
	struct outcome outcome = { 0 };

	CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, ECHO, NULL, "data", 4, on_done_ask,
				 &outcome),
		 0);
	for (int i = 0; i < PATIENCE && !outcome.done; i++)
		careful_wait(ends.c[0], 1, -1);
	CHECK_EQ(outcome.result.status, 0);
	CHECK(!memcmp(outcome.payload, "data", 4));
}

static void expect_nothing_held(void)
{
	for (uint32_t i = 0; i < trial.peers_max; i++)
		CHECK_EQ(held[0][i], 0);
}

static uint32_t remembered_mode(void)
{
	uint32_t mode = CAREFUL_XDP_AUTO;
	struct careful_error why;

	return xdp_recall(STATE_DIR, "veth", &mode, &why) ? CAREFUL_XDP_AUTO : mode;
}

static void forget(void)
{
	unlink(STATE_DIR "/xdp.veth.json");
}

static void test_trial__measures_decides_and_nothing_is_lost(void)
{
	pthread_t thread = begin_trial(1);
	uint32_t by;
	int tries;

	CHECK_EQ(device().xdp_by, CAREFUL_XDP_BY_PENDING);
	CHECK_EQ(held[0][ends.peer], IPC_HOLD_TRIAL);
	meet();
	while (device().xdp_by == CAREFUL_XDP_BY_PENDING) /* late answers, on a busy machine */
		next_try();
	by = device().xdp_by;
	CHECK(by == CAREFUL_XDP_BY_MEASURED || by == CAREFUL_XDP_BY_DRIVER);
	CHECK_EQ(remembered_mode(), by == CAREFUL_XDP_BY_MEASURED ? device().xdp_mode : 0);
	if (trial.failed < TRIES)
		CHECK(the_peer().epochs >= XDP_ARMS); /* one for each change */
	expect_nothing_held();
	ask();
	tries = locks;
	CHECK(tries >= 1);
	xdp_trial_peer_changed(&trial, (uint32_t)ends.peer, CAREFUL_PEER_UP);
	xdp_trial_poll(&trial);
	CHECK_EQ(locks, tries); /* one request per trial */
	end_trial(thread);
	ends_close(&ends); /* nothing lost, no epoch broken */
	forget();
}

static void test_trial__a_peer_that_falls_silent_leaves_the_drivers_mode(void)
{
	pthread_t thread = begin_trial(1);

	meet_only();
	for (int i = 1; i <= TRIES; i++) {
		while (trial.failed < (uint32_t)i) { /* the lock may come late on a busy machine */
			gets_left = 40; /* in the middle of an arm */
			next_try();
		}
		CHECK_EQ(trial.failed, i);
		CHECK_EQ(device().xdp_by,
			 i < TRIES ? CAREFUL_XDP_BY_PENDING : CAREFUL_XDP_BY_DRIVER);
		CHECK_EQ(device().xdp_mode, CAREFUL_XDP_NATIVE);
		CHECK_EQ(remembered_mode(), CAREFUL_XDP_AUTO);
		CHECK_EQ(held[0][ends.peer], 0); /* data may flow until the next trial */
		gets_left = -1;
		ask(); /* the peer is back, and is served */
	}
	expect_nothing_held();
	end_trial(thread);
	careful_close(ends.c[0]);
	careful_close(ends.c[1]);
	pair_close(&ends.pair);
}

/* Several gets over 2 Mbit/s delayed a ping by half a second, and no trial ended in time. */
static void test_trial__on_a_slow_path_sends_no_stream(void)
{
	pthread_t thread = begin_trial(1);

	slow = true;
	meet_only();
	for (int i = 1; i <= TRIES; i++) {
		while (trial.failed < (uint32_t)i)
			next_try();
		CHECK_EQ(device().xdp_mode, CAREFUL_XDP_NATIVE);
	}
	CHECK_EQ(device().xdp_by, CAREFUL_XDP_BY_DRIVER);
	CHECK(the_peer().rx_bytes < GET_BYTES);
	CHECK_EQ(the_peer().epochs, 1); /* no change of the mode */
	slow = false;
	expect_nothing_held();
	ask();
	end_trial(thread);
	ends_close(&ends);
}

/* The last change, after all arms, fails: the better mode is not in effect. */
static void test_trial__a_last_change_that_fails_measures_nothing(void)
{
	pthread_t thread = begin_trial(1);
	struct queue_ops ops;

	real_ops = ends.c[0]->queue->ops;
	ops = *real_ops;
	ops.mode = some_changes;
	ends.c[0]->queue->ops = &ops;
	better = CAREFUL_XDP_NATIVE; /* while the last arm is generic */
	meet_only();
	for (uint32_t i = 1; i <= TRIES; i++) {
		/* A busy machine may end a trial too early; it does not count. */
		do {
			trial.undecided = true;
			trial.failed = i - 1;
			changes_left = XDP_ARMS - (device().xdp_mode == CAREFUL_XDP_NATIVE);
			next_try();
		} while (trial.failed < i || device().xdp_mode != CAREFUL_XDP_GENERIC);
		CHECK_EQ(trial.failed, i);
		CHECK_EQ(remembered_mode(), CAREFUL_XDP_AUTO);
		CHECK_EQ(device().xdp_by, i < TRIES ? CAREFUL_XDP_BY_PENDING : CAREFUL_XDP_BY_LEFT);
		CHECK_EQ(device().xdp_mode,
			 CAREFUL_XDP_GENERIC); /* the return to native failed, too */
	}
	changes_left = -1;
	better = CAREFUL_XDP_AUTO;
	ask();
	ends.c[0]->queue->ops = real_ops;
	end_trial(thread);
	ends_close(&ends);
}

static int link_to_peer(bool up)
{
	int rc = pair_run(&ends.pair, 1, "ip link set eth1 %s", up ? "up" : "down");

	pair_enter(&ends.pair, 0);
	return rc;
}

static bool cut;

/* Like a driver that restarts its NIC: the carrier goes, and returns some time later. */
static int cuts_the_link(struct queue *queue, uint32_t mode, struct careful_error *error)
{
	int rc = real_ops->mode(queue, mode, error);

	CHECK_EQ(link_to_peer(false), 0);
	cut = true;
	return rc;
}

static void test_trial__not_again_after_it_took_the_link_down(void)
{
	pthread_t thread = begin_trial(1);
	struct queue_ops ops;

	real_ops = ends.c[0]->queue->ops;
	ops = *real_ops;
	ops.mode = cuts_the_link;
	ends.c[0]->queue->ops = &ops;
	meet_only();
	do { /* a busy machine may end a trial before its first change */
		trial.undecided = true;
		trial.failed = 0;
		next_try();
	} while (!cut);
	CHECK_EQ(trial.failed, 1);
	CHECK_EQ(device().xdp_by, CAREFUL_XDP_BY_DRIVER);
	CHECK_EQ(device().xdp_mode, CAREFUL_XDP_NATIVE);
	CHECK_EQ(remembered_mode(), CAREFUL_XDP_NATIVE); /* the next `up` does not try either */
	expect_nothing_held();
	CHECK_EQ(link_to_peer(true), 0);
	ask();
	ends.c[0]->queue->ops = real_ops;
	end_trial(thread);
	careful_close(ends.c[0]);
	careful_close(ends.c[1]);
	pair_close(&ends.pair);
	forget();
}

static void test_trial__a_peer_that_answers_late_is_asked_again(void)
{
	pthread_t thread = begin_trial(1);

	meet_only();
	gets_left = 0;
	while (!silent)
		;
	xdp_trial_poll(&trial);
	CHECK_EQ(locks, 0);
	CHECK_EQ(trial.failed, 0);
	CHECK_EQ(device().xdp_by, CAREFUL_XDP_BY_PENDING);
	CHECK_EQ(held[0][ends.peer], 0);
	CHECK(trial.due_ns[ends.peer] > 0);
	gets_left = -1;
	ask();
	next_try();
	CHECK(locks >= 1);
	end_trial(thread);
	ends_close(&ends);
	forget();
}

/* A peer that comes up during a trial with another peer gets its own trial. */
static void test_trial__a_peer_that_comes_up_meanwhile_is_not_forgotten(void)
{
	pthread_t thread = begin_trial(1);
	struct attempt other = { .trial = &trial, .peer = (uint32_t)ends.peer + 1 };
	uint64_t *due_ns = &trial.due_ns[ends.peer];

	trial.running = true;
	meet_only();
	CHECK_EQ(*due_ns, 0);
	release_lock(&other);
	CHECK(*due_ns != 0);
	/* A peer that does not wait for a trial gets none, nor does any peer if there is nothing to
	 * try. */
	*due_ns = 0;
	ipc_hold(NULL, (uint32_t)ends.peer, IPC_HOLD_TRIAL, false);
	release_lock(&other);
	CHECK_EQ(*due_ns, 0);
	ipc_hold(NULL, (uint32_t)ends.peer, IPC_HOLD_TRIAL, true);
	trial.undecided = false;
	release_lock(&other);
	CHECK_EQ(*due_ns, 0);
	end_trial(thread);
	ends_close(&ends);
}

static void test_trial__a_peer_that_grants_no_lock_is_left_alone(void)
{
	pthread_t thread = begin_trial(0);

	meet();
	while (trial.due_ns[ends.peer]) /* until its late answer comes */
		next_try();
	CHECK_EQ(device().xdp_by, CAREFUL_XDP_BY_PENDING);
	CHECK_EQ(device().xdp_mode, CAREFUL_XDP_NATIVE);
	CHECK_EQ(held[0][ends.peer], 0);
	CHECK_EQ(the_peer().epochs, 1);
	ask();
	end_trial(thread);
	ends_close(&ends);
}

static void test_trial__a_busy_peer_is_asked_again_when_it_is_quiet(void)
{
	pthread_t thread = begin_trial(1);
	uint64_t before = clock_now_ns();
	int asked;

	lock_answer = -EBUSY;
	meet();
	CHECK_EQ(device().xdp_by, CAREFUL_XDP_BY_PENDING);
	CHECK_EQ(held[0][ends.peer], 0); /* data may flow meanwhile */
	CHECK(trial.due_ns[ends.peer] > before + AGAIN_MS * 1000000ull);
	ask(); /* all earlier answers have come */
	asked = locks;
	CHECK_EQ(asked, 1);
	trial.due_ns[ends.peer] = 1;
	xdp_trial_poll(&trial);
	CHECK_EQ(locks, asked); /* there was traffic */
	lock_answer = 0;
	while (device().xdp_by == CAREFUL_XDP_BY_PENDING && !trial.failed)
		next_try();
	CHECK(locks > asked);
	end_trial(thread);
	ends_close(&ends);
	forget();
}

/* Each attempt without the lock counts, and doubles the pause. */
static void test_trial__a_peer_that_is_always_busy_leaves_the_drivers_mode(void)
{
	pthread_t thread = begin_trial(1);
	uint64_t due_ns = 0;

	lock_answer = -EBUSY;
	meet_only();
	for (uint32_t i = 1; i <= LOCK_FAILURES_MAX; i++) {
		while (trial.lock_failures < i)
			next_try();
		CHECK_EQ(trial.lock_failures, i);
		if (i < LOCK_FAILURES_MAX)
			CHECK(trial.due_ns[ends.peer] - clock_now_ns() > due_ns);
		due_ns = (AGAIN_MS << i) * 1000000ull / 2;
	}
	CHECK_EQ(trial.failed, 0);
	CHECK_EQ(device().xdp_by, CAREFUL_XDP_BY_DRIVER);
	CHECK_EQ(device().xdp_mode, CAREFUL_XDP_NATIVE);
	expect_nothing_held();
	ask();
	end_trial(thread);
	ends_close(&ends);
}

/* The end of the lock does not wait for a silent peer. */
static void test_trial__the_end_of_the_lock_waits_for_no_answer(void)
{
	pthread_t thread = begin_trial(1);
	struct attempt one = { .trial = &trial, .peer = (uint32_t)ends.peer, .granted = true };

	meet_only();
	gets_left = 0;
	while (!silent)
		;
	release_lock(&one);
	CHECK_EQ(the_peer().operations, 1); /* our message, which has no answer yet */
	gets_left = -1;
	for (int i = 0; i < PATIENCE && the_peer().operations; i++)
		careful_wait(ends.c[0], 1, -1);
	CHECK_EQ(the_peer().operations, 0);
	end_trial(thread);
	ends_close(&ends);
}

static void test_remembered__is_in_effect_at_once(void)
{
	struct careful_error why;
	pthread_t thread;

	pair_hide();
	CHECK_EQ(xdp_remember(STATE_DIR, "veth", CAREFUL_XDP_GENERIC, &why), 0);
	ends_open(&ends, MTU);
	pair_enter(&ends.pair, 0);
	CHECK_EQ(xdp_trial_init(&trial, ends.c[0], NULL, &options), 0);
	pair_leave(&ends.pair);
	CHECK_EQ(device().xdp_mode, CAREFUL_XDP_GENERIC);
	CHECK_EQ(device().xdp_by, CAREFUL_XDP_BY_REMEMBERED);
	expect_nothing_held();
	careful_handle(ends.c[1], ECHO, echo, NULL);
	stop = false;
	gets_left = -1;
	CHECK(!pthread_create(&thread, NULL, peer_thread, NULL));
	ask();
	end_trial(thread);
	ends_close(&ends);
	forget();
}

static void test_init__by_hand_measures_nothing(void)
{
	struct daemon_options by_hand = options;

	ends_open(&ends, MTU);
	memset(held, 0, sizeof(held));
	by_hand.careful.xdp_mode = CAREFUL_XDP_NATIVE;
	CHECK_EQ(xdp_trial_init(&trial, ends.c[0], NULL, &by_hand), 0);
	CHECK(!trial.undecided);
	expect_nothing_held();
	by_hand.careful.xdp_mode = CAREFUL_XDP_AUTO;
	by_hand.careful.require_zerocopy = 1;
	CHECK_EQ(xdp_trial_init(&trial, ends.c[0], NULL, &by_hand), 0);
	CHECK(!trial.undecided);
	CHECK_EQ(xdp_trial_timeout_ms(&trial), -1);
	ends_close(&ends);
}

static void test_init__without_a_link_measures_nothing(void)
{
	ends_open(&ends, MTU);
	memset(held, 0, sizeof(held));
	CHECK_EQ(pair_run(&ends.pair, 1, "ip link set eth1 down"), 0);
	CHECK_EQ(xdp_trial_init(&trial, ends.c[0], NULL, &options), 0);
	CHECK(!trial.undecided);
	CHECK_EQ(device().xdp_by, CAREFUL_XDP_BY_DRIVER);
	CHECK_EQ(remembered_mode(), CAREFUL_XDP_AUTO); /* the cause may be another one */
	expect_nothing_held();
	ends_close(&ends);
}

static int request_lock(uint32_t for_ms, uint64_t ticket)
{
	const uint32_t args[4] = { for_ms, (uint32_t)(ticket >> 32), (uint32_t)ticket };

	return grant(&theirs, 0, args);
}

static void test_lock__is_held_by_one_host_at_a_time(void)
{
	const uint32_t args[4] = { 100, 0, 1 };

	ends_open(&ends, MTU);
	memset(held, 0, sizeof(held));
	CHECK_EQ(xdp_trial_init(&theirs, ends.c[1], (struct ipc *)1, &options), 0);
	theirs.undecided = false;
	CHECK_EQ(grant(&theirs, 1, args), 0);
	CHECK_EQ(grant(&theirs, 0, args), -EBUSY); /* two would disturb each other */
	CHECK_EQ(grant(&theirs, 1, args), 0); /* longer */
	CHECK_EQ(theirs.locks, 1);
	xdp_trial_peer_changed(&theirs, 1, CAREFUL_PEER_FAILED);
	CHECK_EQ(grant(&theirs, 0, args), 0);
	ends_close(&ends);
}

static void test_lock__is_granted_to_one_host_and_ends(void)
{
	ends_open(&ends, MTU);
	memset(held, 0, sizeof(held));
	CHECK_EQ(xdp_trial_init(&theirs, ends.c[1], (struct ipc *)1, &options), 0);
	theirs.undecided = false;
	memset(held, 0, sizeof(held));
	theirs.ticket = 1000;
	CHECK_EQ(request_lock(100000, 1), 0);
	CHECK_EQ(held[1][0], IPC_HOLD_LOCK);
	CHECK(theirs.lock_ns[0] <= clock_now_ns() + CAREFUL_TRIAL_LOCK_MS * 1000000ull);
	CHECK(xdp_trial_timeout_ms(&theirs) <= CAREFUL_TRIAL_LOCK_MS + 1);
	CHECK_EQ(request_lock(0, 1), 0);
	CHECK_EQ(held[1][0], 0);
	theirs.running = true;
	CHECK_EQ(request_lock(100, UINT64_MAX), -EBUSY);
	theirs.running = false;
	theirs.asking = true; /* both at once: the larger ticket */
	CHECK_EQ(request_lock(100, 999), -EBUSY);
	CHECK_EQ(request_lock(100, 1000), -EBUSY);
	CHECK_EQ(request_lock(100, 1001), 0);
	theirs.asking = false;
	CHECK_EQ(held[1][0], IPC_HOLD_LOCK);
	theirs.lock_ns[0] = 1; /* the asker has gone */
	xdp_trial_poll(&theirs);
	CHECK_EQ(held[1][0], 0);
	CHECK_EQ(theirs.locks, 0);
	CHECK_EQ(request_lock(100, 1), 0);
	xdp_trial_peer_changed(&theirs, 0, CAREFUL_PEER_FAILED);
	CHECK_EQ(held[1][0], 0);
	CHECK_EQ(theirs.locks, 0);
	ends_close(&ends);
}

int main(void)
{
	RUN(test_trial__measures_decides_and_nothing_is_lost);
	RUN(test_trial__a_peer_that_falls_silent_leaves_the_drivers_mode);
	RUN(test_trial__on_a_slow_path_sends_no_stream);
	RUN(test_trial__a_last_change_that_fails_measures_nothing);
	RUN(test_trial__not_again_after_it_took_the_link_down);
	RUN(test_trial__a_peer_that_answers_late_is_asked_again);
	RUN(test_trial__a_peer_that_comes_up_meanwhile_is_not_forgotten);
	RUN(test_trial__a_peer_that_grants_no_lock_is_left_alone);
	RUN(test_trial__a_busy_peer_is_asked_again_when_it_is_quiet);
	RUN(test_trial__a_peer_that_is_always_busy_leaves_the_drivers_mode);
	RUN(test_trial__the_end_of_the_lock_waits_for_no_answer);
	RUN(test_remembered__is_in_effect_at_once);
	RUN(test_init__by_hand_measures_nothing);
	RUN(test_init__without_a_link_measures_nothing);
	RUN(test_lock__is_held_by_one_host_at_a_time);
	RUN(test_lock__is_granted_to_one_host_and_ends);
	return 0;
}
