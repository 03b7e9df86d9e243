// SPDX-License-Identifier: BSD-2-Clause
/*
 * Room for a new file: an exhausted quota, and files that begin with an old one and take no room in
 * advance. Room for listings on disk.
 */
#include <sys/statvfs.h>

#include "block_end.h"
#include "check.h"
#include "files/private.h"

enum { NAMES = 6000, NAME_BYTES = 200 }; /* a listing of more than BLOCK_LISTING_MEMORY */

static int no_room; /* errno of fallocate(); 0: it succeeds */

/* Replaces libc's by a file system with a quota. */
int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
	(void)mode;
	if (!no_room)
		return ftruncate(fd, offset + bytes);
	errno = no_room;
	return -1;
}

static uint64_t available; /* blocks of 4 KiB for others than root; 0: enough */

/* Replaces libc's by a file system with little room. */
int fstatvfs(int fd, struct statvfs *fs)
{
	(void)fd;
	*fs = (struct statvfs){
		.f_blocks = UINT32_MAX,
		.f_frsize = 4096,
		.f_bavail = available ? available : UINT32_MAX,
	};
	return 0;
}

static void start(void)
{
	struct block_export_options export = { .path = base, .name = "one", .writable = true };
	struct careful_error error;

	c = fake_create();
	CHECK_EQ(block_serve(c, &export, 1, &server, &error), 0);
}

static struct fake_answer *create(const char *path, uint32_t flags, uint64_t bytes, uint64_t tag)
{
	struct careful_block_open open = {
		.flags = htobe32(CAREFUL_BLOCK_CREATE | flags),
		.bytes = htobe64(bytes),
		.tag = htobe64(tag),
		.path_bytes = htobe32((uint32_t)strlen(path)),
	};
	char buf[sizeof(open) + 64];

	memcpy(buf, &open, sizeof(open));
	memcpy(buf + sizeof(open), path, strlen(path) + 1);
	return answer(fake_request(c, 0, CAREFUL_BLOCK_OPEN, NULL, buf,
				   (uint32_t)(sizeof(open) + strlen(path))));
}

static int commit(uint32_t key, uint32_t flags)
{
	const struct careful_block_open open = { .mode = htobe32(0644) };
	const uint32_t args[4] = { key, flags };

	return answer(fake_request(c, 0, CAREFUL_BLOCK_COMMIT, args, &open, sizeof(open)))->status;
}

