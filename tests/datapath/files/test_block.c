/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The block server over an instance without a network: what a peer can reach, names and files, and
 * what remains when the peer leaves. Needs no privilege; tests of unreadable files are skipped as
 * root.
 */
#include <sys/syscall.h>
#include <sys/un.h>

#include <careful/files.h>

#include "block_end.h"
#include "check.h"

static void poll_server(void)
{
	block_poll(server);
	usleep(1000);
}

/* Waits for effects without an answer, like discarded handles. */
#define EVENTUALLY(condition)                                      \
	do {                                                       \
		for (int i_ = 0; i_ < 10000 && !(condition); i_++) \
			poll_server();                             \
		assert(condition);                                 \
	} while (0)

static uint32_t send_open(uint32_t peer, uint16_t handler, const char *path, size_t path_bytes,
			  uint32_t flags, uint64_t bytes, uint64_t attempt)
{
	static char buf[sizeof(struct careful_block_open) + 2 * PATH_MAX];
	struct careful_block_open open = {
		.flags = htobe32(flags),
		.mode = htobe32(0750),
		.bytes = htobe64(bytes),
		.path_bytes = htobe32((uint32_t)path_bytes),
	};
	uint32_t args[4] = { 0, 0, (uint32_t)(attempt >> 32), (uint32_t)attempt };

	memcpy(buf, &open, sizeof(open));
	memcpy(buf + sizeof(open), path, path_bytes);
	return fake_request(c, peer, handler, args, buf, (uint32_t)(sizeof(open) + path_bytes));
}

/* Opens like a client, which asks again while the server has no room. */
static struct fake_answer *open_path(const char *path, uint32_t flags, uint64_t bytes)
{
	struct fake_answer *a;

	for (int i = 0; i < 10000; i++) {
		a = answer(send_open(0, CAREFUL_BLOCK_OPEN, path, strlen(path), flags, bytes, 0));
		if (a->status != -EAGAIN)
			return a;
		poll_server();
	}
	abort();
}

static struct fake_answer *make_dir(const char *path)
{
	return answer(send_open(0, CAREFUL_BLOCK_MKDIR, path, strlen(path), 0, 0, 0));
}

static struct fake_answer *commit(uint32_t key, uint32_t flags, uint32_t mode, int64_t mtime_ns)
{
	struct careful_block_open open = {
		.mode = htobe32(mode),
		.mtime_ns = htobe64((uint64_t)mtime_ns),
	};
	uint32_t args[4] = { key, flags };

	return answer(fake_request(c, 0, CAREFUL_BLOCK_COMMIT, args, &open, sizeof(open)));
}

static struct fake_answer *close_key(uint32_t peer, uint32_t key)
{
	uint32_t args[4] = { key };

	return answer(fake_request(c, peer, CAREFUL_BLOCK_CLOSE, args, NULL, 0));
}

static struct fake_answer *by_path(uint16_t handler, const char *path, uint32_t flags)
{
	uint32_t args[4] = { flags };

	return answer(fake_request(c, 0, handler, args, path, (uint32_t)strlen(path)));
}

static const struct careful_block_attr *attr(const struct fake_answer *a)
{
	assert(a->status == 0 && a->bytes == sizeof(struct careful_block_attr));
	return (const struct careful_block_attr *)a->payload;
}

static void put_file(const char *path, const char *text)
{
	FILE *f = fopen(at(path), "w");

	assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static int entries_of(const char *path)
{
	DIR *dir = opendir(at(path));
	int n = 0;

	assert(dir);
	for (struct dirent *d; (d = readdir(dir));)
		n += d->d_name[0] != '.' || strlen(d->d_name) > 2;
	closedir(dir);
	return n;
}

static void make_tree(void)
{
	assert(mkdtemp(base));
	assert(mkdir(at("ro"), 0755) == 0 && mkdir(at("rw"), 0755) == 0);
	assert(mkdir(at("ro/sub"), 0755) == 0 && mkdir(at("rw/sub"), 0755) == 0);
	put_file("secret", "secret");
	put_file("ro/a", "hello");
	put_file("ro/empty", "");
	put_file("ro/sub/b", "world!");
	assert(symlink("a", at("ro/link")) == 0);
	assert(symlink("sub/../a", at("ro/winding")) == 0);
	assert(symlink("../secret", at("ro/out")) == 0);
	assert(symlink(at("secret"), at("ro/absolute")) == 0);
	assert(symlink("..", at("ro/up")) == 0);
	assert(symlink("loop2", at("ro/loop1")) == 0);
	assert(symlink("loop1", at("ro/loop2")) == 0);
	assert(symlink("/proc/self/root/etc/passwd", at("ro/magic")) == 0);
	assert(symlink("../../secret", at("rw/sub/out")) == 0);
	assert(symlink("..", at("rw/sub/up")) == 0);
	assert(symlink("../..", at("rw/sub/upup")) == 0);
	assert(mkfifo(at("ro/fifo"), 0666) == 0);
	put_file("ro/locked", "x");
	assert(chmod(at("ro/locked"), 0) == 0);
}

static void start(const char *first, bool first_rw, const char *second, bool second_rw)
{
	struct block_export_options exports[2] = {
		{ .path = first ? strdup(at(first)) : NULL, .name = "one", .writable = first_rw },
		{ .path = second ? strdup(at(second)) : NULL, .name = "two", .writable = second_rw }
	};
	struct careful_error error;

	c = fake_create();
	assert(block_serve(c, exports, (uint32_t) !!first + !!second, &server, &error) == 0);
	careful_peer_watch(c, block_watch, server);
	free((void *)exports[0].path);
	free((void *)exports[1].path);
}

static void test_open__reads(void)
{
	struct fake_answer *a = open_path("a", 0, 0);
	struct careful_region *r = fake_region(c, a->args[0]);
	char buf[8];

	assert(be64toh(attr(a)->bytes) == 5 && S_ISREG(be32toh(attr(a)->mode)));
	assert(r && r->bytes == 5 && r->peer == 0 && r->access == CAREFUL_REGION_READ);
	assert(pread(r->span.fd, buf, 8, 0) == 5 && !memcmp(buf, "hello", 5));
	assert(close_key(0, a->args[0])->status == 0 && !fake_region(c, a->args[0]));

	a = open_path("sub/b", 0, 0);
	assert(be64toh(attr(a)->bytes) == 6);
	/* CLOSE returns the present attributes, so the client notices a change. */
	put_file("ro/sub/b", "longer than before");
	assert(be64toh(attr(close_key(0, a->args[0]))->bytes) == 18);
	put_file("ro/sub/b", "world!");

	const char *same[] = { "link", "winding", "./a", "sub/../a", "sub//..//a", "sub/./../a" };

	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
		a = open_path(same[i], 0, 0);
		assert(be64toh(attr(a)->bytes) == 5);
		close_key(0, a->args[0]);
	}
	a = open_path("empty", 0, 0);
	assert(a->status == 0 && fake_region(c, a->args[0])->bytes == 0);
	close_key(0, a->args[0]);
}

