/* SPDX-License-Identifier: BSD-2-Clause */
/* Items that act on files under their names: RENAME, APPEND, and the mode that a file keeps. */
#include <careful/files.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batch.h"
#include "check.h"

enum { APPENDERS = 4, LINES = 500, LINE_BYTES = 100 };

static char root[] = "/tmp/careful-names-XXXXXX";
static int top;

static int run(const void *items, size_t bytes, uint32_t flags, uint32_t squashed)
{
	struct careful_batch_how how = {
		.flags = flags | CAREFUL_BATCH_NODIGEST,
		.umask = 027,
		.writable = 1,
		.squashed = squashed,
		.answer_bytes_max = 1 << 20,
	};
	struct careful_batch_answer answer;
	int status;

	CHECK(careful_batch(top, items, bytes, &how, &answer) == 0);
	status = (int)be32toh(((struct careful_block_item *)answer.items)->status);
	careful_batch_release(&answer);
	return status;
}

static int run_put(uint32_t flags, uint32_t squashed)
{
	int status = run(batch, used, flags, squashed);

	used = 0;
	return status;
}

static int rename_to(const char *name, const char *old, uint32_t flags)
{
	put(CAREFUL_ITEM_RENAME, name, old, 0, 0);
	return run_put(flags, 0);
}

/* Writes an item with contents. Returns its size. */
static size_t with_data(char *item, uint16_t op, const char *name, const char *data, uint32_t mode)
{
	struct careful_block_item head = {
		.op = htobe16(op),
		.name_bytes = htobe32((uint32_t)strlen(name)),
		.data_bytes = htobe64(strlen(data)),
	};

	head.attr.mode = htobe32(mode);
	memcpy(item, &head, sizeof(head));
	return sizeof(head) + (size_t)sprintf(item + sizeof(head), "%s%s", name, data);
}

static int append(const char *name, const char *data, uint32_t squashed)
{
	char item[1000];

	return run(item, with_data(item, CAREFUL_ITEM_APPEND, name, data, S_IFREG | 0666),
		   CAREFUL_BATCH_SYNC, squashed);
}

static void write_file(const char *name, const char *text, mode_t mode)
{
	int fd = openat(top, name, O_CREAT | O_WRONLY | O_TRUNC, 0600);

	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text) && !fchmod(fd, mode));
	close(fd);
}

static bool holds(const char *name, const char *text)
{
	char buf[2000] = { 0 };
	int fd = openat(top, name, O_RDONLY);
	ssize_t n = read(fd, buf, sizeof(buf) - 1);

	close(fd);
	return n == (ssize_t)strlen(text) && !strcmp(buf, text);
}

static mode_t mode_of(const char *name)
{
	struct stat st;

	CHECK(!fstatat(top, name, &st, AT_SYMLINK_NOFOLLOW));
	return st.st_mode & 07777;
}

static void names__renamed(void)
{
	CHECK(!mkdirat(top, "d", 0755) && !mkdirat(top, "e", 0755));
	write_file("a", "a", 0600);
	write_file("d/b", "b", 0600);
	CHECK_EQ(rename_to("d/b", "a", 0), EEXIST);
	CHECK(holds("a", "a") && holds("d/b", "b"));
	CHECK_EQ(rename_to("a", "a", CAREFUL_BATCH_REPLACE), 0);
	CHECK_EQ(rename_to("d/b", "a", CAREFUL_BATCH_REPLACE | CAREFUL_BATCH_SYNC), 0);
	CHECK(holds("d/b", "a") && faccessat(top, "a", F_OK, 0));
	CHECK_EQ(rename_to("e/f", "d", CAREFUL_BATCH_SYNC), 0);
	CHECK(holds("e/f/b", "a"));
	CHECK_EQ(rename_to("e/f/g", "e", 0), EINVAL);
	CHECK_EQ(rename_to("x", "none", CAREFUL_BATCH_REPLACE), ENOENT);
	CHECK_EQ(rename_to("none/x", "e", 0), ENOENT);
	CHECK_EQ(rename_to("../x", "e", 0), EXDEV);
	CHECK_EQ(rename_to("x", "up/e", 0), EXDEV);
	CHECK_EQ(rename_to("", "e", 0), EINVAL);
	CHECK(holds("e/f/b", "a"));
}

