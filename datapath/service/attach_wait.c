// SPDX-License-Identifier: BSD-2-Clause
/*
 * How a program waits for its rings: it spins, and then sleeps until carefuld wakes it. Calls
 * attach_ring.c.
 */
#include "service/attach.h"

#include <poll.h>
#include <time.h>

enum {
	IDLE_MS = 1000,
	EVENTS_MS = 20, /* in a group: what is to be said again is looked at so often */
	EXTRA_NS = 20 * 1000, /* as careful_wait() */
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Reports whether there is room again for what found none. */
static bool has_room(const struct attached *a)
{
	return a->refused && a->asks_put - read_number(&a->area->asks_taken) < CAREFUL_RING_ASKS;
}

/* The same; the caller tells of it. */
static bool take_room(struct attached *a)
{
	const bool room = has_room(a);

	a->refused &= !room;
	return room;
}

static bool untold(const struct attached *a)
{
	return read_number(&a->area->told_put) != a->told_taken || a->closed || has_room(a);
}

/* From here on carefuld wakes us; false: something is there already. */
static bool arm(struct attached *a)
{
	a->armed = true;
	write_number(&a->area->told_asleep, 1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return !untold(a);
}

int attached_wait_fds(struct careful *c, int *fds, uint32_t n, int *timeout_ms)
{
	struct attached *a = c->attached;
	const bool idle = arm(a) && a->socket_fd >= 0, room = take_room(a);
	uint32_t count = 0;

	if (a->socket_fd >= 0 && n)
		fds[count++] = a->socket_fd;
	*timeout_ms = idle && !room ? (c->events ? EVENTS_MS : IDLE_MS) : 0;
	return (int)count;
}

/* True: extra_fd has something. */
static bool sleep_until(struct careful *c, int timeout_ms, int extra_fd)
{
	struct attached *a = c->attached;
	struct pollfd pfds[2] = {
		{ .fd = a->socket_fd, .events = POLLIN },
		{ .fd = extra_fd, .events = POLLIN },
	};

	if (!arm(a))
		return false;
	poll(pfds, 2, timeout_ms < IDLE_MS ? timeout_ms : IDLE_MS);
	return pfds[1].revents;
}

static bool extra_ready(struct careful *c, int extra_fd, uint64_t now)
{
	struct pollfd pfd = { .fd = extra_fd, .events = POLLIN };

	if (extra_fd < 0 || now - c->extra_ns < EXTRA_NS)
		return false;
	c->extra_ns = now;
	return poll(&pfd, 1, 0) > 0;
}

int attached_wait(struct careful *c, int timeout_ms, int extra_fd)
{
	const uint64_t wait = (uint64_t)(timeout_ms < 0 ? 3600000 : timeout_ms) * 1000000;
	uint64_t start = 0, limit = 0, blocked = 0, spin = 0, now;
	int rc;

	for (;;) {
		rc = attached_poll(c);
		if (rc) {
			if (blocked)
				spin_blocked(&c->spin, spin, blocked, c->options.spin_us * 1000ull);
			else if (start && spin && c->spin.vain)
				spin_paid(&c->spin, now_ns() - start, c->options.spin_us * 1000ull);
			return rc;
		}
		if (take_room(c->attached))
			return 0;
		now = now_ns();
		if (!start) {
			start = now;
			limit = now + wait;
			spin = spin_for_ns(&c->spin, &c->options);
		}
		if (now >= limit || extra_ready(c, extra_fd, now))
			return 0;
		if (now - start < spin)
			continue;
		if (sleep_until(c, (int)((limit - now) / 1000000) + 1, extra_fd))
			return attached_poll(c);
		blocked += now_ns() - now;
	}
}
