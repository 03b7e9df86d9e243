// SPDX-License-Identifier: BSD-2-Clause
/* Waits for running softirqs by running once on every CPU. XDP runs in softirq, from the program to
 * the flush of its redirects, and no thread runs on a CPU during a softirq. A visit to an idle CPU
 * takes tens of µs; RCU's grace period takes 16 ms and more. */
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "device/xsk/xsk.h"

enum { CPUS_MAX = 16 }; /* with more CPUs RCU is about as fast */

static bool says(const char *path)
{
	FILE *file = fopen(path, "re");
	int first = file ? getc(file) : EOF;

	if (file)
		fclose(file);
	return first != EOF && first != '\n';
}

/* Returns the CPUs to visit. 0: visits prove nothing, or would disturb others. On PREEMPT_RT
 * softirqs are preempted. */
int xsk_cpus_count(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);

	if (cpus < 1 || cpus > CPUS_MAX || says("/sys/kernel/realtime") ||
	    says("/sys/devices/system/cpu/isolated"))
		return 0;
	return (int)cpus;
}

/* Runs on each CPU except `but`; may wait for each. false: a CPU is offline or forbidden to us. */
bool xsk_cpus_visit(int cpus, int but)
{
	cpu_set_t before, there;
	bool all = true;

	if (sched_getaffinity(0, sizeof(before), &before))
		return false;
	for (int cpu = 0; all && cpu < cpus; cpu++) {
		if (cpu == but)
			continue;
		CPU_ZERO(&there);
		CPU_SET(cpu, &there);
		all = !sched_setaffinity(0, sizeof(there), &there);
	}
	sched_setaffinity(0, sizeof(before), &before);
	return all;
}
