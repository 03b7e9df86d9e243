// SPDX-License-Identifier: BSD-2-Clause
/*
 * A request takes very long: other peers are served meanwhile, and it ends when nobody waits for
 * it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

#include "block_end.h"
#include "check.h"
#include "files/private.h"

enum { SEEDS = 4, PIECE = 1 << 20 };

static const uint64_t huge = 1ull << 40;

static atomic_uint copies;

/* Replaces libc's: a disk that copies at most a GiB a second. */
/* NOLINTNEXTLINE(readability-non-const-parameter): libc's declaration */
ssize_t copy_file_range(int from, off_t *in, int to, off_t *out, size_t bytes, unsigned int flags)
{
	const struct timespec ms = { .tv_nsec = 1000000 };

	(void)from, (void)in, (void)to, (void)out, (void)flags;
	nanosleep(&ms, NULL);
	copies++;
	return bytes < PIECE ? (ssize_t)bytes : PIECE;
}

/* Replaces libc's: holes are unknown, so everything is copied. */
off_t lseek(int fd, off_t offset, int whence)
{
	if (whence == SEEK_DATA || whence == SEEK_HOLE) {
		errno = EINVAL;
		return -1;
	}
	return (off_t)syscall(SYS_lseek, fd, offset, whence);
}

static void start(void)
{
	struct block_export_options export = { .path = base, .name = "one", .writable = true };
	struct careful_error error;

	c = fake_create();
	CHECK_EQ(block_serve(c, &export, 1, &server, &error), 0);
}

static uint32_t ask_create(uint32_t peer, const char *path, uint32_t flags, uint64_t bytes)
{
	struct careful_block_open open = {
		.flags = htobe32(CAREFUL_BLOCK_CREATE | CAREFUL_BLOCK_REPLACE | flags),
		.bytes = htobe64(bytes),
		.path_bytes = htobe32((uint32_t)strlen(path)),
	};
	char buf[sizeof(open) + 64];

	memcpy(buf, &open, sizeof(open));
	memcpy(buf + sizeof(open), path, strlen(path) + 1);
	return fake_request(c, peer, CAREFUL_BLOCK_OPEN, NULL, buf,
			    (uint32_t)(sizeof(open) + strlen(path)));
}

/* Sends more requests than a peer has places. */
static void seed(uint32_t *tokens)
{
	for (uint32_t i = 0; i < SEEDS; i++)
		tokens[i] = ask_create(0, "huge", CAREFUL_BLOCK_SEED | CAREFUL_BLOCK_SPARSE, huge);
	while (!copies)
		sched_yield();
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

/* Other peers open, list and sync in the same export; one also copies an old file. */
static void test_seed__delays_no_other_request(void)
{
	const struct careful_block_open whole = { .mode = htobe32(0644) };
	uint32_t tokens[SEEDS], args[4] = { 0, CAREFUL_BLOCK_REPLACE };
	struct fake_answer *a;

	start();
	seed(tokens);
	for (uint32_t peer = 1; peer < FAKE_PEERS; peer++) {
		CHECK_EQ(answer(fake_request(c, peer, CAREFUL_BLOCK_LIST, NULL, "", 0))->status, 0);
		a = answer(ask_create(peer, "small", CAREFUL_BLOCK_SEED, 4096));
		CHECK_EQ(a->status, 0);
		args[0] = a->args[0];
		a = answer(
			fake_request(c, peer, CAREFUL_BLOCK_COMMIT, args, &whole, sizeof(whole)));
		CHECK_EQ(a->status, 0);
	}
	for (uint32_t i = 0; i < SEEDS; i++)
		CHECK(!c->answers[tokens[i]]->given);
	CHECK_EQ(block_stop(server), 0);
	fake_destroy(c);
}

/* The copy ends with its peer, and the partial file is removed. */
static void test_seed__ends_with_its_peer(void)
{
	uint32_t tokens[SEEDS], before;

	start();
	before = (uint32_t)entries();
	seed(tokens);
	block_watch(c, 0, CAREFUL_PEER_FAILED, server);
	for (uint32_t i = 0; i < SEEDS; i++)
		answer(tokens[i]);
	CHECK_EQ((uint32_t)entries(), before);
	stop();
}

/* The end of carefuld does not wait for a copy either. */
static void test_seed__ends_with_the_server(void)
{
	uint32_t tokens[SEEDS];
	int before = entries();

	copies = 0;
	start();
	seed(tokens);
	CHECK_EQ(block_stop(server), 0);
	CHECK_EQ(entries(), before);
	fake_destroy(c);
}

int main(void)
{
	int fd;

	CHECK(mkdtemp(base));
	fd = open(at("huge"), O_CREAT | O_WRONLY, 0644);
	CHECK(fd >= 0 && !ftruncate(fd, (off_t)huge) && !close(fd));
	CHECK(!close(open(at("small"), O_CREAT | O_WRONLY, 0644)));
	RUN(test_seed__delays_no_other_request);
	RUN(test_seed__ends_with_its_peer);
	RUN(test_seed__ends_with_the_server);
	remove_base();
	return 0;
}