static void test_open__escapes(void)
{
	const char *bad[] = { "../secret",	  "..",	       "sub/../../secret",
			      "/etc/passwd",	  "/",	       "out",
			      "absolute",	  "up/secret", "up",
			      "sub/../up/secret", "magic" };
	int before = open_fds();

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert(open_path(bad[i], 0, 0)->status == -EXDEV);
		assert(by_path(CAREFUL_BLOCK_STAT, bad[i], 0)->status == -EXDEV);
		assert(by_path(CAREFUL_BLOCK_LIST, bad[i], 0)->status == -EXDEV);
	}
	assert(open_path("loop1", 0, 0)->status == -ELOOP);
	assert(by_path(CAREFUL_BLOCK_STAT, "loop1/x", 0)->status == -ELOOP);
	assert(open_fds() == before);
}

/* A file of /proc has no size; all of its contents are served. */
static void test_open__has_no_size(void)
{
	struct fake_answer *a = open_path("sys/kernel/ostype", 0, 0);
	struct careful_region *r = fake_region(c, a->args[0]);
	char buf[64];
	uint64_t bytes = be64toh(attr(a)->bytes);

	assert(bytes && r->bytes == bytes && r->access == CAREFUL_REGION_READ);
	assert(pread(r->span.fd, buf, sizeof(buf), 0) == (ssize_t)bytes && buf[bytes - 1] == '\n');
	/* The attributes at the end equal those at the beginning. */
	struct careful_block_attr was = *attr(a);

	assert(!memcmp(attr(close_key(0, a->args[0])), &was, sizeof(was)));
	/* An unreadable file does not count as empty. */
	assert(open_path("self/mem", 0, 0)->status == -EIO);
}

static void test_open__proc_magic_links(void)
{
	char here[64];

	/* An export that contains /proc: its links to open files lead anywhere. */
	snprintf(here, sizeof(here), "%d/root", getpid());
	assert(open_path(here, 0, 0)->status == -ELOOP);
	snprintf(here, sizeof(here), "%d/root/etc/passwd", getpid());
	assert(open_path(here, 0, 0)->status == -ELOOP);
	snprintf(here, sizeof(here), "%d/cwd", getpid());
	assert(by_path(CAREFUL_BLOCK_STAT, here, 0)->status == -ELOOP);
}

static void test_open__not_a_file(void)
{
	assert(open_path("fifo", 0, 0)->status == -ENOTSUP); /* and does not hang */
	assert(open_path("sub", 0, 0)->status == -EISDIR);
	assert(open_path("", 0, 0)->status == -EISDIR);
	assert(open_path(".", 0, 0)->status == -EISDIR);
	assert(open_path("a/", 0, 0)->status == -ENOTDIR);
	assert(open_path("a/b", 0, 0)->status == -ENOTDIR);
	assert(open_path("none", 0, 0)->status == -ENOENT);
	if (geteuid())
		assert(open_path("locked", 0, 0)->status == -EACCES);
}

static void test_request__malformed(void)
{
	static char path[5000];
	struct careful_block_open open = { .path_bytes = htobe32(0xffffffff) };
	uint32_t args[4] = { 0 };
	char buf[sizeof(open) + 1] = "";

	memset(path, 'x', sizeof(path));
	for (int i = CAREFUL_BLOCK_OPEN; i <= CAREFUL_BLOCK_MKDIR; i++) {
		uint16_t op = (uint16_t)i;
		bool is_path = op == CAREFUL_BLOCK_STAT || op == CAREFUL_BLOCK_LIST;

		/* Each length below a whole header (an empty path is the root). */
		for (uint32_t n = is_path; n <= sizeof(open); n++)
			assert(answer(fake_request(c, 0, op, args, &open, n))->status < 0);
		memcpy(buf, &open, sizeof(open));
		assert(answer(fake_request(c, 0, op, args, buf, sizeof(buf)))->status < 0);
	}
	/* A path with a length field one too large. */
	for (uint32_t n = 0; n <= 1; n++) {
		open.path_bytes = htobe32(n + 1);
		memcpy(buf, &open, sizeof(open));
		buf[sizeof(open)] = 'a';
		assert(answer(fake_request(c, 0, CAREFUL_BLOCK_OPEN, args, buf,
					   (uint32_t)sizeof(open) + n))
			       ->status == -EINVAL);
	}
	assert(answer(send_open(0, CAREFUL_BLOCK_OPEN, "a\0b", 3, 0, 0, 0))->status == -EINVAL);
	assert(answer(send_open(0, CAREFUL_BLOCK_OPEN, path, 4096, 0, 0, 0))->status ==
	       -ENAMETOOLONG);
	assert(answer(send_open(0, CAREFUL_BLOCK_OPEN, path, 4095, 0, 0, 0))->status ==
	       -ENAMETOOLONG);
	assert(answer(send_open(0, CAREFUL_BLOCK_OPEN, path, 256, 0, 0, 0))->status ==
	       -ENAMETOOLONG);
	assert(answer(send_open(0, CAREFUL_BLOCK_OPEN, path, 255, 0, 0, 0))->status == -ENOENT);
	assert(close_key(0, 0)->status == -EBADF && close_key(0, 0xffffffff)->status == -EBADF);
	assert(commit(12345, 0, 0, 0)->status == -EBADF);
}

