// SPDX-License-Identifier: BSD-2-Clause
/*
 * A table of ways out of an exported directory. Every request with a path tries each of them, also
 * while directories on the way change; none reads or changes anything outside.
 */
#include <linux/fs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>

#include <careful/files.h>

#include "block_end.h"
#include "check.h"
#include "mounts.h"

#define SECRET "nobody's business"
#define MARK ".nobody's" /* only a list of the outside has this name */

enum { RACES = 300, SLOW = 20, NAME_BYTES = 300 };
enum { MEMORY_MAJOR = 1, ZERO_MINOR = 5, LOOP_MAJOR = 7 };

static struct stat outside;
static uint8_t digest[CAREFUL_DIGEST_BYTES_MAX]; /* of the secret; 8 bytes count */
static char overlong[NAME_BYTES], deep[PATH_MAX - 64];

/* @bytes: length of a path with a NUL; 0: strlen() */
static const struct escape {
	const char *path;
	uint32_t bytes;
} escapes[] = {
	{ "..", 0 },
	{ "../outside/secret", 0 },
	{ "../outside/new", 0 },
	{ "sub/../../outside/secret", 0 },
	{ "./../outside/secret", 0 },
	{ "sub//..//..//outside/secret", 0 },
	{ "/", 0 },
	{ "/etc/passwd", 0 },
	{ "//etc/passwd", 0 },
	{ "absolute", 0 },
	{ "absolute/secret", 0 },
	{ "absolute/new", 0 },
	{ "relative", 0 },
	{ "relative/secret", 0 },
	{ "relative/new", 0 },
	{ "file", 0 },
	{ "chain", 0 },
	{ "chain/secret", 0 },
	{ "up/../outside/secret", 0 },
	{ "root/etc/passwd", 0 },
	{ "cwd/secret", 0 },
	{ "fd/3", 0 },
	{ "loop", 0 },
	{ "loop/secret", 0 },
	{ "pipe", 0 },
	{ "pipe/secret", 0 },
	{ "device", 0 },
	{ "disk", 0 },
	{ "sub/a/..", 0 },
	{ "mount/../../outside/secret", 0 },
	{ "mount/../../outside/new", 0 },
	{ "mount/..", 0 },
	{ "sub\0/../../outside/secret", 26 },
	{ "\0../outside/secret", 19 },
	{ "../outside/secret\0", 18 },
	{ "SUB/../../OUTSIDE/secret", 0 },
	{ "mount/fold/OUT/secret", 0 },
	{ "mount/fold/OUT/new", 0 },
	{ "mount/fold/SUB/../../../../outside/secret", 0 },
	{ "..\xc0\xaf..\xc0\xafoutside", 0 },
	{ overlong, 0 },
	{ deep, 0 },
};

static void make_link(const char *to, const char *name)
{
	unlink(at(name));
	CHECK_EQ(symlink(to, at(name)), 0);
}

static void make_node(const char *name, mode_t type, dev_t number)
{
	unlink(at(name));
	CHECK_EQ(mknod(at(name), type | 0600, number), 0);
}

/* Makes the paths that lead out again, since a write may have replaced one by a file. */
static void make_ways(void)
{
	make_link(at("outside"), "export/absolute");
	make_link("../outside", "export/relative");
	make_link("../outside/secret", "export/file");
	make_link("relative", "export/chain");
	make_link("..", "export/up");
	make_link("/proc/self/root", "export/root");
	make_link("/proc/self/cwd", "export/cwd");
	make_link("/proc/self/fd", "export/fd");
	make_link("loop", "export/loop");
	make_node("export/pipe", S_IFIFO, 0);
	make_node("export/device", S_IFCHR, makedev(MEMORY_MAJOR, ZERO_MINOR));
	make_node("export/disk", S_IFBLK, makedev(LOOP_MAJOR, 0));
}

/* Mounts a file system below the export with a case-insensitive directory, if the kernel can do
 * that for a tmpfs (CONFIG_UNICODE, Linux 6.13). Otherwise names in other case are other names. */
static void mount_folding(void)
{
	int fd, flags = FS_CASEFOLD_FL;

	if (mount("tmpfs", at("export/mount"), "tmpfs", 0, "casefold"))
		CHECK(!mount("tmpfs", at("export/mount"), "tmpfs", 0, NULL));
	CHECK_EQ(mkdir(at("export/mount/fold"), 0755), 0);
	fd = open(at("export/mount/fold"), O_RDONLY | O_DIRECTORY);
	if (ioctl(fd, FS_IOC_SETFLAGS, &flags))
		printf("no tmpfs here folds case: %s\n", strerror(errno));
	CHECK(!close(fd) && !mkdir(at("export/mount/fold/sub"), 0755));
	make_link(at("outside"), "export/mount/fold/out");
}