static int entries(void)
{
	DIR *dir = opendir(base);
	int n = -2;

	CHECK(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* The client gets the errno, and nothing is left, not even of a file to continue. */
static void test_quota__client_gets_edquot(void)
{
	start();
	no_room = EDQUOT;
	CHECK_EQ(create("new", 0, 1 << 20, 0)->status, -EDQUOT);
	CHECK_EQ(entries(), 0);
	CHECK_EQ(create("new", 0, 1 << 20, 0xff)->status, -EDQUOT);
	CHECK_EQ(entries(), 0);
	/* An operation that allocates nothing in advance begins; the quota ends it later. */
	CHECK_EQ(create("new", CAREFUL_BLOCK_SPARSE, 1 << 20, 0)->status, 0);
	no_room = 0;
	CHECK_EQ(create("new", 0, 1 << 20, 0)->status, 0);
	stop();
	CHECK_EQ(entries(), 0);
}

/* Holes of the old file stay holes, and so does the part beyond its end. */
static void test_seed__sparse(void)
{
	const char *where[] = { "old", "shorter", "longer" };
	const off_t bytes[] = { 3 << 20, 1 << 20, 5 << 20 };
	struct fake_answer *a;
	struct stat st;
	char piece[3];
	int fd;

	start();
	for (int i = 0; i < 3; i++) {
		fd = open(at(where[i]), O_CREAT | O_RDWR, 0644);
		CHECK(fd >= 0 && !ftruncate(fd, 3 << 20));
		CHECK_EQ(pwrite(fd, "abc", 3, 4096), 3);
		CHECK_EQ(pwrite(fd, "xyz", 3, 2 << 20), 3);
		CHECK_EQ(close(fd), 0);
		a = create(where[i],
			   CAREFUL_BLOCK_REPLACE | CAREFUL_BLOCK_SEED | CAREFUL_BLOCK_SPARSE,
			   (uint64_t)bytes[i], 0);
		CHECK_EQ(a->status, 0);
		CHECK_EQ(commit(a->args[0], CAREFUL_BLOCK_REPLACE), 0);
		CHECK_EQ(stat(at(where[i]), &st), 0);
		CHECK_EQ(st.st_size, bytes[i]);
		CHECK(st.st_blocks * 512 <= 1 << 18); /* a block or two, not megabytes */
		fd = open(at(where[i]), O_RDONLY);
		CHECK(pread(fd, piece, 3, 4096) == 3 && !memcmp(piece, "abc", 3));
		if (bytes[i] > 2 << 20)
			CHECK(pread(fd, piece, 3, 2 << 20) == 3 && !memcmp(piece, "xyz", 3));
		CHECK_EQ(close(fd), 0);
		CHECK_EQ(unlink(at(where[i])), 0);
	}
	stop();
}

/* Lists the export's top directory. */
static int list(uint32_t peer, uint32_t *key)
{
	struct fake_answer *a = answer(fake_request(c, peer, CAREFUL_BLOCK_LIST, NULL, ".", 1));

	*key = a->args[0];
	return a->status;
}

static void end_listing(uint32_t peer, uint32_t key)
{
	const uint32_t args[4] = { key };

	CHECK_EQ(answer(fake_request(c, peer, CAREFUL_BLOCK_CLOSE, args, NULL, 0))->status, 0);
}

/* Bounds a peer's listings together and each one: a peer that used up its share gets an error,
 * nothing of the failed listing stays on disk, and another peer has its whole share. */
static void test_listings__disk_of_a_peer_is_bounded(void)
{
	uint32_t keys[3];
	uint64_t bytes;
	char name[NAME_BYTES + 1];
	int fds;

	for (int i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "%0*d", NAME_BYTES, i);
		CHECK_EQ(close(open(at(name), O_CREAT | O_WRONLY | O_CLOEXEC, 0644)), 0);
	}
	start();
	CHECK_EQ(list(0, &keys[0]), 0);
	bytes = atomic_load(&server->peers[0].account->disk);
	CHECK(bytes > BLOCK_LISTING_MEMORY);
	fds = open_fds();
	server->listing_disk = 2 * bytes;
	CHECK_EQ(list(0, &keys[1]), 0);
	CHECK_EQ(list(0, &keys[2]), -EDQUOT);
	CHECK_EQ(atomic_load(&server->peers[0].account->disk), 2 * bytes);
	CHECK_EQ(open_fds(), fds + 1);
	CHECK_EQ(list(1, &keys[2]), 0);
	end_listing(1, keys[2]);
	end_listing(0, keys[1]);
	CHECK_EQ(list(0, &keys[1]), 0);
	server->listing_disk = bytes - 1; /* stands for the usual 1 GiB */
	CHECK_EQ(list(1, &keys[2]), -EFBIG);
	CHECK_EQ(atomic_load(&server->peers[1].account->disk), 0);
	end_listing(0, keys[0]);
	end_listing(0, keys[1]);
	CHECK_EQ(atomic_load(&server->peers[0].account->disk), 0);
	stop();
}

/* A new file takes only room that users other than root have. */
static void test_create__leaves_the_reserve_of_root(void)
{
	start();
	available = 100;
	CHECK_EQ(create("new", 0, 64 << 20, 0)->status, -ENOSPC);
	CHECK_EQ(create("new", CAREFUL_BLOCK_SPARSE, 64 << 20, 0)->status, 0);
	available = 64 << 8;
	CHECK_EQ(create("new", 0, 64 << 20, 0)->status, 0);
	available = 0;
	stop();
}

int main(void)
{
	CHECK(mkdtemp(base));
	RUN(test_quota__client_gets_edquot);
	RUN(test_seed__sparse);
	RUN(test_create__leaves_the_reserve_of_root);
	RUN(test_listings__disk_of_a_peer_is_bounded);
	remove_base();
	return 0;
}