static void test_handle__belongs_to_its_peer(void)
{
	struct fake_answer *a = open_path("a", 0, 0);

	assert(a->status == 0);
	assert(close_key(1, a->args[0])->status == -EBADF);
	assert(commit(a->args[0], 0, 0644, 0)->status == -EINVAL); /* read-only handle */
	assert(fake_region(c, a->args[0]));
	assert(close_key(0, a->args[0])->status == 0);
}

static void test_handle__bounded(void)
{
	uint32_t keys[BLOCK_HANDLES];
	struct fake_answer *a;

	for (int i = 0; i < BLOCK_HANDLES; i++) {
		a = open_path("a", 0, 0);
		assert(a->status == 0);
		keys[i] = a->args[0];
	}
	assert(open_path("a", 0, 0)->status == -EMFILE);
	/* Another peer is not affected. */
	a = answer(send_open(1, CAREFUL_BLOCK_OPEN, "a", 1, 0, 0, 0));
	assert(a->status == 0 && close_key(1, a->args[0])->status == 0);
	for (int i = 0; i < BLOCK_HANDLES; i++)
		assert(close_key(0, keys[i])->status == 0);
	a = open_path("a", 0, 0);
	assert(a->status == 0 && close_key(0, a->args[0])->status == 0);
}

static void test_handle__busy_region(void)
{
	struct fake_answer *a = open_path("a", 0, 0);
	uint32_t args[4] = { a->args[0] };
	uint32_t token;

	c->busy = 3;
	token = fake_request(c, 0, CAREFUL_BLOCK_CLOSE, args, NULL, 0);
	/* Repeated meanwhile: the last request gets the answer, and the first one ends, too. */
	assert(block_timeout_ms(server) == 1);
	uint32_t again = fake_request(c, 0, CAREFUL_BLOCK_CLOSE, args, NULL, 0);

	assert(be64toh(attr(answer(again))->bytes) == 5);
	assert(answer(token)->status == -ECANCELED);
	assert(c->busy == 0 && !fake_region(c, args[0]));
}

/* A client that knows only the attempt's name closes its handle; while the OPEN waits the client
 * gets EAGAIN. */
static void closes_an_attempt(bool waits)
{
	const uint64_t name = 0x123456789abcdef1;
	uint32_t args[4] = { 0, 0, (uint32_t)(name >> 32), (uint32_t)name };
	uint32_t others[512], count = 0, opening, early, key;

	while (waits && !c->kept) {
		assert(count < 512);
		others[count++] = fake_request(c, 0, CAREFUL_BLOCK_STAT, NULL, "a", 1);
	}
	opening = send_open(0, CAREFUL_BLOCK_OPEN, "a", 1, 0, 0, name);
	early = fake_request(c, 0, CAREFUL_BLOCK_CLOSE, args, NULL, 0);
	assert(answer(early)->status == -EAGAIN);
	key = answer(opening)->args[0];
	assert(answer(fake_request(c, 1, CAREFUL_BLOCK_CLOSE, args, NULL, 0))->status == -EBADF);
	assert(fake_region(c, key));
	assert(answer(fake_request(c, 0, CAREFUL_BLOCK_CLOSE, args, NULL, 0))->status == 0);
	assert(!fake_region(c, key));
	assert(answer(fake_request(c, 0, CAREFUL_BLOCK_CLOSE, args, NULL, 0))->status == -EBADF);
	while (count)
		assert(answer(others[--count])->status == 0);
}

static void test_handle__of_an_attempt(void)
{
	closes_an_attempt(false);
	closes_an_attempt(true);
}

static void test_handle__its_request_is_repeated(void)
{
	uint64_t name = 0x123456789abcdef0;
	struct fake_answer *a, *b;
	uint32_t first, second, key;
	struct careful_block_attr was;

	/* While the first request is under way, and after it. */
	first = send_open(0, CAREFUL_BLOCK_OPEN, "a", 1, 0, 0, name);
	second = send_open(0, CAREFUL_BLOCK_OPEN, "a", 1, 0, 0, name);
	a = answer(second);
	assert(a->status == 0);
	assert(answer(first)->status == -ECANCELED || answer(first)->args[0] == a->args[0]);
	b = answer(send_open(0, CAREFUL_BLOCK_OPEN, "a", 1, 0, 0, name));
	assert(b->args[0] == a->args[0] && !memcmp(attr(a), attr(b), sizeof(*attr(a))));
	/* Another attempt, or none, gets a handle of its own. */
	key = answer(send_open(0, CAREFUL_BLOCK_OPEN, "a", 1, 0, 0, name + 1))->args[0];
	assert(key != a->args[0]);
	assert(close_key(0, key)->status == 0);
	was = *attr(close_key(0, a->args[0]));
	assert(!memcmp(attr(close_key(0, a->args[0])), &was, sizeof(was)));
	/* COMMIT does not end a handle for reading. */
	assert(commit(a->args[0], 0, 0644, 0)->status == -EBADF);
}

static void test_handle__answer_lost(void)
{
	int before = open_fds();

	/* Without room the answer is repeated. If the session is gone, the file is closed. */
	c->reply_errno = -EAGAIN;
	c->reply_errors = 5;
	assert(close_key(0, open_path("a", 0, 0)->args[0])->status == 0);
	c->reply_errno = -ENOTCONN;
	c->reply_errors = 1;
	send_open(0, CAREFUL_BLOCK_OPEN, "a", 1, 0, 0, 0);
	EVENTUALLY(c->reply_errors == 0 && open_fds() == before);
}

