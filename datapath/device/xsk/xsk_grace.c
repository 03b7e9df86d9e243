// SPDX-License-Identifier: BSD-2-Clause
/* Waits until all frames that XDP admitted before a slot was closed are in the RX ring. A thread
 * waits, not the engine: a real-time task on another CPU can make the wait arbitrarily long, and
 * only the closed slot needs it.
 *
 * A program that read the old cookie may still write seq_last or redirect a frame. A redirect takes
 * a buffer, and reaches the ring with the flush at the end of the NAPI poll. All of that is one
 * softirq (or ksoftirqd with softirqs disabled), and no thread runs on the CPU meanwhile. So the
 * wait is over once a thread has run on each CPU after the cookie was cleared. On the engine's CPU
 * that is the engine, which was in user mode when it started the wait; on others it is this thread.
 * `requested` orders the cleared cookie before the visits; a program that starts after the visit
 * reads the cleared cookie. If a CPU cannot be visited, RCU's grace period proves the same, because
 * program and flush are one RCU read side. */
#include <linux/capability.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/xsk/xsk.h"

/* Waiting needs no capability (an update of a map since Linux 5.19). Each thread has its own set,
 * so this thread would keep capabilities that the application drops later. */
static void drop_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { 0 } };

	syscall(SYS_capset, &header, none);
}

/* Waits once for all requests so far. */
static void run(struct pool *pool, struct pool_job *job)
{
	struct xsk_port *port = pool->user;
	struct xsk_grace *grace = &port->grace;
	uint64_t requested = __atomic_load_n(&grace->requested, __ATOMIC_ACQUIRE);
	int engine_cpu = __atomic_load_n(&grace->engine_cpu, __ATOMIC_RELAXED);

	(void)job;
	drop_capabilities();
	if (requested == grace->completed)
		return;
	if (!grace->cpus || !xsk_cpus_visit(grace->cpus, engine_cpu)) {
		grace->cpus = 0;
		xsk_bpf_wait_rcu(port);
	}
	__atomic_store_n(&grace->completed, requested, __ATOMIC_RELEASE);
}

static const struct pool_rules rules = {
	.workers_max = 1,
	.group_max = 1,
	.quiet = true,
	.run = run,
};

int xsk_grace_open(struct xsk_port *port, struct careful_error *error)
{
	struct xsk_grace *grace = &port->grace;
	int rc;

	grace->cpus = xsk_cpus_count();
	rc = pool_open(&grace->pool, &rules, port);
	if (rc)
		return explain(error, rc, "cannot start a thread: %s", strerror(-rc));
	grace->running = true;
	pool_put(&grace->pool, &grace->group, &grace->job); /* the first job drops capabilities */
	return 0;
}

/* A child of fork() does not have the thread. */
void xsk_grace_close(struct xsk_port *port)
{
	struct xsk_grace *grace = &port->grace;

	if (!grace->running || !xsk_is_owner(port))
		return;
	pool_stop(&grace->pool, 0, false);
	pool_free(&grace->pool);
	grace->running = false;
}

uint64_t xsk_grace_start(struct xsk_port *port)
{
	struct xsk_grace *grace = &port->grace;
	uint64_t number = grace->requested + 1;

	__atomic_store_n(&grace->engine_cpu, sched_getcpu(), __ATOMIC_RELAXED);
	__atomic_store_n(&grace->requested, number, __ATOMIC_RELEASE);
	pool_put(&grace->pool, &grace->group, &grace->job);
	return number;
}

bool xsk_grace_over(const struct xsk_port *port, uint64_t number)
{
	return __atomic_load_n(&port->grace.completed, __ATOMIC_ACQUIRE) >= number;
}
