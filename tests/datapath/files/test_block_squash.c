/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer must not act as root in a writable export unless the export allows it. Also tests which
 * hosts see an export. Owners and trusted attributes need root: skipped otherwise.
 */
#include <arpa/inet.h>
#include <sys/xattr.h>

#include "block_end.h"
#include "check.h"

enum { BATCH_MAX = 4096, SETUID_FILE = S_IFREG | 06755 };

static char batch[BATCH_MAX];
static size_t used;

static struct fake_answer *ask(uint32_t peer, uint16_t handler, const char *path, uint32_t flags,
			       uint64_t bytes)
{
	char buf[sizeof(struct careful_block_open) + PATH_MAX];
	struct careful_block_open open = {
		.flags = htobe32(flags),
		.mode = htobe32(06755),
		.bytes = htobe64(bytes),
		.path_bytes = htobe32((uint32_t)strlen(path)),
	};
	uint32_t args[4] = { 0 };

	memcpy(buf, &open, sizeof(open));
	strcpy(buf + sizeof(open), path); /* NOLINT */
	return answer(
		fake_request(c, peer, handler, args, buf, (uint32_t)(sizeof(open) + strlen(path))));
}

static int stat_as(uint32_t peer, const char *path)
{
	uint32_t args[4] = { 0 };

	return answer(fake_request(c, peer, CAREFUL_BLOCK_STAT, args, path, (uint32_t)strlen(path)))
		->status;
}

static void close_key(uint32_t key)
{
	uint32_t args[4] = { key };

	assert(answer(fake_request(c, 0, CAREFUL_BLOCK_CLOSE, args, NULL, 0))->status == 0);
}

static size_t put_xattr(char *to, const char *name, const void *value, size_t bytes)
{
	struct careful_block_xattr head = {
		.name_bytes = htobe32((uint32_t)strlen(name)),
		.value_bytes = htobe32((uint32_t)bytes),
	};

	memcpy(to, &head, sizeof(head));
	memcpy(to + sizeof(head), name, strlen(name)); /* NOLINT */
	memcpy(to + sizeof(head) + strlen(name), value, bytes);
	return sizeof(head) + strlen(name) + bytes;
}

/* Puts a name with all attributes that only root can set. */
static void put(uint16_t op, const char *name, uint32_t mode)
{
	/* VFS_CAP_REVISION_2 with CAP_SYS_ADMIN. */
	static const unsigned char caps[20] = { 1, 0, 0, 2, 0, 0, 0x20 };
	struct careful_block_item head = {
		.attr = { .mode = htobe32(mode), .uid = htobe32(1234), .gid = htobe32(5678) },
		.op = htobe16(op),
		.name_bytes = htobe32((uint32_t)strlen(name)),
	};
	char *at_byte = batch + used + sizeof(head) + strlen(name);
	size_t n = put_xattr(at_byte, "user.own", "1", 1);

	n += put_xattr(at_byte + n, "trusted.own", "1", 1);
	if (S_ISREG(mode))
		n += put_xattr(at_byte + n, "security.capability", caps, sizeof(caps));
	head.xattrs_bytes = htobe32((uint32_t)n);
	memcpy(batch + used, &head, sizeof(head));
	memcpy(batch + used + sizeof(head), name, strlen(name)); /* NOLINT */
	used = (used + sizeof(head) + strlen(name) + n + 7) & ~(size_t)7;
}

static void run(void)
{
	struct careful_block_batch how = { .bytes = htobe64(used) };
	struct fake_answer *a = ask(0, CAREFUL_BLOCK_OPEN, "", CAREFUL_BLOCK_SCRATCH, BATCH_MAX);
	uint32_t flags = CAREFUL_BATCH_MODE | CAREFUL_BATCH_OWNER | CAREFUL_BATCH_XATTRS |
			 CAREFUL_BATCH_NODIGEST;
	uint32_t args[4] = { a->args[0], flags }, scratch = a->args[0];

	assert(a->status == 0);
	assert(pwrite(fake_region(c, scratch)->span.fd, batch, used, 0) == (ssize_t)used);
	a = answer(fake_request(c, 0, CAREFUL_BLOCK_BATCH, args, &how, sizeof(how)));
	assert(a->status == 0 && a->args[3] == 0);
	close_key(a->args[0]);
	close_key(scratch);
	used = 0;
}

static void start(bool owners, const struct block_host *hosts, uint32_t hosts_count)
{
	struct block_export_options export = {
		.path = base,
		.writable = true,
		.owners = owners,
		.hosts = hosts,
		.hosts_count = hosts_count,
	};
	struct careful_error error;

	c = fake_create();
	assert(block_serve(c, &export, 1, &server, &error) == 0);
}

static void make(const char *name, mode_t mode)
{
	int fd = open(at(name), O_CREAT | O_WRONLY | O_EXCL, 0600);

	assert(fd >= 0 && write(fd, "abc", 3) == 3 && fchmod(fd, mode) == 0);
	close(fd);
}

static bool has(const char *name, const char *xattr)
{
	return getxattr(at(name), xattr, NULL, 0) >= 0;
}

static void assert_squashed(const char *name)
{
	struct stat st;

	assert(stat(at(name), &st) == 0);
	assert(st.st_uid == geteuid() && st.st_gid != 5678);
	assert(S_ISDIR(st.st_mode) || (st.st_mode & 07777) == 0755);
	assert(!has(name, "trusted.own") && !has(name, "security.capability"));
	assert(has(name, "user.own"));
}