static void test_peer__gone(void)
{
	int before = open_fds();
	struct fake_answer *a;

	for (int i = 0; i < 10; i++) {
		a = open_path("sub/new", CAREFUL_BLOCK_CREATE, 100000);
		assert(a->status == 0);
	}
	/* Some requests are under way, and one region is in use; another peer's handle stays. */
	uint32_t other = answer(send_open(1, CAREFUL_BLOCK_OPEN, "sub/other", 9,
					  CAREFUL_BLOCK_CREATE, 10, 0))
				 ->args[0];

	assert(entries_of("rw/sub") == 3 + 11);
	for (int i = 0; i < 100; i++)
		send_open(0, CAREFUL_BLOCK_OPEN, "sub/new", 7, CAREFUL_BLOCK_CREATE, 10, 0);
	c->busy = 2;
	block_watch(c, 0, CAREFUL_PEER_FAILED, server);
	/* The operation under way is finished, then discarded. */
	for (int i = 0; i < 300; i++)
		poll_server();
	EVENTUALLY(entries_of("rw/sub") == 3 + 1 && open_fds() == before + 2);
	assert(fake_region(c, other) && c->busy == 0);
	assert(close_key(0, a->args[0])->status == -EBADF);
	assert(close_key(1, other)->status == 0);
	/* A new session in the same slot has no handles. */
	a = open_path("sub/new", CAREFUL_BLOCK_CREATE, 10);
	block_watch(c, 0, CAREFUL_PEER_RENEWING, server);
	assert(a->status == 0 && fake_region(c, a->args[0]));
	assert(close_key(0, a->args[0])->status == 0 && entries_of("rw/sub") == 3);
}

/* The new process has already sent a request when its arrival is reported. */
static void test_peer__asks_before_its_arrival_is_reported(void)
{
	int before = open_fds();
	struct fake_answer *a;
	uint32_t tokens[1000];

	for (int i = 0; i < 1000; i++)
		tokens[i] = send_open(0, CAREFUL_BLOCK_OPEN, "sub/new", 7, CAREFUL_BLOCK_CREATE, 10,
				      (uint64_t)i + 1);
	block_watch(c, 0, CAREFUL_PEER_FAILED, server);
	for (int i = 0; i < 1000; i++) {
		int status = answer(tokens[i])->status;

		assert(status == -ECONNRESET || (i && status == -EMFILE));
	}
	assert(c->kept == 0);
	/* The workers' results are not taken yet, so the handles still exist. */
	for (int i = 0; i < 2000 && open_fds() != before; i++)
		usleep(1000);
	assert(open_fds() == before && entries_of("rw/sub") == 3);
	a = open_path("sub/new", CAREFUL_BLOCK_CREATE, 1);
	assert(a->status == 0 && close_key(0, a->args[0])->status == 0);
}

/* All handles of a peer may be ending, perhaps of a former process: there will be room soon. */
static void test_handle__bounded_while_some_end(void)
{
	struct fake_answer *a;

	for (int i = 0; i < BLOCK_HANDLES; i++)
		assert(open_path("a", 0, 0)->status == 0);
	c->busy = 20;
	block_watch(c, 0, CAREFUL_PEER_FAILED, server);
	assert(answer(send_open(0, CAREFUL_BLOCK_OPEN, "a", 1, 0, 0, 0))->status == -EAGAIN);
	a = open_path("a", 0, 0);
	assert(be64toh(attr(a)->bytes) == 5);
	assert(close_key(0, a->args[0])->status == 0);
}

/* More requests of one peer wait than allowed: another peer's still find room. */
static void test_request__one_peer_cannot_use_all_room(void)
{
	static uint32_t tokens[3000]; /* more than can wait for all peers together */
	uint32_t theirs[100];
	int busy = 0;

	for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++)
		tokens[i] = fake_request(c, 0, CAREFUL_BLOCK_STAT, (uint32_t[4]){ 0 }, "a", 1);
	for (size_t i = 0; i < sizeof(theirs) / sizeof(theirs[0]); i++)
		theirs[i] = fake_request(c, 1, CAREFUL_BLOCK_STAT, (uint32_t[4]){ 0 }, "a", 1);
	for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++)
		busy += answer(tokens[i])->status == -EAGAIN;
	assert(busy > 0);
	for (size_t i = 0; i < sizeof(theirs) / sizeof(theirs[0]); i++)
		assert(answer(theirs[i])->status == 0);
	assert(c->kept == 0);
}

static void test_request__more_than_jobs(void)
{
	uint32_t tokens[1000];

	for (int round = 0; round < 2; round++) {
		int busy = 0;

		c->keepable = !round;
		for (int i = 0; i < 1000; i++)
			tokens[i] =
				fake_request(c, 0, CAREFUL_BLOCK_STAT, (uint32_t[4]){ 0 }, "a", 1);
		for (int i = 0; i < 1000; i++) {
			struct fake_answer *a = answer(tokens[i]);

			busy += a->status == -EAGAIN;
			assert(a->status == -EAGAIN || be64toh(attr(a)->bytes) == 5);
		}
		/* All kept requests are answered; the others get EAGAIN. */
		assert(c->kept == 0 && (round ? busy > 0 : busy == 0));
	}
	c->keepable = true;
	/* A peer that leaves while its requests wait leaves none behind. */
	for (int i = 0; i < 1000; i++)
		fake_request(c, 2, CAREFUL_BLOCK_STAT, (uint32_t[4]){ 0 }, "a", 1);
	block_watch(c, 2, CAREFUL_PEER_NONE, server);
	assert(c->kept == 0);
}

