// SPDX-License-Identifier: BSD-2-Clause
/*
 * A file system below a part of the exports hangs for a while: FUSE without a process that answers.
 * Requests elsewhere continue.
 */
#include <sys/mount.h>

#include "batch.h"
#include "block_end.h"
#include "check.h"
#include "mounts.h"

enum { ASKED = 12 };

static int fuse_fd;

/* Makes requests below this directory hang. */
static void hang(const char *dir)
{
	char options[128];

	fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fuse_fd < 0)
		skip("no FUSE in this kernel");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse_fd);
	CHECK_EQ(mount("hangs", at(dir), "fuse", 0, options), 0);
}

/* Ends hanging operations with an error. */
static void end_hang(const char *dir)
{
	close(fuse_fd);
	CHECK_EQ(umount2(at(dir), MNT_DETACH), 0);
}

static uint32_t ask_stat(uint32_t peer, const char *path)
{
	return fake_request(c, peer, CAREFUL_BLOCK_STAT, NULL, path, (uint32_t)strlen(path));
}

static void start(void)
{
	struct block_export_options exports[] = {
		{ .path = at("one"), .name = "one", .writable = true },
		{ .path = at("two"), .name = "two", .writable = true }
	};
	struct careful_error error;

	c = fake_create();
	CHECK_EQ(block_serve(c, exports, 2, &server, &error), 0);
}

static void ask_what_hangs(const char *path, uint32_t *tokens)
{
	for (uint32_t i = 0; i < ASKED; i++)
		tokens[i] = ask_stat(0, path);
}

static void await(const uint32_t *tokens)
{
	for (uint32_t i = 0; i < ASKED; i++)
		CHECK(answer(tokens[i])->status != 0);
}

static void test_export__a_hanging_export_stops_no_other(void)
{
	uint32_t tokens[ASKED];

	start();
	hang("two");
	ask_what_hangs("two/x", tokens);
	CHECK_EQ(answer(ask_stat(1, "one/a"))->status, 0);
	CHECK_EQ(answer(ask_stat(0, "one/a"))->status, 0); /* the same peer is served, too */
	end_hang("two");
	await(tokens);
	stop();
}

static void test_peer__cannot_hold_all_workers_of_an_export(void)
{
	uint32_t tokens[ASKED];

	start();
	hang("one/sub");
	ask_what_hangs("one/sub/x", tokens);
	CHECK_EQ(answer(ask_stat(1, "one/a"))->status, 0);
	end_hang("one/sub");
	await(tokens);
	stop();
}

/* More requests than a peer may have under way wait in one export: the same peer's requests in
 * another export continue. */
static void test_peer__with_all_its_requests_in_one_export(void)
{
	enum { MANY = 200 };
	static uint32_t tokens[MANY];

	start();
	hang("two");
	for (uint32_t i = 0; i < MANY; i++)
		tokens[i] = ask_stat(0, "two/x");
	for (uint32_t i = 0; i < MANY; i++)
		CHECK_EQ(answer(ask_stat(0, "one/a"))->status, 0);
	end_hang("two");
	for (uint32_t i = 0; i < MANY; i++)
		CHECK(answer(tokens[i])->status != 0);
	stop();
}

/* Sends the OPEN of a new file, like `put`. */
static uint32_t ask_create(uint32_t peer, const char *path)
{
	struct careful_block_open open = {
		.flags = htobe32(CAREFUL_BLOCK_CREATE),
		.bytes = htobe64(4096),
		.path_bytes = htobe32((uint32_t)strlen(path)),
	};
	char buf[sizeof(open) + 64];

	memcpy(buf, &open, sizeof(open));
	memcpy(buf + sizeof(open), path, strlen(path) + 1);
	return fake_request(c, peer, CAREFUL_BLOCK_OPEN, NULL, buf,
			    (uint32_t)(sizeof(open) + strlen(path)));
}

