// SPDX-License-Identifier: BSD-2-Clause
/*
 * Fuzzes a hostile server's listing, and its answers to the batches that a client makes from the
 * listing. The client runs them below a target. Nothing outside the target may be opened, changed or
 * created, and the parts of a listing must lie within it.
 */
#include <endian.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <careful/block.h>
#include <careful/files.h>

#include "input.h"

enum {
	RECORDS = 24,
	ROOM = 1 << 16,
	FILE_LIMIT = 1 << 20,
	SIZES = 64, /* size of requested files, bytes */
};

static char base[] = "/tmp/fuzz_tree.XXXXXX";
static const char *const names[] = {
	"a",	      "d/x",	   "d",	    "up",   "up/x",	"abs/x", "d/../x",
	"../out/x",   "..",	   ".",	    "",	    "/tmp/x",	"d/",	 "f/x",
	"abs/secret", "up/secret", "d/./x", "link", "d/deep/x", "f",
};

enum { NAMES = sizeof(names) / sizeof(names[0]) };

static const char *at(const char *path)
{
	static char buf[4][512];
	static int i;

	i = (i + 1) % 4;
	snprintf(buf[i], sizeof(buf[i]), "%s/%s", base, path);
	return buf[i];
}

static void put_file(const char *path, const char *text)
{
	int fd = open(at(path), O_CREAT | O_WRONLY | O_TRUNC | O_NOFOLLOW, 0644);

	MUST(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void remove_base(void)
{
	nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Makes a target with files, and other files next to the target. */
static int begin(void)
{
	int fd;

	MUST(mkdir(at("in"), 0755) == 0 && mkdir(at("in/d"), 0755) == 0);
	MUST(symlink("../out", at("in/up")) == 0 && symlink(at("out"), at("in/abs")) == 0);
	put_file("in/f", "old");
	fd = open(at("in"), O_PATH | O_DIRECTORY | O_CLOEXEC);
	MUST(fd >= 0);
	return fd;
}

static struct stat secret, outside;

static int count_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)path;
	(void)st;
	(void)type;
	(void)ftw;
	outside.st_nlink++;
	return 0;
}

/* Checks that files outside are unchanged. */
static void check(void)
{
	struct stat now;
	char text[2];
	int fd = open(at("out/secret"), O_RDONLY | O_CLOEXEC);

	MUST(fd >= 0 && read(fd, text, 2) == 1 && text[0] == 's' && !fstat(fd, &now));
	close(fd);
	MUST(now.st_mode == secret.st_mode && now.st_uid == secret.st_uid && now.st_nlink == 1 &&
	     now.st_ino == secret.st_ino && now.st_ctim.tv_nsec == secret.st_ctim.tv_nsec &&
	     now.st_ctim.tv_sec == secret.st_ctim.tv_sec);
	outside.st_nlink = 0;
	nftw(at("out"), count_one, 8, FTW_PHYS);
	MUST(outside.st_nlink == 2);
}

static uint32_t name_of(struct input *in, char *to)
{
	uint8_t which = take8(in);
	uint32_t bytes;
	const uint8_t *p;

	if (which < 0xe0) {
		strcpy(to, names[which % NAMES]); /* NOLINT: shorter than its buffer */
		return (uint32_t)strlen(to);
	}
	p = take_bytes(in, which & 0x1f, &bytes);
	memcpy(to, p, bytes);
	return bytes;
}

static void corrupt(struct input *in, uint8_t *data, uint32_t bytes)
{
	for (uint32_t n = take8(in) & 3; n && bytes; n--) {
		uint32_t where = take16(in) % bytes;

		data[where] ^= take8(in);
	}
}

static uint32_t modes(uint8_t what)
{
	static const uint32_t types[] = { S_IFREG, S_IFREG, S_IFDIR, S_IFLNK };

	return types[what & 3] | (what & 4 ? 04755 : 0644);
}

/* Makes a listing of a few entries. */
static uint32_t make_listing(struct input *in, uint8_t *to)
{
	uint32_t used = 0;

	for (uint32_t n = take8(in) % RECORDS; n; n--) {
		uint8_t what = take8(in);
		struct careful_block_entry entry = {
			.attr = { .mode = htobe32(modes(what)),
				  .nlink = htobe32(1 + (what >> 3 & 1)),
				  .bytes = htobe64(what >> 4),
				  .allocated = htobe64(4096),
				  .inode = htobe64(what) },
		};
		char *name = (char *)to + used + sizeof(entry);
		uint32_t bytes = name_of(in, name), target = 0;

		if ((what & 3) == 3)
			target = name_of(in, name + bytes);
		entry.name_bytes = htobe16((uint16_t)bytes);
		entry.target_bytes = htobe16((uint16_t)target);
		memcpy(to + used, &entry, sizeof(entry));
		bytes += (uint32_t)sizeof(entry) + target;
		memset(to + used + bytes, 0, 8);
		used += (bytes + 7) & ~7U;
	}
	corrupt(in, to, used);
	return used;
}

/* Adds an item with some name, or with the requested one. */
static uint32_t add_item(struct input *in, uint8_t *to, const char *asked, uint32_t asked_bytes)
{
	uint8_t what = take8(in), more = take8(in);
	struct careful_block_item item = {
		.attr = { .mode = htobe32(modes(what)),
			  .uid = htobe32(what & 8 ? 1234 : 0),
			  .mtime_ns = htobe64(what),
			  .bytes = htobe64(more % SIZES) },
		.op = htobe16(CAREFUL_ITEM_FILE),
	};
	char *name = (char *)to + sizeof(item);
	uint32_t bytes = asked_bytes, text = 0, data = more % SIZES;

	if (asked && what & 0x40)
		memcpy(name, asked, asked_bytes);
	else
		bytes = name_of(in, name);
	if (what & 0x80) {
		item.op = htobe16(1 + more % (CAREFUL_ITEM_REMOVE));
		text = name_of(in, name + bytes);
		data = 0;
	}
	memset(name + bytes + text, 'n', data);
	item.name_bytes = htobe32(bytes);
	item.text_bytes = htobe32(text);
	item.data_bytes = htobe64(data);
	memcpy(to, &item, sizeof(item));
	bytes += (uint32_t)sizeof(item) + text + data;
	memset(to + bytes, 0, 8);
	return (bytes + 7) & ~7U;
}

/* Makes the server's answers to the READ items of a batch. */
static uint32_t make_answer(struct input *in, const uint8_t *reads, uint64_t bytes, uint8_t *to)
{
	struct careful_block_item item;
	uint32_t used = 0;

	for (uint64_t i = 0; i + sizeof(item) <= bytes && used < ROOM / 2;) {
		uint32_t name;

		memcpy(&item, reads + i, sizeof(item));
		name = be32toh(item.name_bytes);
		used += add_item(in, to + used, (const char *)reads + i + sizeof(item), name);
		i += (sizeof(item) + name + 7) & ~7ULL;
	}
	for (uint32_t n = take8(in) & 3; n; n--)
		used += add_item(in, to + used, NULL, 0);
	if (take8(in) & 1)
		corrupt(in, to, used);
	return used;
}

static void run(struct input *in, int fd, const uint8_t *items, uint32_t bytes)
{
	const struct careful_batch_how how = {
		.flags = take8(in) & (uint8_t)~CAREFUL_BATCH_SYNC,
		.umask = 022,
		.writable = 1,
		.no_symlinks = 1,
		.file_bytes_max = SIZES,
		.answer_bytes_max = ROOM,
	};
	struct careful_batch_answer answer = { 0 };
	uint8_t *copy = malloc(bytes + 1); /* exact size, so that reads beyond it are found */

	MUST(copy);
	memcpy(copy, items, bytes);
	if (careful_batch(fd, copy, bytes, &how, &answer) == 0)
		careful_batch_release(&answer);
	free(copy);
}

/* Checks that a listing's parts lie within it, one after the other. */
static void check_split(const struct careful_list_split *split, uint32_t bytes)
{
	uint64_t end = 0;
	uint32_t files = 0;

	for (uint32_t i = 0; i < split->parts_count; i++) {
		MUST(split->parts[i].offset == end);
		end += split->parts[i].bytes;
		files += split->parts[i].files;
	}
	MUST(end == split->reads_bytes && files == split->files && split->rest_bytes <= bytes);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);

/* libFuzzer declares it so. NOLINTNEXTLINE(readability-non-const-parameter) */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const struct rlimit limit = { FILE_LIMIT, RLIM_INFINITY };

	(void)argc;
	(void)argv;
	MUST(mkdtemp(base));
	atexit(remove_base);
	(void)setrlimit(RLIMIT_FSIZE, &limit);
	signal(SIGXFSZ, SIG_IGN);
	umask(0);
	MUST(mkdir(at("out"), 0755) == 0);
	put_file("out/secret", "s");
	MUST(stat(at("out/secret"), &secret) == 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static uint8_t listing[ROOM], answer[ROOM];
	struct input in = { data, bytes };
	struct careful_list_split_how how = {
		.file_bytes_max = SIZES,
		.no_links = take8(&in) & 1,
		.part_bytes_max = 256,
		.part_files_max = 8,
	};
	uint32_t used = make_listing(&in, listing), got;
	static struct careful_moved moved[ROOM / sizeof(struct careful_block_entry)];
	struct careful_list_split split;
	uint8_t *copy = malloc(used + 1);
	int fd = begin();

	MUST(copy);
	memcpy(copy, listing, used);
	if (careful_list_split(copy, used, &how, &split) == 0) {
		check_split(&split, used);
		got = make_answer(&in, split.reads, split.reads_bytes, answer);
		careful_match(split.reads, split.reads_bytes, answer, got, moved, split.files);
		run(&in, fd, answer, got);
		careful_list_split_release(&split);
	}
	free(copy);
	close(fd);
	check();
	nftw(at("in"), remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return 0;
}
