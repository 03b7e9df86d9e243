// SPDX-License-Identifier: BSD-2-Clause
/* Waits until all frames that XDP admitted before a slot was closed are in the RX ring. A thread
 * waits, not the engine: a real-time task on another CPU can make the wait arbitrarily long, and
 * only the closed slot needs it.
 *
 * A program that read the old cookie may still write seq_last or redirect a frame. A redirect takes
 * a buffer, and reaches the ring with the flush at the end of the NAPI poll. All of that is one
 * softirq (or ksoftirqd with softirqs disabled), and no thread runs on the CPU meanwhile. So the
 * wait ends once a thread has run on each CPU after the cookie was cleared: this thread, or on its
 * own CPU the engine, which was in user mode when it asked. The lock orders the cleared cookie
 * before the visits; a program that starts after the visit reads the cleared cookie. If a CPU
 * cannot be visited, RCU's grace period proves the same, because program and flush are one RCU read
 * side. */
#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/thread.h"
#include "device/xsk.h"

enum { STACK_BYTES = 64 << 10 };

static void wait_for_softirqs(struct xsk_port *port, int here)
{
	struct xsk_grace *grace = &port->grace;

	if (grace->cpus && xsk_cpus_visit(grace->cpus, here))
		return;
	grace->cpus = 0;
	xsk_bpf_wait_rcu(port);
}

/* Waiting needs no capability (bpf() of a map since Linux 5.19). Capabilities are per thread, so
 * this thread would keep what the application drops later. */
static void drop_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { 0 } };

	syscall(SYS_capset, &header, none);
}

static void *waiter(void *arg)
{
	struct xsk_port *port = arg;
	struct xsk_grace *grace = &port->grace;

	drop_capabilities();
	pthread_mutex_lock(&grace->lock);
	while (!grace->stop) {
		uint64_t asked = grace->asked;
		int here = grace->here;

		if (asked == __atomic_load_n(&grace->done, __ATOMIC_RELAXED)) {
			pthread_cond_wait(&grace->wake, &grace->lock);
			continue;
		}
		pthread_mutex_unlock(&grace->lock);
		wait_for_softirqs(port, here);
		__atomic_store_n(&grace->done, asked, __ATOMIC_RELEASE);
		pthread_mutex_lock(&grace->lock);
	}
	pthread_mutex_unlock(&grace->lock);
	return NULL;
}

int xsk_grace_open(struct xsk_port *port, struct careful_error *error)
{
	struct xsk_grace *grace = &port->grace;
	int rc;

	grace->cpus = xsk_cpus_count();
	pthread_mutex_init(&grace->lock, NULL);
	pthread_cond_init(&grace->wake, NULL);
	rc = thread_start(&grace->thread, STACK_BYTES, waiter, port);
	if (rc)
		return refuse(error, rc, "cannot start a thread: %s", strerror(-rc));
	grace->running = true;
	return 0;
}

/* A child of fork() has no such thread. */
void xsk_grace_close(struct xsk_port *port)
{
	struct xsk_grace *grace = &port->grace;

	if (!grace->running || !xsk_ours(port))
		return;
	pthread_mutex_lock(&grace->lock);
	grace->stop = true;
	pthread_mutex_unlock(&grace->lock);
	pthread_cond_signal(&grace->wake);
	pthread_join(grace->thread, NULL);
	pthread_cond_destroy(&grace->wake);
	pthread_mutex_destroy(&grace->lock);
	grace->running = false;
}

/* Starts a wait for everything that runs now; returns its number. */
uint64_t xsk_grace_ask(struct xsk_port *port)
{
	struct xsk_grace *grace = &port->grace;
	uint64_t asked;

	pthread_mutex_lock(&grace->lock);
	asked = ++grace->asked;
	grace->here = sched_getcpu();
	pthread_mutex_unlock(&grace->lock);
	pthread_cond_signal(&grace->wake);
	return asked;
}

bool xsk_grace_over(const struct xsk_port *port, uint64_t asked)
{
	return __atomic_load_n(&port->grace.done, __ATOMIC_ACQUIRE) >= asked;
}
