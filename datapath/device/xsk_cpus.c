// SPDX-License-Identifier: BSD-2-Clause
/*
 * Sees every softirq of the moment end, by being on every CPU once: XDP runs in softirq, from the
 * program to the flush of its redirects, and no thread gets a CPU while one is at work there. That
 * takes tens of µs a CPU that is not busy; RCU's grace period takes 16 ms and more.
 */
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "device/xsk.h"

enum { CPUS_MAX = 16 }; /* beyond, RCU is about as fast */

/* Reports whether a file of the kernel's says something. */
static bool says(const char *path)
{
	FILE *file = fopen(path, "re");
	int first = file ? getc(file) : EOF;

	if (file)
		fclose(file);
	return first != EOF && first != '\n';
}

/* How many CPUs there are to be on; 0: it proves nothing, or it disturbs others. On
 * PREEMPT_RT softirqs are preempted. */
int xsk_cpus_count(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);

	if (cpus < 1 || cpus > CPUS_MAX || says("/sys/kernel/realtime") ||
	    says("/sys/devices/system/cpu/isolated"))
		return 0;
	return (int)cpus;
}

/* Runs on each CPU but one, and may have to wait for each. false: one of them is off, or not
 * ours to run on. */
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
