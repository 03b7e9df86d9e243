/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests the NBD plugin's file if its handle is lost, or another file gets its name. */
#include "nbd/file.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "nbd_host.h"

enum {
	READERS = 3,
	PATIENCE_S = 30,
};

time_t __wrap_time(time_t *at);

time_t __wrap_time(time_t *at)
{
	static time_t day;

	day += 3600;
	if (at)
		*at = day;
	return day;
}

static int write_word(struct file *file)
{
	return file_write(file, "word", 4, 0);
}

static int read_word(struct file *file)
{
	char word[4];

	return file_read(file, word, sizeof(word), 0);
}

static int find_hole(void *arg, uint64_t offset, uint64_t nbytes, bool is_data)
{
	CHECK_EQ(offset, 0);
	CHECK_EQ(nbytes, FILE_BYTES);
	CHECK(!is_data);
	++*(int *)arg;
	return 0;
}

static int find_extents(struct file *file)
{
	int count = 0, rc = file_extents(file, FILE_BYTES, 0, find_hole, &count);

	CHECK_EQ(count, !rc);
	return rc;
}

static int zero_word(struct file *file)
{
	return file_zero(file, 4, 0, true);
}

/* Another file got the name: the next flush, or the next open, detects that. */
static void never_writes_into_another_file(bool is_flush)
{
	struct file *file = begin();

	CHECK_EQ(write_word(file), 0);
	host.inode = 2;
	CHECK_EQ(write_word(file), 0); /* into the first file, whose handle is still open */
	if (!is_flush)
		host.handles[host.handles_count].is_open = false;
	CHECK_EQ(is_flush ? file_sync(file) : write_word(file), -ESTALE);
	CHECK_EQ(write_word(file), -ESTALE);
	CHECK_EQ(read_word(file), -ESTALE);
	CHECK_EQ(file_sync(file), -ESTALE);
	CHECK_EQ(zero_word(file), -ESTALE);
	CHECK_EQ(find_extents(file), -ESTALE);
	CHECK_EQ(open_handles(), 0);
	host.inode = 1; /* the inode number is reused */
	CHECK_EQ(write_word(file), -ESTALE);
	CHECK_EQ(host.stored[1], 2);
	CHECK_EQ(host.stored[2], 0);
	end(file);
}

static void test_file__stays_the_same_after_a_flush(void)
{
	never_writes_into_another_file(true);
}

static void test_file__stays_the_same_after_its_handle_was_lost(void)
{
	never_writes_into_another_file(false);
}

/* A flush fails in COMMIT or in the next OPEN. Then a connection writes, and flushes again. */
static void syncs_after_a_failure(int committing, int opening)
{
	struct file *file = begin();

	CHECK_EQ(write_word(file), 0);
	host.committing = committing;
	host.opening = opening;
	CHECK_EQ(file_sync(file), committing ? committing : opening);
	CHECK(!host.is_dirty);
	host.opening = 0;
	host.is_dirty = true;
	CHECK_EQ(file_sync(file), 0);
	CHECK(!host.is_dirty);
	CHECK_EQ(write_word(file), 0);
	CHECK_EQ(open_handles(), 1);
	end(file);
}

static void test_file__is_synced_after_a_sync_that_failed(void)
{
	syncs_after_a_failure(-EIO, 0);
	syncs_after_a_failure(-EIO, -EMFILE);
}

static void test_file__is_synced_after_a_flush_that_found_no_room(void)
{
	syncs_after_a_failure(0, -EMFILE);
}

/* The request is repeated, and then the file is opened again: 13 resets in move(), 21 in COMMIT. */
static void has_one_handle_after_resets(unsigned int resets, int (*call)(struct file *file))
{
	struct file *file = begin();

	host.is_device = true;
	CHECK_EQ(write_word(file), 0);
	host.resets = resets;
	CHECK_EQ(call(file), 0);
	CHECK_EQ(host.resets, 0);
	CHECK_EQ(host.handles_count, 2 + (call == file_sync));
	CHECK_EQ(open_handles(), 1);
	end(file);
}

