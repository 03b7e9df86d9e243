/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs a trial of XDP modes within one round of the main loop. Each change of mode begins new
 * epochs. These lose no data except the trial's own. A failed trial ends in the driver's mode. */
#include "daemon/xdp/xdp_trial.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <careful/wire.h>

#include "base/clock.h"
#include "daemon/log.h"
#include "daemon/xdp/trial_lock.h"
#include "daemon/xdp/xdp_trial_arm.h"
#include "engine/xdp_mode.h"

enum {
	/* Time limits, so that no peer can stop the main loop for long. */
	TRIAL_MS = 500, /* for all measurements; an idle machine needs half of it */
	CHANGE_MS = 100, /* for the last change of mode, to the first session in it */
	MEET_MS = 50, /* until the sessions with other peers are up again */
	AGAIN_MS = 1000, /* pause after a peer was busy or late; doubles each time */
	LOCK_FAILURES_MAX = 6, /* attempts that did not get the lock */
	QUIET_MS = 20, /* between two checks for traffic */
	BUSY_CHECKS_MAX = 25, /* checks with traffic that count as a failure to get the lock */
	TRIES = 3, /* trials that may fail, because a busy machine is late now and then */
	TURN_NS = 5 * 1000 * 1000, /* after our trial, for the peer to begin its own */
};

/* A trial under way. */
struct attempt {
	struct trial *trial;
	uint32_t peer;
	bool granted; /* all peers granted the lock */
	bool link_down; /* a change of mode took the link down */
	uint32_t downs; /* times that the link went down before the trial */
	uint32_t others_count;
	/* the other peers with a session, which get a new epoch with each mode, too; then @peer */
	uint32_t others[CAREFUL_PEERS_MAX + 1];
	uint32_t region;
	uint64_t until_ns;
	struct xdp_figures arms[XDP_ARMS];
	struct careful_error why;
};

static const char *name_of(uint32_t mode)
{
	return mode == CAREFUL_XDP_NATIVE ? "native" : "generic";
}

static struct careful_device_info device_of(const struct trial *t)
{
	struct careful_info info = { 0 };

	careful_info(t->instance, &info);
	return info.device;
}

static int ask_lock(struct attempt *a)
{
	struct trial *t = a->trial;
	uint32_t count = a->others_count, first;
	int rc;

	a->others[count] = a->peer;
	t->asking = true;
	rc = xdp_trial_lock_ask(t, a->others, count + 1, &first);
	t->asking = false;
	a->granted = !rc;
	/* If another peer refuses for good, try again: its session may have ended by then. */
	return rc && first < count ? -EBUSY : rc;
}

static int find_region(struct attempt *a)
{
	uint32_t args[CAREFUL_AM_ARGS] = { 0 };
	int rc = xdp_trial_ask(a->trial->instance, a->peer, CAREFUL_SCRATCH, args, a->until_ns);

	a->region = args[0];
	return rc;
}

/* Sets the reason why no new epoch began in time. */
static void set_lost_reason(struct attempt *a)
{
	a->link_down |= xdp_mode_link_downs(a->trial->instance) != a->downs;
	snprintf(a->why.text, sizeof(a->why.text), "%s",
		 a->link_down ? "the link goes down when the mode changes" : "the peer is gone");
}

/* Changes the mode, unless it is in effect, and waits for the new epoch. The time that the device
 * needs extends the time limit. */
static int change(struct attempt *a, uint32_t mode)
{
	struct careful *c = a->trial->instance;
	uint64_t began_ns = clock_now_ns();
	int rc;

	if (device_of(a->trial).xdp_mode == mode)
		return 0;
	while ((rc = xdp_mode_change(c, mode, &a->why)) == -EAGAIN &&
	       clock_now_ns() < a->until_ns) {
		careful_wait(c, 1, -1);
		began_ns = clock_now_ns();
	}
	a->until_ns += clock_now_ns() - began_ns;
	if (rc == -EAGAIN)
		snprintf(a->why.text, sizeof(a->why.text), "the old mode's buffers did not return");
	while (!rc && !xdp_trial_is_up(xdp_trial_peer(a->trial, a->peer).state)) {
		rc = careful_wait(c, 1, -1) < 0 || clock_now_ns() > a->until_ns ? -ETIMEDOUT : 0;
		if (rc)
			set_lost_reason(a);
	}
	return rc;
}

