/* SPDX-License-Identifier: BSD-2-Clause */
/* Splits listings: small regular files are read in batches, everything else is not. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <careful/files.h>

#include "check.h"

static char root[] = "/tmp/careful-split-XXXXXX";
static int top;
static char buffer[1 << 16] __attribute__((aligned(8)));
static size_t used;

static const struct careful_list_split_how usual = {
	.file_bytes_max = 1000,
	.part_bytes_max = 16000,
	.part_files_max = 24,
};

static struct careful_block_entry *entry(const char *name, uint32_t mode, uint64_t bytes)
{
	struct careful_block_entry *e = (void *)(buffer + used);
	size_t name_bytes = strlen(name);

	*e = (struct careful_block_entry){ .name_bytes = htobe16((uint16_t)name_bytes) };
	e->attr.mode = htobe32(mode);
	e->attr.nlink = htobe32(1);
	e->attr.bytes = htobe64(bytes);
	e->attr.allocated = htobe64(bytes);
	memcpy(e + 1, name, name_bytes);
	used = (used + sizeof(*e) + name_bytes + 7) & ~(size_t)7;
	return e;
}

static struct careful_list_split split_buffer(void)
{
	struct careful_list_split found;

	CHECK_EQ(careful_list_split(buffer, used, &usual, &found), 0);
	used = 0;
	return found;
}

static void list_split__small_files_in_parts(void)
{
	static const uint32_t files[] = { 3, 6, 12, 16, 4 };
	struct careful_list_split found;
	uint64_t at = 0;
	char name[20];

	for (int i = 0; i < 41; i++) { /* of the last ones, a part holds 16 */
		snprintf(name, sizeof(name), "d/f%d", i);
		entry(name, S_IFREG | 0644, i < 21 ? (uint64_t)(i % 2) : 1000);
	}
	found = split_buffer();
	CHECK_EQ(found.files, 41);
	CHECK_EQ(found.rest_bytes, 0);
	CHECK_EQ(found.parts_count, 5);
	for (int i = 0; i < 5; i++) {
		CHECK_EQ(found.parts[i].files, files[i]);
		CHECK_EQ(found.parts[i].offset, at);
		at += found.parts[i].bytes;
	}
	CHECK_EQ(at, found.reads_bytes);
	CHECK_EQ(found.parts[0].data_bytes, 1);
	CHECK_EQ(found.parts[3].data_bytes, 16000);
	CHECK_EQ(found.parts[4].data_bytes, 4000);
	careful_list_split_release(&found);

	entry("a", S_IFREG | 0644, 1000);
	entry("b", S_IFREG | 0644, 1000); /* together 2000, an eighth */
	entry("c", S_IFREG | 0644, 1);
	found = split_buffer();
	CHECK_EQ(found.parts_count, 2);
	CHECK_EQ(found.parts[0].files, 2);
	careful_list_split_release(&found);
}

static void list_split__all_else_is_left(void)
{
	struct careful_list_split_how links = usual;
	struct careful_list_split found;
	size_t bytes;

	entry("d", S_IFDIR | 0755, 0);
	entry("large", S_IFREG | 0644, 1001);
	entry("link", S_IFLNK | 0777, 3);
	entry("fifo", S_IFIFO | 0644, 0);
	entry("bad", S_IFREG | 0644, 1)->error = htobe32(EIO);
	entry("d/.careful-0123456789abcdef.part", S_IFREG | 0644, 1);
	entry(".x.careful-0123456789abcdef.part", S_IFREG | 0644, 1);
	bytes = used;
	found = split_buffer();
	CHECK_EQ(found.files, 0);
	CHECK_EQ(found.parts_count, 0);
	CHECK_EQ(found.rest_bytes, bytes);
	CHECK(!memcmp(found.rest, buffer, bytes));
	careful_list_split_release(&found);

	entry("x.careful-0123456789abcdef.part", S_IFREG | 0644, 1);
	entry(".xcareful-0123456789abcdef.part", S_IFREG | 0644, 1);
	entry(".x.careful-0123456789abcdeg.part", S_IFREG | 0644, 1);
	entry(".x.careful-0123456789abcdef.par", S_IFREG | 0644, 1);
	entry(".careful-123456789abcdef.part", S_IFREG | 0644, 1);
	found = split_buffer();
	CHECK_EQ(found.files, 5);
	careful_list_split_release(&found);

	links.file_bytes_max = 1 << 20;
	entry("holes", S_IFREG | 0644, 8192)->attr.allocated = htobe64(4096);
	entry("twice", S_IFREG | 0644, 1)->attr.nlink = htobe32(2);
	links.no_links = 1;
	CHECK_EQ(careful_list_split(buffer, used, &links, &found), 0);
	CHECK_EQ(found.files, 0);
	careful_list_split_release(&found);
	links.no_links = 0;
	CHECK_EQ(careful_list_split(buffer, used, &links, &found), 0);
	CHECK_EQ(found.files, 1);
	careful_list_split_release(&found);
	used = 0;
}