static void test_create__commit(void)
{
	int64_t times[] = { 1234567890123456789, -1500000000, 1 };
	struct fake_answer *a;
	struct careful_region *r;
	struct stat st;

	for (int i = 0; i < 3; i++) {
		a = open_path("new", CAREFUL_BLOCK_CREATE, 5);
		assert(be64toh(attr(a)->bytes) == 5);
		r = fake_region(c, a->args[0]);
		assert(r->access == (CAREFUL_REGION_READ | CAREFUL_REGION_WRITE) && r->bytes == 5);
		assert(!exists("rw/new") && entries_of("rw") == 2);
		assert(pwrite(r->span.fd, "12345", 5, 0) == 5);
		a = commit(a->args[0], 0, 0640, times[i]);
		assert(be64toh(attr(a)->mtime_ns) == (uint64_t)times[i]);
		assert(stat(at("rw/new"), &st) == 0 && st.st_size == 5);
		assert((st.st_mode & 07777) == 0640 && be64toh(attr(a)->inode) == st.st_ino);
		assert(entries_of("rw") == 2 && unlink(at("rw/new")) == 0);
	}
	/* A peer cannot set the set-user-ID bit. */
	a = open_path("new", CAREFUL_BLOCK_CREATE, 0);
	assert(commit(a->args[0], CAREFUL_BLOCK_NOSYNC, 06755, 0)->status == 0);
	assert(stat(at("rw/new"), &st) == 0 && (st.st_mode & 07777) == 0755);
	assert(unlink(at("rw/new")) == 0);
}

static void test_create__no_replace(void)
{
	struct fake_answer *a, *b;

	put_file("rw/old", "old");
	assert(open_path("old", CAREFUL_BLOCK_CREATE, 5)->status == -EEXIST);
	assert(open_path("sub", CAREFUL_BLOCK_CREATE, 5)->status == -EISDIR);
	assert(open_path("sub", CAREFUL_BLOCK_CREATE | CAREFUL_BLOCK_REPLACE, 5)->status ==
	       -EISDIR);
	/* The name appeared meanwhile: COMMIT refuses, keeps that file, and leaves nothing. */
	a = open_path("race", CAREFUL_BLOCK_CREATE, 5);
	put_file("rw/race", "other");
	assert(commit(a->args[0], 0, 0644, 0)->status == -EEXIST);
	assert(commit(a->args[0], 0, 0644, 0)->status == -EEXIST); /* remembered */
	b = by_path(CAREFUL_BLOCK_STAT, "race", 0);
	assert(be64toh(attr(b)->bytes) == 5 && !fake_region(c, a->args[0]));
	assert(entries_of("rw") == 3);
	a = open_path("race", CAREFUL_BLOCK_CREATE | CAREFUL_BLOCK_REPLACE, 7);
	assert(commit(a->args[0], CAREFUL_BLOCK_REPLACE, 0644, 0)->status == 0);
	assert(be64toh(attr(by_path(CAREFUL_BLOCK_STAT, "race", 0))->bytes) == 7);
	assert(unlink(at("rw/race")) == 0 && unlink(at("rw/old")) == 0 && entries_of("rw") == 1);
}

static void test_create__escapes(void)
{
	const char *bad[] = { "../x", "sub/../../x", "/tmp/x", "sub/upup/x", "/x" };
	const char *no_name[] = { "", ".", "..", "sub/.", "sub/..", "sub/../" };
	struct fake_answer *a;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert(open_path(bad[i], CAREFUL_BLOCK_CREATE, 1)->status == -EXDEV);
		assert(make_dir(bad[i])->status == -EXDEV);
	}
	for (size_t i = 0; i < sizeof(no_name) / sizeof(no_name[0]); i++)
		assert(open_path(no_name[i], CAREFUL_BLOCK_CREATE, 1)->status == -EINVAL);
	assert(open_path("none/x", CAREFUL_BLOCK_CREATE, 1)->status == -ENOENT);
	/* A symlink that leads out is replaced, not followed. */
	assert(open_path("sub/out", CAREFUL_BLOCK_CREATE, 1)->status == -EEXIST);
	a = open_path("sub/out", CAREFUL_BLOCK_CREATE | CAREFUL_BLOCK_REPLACE, 1);
	assert(commit(a->args[0], CAREFUL_BLOCK_REPLACE, 0644, 0)->status == 0);
	a = open_path("sub/up/through", CAREFUL_BLOCK_CREATE, 1);
	assert(commit(a->args[0], 0, 0644, 0)->status == 0 && exists("rw/through"));
	assert(unlink(at("rw/through")) == 0 && unlink(at("rw/sub/out")) == 0);
	assert(symlink("../../secret", at("rw/sub/out")) == 0);
	assert(entries_of("") == 3);
}

static void test_create__sizes_and_names(void)
{
	static char name[257], path[300];
	struct fake_answer *a;

	memset(name, 0xff, 255); /* no valid UTF-8 */
	name[100] = '\n';
	a = open_path(name, CAREFUL_BLOCK_CREATE, 0);
	assert(commit(a->args[0], 0, 0644, 0)->status == 0 && exists("rw/") &&
	       entries_of("rw") == 2);
	a = open_path(name, 0, 0);
	assert(a->status == 0 && close_key(0, a->args[0])->status == 0);
	snprintf(path, sizeof(path), "rw/%s", name);
	assert(unlink(at(path)) == 0);
	memset(name, 'x', 256);
	assert(open_path(name, CAREFUL_BLOCK_CREATE, 0)->status == -ENAMETOOLONG);
	assert(make_dir(name)->status == -ENAMETOOLONG);
	assert(open_path("big", CAREFUL_BLOCK_CREATE, UINT64_MAX)->status == -EFBIG);
	a = open_path("big", CAREFUL_BLOCK_CREATE, 1ULL << 62);
	assert(a->status == -EFBIG || a->status == -ENOSPC);
	assert(entries_of("rw") == 1);
}

static void test_mkdir(void)
{
	struct stat st;

	assert(make_dir("dir")->status == 0 && make_dir("dir")->status == 0);
	assert(make_dir("dir/a/")->status == 0 && make_dir("dir/none/b")->status == -ENOENT);
	assert(make_dir("")->status == 0 && make_dir("sub/up")->status == 0);
	put_file("rw/dir/f", "");
	assert(make_dir("dir/f")->status == -EEXIST);
	assert(stat(at("rw/dir"), &st) == 0 && S_ISDIR(st.st_mode));
	assert(!unlink(at("rw/dir/f")) && !rmdir(at("rw/dir/a")) && !rmdir(at("rw/dir")));
}

