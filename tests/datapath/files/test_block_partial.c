/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Other ways to open a file: partial files, seeds, streams, in place, null; and digests and extents
 * of open files.
 */
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <xxhash.h>

#include "block_end.h"

/* Begins to serve base. */
static void serve(bool writable)
{
	struct block_export_options export = { .path = base, .name = "one", .writable = writable };
	struct careful_error error;

	c = fake_create();
	assert(block_serve(c, &export, 1, &server, &error) == 0);
	careful_peer_watch(c, block_watch, server);
}

static struct fake_answer *ask(uint16_t handler, uint32_t arg0, uint32_t arg1, const void *payload,
			       size_t bytes)
{
	uint32_t args[4] = { arg0, arg1 };

	return answer(fake_request(c, 0, handler, args, payload, (uint32_t)bytes));
}

/* Sends OPEN with a handle in args[0]; the caller fills all of `open` but path_bytes. */
static struct fake_answer *open_of(const char *path, struct careful_block_open open,
				   uint32_t source)
{
	char buf[sizeof(open) + PATH_MAX + 1];
	size_t bytes = strlen(path);

	open.path_bytes = htobe32((uint32_t)bytes);
	memcpy(buf, &open, sizeof(open));
	memcpy(buf + sizeof(open), path, bytes + 1);
	return ask(CAREFUL_BLOCK_OPEN, source, 0, buf, sizeof(open) + bytes);
}

static struct fake_answer *open_as(const char *path, struct careful_block_open open)
{
	return open_of(path, open, 0);
}

static struct fake_answer *commit(uint32_t key, uint32_t flags, uint64_t bytes)
{
	struct careful_block_open open = { .mode = htobe32(0644), .bytes = htobe64(bytes) };

	return ask(CAREFUL_BLOCK_COMMIT, key, flags, &open, sizeof(open));
}

static struct fake_answer *close_key(uint32_t key, uint32_t flags)
{
	return ask(CAREFUL_BLOCK_CLOSE, key, flags, NULL, 0);
}

static void write_file(const char *path, const void *data, size_t bytes)
{
	int fd = open(at(path), O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes && close(fd) == 0);
}

static bool holds(const char *path, const void *data, size_t bytes)
{
	char *buf = malloc(bytes + 1);
	int fd = open(at(path), O_RDONLY);
	bool same = fd >= 0 && read(fd, buf, bytes + 1) == (ssize_t)bytes &&
		    !memcmp(buf, data, bytes);

	if (fd >= 0)
		close(fd);
	free(buf);
	return same;
}