static void set_up(void)
{
	const char *why = private_mounts();
	int fd;

	if (why)
		skip(why);
	CHECK(mkdtemp(base));
	CHECK(!mkdir(at("export"), 0755) && !mkdir(at("outside"), 0755) &&
	      !mkdir(at("export/sub"), 0755) && !mkdir(at("export/swapped"), 0755));
	CHECK(!close(open(at("export/sub/a"), O_CREAT | O_WRONLY, 0644)));
	fd = open(at("outside/secret"), O_CREAT | O_WRONLY, 0600);
	CHECK_EQ(write(fd, SECRET, strlen(SECRET)), (ssize_t)strlen(SECRET));
	CHECK(!fstat(fd, &outside) && !close(fd));
	CHECK(!close(open(at("outside/" MARK), O_CREAT | O_WRONLY, 0600)));
	fd = open(at("outside/secret"), O_RDONLY);
	CHECK_EQ(careful_digest(fd, 0, strlen(SECRET), CAREFUL_BLOCK_XXH3, digest), 8);
	CHECK(!close(fd));
	make_link("../outside", "export/link");
	CHECK(!mkdir(at("export/mount"), 0755));
	mount_folding();
	memset(overlong, 'x', sizeof(overlong) - 1);
	for (size_t i = 0; i + 3 < sizeof(deep); i += 3)
		memcpy(deep + i, "../", 3); /* NOLINT: a counted string */
}

static void start(void)
{
	struct block_export_options export = { .path = at("export"), .writable = true };
	struct careful_error error;

	c = fake_create();
	CHECK_EQ(block_serve(c, &export, 1, &server, &error), 0);
}

static struct fake_answer *ask_bytes(uint16_t handler, const struct escape *escape, uint32_t flags,
				     uint64_t file_bytes)
{
	uint32_t bytes = escape->bytes ? escape->bytes : (uint32_t)strlen(escape->path);
	uint8_t payload[sizeof(struct careful_block_open) + PATH_MAX];
	struct careful_block_open head = {
		.flags = htobe32(flags),
		.mode = htobe32(0644),
		.bytes = htobe64(file_bytes),
		.path_bytes = htobe32(bytes),
	};
	uint32_t args[4] = { flags };
	bool bare = handler == CAREFUL_BLOCK_STAT || handler == CAREFUL_BLOCK_LIST;
	uint32_t at_byte = bare ? 0 : sizeof(head);

	memcpy(payload, &head, sizeof(head));
	memcpy(payload + at_byte, escape->path, bytes);
	if (handler == CAREFUL_BLOCK_OPEN)
		args[0] = 0;
	return answer(fake_request(c, 0, handler, args, payload, at_byte + bytes));
}

static struct fake_answer *ask(uint16_t handler, const struct escape *escape, uint32_t flags)
{
	return ask_bytes(handler, escape, flags, 16);
}

static void close_key(uint32_t key)
{
	uint32_t args[4] = { key };

	CHECK_EQ(answer(fake_request(c, 0, CAREFUL_BLOCK_CLOSE, args, NULL, 0))->status, 0);
}

/* Checks that a handle is no file or listing of the outside, and no device. */
static void check_handle(const struct escape *escape, uint32_t key)
{
	int fd = fake_region(c, key)->span.fd;
	char data[4096] = { 0 };
	struct stat st;

	CHECK(!fstat(fd, &st) && S_ISREG(st.st_mode));
	if (st.st_dev == outside.st_dev && st.st_ino == outside.st_ino) {
		fprintf(stderr, "%s leads outside\n", escape->path);
		exit(1);
	}
	CHECK(pread(fd, data, sizeof(data) - 1, 0) >= 0);
	CHECK(!memmem(data, sizeof(data), SECRET, strlen(SECRET)));
	CHECK(!memmem(data, sizeof(data), MARK, strlen(MARK)));
	CHECK(!memmem(data, sizeof(data), "root:", 5));
}

static void try_handle(uint16_t handler, const struct escape *escape, uint32_t flags)
{
	const struct fake_answer *a = ask(handler, escape, flags);
	uint32_t key = a->args[0];

	if (a->status)
		return;
	check_handle(escape, key);
	if (flags & CAREFUL_BLOCK_CREATE) {
		struct careful_block_open how = { .mode = htobe32(0644), .bytes = htobe64(16) };
		uint32_t args[4] = { key, CAREFUL_BLOCK_REPLACE | CAREFUL_BLOCK_NOSYNC };

		answer(fake_request(c, 0, CAREFUL_BLOCK_COMMIT, args, &how, sizeof(how)));
	} else {
		close_key(key);
	}
}