static void test_export__read_only(void)
{
	assert(open_path("new", CAREFUL_BLOCK_CREATE, 1)->status == -EROFS);
	assert(open_path("a", CAREFUL_BLOCK_CREATE | CAREFUL_BLOCK_REPLACE, 1)->status == -EROFS);
	assert(make_dir("new")->status == -EROFS && make_dir("sub")->status == -EROFS);
	assert(!exists("ro/new"));
}

/* Reports whether a handle's file is one in memory without a name. */
static bool is_memfd(uint32_t key)
{
	char path[64], link[PATH_MAX] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fake_region(c, key)->span.fd);
	assert(readlink(path, link, sizeof(link) - 1) > 0);
	return strstr(link, "memfd:");
}

/* Reads a whole listing and closes it. Returns the records; the caller frees them. */
static char *read_listing(struct fake_answer *a, uint64_t *bytes)
{
	struct careful_region *r = fake_region(c, a->args[0]);
	char *buf;

	assert(a->status == 0 && r && r->access == CAREFUL_REGION_READ);
	*bytes = (uint64_t)a->args[1] << 32 | a->args[2];
	assert(r->bytes == *bytes && *bytes % 8 == 0);
	buf = malloc(*bytes + 1);
	assert(pread(r->span.fd, buf, *bytes + 1, 0) == (ssize_t)*bytes);
	assert(close_key(0, a->args[0])->status == 0);
	return buf;
}

/* Returns the record of a name, or NULL. *n: number of records; *order: its place. */
static const struct careful_block_entry *find_entry(const char *buf, uint64_t bytes,
						    const char *name, int *n, int *order)
{
	const struct careful_block_entry *e, *found = NULL;

	*n = 0;
	for (uint64_t pos = 0; pos < bytes; (*n)++) {
		size_t length;

		assert(bytes - pos >= sizeof(*e));
		e = (const void *)(buf + pos);
		length = (size_t)be16toh(e->name_bytes) + be16toh(e->target_bytes);
		assert(length <= bytes - pos - sizeof(*e));
		if (name && be16toh(e->name_bytes) == strlen(name) &&
		    !memcmp(e + 1, name, strlen(name))) {
			assert(!found);
			found = e;
			*order = *n;
		}
		pos += (sizeof(*e) + length + 7) & ~7UL;
	}
	return found;
}

static void test_list__entries(void)
{
	struct fake_answer *a = by_path(CAREFUL_BLOCK_LIST, "", CAREFUL_BLOCK_RECURSIVE);
	const struct careful_block_entry *e;
	int n, order, parent;
	uint64_t bytes;
	char *buf = read_listing(a, &bytes);

	e = find_entry(buf, bytes, "sub", &n, &parent);
	assert(e && S_ISDIR(be32toh(e->attr.mode)) && n == 14);
	e = find_entry(buf, bytes, "sub/b", &n, &order);
	assert(e && be64toh(e->attr.bytes) == 6 && order > parent);
	e = find_entry(buf, bytes, "out", &n, &order);
	assert(e && S_ISLNK(be32toh(e->attr.mode)) && be16toh(e->target_bytes) == 9 &&
	       !memcmp((char *)(e + 1) + 3, "../secret", 9));
	assert(!find_entry(buf, bytes, "up/ro", &n, &order));
	free(buf);
	/* Not recursive, from a directory below, through a symlink. */
	buf = read_listing(by_path(CAREFUL_BLOCK_LIST, ".", 0), &bytes);
	assert(find_entry(buf, bytes, "fifo", &n, &order) && n == 13);
	free(buf);
	buf = read_listing(by_path(CAREFUL_BLOCK_LIST, "sub", 0), &bytes);
	assert(find_entry(buf, bytes, "b", &n, &order) && n == 1);
	free(buf);
	assert(by_path(CAREFUL_BLOCK_LIST, "a", 0)->status == -ENOTDIR);
	assert(by_path(CAREFUL_BLOCK_LIST, "none", 0)->status == -ENOENT);
}

static void test_list__unreadable(void)
{
	struct fake_answer *a;
	const struct careful_block_entry *e;
	int n, order;
	uint64_t bytes;
	char *buf;

	assert(mkdir(at("rw/shut"), 0) == 0);
	a = by_path(CAREFUL_BLOCK_LIST, "", CAREFUL_BLOCK_RECURSIVE);
	buf = read_listing(a, &bytes);
	e = find_entry(buf, bytes, "shut", &n, &order);
	assert(e && S_ISDIR(be32toh(e->attr.mode)));
	if (geteuid())
		assert(a->args[3] == 1 && be32toh(e->error) == EACCES);
	else
		assert(a->args[3] == 0 && e->error == 0);
	free(buf);
	assert(rmdir(at("rw/shut")) == 0);
}

/* A directory that cannot be read, and the error. */
static const char *sick_name;
static int sick_error;

/* In place of libc's. */
ssize_t getdents64(int fd, void *buffer, size_t bytes)
{
	char link[40], path[PATH_MAX] = { 0 };

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (sick_name && readlink(link, path, sizeof(path) - 1) > 0 &&
	    !strcmp(strrchr(path, '/') + 1, sick_name)) {
		errno = sick_error;
		return -1;
	}
	return syscall(SYS_getdents64, fd, buffer, bytes);
}

/* A damaged directory, or one whose server is down, is an entry with an error, and the rest is
 * listed. Its error does not count as one of the connection. An autofs mount point without its
 * server gives ENOENT: it exists, so it is not empty. */