static int entries(void)
{
	DIR *dir = opendir(base);
	int n = -2;

	assert(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

enum { CREATE = CAREFUL_BLOCK_CREATE, REPLACE = CAREFUL_BLOCK_REPLACE };

static const char partial[] = ".careful-00000000000000ff.part";

static struct fake_answer *open_partial(const char *path, uint32_t flags, uint64_t bytes)
{
	return open_as(path, (struct careful_block_open){ .flags = htobe32(CREATE | flags),
							  .bytes = htobe64(bytes),
							  .tag = htobe64(0xff),
							  .tail_bytes = htobe32(100) });
}

static int fd_of(uint32_t key)
{
	return fake_region(c, key)->span.fd;
}

static void test_partial__continued(void)
{
	struct fake_answer *a = open_partial("new", 0, 5);
	uint32_t key = a->args[0];

	assert(a->status == 0 && a->args[1] == 0 && fake_region(c, key)->bytes == 105);
	assert(pwrite(fd_of(key), "12xxxnotes", 10, 0) == 10);
	assert(close_key(key, 0)->status == 0 && exists(partial));
	a = open_partial("new", 0, 5);
	key = a->args[0];
	assert(a->status == 0 && a->args[1] == 1 && fake_region(c, key)->bytes == 105);
	assert(pwrite(fd_of(key), "345", 3, 2) == 3);
	/* A partial file has one handle at a time. */
	assert(open_partial("new", 0, 5)->status == -EBUSY);
	a = commit(key, 0, 0);
	assert(a->status == 0 && holds("new", "12345", 5) && !exists(partial));
	assert(unlink(at("new")) == 0 && entries() == 0);
}

/* Size of the regular file at each fsync(), bytes; and the fsync() that fails, 0: none. */
static off_t synced[2];
static unsigned int syncs, bad_sync;

int fsync(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && syncs < 2)
		synced[syncs++] = st.st_size;
	if (bad_sync && syncs == bad_sync) {
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_fsync, fd);
}

/* A client that is interrupted during the sync finds the journal; later the file is complete. */
static void test_partial__synced_before_the_journal_is_cut(void)
{
	syncs = 0;
	assert(commit(open_partial("new", 0, 5)->args[0], 0, 0)->status == 0);
	assert(syncs == 2 && synced[0] == 105 && synced[1] == 5);
	assert(unlink(at("new")) == 0);
	syncs = 0;
	assert(commit(open_partial("new", 0, 5)->args[0], CAREFUL_BLOCK_NOSYNC, 0)->status == 0);
	assert(syncs == 0 && unlink(at("new")) == 0 && entries() == 0);
}

/* A refused commit keeps the journal; a file that was truncated before the failure is removed. */
static void test_partial__commit_fails(void)
{
	uint32_t key = open_partial("new", 0, 5)->args[0];
	struct stat st;

	write_file("new", "old", 3);
	assert(commit(key, 0, 0)->status == -EEXIST && holds("new", "old", 3));
	assert(stat(at(partial), &st) == 0 && st.st_size == 105);
	key = open_partial("new", REPLACE, 5)->args[0];
	assert(unlink(at("new")) == 0 && mkdir(at("new"), 0700) == 0);
	assert(commit(key, REPLACE, 0)->status == -EISDIR && rmdir(at("new")) == 0);
	for (bad_sync = 1; bad_sync <= 2; bad_sync++) {
		key = open_partial("new", 0, 5)->args[0];
		syncs = 0;
		assert(commit(key, 0, 0)->status == -EIO && !exists("new"));
		assert(exists(partial) == (bad_sync == 1));
	}
	bad_sync = 0;
	assert(entries() == 0);
}

static void test_partial__discarded(void)
{
	struct fake_answer *a = open_partial("new", 0, 5);

	assert(close_key(a->args[0], CAREFUL_BLOCK_DISCARD)->status == 0 && entries() == 0);
	/* A temporary file without a tag never stays. */
	a = open_as("new", (struct careful_block_open){ .flags = htobe32(CREATE) });
	assert(a->status == 0 && entries() == 1);
	assert(close_key(a->args[0], 0)->status == 0 && entries() == 0);
}

static void test_partial__of_another_size(void)
{
	struct fake_answer *a = open_partial("new", 0, 5);

	close_key(a->args[0], 0);
	a = open_partial("new", 0, 6);
	assert(a->status == 0 && a->args[1] == 1);
	/* The region can be read, but not written. */
	assert(fake_region(c, a->args[0])->bytes == 105);
	assert(fake_region(c, a->args[0])->access == CAREFUL_REGION_READ);
	assert(commit(a->args[0], 0, 0)->status == -EINVAL);
	assert(close_key(a->args[0], CAREFUL_BLOCK_DISCARD)->status == 0 && entries() == 0);
}

static void test_partial__peer_gone(void)
{
	struct fake_answer *a = open_partial("new", 0, 5);

	assert(pwrite(fd_of(a->args[0]), "1", 1, 0) == 1);
	block_watch(c, 0, CAREFUL_PEER_FAILED, server);
	for (int i = 0; i < 1000 && (a = open_partial("new", 0, 5))->status == -EBUSY; i++)
		usleep(1000);
	assert(a->status == 0 && a->args[1] == 1);
	assert(close_key(a->args[0], CAREFUL_BLOCK_DISCARD)->status == 0);
}

static void test_partial__not_ours(void)
{
	struct fake_answer *a;

	/* A link to something else is not continued. */
	write_file("other", "x", 1);
	assert(link(at("other"), at(partial)) == 0);
	assert(open_partial("new", 0, 5)->status == -EPERM);
	assert(unlink(at(partial)) == 0);
	assert(symlink("other", at(partial)) == 0);
	assert(open_partial("new", 0, 5)->status == -ELOOP);
	assert(unlink(at(partial)) == 0 && mkdir(at(partial), 0700) == 0);
	assert(open_partial("new", 0, 5)->status == -EISDIR);
	assert(rmdir(at(partial)) == 0 && holds("other", "x", 1));
	/* An existing name is refused at once, and leaves nothing. */
	assert(open_partial("other", 0, 5)->status == -EEXIST && entries() == 1);
	a = open_partial("other", REPLACE, 1);
	assert(commit(a->args[0], REPLACE, 0)->status == 0 && holds("other", "\0", 1));
	assert(unlink(at("other")) == 0);
}

static void test_partial__no_room(void)
{
	struct fake_answer *a = open_partial("new", 0, 1ULL << 62);

	assert(a->status == -EFBIG || a->status == -ENOSPC);
	assert(entries() == 0);
}

static void test_create__seed(void)
{
	struct careful_block_open open = {
		.flags = htobe32(CREATE | REPLACE | CAREFUL_BLOCK_SEED),
		.bytes = htobe64(5),
	};
	struct fake_answer *a;

	/* A longer, a shorter and no old file. */
	write_file("old", "abcdefg", 7);
	a = open_as("old", open);
	assert(a->status == 0 && pwrite(fd_of(a->args[0]), "X", 1, 2) == 1);
	assert(commit(a->args[0], REPLACE, 0)->status == 0 && holds("old", "abXde", 5));
	write_file("old", "abc", 3);
	a = open_as("old", open);
	assert(commit(a->args[0], REPLACE, 0)->status == 0 && holds("old", "abc\0\0", 5));
	assert(unlink(at("old")) == 0);
	a = open_as("old", open);
	assert(commit(a->args[0], REPLACE, 0)->status == 0 && holds("old", "\0\0\0\0\0", 5));
	assert(unlink(at("old")) == 0 && entries() == 0);
}

static struct fake_answer *ask_copy(const char *path, uint32_t source, uint32_t flags)
{
	struct careful_block_open open = {
		.flags = htobe32(CREATE | CAREFUL_BLOCK_COPY | flags),
		.bytes = htobe64(5),
	};

	return open_of(path, open, source);
}

static void test_create__copy(void)
{
	struct fake_answer *a;
	uint32_t source;

	write_file("from", "abcdefg", 7);
	a = open_as("from", (struct careful_block_open){ 0 });
	assert(a->status == 0);
	source = a->args[0];
	a = ask_copy("to", source, 0);
	assert(a->status == 0 && a->args[1] == 2);
	assert(commit(a->args[0], 0, 0)->status == 0 && holds("to", "abcde", 5));
	/* An existing name, an escape, no source, and one that is no file. */
	assert(ask_copy("to", source, 0)->status == -EEXIST);
	assert(ask_copy("../to", source, REPLACE)->status < 0);
	assert(ask_copy("new", source + 1000, 0)->status == -EBADF);
	assert(ask_copy("new", 0, 0)->status == -EBADF);
	a = open_as("", (struct careful_block_open){ .flags = htobe32(CAREFUL_BLOCK_NULL),
						     .bytes = htobe64(5) });
	assert(a->status == 0 && ask_copy("new", a->args[0], 0)->status == -EINVAL);
	assert(close_key(a->args[0], 0)->status == 0);
	assert(close_key(source, 0)->status == 0);
	assert(unlink(at("from")) == 0 && unlink(at("to")) == 0 && entries() == 0);
}

static void test_create__sparse_and_stream(void)
{
	struct fake_answer *a;
	struct stat st;

	a = open_as("new", (struct careful_block_open){
				   .flags = htobe32(CREATE | CAREFUL_BLOCK_SPARSE),
				   .bytes = htobe64(1 << 20),
			   });
	assert(commit(a->args[0], 0, 0)->status == 0);
	assert(stat(at("new"), &st) == 0 && st.st_size == 1 << 20 && st.st_blocks == 0);
	assert(unlink(at("new")) == 0);
	a = open_as("new",
		    (struct careful_block_open){ .flags = htobe32(CREATE | CAREFUL_BLOCK_STREAM) });
	assert(pwrite(fd_of(a->args[0]), "12345", 5, 0) == 5);
	assert(commit(a->args[0], 0, 3)->status == 0 && holds("new", "123", 3));
	assert(unlink(at("new")) == 0);
}

static struct fake_answer *open_inplace(const char *path, uint64_t bytes)
{
	return open_as(path, (struct careful_block_open){
				     .flags = htobe32(CAREFUL_BLOCK_INPLACE),
				     .bytes = htobe64(bytes),
			     });
}

static void test_inplace__file(void)
{
	struct fake_answer *a;

	write_file("f", "hello", 5);
	a = open_inplace("f", 8);
	assert(a->status == 0 && fake_region(c, a->args[0])->bytes == 8);
	assert(pwrite(fd_of(a->args[0]), "LO!", 3, 3) == 3);
	assert(commit(a->args[0], 0, 0)->status == 0 && holds("f", "helLO!", 6));
	a = open_inplace("f", 0);
	assert(fake_region(c, a->args[0])->bytes == 6 && close_key(a->args[0], 0)->status == 0);
	assert(open_inplace("none", 8)->status == -ENOENT &&
	       open_inplace("", 8)->status == -EISDIR);
	assert(mkfifo(at("fifo"), 0600) == 0 && open_inplace("fifo", 8)->status == -ENOTSUP);
	assert(unlink(at("fifo")) == 0 && unlink(at("f")) == 0 && entries() == 0);
}

static void test_null__zeros_and_room(void)
{
	struct fake_answer *a = open_as("", (struct careful_block_open){
						    .flags = htobe32(CAREFUL_BLOCK_NULL),
						    .bytes = htobe64(1 << 30),
					    });
	char buf[4] = "abc";

	assert(a->status == 0 && fake_region(c, a->args[0])->bytes == 1 << 30);
	assert(pwrite(fd_of(a->args[0]), buf, 4, 1 << 20) == 4);
	assert(pread(fd_of(a->args[0]), buf, 4, 1 << 20) == 4 && !memcmp(buf, "\0\0\0", 4));
	assert(commit(a->args[0], 0, 0)->status == 0);
}

static struct fake_answer *digest(uint32_t key, uint64_t offset, uint64_t bytes, uint32_t block,
				  uint32_t algorithm)
{
	struct careful_block_range range = { htobe64(offset), htobe64(bytes), htobe32(block),
					     htobe32(algorithm) };

	return ask(CAREFUL_BLOCK_DIGEST, key, 0, &range, sizeof(range));
}

static void test_digest__blocks(void)
{
	static char data[10000];
	struct fake_answer *a;
	XXH64_canonical_t expected;
	uint32_t key;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7);
	write_file("f", data, sizeof(data));
	key = open_as("f", (struct careful_block_open){ 0 })->args[0];
	a = digest(key, 0, 10000, 4096, CAREFUL_BLOCK_XXH3);
	assert(a->status == 0 && a->args[0] == 3 && a->bytes == 24);
	XXH64_canonicalFromHash(&expected, XXH3_64bits(data + 8192, 10000 - 8192));
	assert(!memcmp(a->payload + 16, expected.digest, 8));
	a = digest(key, 1024, 2048, 1024, CAREFUL_BLOCK_BLAKE3);
	assert(a->status == 0 && a->args[0] == 2 && a->bytes == 64);
	/* As many digests as the answer holds. */
	a = digest(key, 0, 10000, 1024, CAREFUL_BLOCK_BLAKE3);
	assert(a->status == 0 && a->args[0] == 10);
	a = digest(key, 0, 0, 1024, CAREFUL_BLOCK_XXH3);
	assert(a->status == 0 && a->args[0] == 0 && a->bytes == 0);
	assert(digest(key, 0, 10001, 4096, CAREFUL_BLOCK_XXH3)->status == -ENODATA);
	assert(digest(key, 0, 5000, 1000, CAREFUL_BLOCK_XXH3)->status == -EINVAL);
	assert(digest(key, 0, 5000, 1U << 31, CAREFUL_BLOCK_XXH3)->status == -EINVAL);
	assert(digest(key, 0, 5000, 3000, CAREFUL_BLOCK_BLAKE3)->status == -EINVAL);
	assert(digest(key, 100, 5000, 1024, CAREFUL_BLOCK_BLAKE3)->status == -EINVAL);
	assert(digest(key, 0, 5000, 1024, 9)->status == -EINVAL);
	assert(digest(key, UINT64_MAX, 5000, 1024, CAREFUL_BLOCK_XXH3)->status == -EINVAL);
	assert(digest(key + 1, 0, 5000, 1024, CAREFUL_BLOCK_XXH3)->status == -EBADF);
	assert(ask(CAREFUL_BLOCK_DIGEST, key, 0, data, 23)->status == -EINVAL);
	assert(close_key(key, 0)->status == 0 && unlink(at("f")) == 0);
}

