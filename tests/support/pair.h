/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two network namespaces for tests, joined by a veth, `eth1` at each end, with 10.77.0.1 and .2 and
 * fd77::1 and ::2. They have no names, so they end with the process. Pins and locks are in private
 * file systems, which end with it too.
 */
#ifndef CAREFUL_TESTS_PAIR_H
#define CAREFUL_TESTS_PAIR_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "mounts.h"

struct pair {
	int home; /* the namespace that the test started in */
	int ns[2];
};

static inline void pair_enter(const struct pair *pair, int side)
{
	CHECK(!setns(pair->ns[side], CLONE_NEWNET));
}

static inline void pair_leave(const struct pair *pair)
{
	CHECK(!setns(pair->home, CLONE_NEWNET));
}

/* Runs a command in the namespace of one side. Returns its exit status. */
__attribute__((format(printf, 3, 4))) static inline int pair_run(const struct pair *pair, int side,
								 const char *format, ...)
{
	char command[512];
	va_list args;
	int rc;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	pair_enter(pair, side);
	rc = system(command); // NOLINT: a test's own words
	pair_leave(pair);
	return rc;
}

static inline int pair_namespace(void)
{
	int fd;

	if (unshare(CLONE_NEWNET))
		skip(errno == EPERM ? "needs root" : "no network namespaces");
	fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

static inline void pair_up(const struct pair *pair, int side, unsigned int mtu)
{
	/* Static addresses at once, and no frames but ours; in one process, since tests do this
	 * hundreds of times. */
	CHECK(!pair_run(pair, side,
			"if cd /proc/sys/net/ipv6/conf/eth1; then"
			"  read off <disable_ipv6; echo 0 >accept_dad; echo 0 >router_solicitations;"
			"  [ \"$off\" = 1 ] || ipv6='addr replace fd77::%d/64 dev eth1 nodad';"
			"fi 2>/dev/null\n"
			"printf '%%s\n' 'link set lo up' 'link set eth1 mtu %u up'"
			" 'addr replace 10.77.0.%d/24 dev eth1' \"$ipv6\" | ip -batch -",
			side + 1, mtu, side + 1));
}

/* Makes private pins and locks, which end with the process. Does not mount on /run/careful itself:
 * its removal elsewhere would unmount it here. */
static inline void pair_hide(void)
{
	static bool hidden;
	const char *why;

	if (hidden)
		return;
	why = private_mounts();
	if (why)
		skip(why);
	CHECK(!mount("bpf", "/sys/fs/bpf", "bpf", 0, NULL));
	CHECK(!mount("careful", "/run", "tmpfs", 0, NULL));
	CHECK(!mkdir("/run/careful", 0755));
	hidden = true;
}

static inline void pair_open(struct pair *pair, unsigned int mtu)
{
	pair_hide();
	pair->home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	CHECK(pair->home >= 0);
	pair->ns[0] = pair_namespace();
	pair->ns[1] = pair_namespace();
	pair_leave(pair);
	if (pair_run(pair, 0, "ip link add eth1 type veth peer name eth1 netns /proc/%d/fd/%d",
		     getpid(), pair->ns[1]))
		skip("no veth");
	pair_up(pair, 0, mtu);
	pair_up(pair, 1, mtu);
}

static inline void pair_close(struct pair *pair)
{
	pair_run(pair, 0, "ip link del eth1 2>/dev/null");
	close(pair->ns[0]);
	close(pair->ns[1]);
	close(pair->home);
}

#endif /* CAREFUL_TESTS_PAIR_H */