static void try_all(const struct escape *escape)
{
	const struct fake_answer *a = ask(CAREFUL_BLOCK_STAT, escape, 0);
	struct careful_block_attr attr;

	if (!a->status) {
		memcpy(&attr, a->payload, sizeof(attr));
		CHECK(be64toh(attr.inode) != outside.st_ino);
	}
	try_handle(CAREFUL_BLOCK_OPEN, escape, 0);
	try_handle(CAREFUL_BLOCK_LIST, escape, 0);
	try_handle(CAREFUL_BLOCK_LIST, escape, CAREFUL_BLOCK_RECURSIVE);
	try_handle(CAREFUL_BLOCK_OPEN, escape, CAREFUL_BLOCK_INPLACE);
	try_handle(CAREFUL_BLOCK_OPEN, escape, CAREFUL_BLOCK_CREATE | CAREFUL_BLOCK_REPLACE);
	ask(CAREFUL_BLOCK_MKDIR, escape, 0);
}

/* Checks that nothing outside was added or changed. */
static void check_outside(void)
{
	char data[64] = { 0 };
	struct dirent *entry;
	struct stat st;
	uint32_t n = 0;
	int fd = open(at("outside/secret"), O_RDONLY);
	DIR *dir = opendir(at("outside"));

	while ((entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	closedir(dir);
	CHECK_EQ(n, 1);
	CHECK(!fstat(fd, &st) && st.st_ino == outside.st_ino && st.st_mode == outside.st_mode);
	CHECK(st.st_nlink == 1 && st.st_mtime == outside.st_mtime);
	CHECK_EQ(read(fd, data, sizeof(data)), (ssize_t)strlen(SECRET));
	CHECK(!strcmp(data, SECRET) && !close(fd));
	CHECK(!exists("new"));
}

static atomic_bool swapping;
static uint32_t run; /* batches that were not refused completely */

/* Writes an item of a batch; `text` is a link's target. */
static size_t put_item(char *to, uint16_t op, const char *name, uint32_t bytes, const char *text)
{
	struct careful_block_item item = {
		.attr = { .mode = htobe32((op == CAREFUL_ITEM_DIRECTORY ? S_IFDIR :
					   op == CAREFUL_ITEM_SYMLINK	? S_IFLNK :
									  S_IFREG) |
					  0777),
			  .bytes = htobe64(1) }, /* READ: with the contents */
		.op = htobe16(op),
		.name_bytes = htobe32(bytes),
		.text_bytes = htobe32((uint32_t)strlen(text)),
	};

	memcpy(to, &item, sizeof(item));
	memcpy(to + sizeof(item), name, bytes);
	memcpy(to + sizeof(item) + bytes, text, strlen(text)); /* NOLINT: a counted string */
	return (sizeof(item) + bytes + strlen(text) + 7) & ~(size_t)7;
}

/* Writes every kind of item under a name that leads out, and a link to its target. */
static size_t put_items(char *batch, const struct escape *escape)
{
	static const uint16_t ops[] = { CAREFUL_ITEM_LINK,	CAREFUL_ITEM_READ,
					CAREFUL_ITEM_DIGEST,	CAREFUL_ITEM_FILE,
					CAREFUL_ITEM_DIRECTORY, CAREFUL_ITEM_SYMLINK,
					CAREFUL_ITEM_META,	CAREFUL_ITEM_REMOVE };
	uint32_t bytes = escape->bytes ? escape->bytes : (uint32_t)strlen(escape->path);
	/* In a race a link may stay inside the export, which cannot be told from a way out; and the
	 * swapped names must stay. */
	bool races = atomic_load(&swapping), stays = races && !strchr(escape->path, '/');
	size_t used = put_item(batch, CAREFUL_ITEM_LINK, "got", 3, escape->path);

	for (size_t i = races; i < sizeof(ops) / sizeof(ops[0]) - stays; i++)
		used += put_item(batch + used, ops[i], escape->path, bytes,
				 ops[i] == CAREFUL_ITEM_SYMLINK ? "x" :
				 ops[i] == CAREFUL_ITEM_LINK	? "sub/a" :
								  "");
	return used;
}

/* Runs a batch. Reports whether some items failed. */
static bool try_batch(const struct escape *escape)
{
	static const struct escape top = { "", 0 };
	static char batch[10 * (PATH_MAX + 256)], data[sizeof(batch)];
	bool failed = false;
	struct careful_block_batch how = { .file_bytes_max = htobe32(4096) };
	uint32_t args[4] = { 0, CAREFUL_BATCH_MODE | CAREFUL_BATCH_TIME | CAREFUL_BATCH_NODIGEST };
	struct fake_answer *a;
	struct stat st;
	size_t used;

	memset(batch, 0, sizeof(batch));
	used = put_items(batch, escape);
	how.bytes = htobe64(used);
	a = ask_bytes(CAREFUL_BLOCK_OPEN, &top, CAREFUL_BLOCK_SCRATCH, sizeof(batch));
	CHECK_EQ(a->status, 0);
	args[0] = a->args[0];
	CHECK_EQ(pwrite(fake_region(c, args[0])->span.fd, batch, used, 0), (ssize_t)used);
	a = answer(fake_request(c, 0, CAREFUL_BLOCK_BATCH, args, &how, sizeof(how)));
	if (!a->status) {
		run++;
		failed = a->args[3];
		CHECK(pread(fake_region(c, a->args[0])->span.fd, data, sizeof(data), 0) > 0);
		CHECK(!memmem(data, sizeof(data), SECRET, strlen(SECRET)));
		CHECK(!memmem(data, sizeof(data), digest, 8));
		CHECK(!memmem(data, sizeof(data), "root:", 5));
		close_key(a->args[0]);
	}
	close_key(args[0]);
	if (!lstat(at("export/got"), &st)) {
		CHECK(st.st_ino != outside.st_ino);
		CHECK(!unlink(at("export/got")));
	}
	return failed;
}

static void test_batch__no_path_leads_out(void)
{
	start();
	for (size_t i = 0; i < sizeof(escapes) / sizeof(escapes[0]); i++) {
		uint32_t before = run;

		make_ways();
		CHECK(try_batch(&escapes[i]) || run == before);
		check_outside();
	}
	CHECK(run > sizeof(escapes) / sizeof(escapes[0]) / 2);
	CHECK(c->denied > 100); /* items, each counted */
	stop();
}

static void test_escape__no_path_leads_out(void)
{
	start();
	for (size_t i = 0; i < sizeof(escapes) / sizeof(escapes[0]); i++) {
		make_ways();
		try_all(&escapes[i]);
		check_outside();
	}
	CHECK(c->denied > 100);
	stop();
}

static void exchange(int dir, const char *one, const char *two)
{
	CHECK_EQ(renameat2(dir, one, dir, two, RENAME_EXCHANGE), 0);
}

/* Swaps a directory with a symlink out of the export, and a file with a symlink to the secret, all
 * the time. */
static void *swap(void *arg)
{
	int dir = open(at("export"), O_RDONLY | O_DIRECTORY);

	(void)arg;
	while (atomic_load(&swapping)) {
		exchange(dir, "swapped", "link");
		exchange(dir, "leaf", "leaf-link");
	}
	close(dir);
	return NULL;
}

static void test_escape__no_race_leads_out_of_the_export(void)
{
	static const struct escape read = { "swapped/secret", 0 };
	static const struct escape others[] = { { "swapped/new", 0 }, { "swapped", 0 } };
	static const struct escape leaf = { "leaf", 0 };
	pthread_t thread;

	CHECK(!close(open(at("export/leaf"), O_CREAT | O_WRONLY, 0644)));
	make_link("../outside/secret", "export/leaf-link");
	start();
	run = 0;
	atomic_store(&swapping, true);
	CHECK_EQ(pthread_create(&thread, NULL, swap, NULL), 0);
	for (int i = 0; i < RACES; i++) {
		try_handle(CAREFUL_BLOCK_OPEN, &read, 0);
		try_handle(CAREFUL_BLOCK_OPEN, &read, CAREFUL_BLOCK_INPLACE);
		try_all(&others[i & 1]);
		try_batch(&read);
		if (i % SLOW) /* reads of fresh changes wait */
			continue;
		try_batch(&others[i / SLOW & 1]);
		try_batch(&leaf);
	}
	CHECK(run > RACES);
	atomic_store(&swapping, false);
	pthread_join(thread, NULL);
	check_outside();
	stop();
}

int main(void)
{
	set_up();
	RUN(test_escape__no_path_leads_out);
	RUN(test_escape__no_race_leads_out_of_the_export);
	RUN(test_batch__no_path_leads_out);
	CHECK_EQ(umount(at("export/mount")), 0);
	remove_base();
	return 0;
}