static void test_digest__in_parts(void)
{
	enum { BLOCKS = 1000 };
	static char data[BLOCKS * 1024];
	struct fake_answer *a;
	uint32_t key;

	memset(data, 'x', sizeof(data));
	write_file("f", data, sizeof(data));
	key = open_as("f", (struct careful_block_open){ 0 })->args[0];
	a = digest(key, 0, sizeof(data), 1024, CAREFUL_BLOCK_XXH3);
	assert(a->args[0] == 3700 / 8 && a->bytes == 3700 / 8 * 8);
	assert(close_key(key, 0)->status == 0 && unlink(at("f")) == 0);
}

/* The handle may end while its digests are computed. */
static void test_digest__handle_ends_meanwhile(void)
{
	struct careful_block_range range = { 0, htobe64(256 << 20), htobe32(1 << 20),
					     htobe32(CAREFUL_BLOCK_BLAKE3) };
	uint32_t token, key, args[4] = { 0 };
	struct fake_answer *a;

	a = open_as("", (struct careful_block_open){ .flags = htobe32(CAREFUL_BLOCK_NULL),
						     .bytes = htobe64(1 << 30) });
	key = args[0] = a->args[0];
	token = fake_request(c, 0, CAREFUL_BLOCK_DIGEST, args, &range, sizeof(range));
	assert(close_key(key, 0)->status == 0);
	a = answer(token);
	assert(a->status == 0 && a->args[0] == 3700 / 32);
}

