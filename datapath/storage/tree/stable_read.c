/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdint.h>
#include <time.h>

#include "storage/tree/stable_read.h"

enum { YOUNG_NS = 20000000, WAITS_MAX = 3 };

static bool is_same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* Returns for how many ns the last change stays too recent. Ignores a time in the future, which
 * comes from another clock. */
static int64_t young_ns(const struct stat *st)
{
	const int64_t second = 1000000000;
	struct timespec now;
	int64_t age;

	clock_gettime(CLOCK_REALTIME, &now);
	age = now.tv_sec - st->st_ctim.tv_sec;
	if (age < 0 || age > 1)
		return 0;
	age = age * second + now.tv_nsec - st->st_ctim.tv_nsec;
	return age < 0 || age >= YOUNG_NS ? 0 : YOUNG_NS - age;
}

int stable_read_wait(int fd, struct stat *st)
{
	for (int i = 0; !fstat(fd, st); i++) {
		struct timespec left = { .tv_nsec = young_ns(st) };

		if (!left.tv_nsec || i == WAITS_MAX)
			return 0;
		nanosleep(&left, NULL);
	}
	return -errno;
}

bool stable_read_between(const struct stat *before, const struct stat *after)
{
	return before->st_size == after->st_size &&
	       is_same_time(&before->st_mtim, &after->st_mtim) &&
	       is_same_time(&before->st_ctim, &after->st_ctim) && !young_ns(after);
}