static void test_list__damaged_directory(void)
{
	static const int errors[][2] = {
		{ EUCLEAN, EUCLEAN }, { ENOTCONN, EIO }, { ENOENT, ENOENT }, { ENOMEM, 0 }
	};
	struct careful_list list;
	const struct careful_block_entry *e;
	struct fake_answer *a;
	int n, order, rw;
	uint64_t bytes;
	char *buf;

	assert(mkdir(at("rw/sick"), 0755) == 0 && mkdir(at("rw/well"), 0755) == 0);
	close(open(at("rw/well/f"), O_CREAT | O_WRONLY, 0600));
	sick_name = "sick";
	for (int i = 0; i < 4; i++) {
		sick_error = errors[i][0];
		a = by_path(CAREFUL_BLOCK_LIST, "", CAREFUL_BLOCK_RECURSIVE);
		if (!errors[i][1]) { /* the error of the whole request */
			assert(a->status == -sick_error);
			break;
		}
		assert(a->args[3] == 1);
		buf = read_listing(a, &bytes);
		e = find_entry(buf, bytes, "sick", &n, &order);
		assert(e && (int)be32toh(e->error) == sick_error);
		assert(find_entry(buf, bytes, "well/f", &n, &order));
		free(buf);
		assert(by_path(CAREFUL_BLOCK_LIST, "sick", 0)->status == -errors[i][1]);
		rw = open(at("rw"), O_PATH | O_DIRECTORY);
		assert(careful_list(rw, &list) == 0 && list.unreadable == 1);
		careful_list_release(&list);
		close(rw);
	}
	sick_name = NULL;
	assert(unlink(at("rw/well/f")) == 0 && rmdir(at("rw/well")) == 0);
	assert(rmdir(at("rw/sick")) == 0);
}

static void test_list__thousands(void)
{
	enum { DIRS = 20, FILES = 1000 };
	char path[PATH_MAX], long_name[200];
	int n, order, before = open_fds();
	struct fake_answer *a;
	uint64_t bytes;
	char *buf;

	memset(long_name, 'n', sizeof(long_name));
	long_name[sizeof(long_name) - 1] = 0;
	for (int i = 0; i < DIRS; i++) {
		snprintf(path, sizeof(path), "rw/many%d", i);
		assert(mkdir(at(path), 0755) == 0);
		for (int j = 0; j < FILES; j++) {
			snprintf(path, sizeof(path), "rw/many%d/%s%d", i, long_name, j);
			put_file(path, "");
		}
	}
	/* 20,000 records of 270 bytes: more than are kept in memory. */
	a = by_path(CAREFUL_BLOCK_LIST, "", CAREFUL_BLOCK_RECURSIVE);
	assert(a->status == 0 && !is_memfd(a->args[0]));
	buf = read_listing(a, &bytes);
	assert(bytes > 5000000);
	for (int i = 0; i < DIRS; i += 7) {
		snprintf(path, sizeof(path), "many%d/%s%d", i, long_name, FILES - 1);
		assert(find_entry(buf, bytes, path, &n, &order));
	}
	assert(n == DIRS * FILES + DIRS + 4);
	free(buf);
	assert(open_fds() == before);
	snprintf(path, sizeof(path), "rm -rf %s/rw/many*", base);
	assert(system(path) == 0);
}

static void test_list__deep(void)
{
	char name[256], path[PATH_MAX];
	struct fake_answer *a;
	int fd = open(at("rw"), O_PATH | O_DIRECTORY), n, order;
	uint64_t bytes;
	char *buf;

	/* Directories beyond PATH_MAX: listed as far as a request can name them. */
	memset(name, 'd', 255);
	name[255] = 0;
	for (int i = 0; i < 20; i++) {
		int next;

		assert(mkdirat(fd, name, 0755) == 0);
		next = openat(fd, name, O_PATH | O_DIRECTORY);
		assert(next >= 0);
		close(fd);
		fd = next;
	}
	close(fd);
	a = by_path(CAREFUL_BLOCK_LIST, "", CAREFUL_BLOCK_RECURSIVE);
	assert(a->args[3] == 1);
	buf = read_listing(a, &bytes);
	find_entry(buf, bytes, NULL, &n, &order);
	assert(n == 4 + 16);
	free(buf);
	snprintf(path, sizeof(path), "rm -rf %s/rw/ddd*", base);
	assert(system(path) == 0);
}

static void test_list__bounded(void)
{
	uint32_t keys[16];
	struct fake_answer *a;

	for (int i = 0; i < 16; i++) {
		a = by_path(CAREFUL_BLOCK_LIST, "", 0);
		assert(a->status == 0);
		assert(is_memfd(a->args[0]));
		keys[i] = a->args[0];
	}
	assert(by_path(CAREFUL_BLOCK_LIST, "", 0)->status == -EMFILE);
	a = open_path("a", 0, 0);
	assert(a->status == 0 && close_key(0, a->args[0])->status == 0);
	for (int i = 0; i < 16; i++)
		assert(close_key(0, keys[i])->status == 0);
}

static void test_exports__several(void)
{
	struct fake_answer *a = by_path(CAREFUL_BLOCK_LIST, "", CAREFUL_BLOCK_RECURSIVE);
	int n, order;
	uint64_t bytes;
	char *buf = read_listing(a, &bytes);

	assert(find_entry(buf, bytes, "one", &n, &order) &&
	       find_entry(buf, bytes, "two", &n, &order));
	assert(find_entry(buf, bytes, "one/sub/b", &n, &order));
	assert(find_entry(buf, bytes, "two/sub", &n, &order));
	free(buf);
	assert(S_ISDIR(be32toh(attr(by_path(CAREFUL_BLOCK_STAT, "", 0))->mode)));
	assert(be64toh(attr(by_path(CAREFUL_BLOCK_STAT, "one/a", 0))->bytes) == 5);
	assert(by_path(CAREFUL_BLOCK_STAT, "three", 0)->status == -ENOENT);
	assert(by_path(CAREFUL_BLOCK_STAT, "one/../two", 0)->status == -EXDEV);
	assert(open_path("one", 0, 0)->status == -EISDIR && open_path("", 0, 0)->status == -EISDIR);
	assert(open_path("new", CAREFUL_BLOCK_CREATE, 1)->status == -EROFS);
	assert(open_path("one/new", CAREFUL_BLOCK_CREATE, 1)->status == -EROFS);
	a = open_path("two/new", CAREFUL_BLOCK_CREATE, 1);
	assert(commit(a->args[0], 0, 0644, 0)->status == 0 && unlink(at("rw/new")) == 0);
}

