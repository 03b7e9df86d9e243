/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Small files that change while a batch reads them. The answer has the contents of one time, or
 * reports that there was none. This file replaces pread(): it reads in two halves, and lets the
 * test act in between.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <careful/files.h>

#include "check.h"
#include "storage/tree/stable_read.h"

enum { BYTES = 4096, HALF = BYTES / 2 };

static char root[] = "/tmp/careful-steady-XXXXXX";
static int base;
static void (*between)(void); /* runs after the first half */
static bool each_time;
static int reads;
static char *mapped;

ssize_t pread(int fd, void *buf, size_t bytes, off_t offset)
{
	void (*now)(void) = between;

	if (bytes != BYTES || offset)
		return syscall(SYS_pread64, fd, buf, bytes, offset);
	reads++;
	if (!now)
		return syscall(SYS_pread64, fd, buf, bytes, offset);
	bytes = (size_t)syscall(SYS_pread64, fd, buf, HALF, offset);
	if (!each_time)
		between = NULL;
	now();
	return (ssize_t)bytes;
}

static int open_file(void)
{
	return openat(base, "a", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

/* Writes the file in place. */
static void fill(char c)
{
	char data[BYTES];
	int fd = open_file();

	memset(data, c, BYTES);
	CHECK(pwrite(fd, data, BYTES, 0) == BYTES);
	close(fd);
}

/* Waits until no change is recent. */
static void settle(void)
{
	usleep(50000);
}

static void rewrite(void)
{
	static char c = 'b';

	fill(c);
	c = (char)(c == 'z' ? 'b' : c + 1);
}

/* Writes and sets the time back, like `touch -r` and rsync. */
static void rewrite_and_set_time_back(void)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };
	struct stat st;
	int fd = open_file();

	CHECK(!fstat(fd, &st));
	times[1] = st.st_mtim;
	rewrite();
	CHECK(!futimens(fd, times));
	close(fd);
}

/* Ends a change that began, and set the times, before the first fstat(). */
static void end_change(void)
{
	memset(mapped, 'c', BYTES);
}

/* Reads the file in a batch. Returns the status; *whole: whether all bytes come from one time. */
static int read_file(bool *whole)
{
	union {
		struct careful_block_item head;
		char room[sizeof(struct careful_block_item) + 8];
	} batch = { .head = { .op = htobe16(CAREFUL_ITEM_READ), .name_bytes = htobe32(1) } };
	struct careful_batch_how how = { .file_bytes_max = BYTES, .answer_bytes_max = 1 << 20 };
	struct careful_batch_answer answer;
	const struct careful_block_item *item;
	const char *data;
	int status;

	batch.head.attr.bytes = htobe64(1);
	batch.room[sizeof(batch.head)] = 'a';
	reads = 0;
	CHECK(careful_batch(base, &batch, sizeof(batch), &how, &answer) == 0);
	item = answer.items;
	status = (int)be32toh(item->status);
	data = (const char *)(item + 1) + 1;
	CHECK(status || be64toh(item->data_bytes) == BYTES);
	*whole = !status && !memcmp(data, data + 1, BYTES - 1);
	CHECK(status || be64toh(item->attr.bytes) == BYTES);
	careful_batch_release(&answer);
	return status;
}

static void steady__unchanged_is_read_once(void)
{
	bool whole;

	fill('a');
	settle();
	CHECK(read_file(&whole) == 0 && whole && reads == 1);
}

static void steady__rewritten(void)
{
	bool whole;

	fill('a');
	settle();
	between = rewrite;
	CHECK(read_file(&whole) == 0 && whole && reads > 1);
}

static void steady__rewritten_and_its_time_set_back(void)
{
	bool whole;

	fill('a');
	settle();
	between = rewrite_and_set_time_back;
	CHECK(read_file(&whole) == 0 && whole && reads > 1);
}

static void steady__rewritten_each_time(void)
{
	bool whole;

	fill('a');
	settle();
	between = rewrite;
	each_time = true;
	CHECK(read_file(&whole) == ESTALE && reads > 1);
	between = NULL;
	each_time = false;
}

/* A file's times do not show the end of a change. If the machine is so slow that the change is no
 * longer recent, the test changes the file again. */
static void steady__under_way(void)
{
	struct timespec began, now;
	bool whole, young = false;
	int fd;

	for (int i = 0; i < 100 && !young; i++) {
		fill('a');
		fd = open_file();
		mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		CHECK(mapped != MAP_FAILED);
		settle();
		clock_gettime(CLOCK_REALTIME, &began);
		mapped[0] = 'c';
		between = end_change;
		CHECK(read_file(&whole) == 0);
		clock_gettime(CLOCK_REALTIME, &now);
		now.tv_nsec += (now.tv_sec - began.tv_sec) * 1000000000;
		/* A change that is 20 ms old is not recent: what was read counts. */
		young = whole || now.tv_nsec - began.tv_nsec < 20000000;
		munmap(mapped, BYTES);
		close(fd);
	}
	CHECK(young && whole && reads > 1);
}