static int measure(struct attempt *a)
{
	int rc = find_region(a);

	for (uint32_t i = 0; !rc && i < XDP_ARMS; i++) {
		rc = change(a, i % 2 ? CAREFUL_XDP_GENERIC : CAREFUL_XDP_NATIVE);
		if (rc)
			return rc;
		rc = xdp_trial_arm(a->trial->instance, a->peer, a->region, a->until_ns,
				   &a->arms[i]);
	}
	if (rc)
		snprintf(a->why.text, sizeof(a->why.text), "%s",
			 rc == -ETIME ? "the path is too slow for a difference" : strerror(-rc));
	return rc;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(const struct attempt *a, uint32_t first, bool rate)
{
	double x[XDP_ARMS / 2];

	for (uint32_t i = 0; i < XDP_ARMS / 2; i++)
		x[i] = rate ? a->arms[first + 2 * i].rate : a->arms[first + 2 * i].trip_ns;
	qsort(x, XDP_ARMS / 2, sizeof(x[0]), by_value);
	return x[XDP_ARMS / 4];
}

static void log_figures(const struct attempt *a, bool is_clear)
{
	log_line("XDP, measured with peer %u: native %.1f us a round trip, %.1f Gbit/s; generic "
		 "%.1f us, %.1f Gbit/s; %s%s",
		 a->peer, median(a, 0, false) / 1000, median(a, 0, true) * 8 / 1000,
		 median(a, 1, false) / 1000, median(a, 1, true) * 8 / 1000,
		 is_clear ? "chosen: " : "the measurements disagree, so the driver's mode: ",
		 name_of(device_of(a->trial).xdp_mode));
}

/* Schedules the next attempt, at a random time (ticket): two hosts may have asked each other. */
static void try_again(struct trial *t, uint32_t peer)
{
	t->again_ns = clock_in_ms((AGAIN_MS << t->lock_failures) + t->ticket % (AGAIN_MS / 4));
	t->due_ns[peer] = t->again_ns;
}

/* Ends the search for a mode, and releases the questions that wait for a mode. */
static void finish(struct trial *t, uint32_t by)
{
	t->undecided = false;
	xdp_mode_decided(t->instance, by);
	for (uint32_t i = 0; i < t->peers_max; i++)
		ipc_hold(t->ipc, i, IPC_HOLD_TRIAL, false);
}

static void remember(const struct trial *t, uint32_t mode)
{
	struct careful_error why;

	if (xdp_remember(t->state_dir, device_of(t).driver, mode, &why))
		log_line("XDP: %s", why.text);
}

/* Handles a failed trial: returns to the driver's mode, until the next trial or for good. A driver
 * that restarts its NIC for each mode gets no other trial, not even by `up`: each restart takes
 * seconds. */
static void give_up(struct attempt *a)
{
	struct trial *t = a->trial;
	struct careful_error why = a->why;
	bool last, is_driver_mode;
	uint32_t mode;
	int rc;

	a->until_ns = clock_in_ms(CHANGE_MS);
	rc = change(a, t->driver_mode);
	last = ++t->failed == TRIES || a->link_down;
	mode = device_of(t).xdp_mode;
	is_driver_mode = mode == t->driver_mode;
	log_line("XDP: not measured with peer %u: %s; the mode is %s%s%s", a->peer, why.text,
		 name_of(mode), is_driver_mode ? " (the driver's)" : "",
		 last ? "" : " until the next trial");
	if (rc)
		log_line("XDP: cannot return to %s: %s", name_of(t->driver_mode), a->why.text);
	if (a->link_down && is_driver_mode)
		remember(t, mode);
	if (last)
		finish(t, is_driver_mode ? CAREFUL_XDP_BY_DRIVER : CAREFUL_XDP_BY_LEFT);
	else
		try_again(t, a->peer);
}

/* Applies the better mode. If this is impossible, the trial has failed. */
static void conclude(struct attempt *a)
{
	struct trial *t = a->trial;
	uint32_t best = xdp_choose(a->arms);
	bool is_clear = best != CAREFUL_XDP_AUTO;
	uint32_t mode = is_clear ? best : t->driver_mode;

	a->until_ns = clock_in_ms(CHANGE_MS);
	if (change(a, mode) && device_of(t).xdp_mode != mode) {
		give_up(a);
		return;
	}
	log_figures(a, is_clear);
	if (is_clear)
		remember(t, mode);
	finish(t, is_clear ? CAREFUL_XDP_BY_MEASURED : CAREFUL_XDP_BY_DRIVER);
}

static void await_others(const struct attempt *a)
{
	const struct trial *t = a->trial;
	uint64_t until_ns = clock_in_ms(MEET_MS);

	for (uint32_t i = 0; i < a->others_count; i++)
		while (xdp_trial_peer(t, a->others[i]).state == CAREFUL_PEER_RENEWING)
			if (clock_now_ns() > until_ns || careful_wait(t->instance, 1, -1) < 0)
				return;
}

/* Schedules trials with the peers whose session began during this trial. */
static void schedule_late_peers(const struct attempt *a)
{
	struct trial *t = a->trial;

	for (uint32_t i = 0; t->undecided && i < t->peers_max; i++)
		if (i != a->peer && !t->due_ns[i] && ipc_holds(t->ipc, i, IPC_HOLD_TRIAL) &&
		    xdp_trial_is_up(xdp_trial_peer(t, i).state))
			t->due_ns[i] = clock_now_ns();
}

/* Releases the lock, and gives peers time to begin their own trials. */
static void release_lock(struct attempt *a)
{
	struct trial *t = a->trial;
	uint64_t until_ns;

	xdp_mode_alone(t->instance, CAREFUL_ANY_PEER);
	await_others(a);
	t->running = false;
	a->others[a->others_count++] = a->peer; /* even if refused: a late grant may follow */
	for (uint32_t i = 0; i < a->others_count; i++) {
		if (xdp_trial_is_up(xdp_trial_peer(t, a->others[i]).state))
			xdp_trial_lock_release(t, a->others[i]);
		xdp_trial_is_quiet(t, a->others[i]); /* the next call ignores our requests */
	}
	until_ns = clock_now_ns() + TURN_NS;
	while (a->granted && clock_now_ns() < until_ns && careful_wait(t->instance, 1, -1) >= 0)
		;
	schedule_late_peers(a);
}

/* Tries again later to get the lock. After LOCK_FAILURES_MAX attempts, the driver's mode stays. */
static void retry_lock(struct trial *t, uint32_t peer, int rc)
{
	if (rc && rc != -EBUSY && rc != -ECONNRESET && rc != -ETIMEDOUT)
		return; /* this peer does not support the lock */
	if (++t->lock_failures < LOCK_FAILURES_MAX) {
		try_again(t, peer);
		return;
	}
	log_line("XDP: not measured, because a peer was busy or late (%u attempts); "
		 "%s mode stays, this driver's default; `carefulctl up` measures again",
		 t->lock_failures, name_of(device_of(t).xdp_mode));
	finish(t, CAREFUL_XDP_BY_DRIVER);
}

static void run(struct attempt *a)
{
	struct trial *t = a->trial;
	int rc;

	xdp_mode_alone(t->instance, a->peer);
	rc = ask_lock(a);
	if (rc || t->locks) { /* locks: a peer got the lock here meanwhile */
		release_lock(a);
		retry_lock(t, a->peer, rc);
		return;
	}
	t->running = true;
	log_line("XDP: measuring native and generic with peer %u", a->peer);
	a->until_ns = clock_in_ms(TRIAL_MS);
	a->downs = xdp_mode_link_downs(t->instance);
	if (measure(a))
		give_up(a);
	else
		conclude(a);
	release_lock(a);
}

bool xdp_trial_is_on(const struct trial *t, uint32_t peer)
{
	return t->running || t->lock_ns[peer];
}

/* Lists the other peers. Reports whether no data is under way that new epochs would lose. */
static bool all_quiet(struct attempt *a)
{
	struct trial *t = a->trial;
	bool quiet = xdp_trial_is_quiet(t, a->peer) && !t->locks;

	for (uint32_t i = 0; i < t->peers_max; i++) {
		uint32_t state = i == a->peer ? 0 : xdp_trial_peer(t, i).state;

		if (xdp_trial_is_up(state))
			a->others[a->others_count++] = i;
		else if (state == CAREFUL_PEER_RENEWING)
			quiet = false;
		if (xdp_trial_is_up(state) && !xdp_trial_is_quiet(t, i))
			quiet = false;
	}
	return quiet;
}

void xdp_trial_poll(struct trial *t)
{
	struct attempt a;
	uint64_t now_ns;

	if (!t->undecided && !t->locks)
		return;
	now_ns = clock_now_ns();
	for (uint32_t i = 0; i < t->peers_max; i++) {
		if (t->lock_ns[i] && now_ns >= t->lock_ns[i])
			xdp_trial_lock_end(t, i);
		if (!t->undecided || !t->due_ns[i] || now_ns < t->due_ns[i] || t->lock_ns[i])
			continue;
		t->due_ns[i] = 0;
		a = (struct attempt){ .trial = t, .peer = i };
		if (!all_quiet(&a) && t->busy_checks++ < BUSY_CHECKS_MAX) {
			/* Questions under way end; clients' later questions wait. */
			ipc_hold(t->ipc, i, IPC_HOLD_TRIAL, true);
			t->due_ns[i] = clock_in_ms(QUIET_MS);
			continue;
		}
		if (t->busy_checks > BUSY_CHECKS_MAX) { /* the last check found traffic, too */
			t->busy_checks = 0;
			retry_lock(t, i, -EBUSY);
		} else {
			t->busy_checks = 0;
			ipc_hold(t->ipc, i, IPC_HOLD_TRIAL, true);
			run(&a);
		}
		ipc_hold(t->ipc, i, IPC_HOLD_TRIAL, false);
	}
}

int xdp_trial_timeout_ms(const struct trial *t)
{
	uint64_t first = UINT64_MAX;

	if (!t->undecided && !t->locks)
		return -1;
	for (uint32_t i = 0; i < t->peers_max; i++) {
		if (t->lock_ns[i] && t->lock_ns[i] < first)
			first = t->lock_ns[i];
		else if (t->undecided && t->due_ns[i] && t->due_ns[i] < first)
			first = t->due_ns[i];
	}
	return clock_until_ms(first);
}

void xdp_trial_peer_changed(struct trial *t, uint32_t peer, uint32_t state)
{
	if (state == CAREFUL_PEER_NONE || state == CAREFUL_PEER_FAILED) {
		xdp_trial_lock_end(t, peer);
		t->due_ns[peer] = 0;
		t->moved[peer] = 0;
		ipc_hold(t->ipc, peer, IPC_HOLD_TRIAL, t->undecided);
	} else if (state == CAREFUL_PEER_UP && t->undecided && !t->running) {
		t->due_ns[peer] = clock_now_ns();
		if (t->due_ns[peer] >= t->again_ns)
			return;
		/* The next attempt is later. Clients do not wait for it. */
		t->due_ns[peer] = t->again_ns;
		ipc_hold(t->ipc, peer, IPC_HOLD_TRIAL, false);
	}
}

/* Reports whether there is a choice: --xdp auto, one queue, and native XDP that copies frames. */
static bool has_choice(const struct careful_device_info *device,
		       const struct daemon_options *options)
{
	return options->careful.xdp_mode == CAREFUL_XDP_AUTO && options->careful.queues < 2 &&
	       !options->careful.require_zerocopy && device->xdp_mode == CAREFUL_XDP_NATIVE &&
	       !device->zerocopy;
}

/* Applies the remembered mode. Returns false if there is none. */
static bool apply_remembered(struct trial *t, const char *driver)
{
	struct careful_error why = { 0 };
	uint32_t mode = CAREFUL_XDP_AUTO;
	int rc = xdp_recall(t->state_dir, driver, &mode, &why);

	if (!rc)
		rc = xdp_mode_change(t->instance, mode, &why);
	if (rc && why.text[0])
		log_line("XDP: %s", why.text);
	return !rc;
}

/* Reports whether the link stayed up when the program was attached: some NICs restart for it. */
static bool keeps_link(const struct trial *t)
{
	if (!xdp_mode_link_downs(t->instance))
		return true;
	log_line("XDP: not measured: the link went down when the program was attached");
	return false;
}

int xdp_trial_init(struct trial *t, struct careful *instance, struct ipc *ipc,
		   const struct daemon_options *options)
{
	struct careful_info info;
	int rc = careful_info(instance, &info);

	if (rc)
		return rc;
	*t = (struct trial){
		.instance = instance,
		.ipc = ipc,
		.state_dir = options->state_dir,
		.peers_max = info.peers_max,
		.driver_mode = info.device.xdp_mode,
	};
	if (getrandom(&t->ticket, sizeof(t->ticket), 0) != (ssize_t)sizeof(t->ticket))
		return -EIO;
	if (has_choice(&info.device, options)) {
		bool known = apply_remembered(t, info.device.driver);

		t->undecided = !known && keeps_link(t);
		xdp_mode_decided(instance, known	? CAREFUL_XDP_BY_REMEMBERED :
					   t->undecided ? CAREFUL_XDP_BY_PENDING :
							  CAREFUL_XDP_BY_DRIVER);
	}
	for (uint32_t i = 0; i < t->peers_max; i++)
		ipc_hold(ipc, i, IPC_HOLD_TRIAL, t->undecided);
	return xdp_trial_lock_serve(t);
}