static void test_file__has_one_handle_after_resets(void)
{
	has_one_handle_after_resets(13, write_word);
	has_one_handle_after_resets(21, file_sync);
}

static void test_file__waits_for_a_host_that_is_down(void)
{
	int (*const calls[])(struct file * file) = { read_word, write_word, zero_word, find_extents,
						     file_sync };
	struct file *file = begin();

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		host.away = 3;
		CHECK_EQ(calls[i](file), 0);
		CHECK_EQ(host.away, 0);
		CHECK_EQ(open_handles(), 1);
	}
	end(file);
}

/* The host has no room for a while, and the wall clock jumps by an hour meanwhile. */
static void test_file__waits_with_any_clock(void)
{
	struct file *file = begin();

	host.full = 3;
	CHECK_EQ(file_sync(file), 0);
	CHECK_EQ(host.full, 0);
	end(file);
}

static atomic_bool is_synced;
static atomic_uint reads;

/* Reads until the flush has ended, for a bounded time. */
static void *read_on(void *arg)
{
	struct timespec now;
	time_t until;

	clock_gettime(CLOCK_MONOTONIC, &now);
	until = now.tv_sec + PATIENCE_S;
	do {
		clock_gettime(CLOCK_MONOTONIC, &now);
		CHECK(now.tv_sec < until);
		CHECK_EQ(read_word(arg), 0);
		reads++;
	} while (!is_synced);
	return NULL;
}

/* A read is always under way. */
static void test_file__is_synced_while_reads_go_on(void)
{
	pthread_t readers[READERS];
	struct file *file = begin();

	host.overlaps = true;
	is_synced = false;
	for (int i = 0; i < READERS; i++)
		CHECK(!pthread_create(&readers[i], NULL, read_on, file));
	while (reads < READERS)
		usleep(1000);
	CHECK_EQ(file_sync(file), 0);
	is_synced = true;
	for (int i = 0; i < READERS; i++)
		CHECK(!pthread_join(readers[i], NULL));
	end(file);
}

/* Errors of the host become errors that NBD has. */
static void test_error__is_one_that_nbd_has(void)
{
	static const int lost[] = { EIO,     ECONNRESET, ENOTCONN, ETIMEDOUT, EHOSTUNREACH,
				    EBADMSG, ESTALE,	 ENOENT,   ENODEV,    EBADF };
	static const int full[] = { ENOSPC, EDQUOT, EFBIG };
	static const int denied[] = { EPERM, EACCES, EROFS };
	static const int same[] = { EINVAL, ENOMEM, EOVERFLOW, EOPNOTSUPP, ESHUTDOWN };

	for (size_t i = 0; i < sizeof(lost) / sizeof(*lost); i++)
		CHECK_EQ(file_nbd_error(-lost[i]), EIO);
	for (size_t i = 0; i < sizeof(full) / sizeof(*full); i++)
		CHECK_EQ(file_nbd_error(-full[i]), ENOSPC);
	for (size_t i = 0; i < sizeof(denied) / sizeof(*denied); i++)
		CHECK_EQ(file_nbd_error(-denied[i]), EPERM);
	for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++)
		CHECK_EQ(file_nbd_error(-same[i]), same[i]);
}

int main(void)
{
	RUN(test_error__is_one_that_nbd_has);
	RUN(test_file__stays_the_same_after_a_flush);
	RUN(test_file__stays_the_same_after_its_handle_was_lost);
	RUN(test_file__is_synced_after_a_sync_that_failed);
	RUN(test_file__is_synced_after_a_flush_that_found_no_room);
	RUN(test_file__has_one_handle_after_resets);
	RUN(test_file__waits_for_a_host_that_is_down);
	RUN(test_file__waits_with_any_clock);
	RUN(test_file__is_synced_while_reads_go_on);
	return 0;
}