static void steady__a_clock_that_is_ahead(void)
{
	struct stat st, same;
	time_t then = time(NULL);

	fill('a');
	CHECK(!fstatat(base, "a", &st, 0));
	st.st_ctim.tv_sec = then + 100;
	same = st;
	CHECK(stable_read_between(&st, &same));
	same.st_ctim.tv_nsec ^= 1;
	CHECK(!stable_read_between(&st, &same));
}

/* Checks the settled copy of a file whose size is not that of its contents. */
static void check_made_up(const char *path, off_t size)
{
	char expected[200], found[200];
	int fd = open(path, O_RDONLY | O_CLOEXEC), copy;
	struct stat st;
	ssize_t n;

	CHECK(fd >= 0 && !fstat(fd, &st) && st.st_size == size);
	n = pread(fd, expected, sizeof(expected), 0);
	CHECK(n > 0);
	CHECK(careful_prepare_read(fd, &copy) == 0 && copy >= 0);
	CHECK(pread(copy, found, sizeof(found), 0) == n && !memcmp(found, expected, (size_t)n));
	CHECK(!fstat(copy, &st) && st.st_size == n && (st.st_mode & 0777) == 0444);
	close(copy);
	close(fd);
}

static void settle__has_no_size(void)
{
	check_made_up("/proc/sys/kernel/ostype", 0);
}

/* A file shorter than stat's size was once reported as shrunk. */
static void settle__ends_before_its_size(void)
{
	check_made_up("/sys/devices/system/cpu/online", sysconf(_SC_PAGESIZE));
	check_made_up("/sys/devices/system/cpu/cpu0/topology/core_cpus", sysconf(_SC_PAGESIZE));
}

/* A file of /proc that has a kilobyte for each of many mappings. */
static void settle__too_large(void)
{
	enum { PAGE = 4096, MAPPINGS = 10000 };
	char *pages =
		mmap(NULL, (size_t)PAGE * MAPPINGS, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC), copy;

	CHECK(pages != MAP_FAILED && fd >= 0);
	for (size_t i = 0; i < MAPPINGS; i += 2)
		CHECK(!mprotect(pages + i * PAGE, PAGE, PROT_NONE));
	CHECK(careful_prepare_read(fd, &copy) == -EFBIG && copy == -1);
	CHECK(!munmap(pages, (size_t)PAGE * MAPPINGS));
	close(fd);
}

static void settle__files_and_others(void)
{
	int fd, copy;
	struct stat st;

	fill('a');
	fd = open_file();
	CHECK(careful_prepare_read(fd, &copy) == 0 && copy == -1);
	CHECK(!fstat(fd, &st) && stable_read_between(&st, &st));
	CHECK(!ftruncate(fd, 0) && !ftruncate(fd, 1 << 20)); /* a hole */
	CHECK(careful_prepare_read(fd, &copy) == 0 && copy == -1);
	CHECK(!ftruncate(fd, 0) && careful_prepare_read(fd, &copy) == 0 && copy == -1);
	close(fd);
	fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	CHECK(careful_prepare_read(fd, &copy) == 0 && copy == -1);
	close(fd);
}

/* Checks that a batch leaves a file to a single read. */
static void check_left(const char *folder, const char *name)
{
	union {
		struct careful_block_item head;
		char room[sizeof(struct careful_block_item) + 8];
	} batch = { .head = { .op = htobe16(CAREFUL_ITEM_READ), .name_bytes = htobe32(6) } };
	struct careful_batch_how how = { .file_bytes_max = BYTES, .answer_bytes_max = 1 << 20 };
	int dir = open(folder, O_RDONLY | O_DIRECTORY);
	struct careful_batch_answer answer;

	batch.head.attr.bytes = htobe64(1);
	memcpy(batch.room + sizeof(batch.head), name, 6);
	CHECK(careful_batch(dir, &batch, sizeof(batch), &how, &answer) == 0);
	CHECK(((struct careful_block_item *)answer.items)->status == htobe32(ESTALE));
	careful_batch_release(&answer);
	close(dir);
}

static void settle__batch_leaves_it(void)
{
	check_left("/proc/sys/kernel", "ostype");
	check_left("/sys/devices/system/cpu", "online");
}

int main(void)
{
	char command[100];

	CHECK(mkdtemp(root));
	base = open(root, O_RDONLY | O_DIRECTORY);
	RUN(steady__unchanged_is_read_once);
	RUN(steady__rewritten);
	RUN(steady__rewritten_and_its_time_set_back);
	RUN(steady__rewritten_each_time);
	RUN(steady__under_way);
	RUN(steady__a_clock_that_is_ahead);
	RUN(settle__has_no_size);
	RUN(settle__ends_before_its_size);
	RUN(settle__too_large);
	RUN(settle__files_and_others);
	RUN(settle__batch_leaves_it);
	snprintf(command, sizeof(command), "rm -rf %s", root);
	CHECK(system(command) == 0);
	return 0;
}