static void test_serve__exports(void)
{
	struct block_export_options exports[2] = { { .path = "/proc/nonexistent", .name = "a" } };
	struct careful_error error = { 0 };
	struct block_server *s;

	c = fake_create();
	assert(block_serve(c, exports, 1, &s, &error) == -ENOENT);
	assert(strstr(error.text, "/proc/nonexistent"));
	exports[0].path = exports[1].path = base;
	exports[1].name = "a";
	assert(block_serve(c, exports, 2, &s, &error) == -EEXIST && strstr(error.text, "\"a\""));
	assert(block_serve(c, exports, 65, &s, &error) == -E2BIG);
	fake_destroy(c);
}

static void test_stop__with_work_under_way(void)
{
	for (int i = 0; i < 50; i++)
		send_open(0, CAREFUL_BLOCK_OPEN, "sub/new", 7, CAREFUL_BLOCK_CREATE, 10, 0);
	answer(send_open(0, CAREFUL_BLOCK_OPEN, "sub/new", 7, CAREFUL_BLOCK_CREATE, 10, 0));
}

/* A path too long for a frame is stored at the server first. Tests all errors of that, too. */
static void test_request__stored_path(void)
{
	const uint32_t memory = CAREFUL_BLOCK_SCRATCH | CAREFUL_BLOCK_NULL;
	const uint16_t handlers[] = { CAREFUL_BLOCK_OPEN, CAREFUL_BLOCK_LIST, CAREFUL_BLOCK_STAT,
				      CAREFUL_BLOCK_MKDIR };
	const struct careful_block_open open = { .mode = htobe32(0750) };
	uint32_t args[4] = { 0 }, key, directory;
	struct fake_answer *a;

	a = open_path("", memory, strlen("sub"));
	CHECK_EQ(a->status, 0);
	args[1] = key = a->args[0];
	CHECK(pwrite(fake_region(c, key)->span.fd, "sub", 3, 0) == 3);
	for (size_t i = 0; i < sizeof(handlers) / sizeof(*handlers); i++) {
		bool has_open = handlers[i] == CAREFUL_BLOCK_OPEN ||
				handlers[i] == CAREFUL_BLOCK_MKDIR;

		a = answer(fake_request(c, 0, handlers[i], args, has_open ? &open : NULL,
					has_open ? sizeof(open) : 0));
		CHECK_EQ(a->status, handlers[i] == CAREFUL_BLOCK_OPEN ? -EISDIR : 0);
		if (handlers[i] == CAREFUL_BLOCK_LIST)
			close_key(0, a->args[0]);
	}
	/* A path handle of another peer, of a directory, closed, with a NUL, or too long. */
	a = answer(fake_request(c, 1, CAREFUL_BLOCK_STAT, args, NULL, 0));
	CHECK_EQ(a->status, -EBADF);
	directory = open_path("sub", CAREFUL_BLOCK_SCRATCH, 6)->args[0];
	args[1] = directory;
	CHECK_EQ(answer(fake_request(c, 0, CAREFUL_BLOCK_STAT, args, NULL, 0))->status, -EBADF);
	close_key(0, directory);
	CHECK(pwrite(fake_region(c, key)->span.fd, "", 1, 1) == 1);
	args[1] = key;
	CHECK_EQ(answer(fake_request(c, 0, CAREFUL_BLOCK_STAT, args, NULL, 0))->status, -EINVAL);
	close_key(0, key);
	CHECK_EQ(answer(fake_request(c, 0, CAREFUL_BLOCK_STAT, args, NULL, 0))->status, -EBADF);
	args[1] = key = open_path("", memory, PATH_MAX)->args[0];
	CHECK_EQ(answer(fake_request(c, 0, CAREFUL_BLOCK_STAT, args, NULL, 0))->status,
		 -ENAMETOOLONG);
	close_key(0, key);
}

int main(void)
{
	int before = open_fds();

	make_tree();
	test_serve__exports();

	start("ro", false, NULL, false);
	test_open__reads();
	test_open__escapes();
	test_open__not_a_file();
	test_request__malformed();
	test_handle__belongs_to_its_peer();
	test_handle__bounded();
	test_handle__bounded_while_some_end();
	test_handle__busy_region();
	test_handle__of_an_attempt();
	test_handle__its_request_is_repeated();
	test_handle__answer_lost();
	test_request__one_peer_cannot_use_all_room();
	test_request__more_than_jobs();
	test_export__read_only();
	test_list__entries();
	test_list__bounded();
	stop();

	start("rw", true, NULL, false);
	test_peer__gone();
	test_peer__asks_before_its_arrival_is_reported();
	test_create__commit();
	test_create__no_replace();
	test_create__escapes();
	test_create__sizes_and_names();
	test_mkdir();
	test_request__stored_path();
	test_list__unreadable();
	test_list__damaged_directory();
	test_list__thousands();
	test_list__deep();
	test_stop__with_work_under_way();
	stop();
	assert(entries_of("rw/sub") == 3);

	start("ro", false, "rw", true);
	test_exports__several();
	stop();

	start("../../proc", false, NULL, false);
	test_open__proc_magic_links();
	test_open__has_no_size();
	stop();

	start(NULL, false, NULL, false);
	assert(open_path("a", 0, 0)->status == -ENOMEDIUM);
	assert(by_path(CAREFUL_BLOCK_LIST, "", 0)->status == -ENOMEDIUM);
	stop();

	assert(open_fds() == before);
	chmod(at("ro/locked"), 0600);

	remove_base();
	if (geteuid() == 0)
		skip_part("root reads files that others cannot");
	return 0;
}