/* Servers whose workers hang, which are never freed. */
static void *left_behind[2];

/* Several peers put more than 64 files each onto the hanging file system. Files elsewhere begin and
 * end, also those of the same peers. The server's end reports the hanging workers and does not wait
 * for them. */
static void test_peers__put_into_a_hanging_export(void)
{
	enum { EACH = 70, OTHER = FAKE_PEERS - 1 };
	const struct careful_block_open whole = { .mode = htobe32(0644) };
	uint32_t args[4] = { 0 }, left;
	struct fake_answer *a;

	start();
	hang("two");
	for (uint32_t i = 0; i < EACH * OTHER; i++)
		ask_create(i % OTHER, "two/new");
	for (uint32_t peer = 0; peer < FAKE_PEERS; peer++) {
		a = answer(ask_create(peer, "one/new"));
		CHECK_EQ(a->status, 0);
		args[0] = a->args[0];
		a = answer(
			fake_request(c, peer, CAREFUL_BLOCK_COMMIT, args, &whole, sizeof(whole)));
		CHECK_EQ(a->status, 0);
		CHECK_EQ(unlink(at("one/new")), 0);
	}
	left = block_stop(server);
	CHECK(left > 0 && left <= EACH * OTHER);
	left_behind[0] = server;
	left_behind[1] = c;
	end_hang("two");
}

/* A peer leaves at the first item of its batch: the rest of the batch is not done. */
static void test_batch__ends_with_its_peer(void)
{
	struct careful_block_open open = {
		.flags = htobe32(CAREFUL_BLOCK_SCRATCH),
		.bytes = htobe64(4096),
		.path_bytes = htobe32(3),
	};
	struct careful_block_batch how = { .file_bytes_max = htobe32(4096) };
	char asked[sizeof(open) + 3];
	uint32_t args[4] = { 0 }, token;

	start();
	memcpy(asked, &open, sizeof(open));
	memcpy(asked + sizeof(open), "one", 3); /* NOLINT: a counted string */
	args[0] =
		answer(fake_request(c, 0, CAREFUL_BLOCK_OPEN, args, asked, sizeof(asked)))->args[0];
	put(CAREFUL_ITEM_DIGEST, "sub/x", "", 0755, 0);
	put(CAREFUL_ITEM_DIRECTORY, "made", "", 0755, 0);
	CHECK_EQ(pwrite(fake_region(c, args[0])->span.fd, batch, used, 0), (ssize_t)used);
	how.bytes = htobe64(used);
	hang("one/sub");
	token = fake_request(c, 0, CAREFUL_BLOCK_BATCH, args, &how, sizeof(how));
	block_watch(c, 0, CAREFUL_PEER_FAILED, server);
	end_hang("one/sub");
	CHECK_EQ(answer(token)->status, -ECONNRESET);
	CHECK(!exists("one/made"));
	stop();
}

static void test_stop__ends_and_reports_hanging_operations(void)
{
	uint32_t tokens[ASKED], left;

	start();
	hang("two");
	ask_what_hangs("two/x", tokens);
	left = block_stop(server);
	CHECK(left > 0 && left < ASKED);
	end_hang("two");
}

int main(void)
{
	const char *why = private_mounts();

	if (why)
		skip(why);
	CHECK(mkdtemp(base));
	CHECK(!mkdir(at("one"), 0755) && !mkdir(at("two"), 0755) && !mkdir(at("one/sub"), 0755));
	CHECK(!close(open(at("one/a"), O_CREAT | O_WRONLY, 0644)));
	RUN(test_export__a_hanging_export_stops_no_other);
	RUN(test_peer__cannot_hold_all_workers_of_an_export);
	RUN(test_peer__with_all_its_requests_in_one_export);
	RUN(test_batch__ends_with_its_peer);
	RUN(test_peers__put_into_a_hanging_export);
	RUN(test_stop__ends_and_reports_hanging_operations);
	remove_base();
	return 0;
}
