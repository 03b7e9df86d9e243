/* SPDX-License-Identifier: BSD-2-Clause */
/* Batches in a directory: items that were read make equal files elsewhere, and no name leads
 * out. */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <careful/files.h>

#include "batch.h"
#include "check.h"

static char root[] = "/tmp/careful-batch-XXXXXX";
static int from, to;

static const uint32_t all = CAREFUL_BATCH_MODE | CAREFUL_BATCH_OWNER | CAREFUL_BATCH_TIME |
			    CAREFUL_BATCH_XATTRS;

static struct careful_batch_answer run(int base, const void *items, size_t bytes, uint32_t flags,
				       bool writable)
{
	struct careful_batch_how how = {
		.flags = flags,
		.umask = 022,
		.writable = writable,
		.file_bytes_max = 1000,
		.answer_bytes_max = 1 << 20,
	};
	struct careful_batch_answer answer;

	CHECK(careful_batch(base, items, bytes, &how, &answer) == 0);
	return answer;
}

/* Runs the prepared items in `to`. Returns the status of the first. */
static int run_put(uint32_t flags, bool writable)
{
	struct careful_batch_answer answer = run(to, batch, used, flags, writable);
	struct careful_block_item *first = answer.items;
	int status = (int)be32toh(first->status);

	careful_batch_release(&answer);
	used = 0;
	return status;
}

static int one(uint16_t op, const char *name, const char *text, uint32_t mode)
{
	put(op, name, text, mode, 0);
	return run_put(CAREFUL_BATCH_NODIGEST, true);
}

static void write_file(int dir, const char *name, const char *text, mode_t mode)
{
	int fd = openat(dir, name, O_CREAT | O_WRONLY | O_TRUNC, 0600);

	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	CHECK(fchmod(fd, mode) == 0);
	close(fd);
}

static bool holds(int dir, const char *name, const char *text)
{
	char buf[2000] = { 0 };
	int fd = openat(dir, name, O_RDONLY);
	ssize_t n = read(fd, buf, sizeof(buf) - 1);

	close(fd);
	return n == (ssize_t)strlen(text) && !strcmp(buf, text);
}

