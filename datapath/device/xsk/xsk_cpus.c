// SPDX-License-Identifier: BSD-2-Clause
/* Waits for running softirqs by running once on every CPU. XDP runs in softirq, from the program to
 * the flush of its redirects, and no thread runs on a CPU during a softirq. A visit to an idle CPU
 * takes tens of µs; RCU's grace period takes at least 16 ms. */
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "device/xsk/xsk.h"

enum { CPUS_MAX = 16 }; /* with more CPUs, RCU is about as fast */

static bool has_text(const char *path)
{
	FILE *file = fopen(path, "re");
	int first = file ? getc(file) : EOF;

	if (file)
		fclose(file);
	return first != EOF && first != '\n';
}

/* Returns the CPUs to visit. 0: visits would disturb isolated CPUs, or prove nothing: on PREEMPT_RT
 * a thread can preempt a softirq. */
int xsk_cpus_count(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);

	if (cpus < 1 || cpus > CPUS_MAX || has_text("/sys/kernel/realtime") ||
	    has_text("/sys/devices/system/cpu/isolated"))
		return 0;
	return (int)cpus;
}

/* Runs on each CPU except `skip`; may wait for each. false: a CPU is offline or forbidden to us. */
bool xsk_cpus_visit(int cpus, int skip)
{
	cpu_set_t before, target;
	bool all = true;

	if (sched_getaffinity(0, sizeof(before), &before))
		return false;
	for (int cpu = 0; all && cpu < cpus; cpu++) {
		if (cpu == skip)
			continue;
		CPU_ZERO(&target);
		CPU_SET(cpu, &target);
		all = !sched_setaffinity(0, sizeof(target), &target);
	}
	sched_setaffinity(0, sizeof(before), &before);
	return all;
}