static void test_rw__grants_nothing_of_root(void)
{
	make("old", 0644);
	make("capable", 0644);
	if (geteuid() == 0)
		assert(setxattr(at("capable"), "trusted.kept", "1", 1, 0) == 0);
	start(false, NULL, 0);
	put(CAREFUL_ITEM_FILE, "new", SETUID_FILE);
	put(CAREFUL_ITEM_META, "old", SETUID_FILE);
	put(CAREFUL_ITEM_META, "capable", SETUID_FILE);
	put(CAREFUL_ITEM_DIRECTORY, "d", S_IFDIR | 0755);
	put(CAREFUL_ITEM_META, "d", S_IFDIR | 01777);
	run();
	assert_squashed("new");
	assert_squashed("old");
	assert_squashed("capable");
	assert_squashed("d");
	/* Attributes that a local user set stay. */
	assert(geteuid() != 0 || has("capable", "trusted.kept"));
	stop();
}

static void test_rw_owners__permits_all_attributes(void)
{
	struct stat st;

	if (geteuid() != 0) {
		skip_part("needs root");
		return;
	}
	start(true, NULL, 0);
	put(CAREFUL_ITEM_FILE, "given", SETUID_FILE);
	run();
	assert(stat(at("given"), &st) == 0 && st.st_uid == 1234 && st.st_gid == 5678);
	assert((st.st_mode & 07777) == 06755);
	assert(has("given", "trusted.own") && has("given", "security.capability"));
	stop();
}

/* A write by root keeps set-ID bits, so the peer's bytes would run with them. */
static void test_rw__inplace_of_a_setuid_file(void)
{
	make("setuid", 04755);
	start(false, NULL, 0);
	assert(ask(0, CAREFUL_BLOCK_OPEN, "setuid", CAREFUL_BLOCK_INPLACE, 3)->status == -EPERM);
	stop();
	start(true, NULL, 0);
	assert(ask(0, CAREFUL_BLOCK_OPEN, "setuid", CAREFUL_BLOCK_INPLACE, 3)->status == 0);
	stop();
}

static void test_commit_and_mkdir__no_setuid(void)
{
	struct fake_answer *a;
	struct stat st;
	struct careful_block_open open = { .mode = htobe32(06755) };
	uint32_t args[4] = { 0 };

	start(false, NULL, 0);
	assert(ask(0, CAREFUL_BLOCK_MKDIR, "made", 0, 0)->status == 0);
	assert(stat(at("made"), &st) == 0 && (st.st_mode & 06000) == 0);
	a = ask(0, CAREFUL_BLOCK_OPEN, "whole", CAREFUL_BLOCK_CREATE, 3);
	assert(a->status == 0);
	args[0] = a->args[0];
	a = answer(fake_request(c, 0, CAREFUL_BLOCK_COMMIT, args, &open, sizeof(open)));
	assert(a->status == 0);
	assert(stat(at("whole"), &st) == 0 && (st.st_mode & 07777) == 0755);
	stop();
}

static uint32_t peer_at(const char *v4)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	int peer;

	assert(inet_pton(AF_INET, v4, &in.sin_addr) == 1);
	peer = careful_peer(c, (struct sockaddr *)&in, sizeof(in));
	assert(peer >= 0);
	return (uint32_t)peer;
}

/* An export for one host does not exist for others. */
static void test_hosts__others_see_nothing(void)
{
	static const struct block_host friend = { { [10] = 0xff, 0xff, 10, 0, 0, 2 } };
	struct block_export_options exports[2] = {
		{ .path = base, .name = "all" },
		{ .path = base, .name = "one", .hosts = &friend, .hosts_count = 1 },
	};
	struct careful_error error;
	struct fake_answer *a;
	uint32_t known, other, args[4] = { 0 };

	start(false, &friend, 1);
	known = peer_at("10.0.0.2");
	other = peer_at("10.0.0.3");
	assert(stat_as(known, "old") == 0);
	assert(stat_as(other, "old") == -EACCES);
	assert(ask(other, CAREFUL_BLOCK_OPEN, "x", CAREFUL_BLOCK_CREATE, 1)->status == -EACCES);
	assert(ask(other, CAREFUL_BLOCK_OPEN, "", CAREFUL_BLOCK_SCRATCH, 1)->status == -EACCES);
	assert(ask(other, CAREFUL_BLOCK_MKDIR, "x", 0, 0)->status == -EACCES);
	stop();
	c = fake_create();
	assert(block_serve(c, exports, 2, &server, &error) == 0);
	known = peer_at("10.0.0.2");
	other = peer_at("10.0.0.3");
	assert(stat_as(known, "one/old") == 0 && stat_as(other, "all/old") == 0);
	assert(stat_as(other, "one/old") == -ENOENT && stat_as(other, "one") == -ENOENT);
	a = answer(fake_request(c, other, CAREFUL_BLOCK_LIST, args, "", 0));
	/* One record: a head, "all", and zeros up to 8 bytes. */
	assert(a->status == 0 && a->args[2] == sizeof(struct careful_block_entry) + 8);
	stop();
}

int main(void)
{
	assert(mkdtemp(base));
	test_rw__grants_nothing_of_root();
	test_rw_owners__permits_all_attributes();
	test_rw__inplace_of_a_setuid_file();
	test_commit_and_mkdir__no_setuid();
	test_hosts__others_see_nothing();
	remove_base();
	return 0;
}