static void batch__copies_what_it_reads(void)
{
	const struct timespec times[2] = { { 5, 6 }, { 7, 123456789 } };
	struct careful_batch_answer found, made;
	struct stat st;
	char value[8];

	write_file(from, "a", "hello", 04751);
	CHECK(mkdirat(from, "d", 0755) == 0 && mkdirat(to, "d", 0755) == 0);
	write_file(from, "d/empty", "", 0600);
	CHECK(symlinkat("nowhere/\xff", from, "l") == 0);
	CHECK(utimensat(from, "a", times, 0) == 0);
	CHECK(utimensat(from, "l", times, AT_SYMLINK_NOFOLLOW) == 0);
	put(CAREFUL_ITEM_READ, "a", "", 0, 1);
	put(CAREFUL_ITEM_READ, "d/empty", "", 0, 1);
	put(CAREFUL_ITEM_READ, "l", "", 0, 1);
	put(CAREFUL_ITEM_READ, "none", "", 0, 1);
	found = run(from, batch, used, all, false);
	used = 0;
	CHECK(found.failed == 1);
	made = run(to, found.items, found.bytes, all | CAREFUL_BATCH_SYNC, true);
	CHECK(made.failed == 1); /* the error that the sender reported */
	CHECK(holds(to, "a", "hello") && holds(to, "d/empty", ""));
	CHECK(fstatat(to, "a", &st, 0) == 0 && (st.st_mode & 07777) == 04751);
	CHECK(st.st_mtim.tv_sec == 7 && st.st_mtim.tv_nsec == 123456789);
	CHECK(readlinkat(to, "l", value, 8) == 8 && !memcmp(value, "nowhere/", 8));
	CHECK(fstatat(to, "l", &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_mtim.tv_nsec == 123456789);
	CHECK(entries(to) == 3 && !faccessat(to, "d/empty", R_OK, 0));
	careful_batch_release(&made);
	/* A second run: existing files stay, unless the batch replaces them. */
	write_file(to, "a", "other", 0600);
	made = run(to, found.items, found.bytes, all, true);
	CHECK(((struct careful_block_item *)made.items)->status == htobe32(EEXIST));
	CHECK(holds(to, "a", "other") && entries(to) == 3);
	careful_batch_release(&made);
	made = run(to, found.items, found.bytes, all | CAREFUL_BATCH_REPLACE, true);
	CHECK(made.failed == 1 && holds(to, "a", "hello") && entries(to) == 3);
	careful_batch_release(&made);
	careful_batch_release(&found);
}

static void batch__damaged_contents(void)
{
	struct careful_batch_answer found, made;

	write_file(from, "x", "contents", 0600);
	put(CAREFUL_ITEM_READ, "x", "", 0, 1);
	found = run(from, batch, used, 0, false);
	used = 0;
	((char *)found.items)[sizeof(struct careful_block_item) + 3] ^= 1;
	made = run(to, found.items, found.bytes, 0, true);
	CHECK(((struct careful_block_item *)made.items)->status == htobe32(EBADMSG));
	CHECK(faccessat(to, "x", F_OK, 0));
	careful_batch_release(&made);
	careful_batch_release(&found);
}

static void batch__large_is_not_read(void)
{
	struct careful_batch_answer found;
	char text[1002];

	memset(text, 'x', 1001);
	text[1001] = 0;
	write_file(from, "large", text, 0600);
	put(CAREFUL_ITEM_READ, "large", "", 0, 1);
	found = run(from, batch, used, 0, false);
	used = 0;
	CHECK(((struct careful_block_item *)found.items)->op == htobe16(CAREFUL_ITEM_META));
	CHECK(found.bytes < 200);
	careful_batch_release(&found);
}

/* DIGEST returns the attributes and digest of a small file, without the contents. */
static void batch__digests(void)
{
	static const char *const names[] = { "a", "d/empty", "large", "d", "l", "none" };
	static const int expected[] = { 0, 0, EOVERFLOW, ENOTSUP, ENOTSUP, ENOENT };
	uint64_t digests[2] = { 0 };
	const struct careful_block_item *item;
	struct careful_batch_answer found;
	size_t at = 0;

	for (int i = 0; i < 2; i++)
		put(CAREFUL_ITEM_READ, names[i], "", 0, 1);
	found = run(from, batch, used, 0, false);
	item = found.items;
	digests[0] = item->digest;
	item = (const void *)((const char *)item + sizeof(*item) + 8); /* "a", "hello" */
	digests[1] = item->digest;
	careful_batch_release(&found);
	used = 0;
	for (int i = 0; i < 6; i++)
		put(CAREFUL_ITEM_DIGEST, names[i], "", 0, 0);
	found = run(from, batch, used, CAREFUL_BATCH_NODIGEST, false);
	used = 0;
	CHECK_EQ(found.failed, 4);
	for (int i = 0; i < 6; i++) {
		item = (const void *)((const char *)found.items + at);
		CHECK_EQ(be32toh(item->status), expected[i]);
		CHECK_EQ(be16toh(item->op), CAREFUL_ITEM_DIGEST);
		CHECK(!item->data_bytes && !item->text_bytes);
		CHECK_EQ(item->digest, i < 2 ? digests[i] : 0);
		at += (sizeof(*item) + be32toh(item->name_bytes) + 7) & ~(size_t)7;
	}
	CHECK_EQ(at, found.bytes);
	item = found.items;
	CHECK_EQ(be64toh(item->attr.bytes), 5);
	careful_batch_release(&found);
}

static void batch__xattrs(void)
{
	struct careful_batch_answer found, made;
	char value[16];

	write_file(from, "e", "e", 0600);
	write_file(to, "e", "e", 0600);
	if (setxattr("/proc/self/fd/0", "user.x", "", 0, 0) && errno == ENOSYS) {
		skip_part("no extended attributes in this kernel");
		return;
	}
	int fd = openat(from, "e", O_RDONLY);
	int other = openat(to, "e", O_RDONLY);

	if (fsetxattr(fd, "user.one", "1\0002", 3, 0) == 0) {
		CHECK(fsetxattr(other, "user.old", "x", 1, 0) == 0);
		put(CAREFUL_ITEM_READ, "e", "", 0, 0);
		found = run(from, batch, used, all, false);
		used = 0;
		made = run(to, found.items, found.bytes, all, true);
		CHECK(made.failed == 0);
		CHECK(fgetxattr(other, "user.one", value, 16) == 3 && !memcmp(value, "1\0002", 3));
		CHECK(fgetxattr(other, "user.old", value, 16) < 0 && errno == ENODATA);
		careful_batch_release(&made);
		careful_batch_release(&found);
	}
	close(fd);
	close(other);
}

static void batch__links_and_removal(void)
{
	struct stat a, b;

	write_file(to, "first", "1", 0600);
	CHECK(one(CAREFUL_ITEM_LINK, "d/second", "first", 0) == 0);
	CHECK(!fstatat(to, "first", &a, 0) && !fstatat(to, "d/second", &b, 0));
	CHECK(a.st_ino == b.st_ino && a.st_nlink == 2);
	CHECK(one(CAREFUL_ITEM_LINK, "d/second", "first", 0) == EEXIST);
	put(CAREFUL_ITEM_LINK, "d/second", "first", 0, 0);
	CHECK(run_put(CAREFUL_BATCH_REPLACE, true) == 0);
	CHECK(!fstatat(to, "first", &a, 0) && a.st_nlink == 2);
	CHECK(one(CAREFUL_ITEM_DIRECTORY, "d/n", "", 0700) == 0);
	CHECK(one(CAREFUL_ITEM_DIRECTORY, "d/n", "", 0700) == 0);
	CHECK(one(CAREFUL_ITEM_DIRECTORY, "first", "", 0700) == ENOTDIR);
	CHECK(one(CAREFUL_ITEM_REMOVE, "d", "", 0) == ENOTEMPTY);
	CHECK(one(CAREFUL_ITEM_REMOVE, "d/second", "", 0) == 0);
	CHECK(one(CAREFUL_ITEM_REMOVE, "d/second", "", 0) == 0);
	CHECK(one(CAREFUL_ITEM_REMOVE, "d/n", "", 0) == 0);
}

static void batch__partial_in_use_stays(void)
{
	static const char name[] = "d/.careful-0123456789abcdef.part";
	int fd;

	write_file(to, name, "x", 0600);
	fd = openat(to, name, O_RDONLY);
	CHECK(flock(fd, LOCK_EX) == 0);
	CHECK(one(CAREFUL_ITEM_REMOVE, name, "", 0) == EBUSY);
	close(fd);
	CHECK(one(CAREFUL_ITEM_REMOVE, name, "", 0) == 0);
	CHECK(faccessat(to, name, F_OK, 0));
}

/* A process that makes many temporary files in a directory locks that directory. */
static void batch__partial_in_a_directory_in_use_stays(void)
{
	static const char name[] = "d/.x.careful-0123456789abcdef.part";
	int dir = openat(to, "d", O_RDONLY | O_DIRECTORY);

	CHECK(flock(dir, LOCK_SH) == 0);
	write_file(to, name, "x", 0600);
	CHECK(one(CAREFUL_ITEM_REMOVE, name, "", 0) == EBUSY);
	write_file(to, "d/x.part", "x", 0600);
	CHECK(one(CAREFUL_ITEM_REMOVE, "d/x.part", "", 0) == 0);
	close(dir);
	CHECK(one(CAREFUL_ITEM_REMOVE, name, "", 0) == 0);
	CHECK(symlinkat("none", to, name) == 0);
	CHECK(one(CAREFUL_ITEM_REMOVE, name, "", 0) == 0);
	CHECK(faccessat(to, name, F_OK, AT_SYMLINK_NOFOLLOW));
}

/* Makes files again and again. Returns how many items failed. */
static int make_many(void)
{
	int failed = 0;
	char name[20];

	for (int round = 0; round < 8; round++) {
		struct careful_batch_answer answer;

		for (int i = 0; i < 100; i++) {
			snprintf(name, sizeof(name), "d/m%d", i);
			put(i % 10 ? CAREFUL_ITEM_FILE : CAREFUL_ITEM_SYMLINK, name, "t",
			    i % 10 ? S_IFREG | 0600 : S_IFLNK, 0);
		}
		answer = run(to, batch, used,
			     CAREFUL_BATCH_NODIGEST | CAREFUL_BATCH_SYNC | CAREFUL_BATCH_REPLACE,
			     true);
		failed += (int)answer.failed;
		careful_batch_release(&answer);
		used = 0;
	}
	return failed;
}

/* Tries to remove partial files, like `partials prune`. Returns how many it saw. */
static int clear_away(void)
{
	int seen = 0, fd = openat(to, "d", O_RDONLY | O_DIRECTORY);
	DIR *dir = fdopendir(fd);
	const struct dirent *d;
	char name[300];

	while ((d = readdir(dir))) {
		if (!strstr(d->d_name, ".part"))
			continue;
		snprintf(name, sizeof(name), "d/%s", d->d_name);
		one(CAREFUL_ITEM_REMOVE, name, "", 0);
		seen++;
	}
	closedir(dir);
	return seen;
}

static void batch__temporary_files_are_not_removed(void)
{
	int status = -1, seen = 0;
	pid_t child = fork();

	if (!child)
		_exit(make_many() ? 1 : 0);
	while (!waitpid(child, &status, WNOHANG))
		seen += clear_away();
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(seen > 0);
}

static void batch__no_name_leads_out(void)
{
	CHECK(symlinkat("/tmp", to, "out") == 0 && symlinkat("..", to, "up") == 0);
	CHECK(one(CAREFUL_ITEM_FILE, "out/x", "", S_IFREG | 0600) == EXDEV);
	CHECK(one(CAREFUL_ITEM_FILE, "up/x", "", S_IFREG | 0600) == EXDEV);
	CHECK(one(CAREFUL_ITEM_FILE, "../x", "", S_IFREG | 0600) == EXDEV);
	CHECK(one(CAREFUL_ITEM_FILE, "/tmp/x", "", S_IFREG | 0600) == EXDEV);
	CHECK(one(CAREFUL_ITEM_FILE, "..", "", S_IFREG | 0600) == EINVAL);
	CHECK(one(CAREFUL_ITEM_FILE, "", "", S_IFREG | 0600) == EINVAL);
	CHECK(one(CAREFUL_ITEM_REMOVE, "out", "", 0) == 0); /* the link, not its target */
	CHECK(!access("/tmp", F_OK));
	CHECK(one(99, "x", "", 0) == EINVAL);
}

static uint32_t denied(bool writable)
{
	struct careful_batch_answer answer = run(to, batch, used, CAREFUL_BATCH_NODIGEST, writable);

	careful_batch_release(&answer);
	used = 0;
	return answer.denied;
}

/* Items that are refused for their path, but not items that are absent or failed at the sender. */
static void batch__counts_what_is_denied(void)
{
	struct careful_block_item *said = (void *)batch;

	put(CAREFUL_ITEM_FILE, "up/x", "", S_IFREG | 0600, 0);
	put(CAREFUL_ITEM_READ, "up/x", "", 0, 1);
	put(CAREFUL_ITEM_LINK, "x", "../x", 0, 0);
	put(CAREFUL_ITEM_READ, "missing", "", 0, 1);
	CHECK(denied(true) == 3);
	put(CAREFUL_ITEM_META, "up", "", S_IFLNK | 0777, 0);
	CHECK(denied(false) == 1);
	put(CAREFUL_ITEM_FILE, "x", "", S_IFREG | 0600, 0);
	said->status = htobe32(EACCES);
	CHECK(denied(true) == 0);
}

static void batch__read_only(void)
{
	for (int op = CAREFUL_ITEM_FILE; op <= CAREFUL_ITEM_APPEND; op++) {
		if (op == CAREFUL_ITEM_DIGEST)
			continue;
		put((uint16_t)op, "ro", "t", S_IFREG | 0600, 0);
		CHECK(run_put(0, false) == EROFS);
	}
	CHECK(faccessat(to, "ro", F_OK, AT_SYMLINK_NOFOLLOW));
}

/* Random bytes: an error or an answer, never a crash. */
static void batch__random_bytes(void)
{
	struct careful_batch_how how = { .writable = 0, .answer_bytes_max = 1 << 20 };
	struct careful_batch_answer answer;

	srand(1);
	for (int i = 0; i < 20000; i++) {
		put(CAREFUL_ITEM_READ, "a", "", 0, 1);
		for (int k = rand() % 4; k >= 0; k--)
			batch[(size_t)rand() % used] = (char)rand();
		if (!careful_batch(from, batch, (size_t)rand() % (used + 1), &how, &answer))
			careful_batch_release(&answer);
		used = 0;
	}
}

int main(void)
{
	char command[100];

	CHECK(mkdtemp(root));
	CHECK(mkdirat(AT_FDCWD, root, 0700) && errno == EEXIST);
	from = open(root, O_RDONLY | O_DIRECTORY);
	CHECK(!mkdirat(from, "from", 0700) && !mkdirat(from, "to", 0700));
	to = openat(from, "to", O_RDONLY | O_DIRECTORY);
	from = openat(from, "from", O_RDONLY | O_DIRECTORY);
	RUN(batch__copies_what_it_reads);
	RUN(batch__damaged_contents);
	RUN(batch__large_is_not_read);
	RUN(batch__digests);
	RUN(batch__xattrs);
	RUN(batch__links_and_removal);
	RUN(batch__partial_in_use_stays);
	RUN(batch__partial_in_a_directory_in_use_stays);
	RUN(batch__temporary_files_are_not_removed);
	RUN(batch__no_name_leads_out);
	RUN(batch__counts_what_is_denied);
	RUN(batch__read_only);
	RUN(batch__random_bytes);
	snprintf(command, sizeof(command), "rm -rf %s", root);
	CHECK(system(command) == 0);
	return 0;
}