static const struct careful_block_extent *extents(uint32_t key, uint64_t offset, uint64_t bytes,
						  uint32_t *n, uint64_t *end)
{
	struct careful_block_range range = { htobe64(offset), htobe64(bytes), 0, 0 };
	struct fake_answer *a = ask(CAREFUL_BLOCK_EXTENTS, key, 0, &range, sizeof(range));

	assert(a->status == 0 && a->bytes == a->args[0] * sizeof(struct careful_block_extent));
	*n = a->args[0];
	*end = (uint64_t)a->args[1] << 32 | a->args[2];
	return (const void *)a->payload;
}

static void test_extents__holes(void)
{
	const uint64_t mib = 1 << 20;
	const struct careful_block_extent *e;
	uint64_t end;
	uint32_t n, key;
	int fd = open(at("f"), O_WRONLY | O_CREAT, 0644);

	for (uint64_t i = 0; i < 500; i++)
		assert(pwrite(fd, "x", 1, (off_t)(2 * i * mib)) == 1);
	assert(ftruncate(fd, (off_t)(1000 * mib)) == 0 && close(fd) == 0);
	key = open_as("f", (struct careful_block_open){ 0 })->args[0];
	e = extents(key, 0, 5 * mib, &n, &end);
	assert(n == 3 && end == 5 * mib);
	for (uint64_t i = 0; i < n; i++)
		assert(be64toh(e[i].offset) == 2 * i * mib && be64toh(e[i].bytes) <= 65536);
	/* The hole at the end has no extent; a range within data is cut. */
	extents(key, 999 * mib, mib, &n, &end);
	assert(n == 0 && end == 1000 * mib);
	e = extents(key, 2 * mib + 10, 20, &n, &end);
	assert(n == 1 && be64toh(e[0].offset) == 2 * mib + 10 && be64toh(e[0].bytes) == 20);
	/* More than an answer holds: it reports how far it came. */
	extents(key, 0, 1000 * mib, &n, &end);
	assert(n == 3700 / 16 && end > 2 * (n - 1) * mib && end < 2 * n * mib);
	assert(close_key(key, 0)->status == 0 && unlink(at("f")) == 0);
}

static void test_export__read_only(void)
{
	write_file("f", "hello", 5);
	assert(open_inplace("f", 8)->status == -EROFS);
	assert(open_partial("new", 0, 5)->status == -EROFS);
	assert(unlink(at("f")) == 0 && entries() == 0);
}

int main(void)
{
	int before = open_fds();

	assert(mkdtemp(base));
	serve(true);
	test_partial__continued();
	test_partial__synced_before_the_journal_is_cut();
	test_partial__commit_fails();
	test_partial__discarded();
	test_partial__of_another_size();
	test_partial__peer_gone();
	test_partial__not_ours();
	test_partial__no_room();
	test_create__seed();
	test_create__copy();
	test_create__sparse_and_stream();
	test_inplace__file();
	test_null__zeros_and_room();
	test_digest__blocks();
	test_digest__in_parts();
	test_digest__handle_ends_meanwhile();
	test_extents__holes();
	/* A partial file outlives the server. */
	open_partial("new", 0, 5);
	stop();
	assert(entries() == 1 && unlink(at(partial)) == 0);
	serve(false);
	test_export__read_only();
	stop();
	assert(open_fds() == before);
	remove_base();
	printf("test_block_partial: ok\n");
	return 0;
}