static void list_split__no_name_leads_out(void)
{
	static const char *const bad[] = { "",	   ".",	   "..",  "/x",	    "x/", "a//b",
					   "../x", "a/..", "./x", "a/../b", "a/." };
	static const char *const good[] = { "...", "a/..b", ".b", "a/b/c", "\xff\n" };
	struct careful_list_split found;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		entry(bad[i], i % 2 ? S_IFREG : S_IFDIR, 1);
		CHECK_EQ(careful_list_split(buffer, used, &usual, &found), -EPROTO);
		used = 0;
	}
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		entry(good[i], S_IFREG, 1);
		found = split_buffer();
		CHECK_EQ(found.files, 1);
		careful_list_split_release(&found);
	}
	*((char *)(entry("a-b", S_IFREG, 1) + 1) + 1) = 0;
	CHECK_EQ(careful_list_split(buffer, used, &usual, &found), -EPROTO);
	used = 0;
}

/* Random bytes: an error, or batches within their limits; never a crash. */
static void list_split__noise(void)
{
	struct careful_moved moved[4];
	struct careful_list_split found;
	size_t bytes;

	srand(1);
	for (int i = 0; i < 20000; i++) {
		entry("a/b", S_IFREG, 1);
		entry("c", S_IFDIR, 1);
		entry("d", S_IFREG, 9);
		for (int k = rand() % 5; k > 0; k--)
			buffer[(size_t)rand() % used] = (char)rand();
		bytes = (size_t)rand() % (used + 1);
		used = 0;
		careful_match(buffer, bytes, buffer, bytes, moved, 4);
		if (careful_list_split(buffer, bytes, &usual, &found))
			continue;
		for (uint64_t at = 0; at < found.reads_bytes; at++) {
			if (rand() % 64 == 0)
				((char *)found.reads)[at] = (char)rand();
		}
		careful_match(found.reads, found.reads_bytes, found.reads, found.reads_bytes, moved,
			      found.files < 4 ? found.files : 4);
		careful_list_split_release(&found);
	}
}

static void write_file(const char *name, size_t bytes)
{
	int fd = openat(top, name, O_CREAT | O_WRONLY | O_TRUNC, 0640);

	CHECK(write(fd, buffer, bytes) == (ssize_t)bytes);
	close(fd);
}

/* Runs all READ items. The answer is in `buffer`. */
static struct careful_batch_answer read_all(const struct careful_list_split *split, uint32_t flags)
{
	struct careful_batch_how how = { .flags = flags, .file_bytes_max = 1000 };
	struct careful_batch_answer answer;

	how.memory = buffer;
	how.answer_bytes_max = sizeof(buffer);
	CHECK_EQ(careful_batch(top, split->reads, split->reads_bytes, &how, &answer), 0);
	CHECK(answer.items == buffer);
	return answer;
}

static void match__finds_what_was_asked_for(void)
{
	struct careful_batch_answer answer;
	struct careful_list_split split;
	struct careful_moved moved[3];
	struct careful_list list;
	char *items = buffer;

	CHECK(!mkdirat(top, "d", 0755) && !mkdirat(top, "d/e", 0755));
	write_file("d/e/a", 7);
	write_file("d/b", 0);
	CHECK(!symlinkat("d", top, "l"));
	CHECK_EQ(careful_list(top, &list), 0);
	CHECK_EQ(list.unreadable, 0);
	CHECK_EQ(careful_list_split(list.entries, list.bytes, &usual, &split), 0);
	careful_list_release(&list);
	CHECK_EQ(split.files, 2);
	CHECK_EQ(split.rest_bytes, 3 * 72 + 8 + 8 + 8); /* d, d/e, l -> d */

	answer = read_all(&split, 0);
	CHECK_EQ(careful_match(split.reads, split.reads_bytes, items, answer.bytes, moved, 2), 0);
	CHECK_EQ(moved[0].bytes + moved[1].bytes, 7);
	CHECK(moved[0].digest != moved[1].digest && moved[0].digest);
	/* An answer with fewer files, with more, with another name, and with a failed item. */
	CHECK_EQ(careful_match(split.reads, split.reads_bytes, items, answer.bytes, moved, 1),
		 -EPROTO);
	CHECK_EQ(careful_match(split.reads, split.reads_bytes, items, answer.bytes, moved, 3),
		 -EPROTO);
	items[sizeof(struct careful_block_item)] ^= 1;
	CHECK_EQ(careful_match(split.reads, split.reads_bytes, items, answer.bytes, moved, 2),
		 -ESTALE);
	CHECK(!unlinkat(top, "d/b", 0));
	answer = read_all(&split, 0);
	CHECK_EQ(answer.failed, 1);
	CHECK_EQ(careful_match(split.reads, split.reads_bytes, items, answer.bytes, moved, 2),
		 -ESTALE);
	careful_list_split_release(&split);
}