static void names__appended(void)
{
	CHECK_EQ(append("log", "", 0), 0);
	CHECK(holds("log", "") && mode_of("log") == 0640);
	CHECK(!append("log", "one\n", 0) && !append("log", "two\n", 0));
	CHECK(!symlinkat("../log", top, "e/link") && !append("e/link", "three\n", 0));
	CHECK(holds("log", "one\ntwo\nthree\n"));
	CHECK(!symlinkat("none", top, "dangling") && !mkfifoat(top, "fifo", 0600));
	CHECK_EQ(append("dangling", "x", 0), ENOENT);
	CHECK_EQ(append("fifo", "x", 0), ENOTSUP);
	CHECK_EQ(append("e", "x", 0), EISDIR);
	CHECK_EQ(append("up/x", "x", 0), EXDEV);
	CHECK(faccessat(top, "none", F_OK, 0) && faccessat(top, "../x", F_OK, 0));
	/* A set-user-ID program. */
	CHECK(!fchmodat(top, "log", 04755, 0));
	CHECK_EQ(append("log", "x", 1), EPERM);
	CHECK_EQ(append("log", "x", 0), 0);
}

static void *append_lines(void *user)
{
	char line[LINE_BYTES + 1], item[1000];

	memset(line, 'a' + *(int *)user, LINE_BYTES);
	line[LINE_BYTES - 1] = '\n';
	line[LINE_BYTES] = 0;
	for (int i = 0; i < LINES; i++)
		CHECK_EQ(run(item, with_data(item, CAREFUL_ITEM_APPEND, "many", line, 0600), 0, 0),
			 0);
	return NULL;
}

/* Concurrent appenders lose or cut no line, even if none finds a file at first. */
static void names__appended_by_many(void)
{
	int numbers[APPENDERS], counts[APPENDERS] = { 0 };
	pthread_t threads[APPENDERS];
	char line[LINE_BYTES];
	int fd;

	for (int i = 0; i < APPENDERS; i++) {
		numbers[i] = i;
		CHECK(!pthread_create(&threads[i], NULL, append_lines, &numbers[i]));
	}
	for (int i = 0; i < APPENDERS; i++)
		pthread_join(threads[i], NULL);
	fd = openat(top, "many", O_RDONLY);
	while (read(fd, line, LINE_BYTES) == LINE_BYTES) {
		for (int i = 1; i < LINE_BYTES - 1; i++)
			CHECK(line[i] == line[0]);
		CHECK(line[0] >= 'a' && line[0] < 'a' + APPENDERS);
		counts[line[0] - 'a']++;
	}
	close(fd);
	for (int i = 0; i < APPENDERS; i++)
		CHECK_EQ(counts[i], LINES);
}

static void names__replaced_files_keep_their_modes(void)
{
	static const uint32_t ways[] = { 0, CAREFUL_BATCH_SYNC };
	const uint32_t replace = CAREFUL_BATCH_REPLACE;
	char item[1000];
	size_t bytes = with_data(item, CAREFUL_ITEM_FILE, "f", "new", S_IFREG | 0666);

	for (int i = 0; i < 2; i++) {
		CHECK_EQ(run(item, bytes, ways[i] | replace, 0), 0);
		CHECK_EQ(mode_of("f"), 0640);
		write_file("f", "old", 0606);
		CHECK_EQ(run(item, bytes, ways[i] | replace, 0), 0);
		CHECK(holds("f", "new"));
		CHECK_EQ(mode_of("f"), 0606);
		CHECK_EQ(run(item, bytes, ways[i] | replace | CAREFUL_BATCH_MODE, 0), 0);
		CHECK_EQ(mode_of("f"), 0666);
		CHECK(!unlinkat(top, "f", 0));
	}
}

int main(void)
{
	char command[100];

	CHECK(mkdtemp(root));
	top = open(root, O_RDONLY | O_DIRECTORY);
	CHECK(!mkdirat(top, "export", 0700) && !symlinkat("..", top, "export/up"));
	top = openat(top, "export", O_RDONLY | O_DIRECTORY);
	RUN(names__renamed);
	RUN(names__appended);
	RUN(names__appended_by_many);
	RUN(names__replaced_files_keep_their_modes);
	snprintf(command, sizeof(command), "rm -rf %s", root);
	CHECK(system(command) == 0);
	return 0;
}
