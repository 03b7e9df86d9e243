// SPDX-License-Identifier: BSD-2-Clause
/* Waits for an application: polls, spins while that pays (spin.h), then blocks. */
#include "engine/sharing.h"
#include "engine/engine.h"

#include <poll.h>

enum {
	POLLS_PER_CLOCK = 32, /* rounds between two reads of the clock */
	EXTRA_NS = 20 * 1000, /* between two system calls that poll extra_fd */
	NET_TX_NS = 1000 * 1000, /* shortest spin while frames wait for netTx */
	FDS_MAX = DEVICE_WAIT_FDS_MAX + 1,
};

void engine_each_round(struct careful *c, engine_each_round_fn *fn, void *user)
{
	c->each_round = fn;
	c->each_round_user = user;
}

/* Blocks. Reports whether extra_fd is readable. */
static bool block(struct careful *c, int timeout_ms, int extra_fd)
{
	struct pollfd pfds[FDS_MAX + 1];
	int fds[FDS_MAX];
	int most, count;

	if (c->each_round && c->each_round(c, c->each_round_user, true))
		return false;
	count = c->ops->wait_fds(c, fds, FDS_MAX, &most);
	for (int i = 0; i < count; i++)
		pfds[i] = (struct pollfd){ .fd = fds[i], .events = POLLIN };
	pfds[count] = (struct pollfd){ .fd = extra_fd, .events = POLLIN }; /* -1 is ignored */
	poll(pfds, (nfds_t)count + 1, timeout_ms < most ? timeout_ms : most);
	return pfds[count].revents;
}

/* Reports whether extra_fd is readable; asks the kernel at most every EXTRA_NS. */
static bool extra_ready(struct careful *c, int extra_fd, uint64_t now)
{
	struct pollfd pfd = { .fd = extra_fd, .events = POLLIN };

	if (extra_fd < 0 || now - c->extra_ns < EXTRA_NS)
		return false;
	c->extra_ns = now;
	return poll(&pfd, 1, 0) > 0;
}

static uint64_t frames_moved(const struct careful *c)
{
	const uint64_t *n = c->link.counters;

	return n[CAREFUL_C_RX_FRAMES] + n[CAREFUL_C_RX_UPDATES] + n[CAREFUL_C_TX_FRAMES];
}

/* Records whether a wait's spin paid. start: when it began; 0: the first polls found work. */
static void learn(struct careful *c, struct spin *history, uint64_t spun, uint64_t start,
		  uint64_t blocked)
{
	const uint64_t spin_ns = c->options.spin_us * 1000ull;

	if (blocked)
		spin_blocked(history, spun, blocked, spin_ns);
	else if (start && spun && history->vain)
		spin_paid(history, c->ops->now_ns(c) - start, spin_ns);
}

int careful_wait(struct careful *c, int timeout_ms, int extra_fd)
{
	const uint64_t wait = (uint64_t)(timeout_ms < 0 ? 3600000 : timeout_ms) * 1000000;
	uint64_t start = 0, limit = 0; /* set when the first polls find nothing */
	uint64_t spin = 0, blocked = 0, moved = frames_moved(c), now;
	bool extra_readable;
	/* With operations under way we wait for a peer; else perhaps for a program on our CPU. */
	struct spin *history = &c->spin[c->operations_free_count == c->limits.operations];
	const uint32_t callbacks = c->callbacks;
	int handled = 0;

	for (;;) {
		for (int i = 0; i < POLLS_PER_CLOCK && !handled && callbacks == c->callbacks; i++)
			handled = c->ops->poll(c);
		if (handled || callbacks != c->callbacks) {
			learn(c, history, spin, start, blocked);
			return handled;
		}
		now = c->ops->now_ns(c);
		if (!start) {
			start = now;
			limit = now + wait;
			spin = spin_for_ns(history, &c->options);
		}
		if (now >= limit || extra_ready(c, extra_fd, now))
			return 0;
		if (moved != frames_moved(c)) { /* spinning pays while frames move */
			moved = frames_moved(c);
			start = now;
		}
		/* No file descriptor reports that a device has completed frames. */
		if (now - start < (c->link.tx_held && spin < NET_TX_NS ? NET_TX_NS : spin) ||
		    engine_has_news(c))
			continue;
		extra_readable = block(c, (int)((limit - now) / 1000000) + 1, extra_fd);
		blocked += c->ops->now_ns(c) - now;
		if (extra_readable) {
			learn(c, history, spin, start, blocked);
			return c->ops->poll(c);
		}
	}
}