static void read__too_little_memory(void)
{
	struct careful_batch_how how = { .file_bytes_max = 1000, .memory = buffer };
	struct careful_batch_answer answer;
	struct careful_list_split split;

	entry("d/e/a", S_IFREG, 7);
	CHECK_EQ(careful_list_split(buffer, used, &usual, &split), 0);
	used = 0;
	how.answer_bytes_max = 120; /* the record, not the contents */
	CHECK_EQ(careful_batch(top, split.reads, split.reads_bytes, &how, &answer), 0);
	CHECK_EQ(answer.failed, 1);
	CHECK_EQ(be32toh(((struct careful_block_item *)(void *)buffer)->status), EOVERFLOW);
	how.answer_bytes_max = 100;
	CHECK_EQ(careful_batch(top, split.reads, split.reads_bytes, &how, &answer), -EOVERFLOW);
	careful_list_split_release(&split);
}

static void put_file(const char *name, uint32_t mode, uint32_t gid)
{
	struct careful_block_item *item = (void *)(buffer + used);
	size_t name_bytes = strlen(name);

	*item = (struct careful_block_item){ .op = htobe16(CAREFUL_ITEM_FILE) };
	item->name_bytes = htobe32((uint32_t)name_bytes);
	item->attr.mode = htobe32(S_IFREG | mode);
	item->attr.uid = htobe32(geteuid());
	item->attr.gid = htobe32(gid);
	memcpy(item + 1, name, name_bytes);
	used = (used + sizeof(*item) + name_bytes + 7) & ~(size_t)7;
}

static void check_file(const char *name, uint32_t mode, uint32_t gid)
{
	struct stat st;

	CHECK(!fstatat(top, name, &st, AT_SYMLINK_NOFOLLOW));
	CHECK_EQ(st.st_mode & 07777, mode);
	CHECK_EQ(st.st_gid, gid);
	CHECK_EQ(st.st_nlink, 1);
}

static void run_files(uint32_t flags, uint32_t failed)
{
	struct careful_batch_how how = {
		.flags = flags | CAREFUL_BATCH_NODIGEST,
		.umask = 027,
		.writable = 1,
		.answer_bytes_max = 1 << 16,
	};
	struct careful_batch_answer answer;

	CHECK_EQ(careful_batch(top, buffer, used, &how, &answer), 0);
	CHECK_EQ(answer.failed, failed);
	careful_batch_release(&answer);
	used = 0;
}

/* The first file that is made in a directory shows the group of new files there. All modes and
 * groups are right in any order, with temporary names (SYNC) and without. */
static void files__modes_and_groups(void)
{
	uint32_t own = getegid(), other = geteuid() ? own : own + 1, preserve;

	preserve = CAREFUL_BATCH_MODE | CAREFUL_BATCH_OWNER;
	CHECK(!mkdirat(top, "p", 0755) && !mkdirat(top, "g", 0755));
	CHECK(!fchownat(top, "g", (uid_t)-1, other, 0));
	CHECK(!fchmodat(top, "g", 02755, 0)); /* files there have its group */
	for (int round = 0; round < 4; round++) {
		uint32_t how = round % 2 ? CAREFUL_BATCH_SYNC : 0;

		how |= round > 1 ? CAREFUL_BATCH_REPLACE : 0;
		put_file("p/a", 0644, own);
		put_file("p/b", 0644, own);
		put_file("p/c", 0600, own);
		put_file("p/d", 04755, other);
		put_file("p/e", 0666, own);
		put_file("g/a", 0644, own);
		put_file("g/b", 0644, own);
		put_file("g/c", 0644, other);
		put_file("p/f", 0644, other);
		put_file("p/g", 0644, own);
		run_files(preserve | how, 0);
		check_file("p/a", 0644, own);
		check_file("p/b", 0644, own);
		check_file("p/c", 0600, own);
		check_file("p/d", 04755, other);
		check_file("p/e", 0666, own);
		check_file("g/a", 0644, own);
		check_file("g/b", 0644, own);
		check_file("g/c", 0644, other);
		check_file("p/f", 0644, other);
		check_file("p/g", 0644, own);
		put_file("p/h", 0666, other);
		put_file("p/i", 0777, other);
		run_files(how, 0); /* modes by the umask, groups by their maker */
		check_file("p/h", 0640, own);
		check_file("p/i", 0750, own);
		put_file("p/a", 0600, own);
		run_files(how, round < 2); /* it exists already */
		check_file("p/a", 0644, own); /* one that is replaced keeps its mode */
		for (const char *name = "abcdefghi"; round == 0 && *name; name++) {
			char path[] = { 'p', '/', *name, 0 };

			CHECK(!unlinkat(top, path, 0));
			path[0] = 'g';
			unlinkat(top, path, 0);
		}
	}
}

int main(void)
{
	char command[100];

	CHECK(mkdtemp(root));
	umask(022);
	top = open(root, O_RDONLY | O_DIRECTORY);
	RUN(list_split__small_files_in_parts);
	RUN(list_split__all_else_is_left);
	RUN(list_split__no_name_leads_out);
	RUN(list_split__noise);
	RUN(match__finds_what_was_asked_for);
	RUN(read__too_little_memory);
	RUN(files__modes_and_groups);
	snprintf(command, sizeof(command), "rm -r %s", root);
	CHECK(system(command) == 0); /* NOLINT: our own directory */
	return 0;
}
