/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Exported directories that are removed, made again, moved, replaced, mounted and unmounted
 * under a block server. Mounts and other owners need root: skipped otherwise.
 */
#include <sys/mount.h>

#include "block_end.h"
#include "check.h"
#include "mounts.h"

static struct fake_answer *by_path(uint16_t handler, const char *path)
{
	uint32_t args[4] = { 0 };

	return answer(fake_request(c, 0, handler, args, path, (uint32_t)strlen(path)));
}

static struct fake_answer *ask_open(uint16_t handler, const char *path, uint32_t flags)
{
	size_t path_bytes = strlen(path);
	char buf[sizeof(struct careful_block_open) + PATH_MAX];
	struct careful_block_open open = {
		.flags = htobe32(flags),
		.mode = htobe32(0755),
		.bytes = htobe64(3),
		.path_bytes = htobe32((uint32_t)path_bytes),
	};
	uint32_t args[4] = { 0 };

	memcpy(buf, &open, sizeof(open));
	for (size_t i = 0; i < path_bytes; i++)
		buf[sizeof(open) + i] = path[i];
	return answer(
		fake_request(c, 0, handler, args, buf, (uint32_t)(sizeof(open) + path_bytes)));
}

static int status(const char *path)
{
	return by_path(CAREFUL_BLOCK_STAT, path)->status;
}

static void close_key(uint32_t key)
{
	uint32_t args[4] = { key };

	assert(answer(fake_request(c, 0, CAREFUL_BLOCK_CLOSE, args, NULL, 0))->status == 0);
}

static void put_file(const char *path, const char *text)
{
	FILE *f = fopen(at(path), "w");

	assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void make(const char *path, const char *file)
{
	char name[PATH_MAX];

	assert(mkdir(at(path), 0755) == 0);
	snprintf(name, sizeof(name), "%s/%s", path, file);
	put_file(name, "x");
}

static void remove_tree(const char *path)
{
	char command[PATH_MAX + 80];

	snprintf(command, sizeof(command), "rm -rf %s", at(path));
	assert(system(command) == 0);
}

static void start(const char *first, const char *second)
{
	struct block_export_options exports[2] = {
		{ .path = strdup(at(first)), .name = "one", .writable = true },
		{ .path = second ? strdup(at(second)) : NULL, .name = "two", .writable = true },
	};
	struct careful_error error;

	c = fake_create();
	assert(block_serve(c, exports, second ? 2 : 1, &server, &error) == 0);
	free((void *)exports[0].path);
	free((void *)exports[1].path);
}

/* Every request with a path says that the export is gone, and changes nothing. */
static void assert_gone(void)
{
	assert(by_path(CAREFUL_BLOCK_LIST, "")->status == -ENOLINK);
	assert(status("") == -ENOLINK && status("a") == -ENOLINK);
	assert(ask_open(CAREFUL_BLOCK_OPEN, "a", 0)->status == -ENOLINK);
	assert(ask_open(CAREFUL_BLOCK_OPEN, "n", CAREFUL_BLOCK_CREATE)->status == -ENOLINK);
	assert(ask_open(CAREFUL_BLOCK_OPEN, "", CAREFUL_BLOCK_SCRATCH)->status == -ENOLINK);
	assert(ask_open(CAREFUL_BLOCK_MKDIR, "d", 0)->status == -ENOLINK);
}

static struct block_end report;
static char reported_path[64];
static int reports;

static void on_end(const struct block_end *end, void *user)
{
	assert(user == reported_path);
	report = *end;
	snprintf(reported_path, sizeof(reported_path), "%s", end->path);
	reports++;
}

/* The log reports once who used which file and how it ended, whatever ends it. */
static void test_on_end__reports_each_file(void)
{
	struct fake_answer *a;

	make("one", "a");
	start("one", NULL);
	block_on_end(server, on_end, reported_path);
	a = ask_open(CAREFUL_BLOCK_OPEN, "a", 0);
	assert(a->status == 0 && !reports);
	close_key(a->args[0]);
	assert(reports == 1 && !strcmp(reported_path, "a") && !report.writable && !report.status);
	assert(report.op == CAREFUL_BLOCK_CLOSE && report.read_bytes == 3 && report.bytes == 1);
	/* A listing does not count as a transfer. */
	a = by_path(CAREFUL_BLOCK_LIST, "");
	assert(a->status == 0);
	close_key(a->args[0]);
	assert(reports == 1);
	/* Files that a peer leaves open end with it; a path that was cut in two is reported
	 * whole. */
	a = ask_open(CAREFUL_BLOCK_OPEN, "d/e", CAREFUL_BLOCK_CREATE);
	assert(a->status == -ENOENT && reports == 1);
	make("one/d", "x");
	a = ask_open(CAREFUL_BLOCK_OPEN, "d/e", CAREFUL_BLOCK_CREATE);
	assert(a->status == 0);
	block_watch(c, 0, CAREFUL_PEER_FAILED, server);
	for (int i = 0; i < 10000 && reports == 1; i++) {
		usleep(100);
		block_poll(server);
	}
	assert(reports == 2 && !strcmp(reported_path, "d/e") && report.writable);
	assert(report.op == BLOCK_DISCARD && report.written_bytes == 2 && !report.is_former);
	/* A file that ends after its peer's slot has a new peer is not reported as the new
	 * peer's. */
	block_watch(c, 0, CAREFUL_PEER_UP, server);
	a = ask_open(CAREFUL_BLOCK_OPEN, "a", 0);
	assert(a->status == 0);
	block_watch(c, 0, CAREFUL_PEER_NONE, server);
	block_watch(c, 0, CAREFUL_PEER_UP, server);
	for (int i = 0; i < 10000 && reports == 2; i++) {
		usleep(100);
		block_poll(server);
	}
	assert(reports == 3 && !strcmp(reported_path, "a") && report.is_former);
	stop();
	remove_tree("one");
}

/* Requests count for the export that serves them, not for the other export. */
static void test_export__use_is_counted(void)
{
	struct careful_export_use uses[BLOCK_EXPORTS];
	struct fake_answer *a;

	make("one", "a");
	make("two", "b");
	start("one", "two");
	assert(block_use(server, uses) == 2 && !uses[0].requests && !uses[1].requests);
	a = ask_open(CAREFUL_BLOCK_OPEN, "two/b", 0);
	assert(a->status == 0);
	/* The fake engine reports 3 bytes read and 2 written for each region. */
	assert(block_use(server, uses) == 2 && uses[1].read_bytes == 3 && uses[1].requests == 1);
	close_key(a->args[0]);
	assert(status("two/none") == -ENOENT);
	assert(by_path(CAREFUL_BLOCK_STAT, "two/../../etc")->status == -EXDEV);
	block_use(server, uses);
	assert(uses[1].read_bytes == 3 && uses[1].written_bytes == 2);
	assert(uses[1].requests == 4 && uses[1].failed == 2 && uses[1].denied == 1);
	assert(!uses[0].requests && !uses[0].read_bytes);
	stop();
	remove_tree("one");
	remove_tree("two");
}

static void replace(const char *const *paths, const char *const *names, uint32_t n, int expected)
{
	struct block_export_options exports[3];
	struct careful_error error = { 0 };

	for (uint32_t i = 0; i < n; i++)
		exports[i] = (struct block_export_options){ .path = strdup(at(paths[i])),
							    .name = names[i] };
	assert(block_replace(server, exports, n, &error) == expected);
	assert(!expected || strstr(error.text, "nowhere"));
	for (uint32_t i = 0; i < n; i++)
		free((void *)exports[i].path);
}

/* Open files stay open; an export that stays keeps its counts, even under another index. */
static void test_replace__while_a_file_is_open(void)
{
	const char *both[] = { "two", "one", "three" }, *none[] = { "two", "nowhere" };
	struct careful_export_use uses[BLOCK_EXPORTS];
	struct fake_answer *file, *new;
	char buf[8];

	make("one", "a");
	make("two", "b");
	make("three", "c");
	start("one", NULL);
	file = ask_open(CAREFUL_BLOCK_OPEN, "a", 0);
	new = ask_open(CAREFUL_BLOCK_OPEN, "new", CAREFUL_BLOCK_CREATE);
	assert(file->status == 0 && new->status == 0);
	replace(both, both, 3, 0);
	/* The export is read-only from now on, except for writes under way. */
	assert(ask_open(CAREFUL_BLOCK_OPEN, "one/n", CAREFUL_BLOCK_CREATE)->status == -EROFS);
	assert(status("two/b") == 0 && status("one/a") == 0 && status("a") == -ENOENT);
	assert(block_use(server, uses) == 3 && uses[0].requests == 1 && !uses[2].requests);
	assert(uses[1].requests == 4 && uses[1].read_bytes == 6 && uses[1].written_bytes == 4);
	assert(pread(fake_region(c, file->args[0])->span.fd, buf, 8, 0) == 1);
	/* A wrong list changes nothing. */
	replace(none, none, 2, -ENOENT);
	assert(status("three/c") == 0);
	replace(both, both, 1, 0);
	assert(status("b") == 0 && block_use(server, uses) == 1 && uses[0].requests == 2);
	close_key(file->args[0]);
	close_key(new->args[0]);
	assert(!exists("one/new"));
	replace(NULL, NULL, 0, 0);
	assert(status("b") == -ENOMEDIUM && block_use(server, uses) == 0);
	/* Many times: places are reused. */
	for (int i = 0; i < 200; i++)
		replace(&both[i % 3], both, 1, 0);
	assert(status("b") == -ENOENT && status("a") == 0);
	stop();
	remove_tree("one");
	remove_tree("two");
	remove_tree("three");
}

static void test_export__made_again(void)
{
	struct fake_answer *a;
	char buf[8];

	make("one", "a");
	start("one", NULL);
	a = ask_open(CAREFUL_BLOCK_OPEN, "a", 0);
	assert(a->status == 0);
	remove_tree("one");
	assert_gone();
	/* An open file stays open. */
	assert(pread(fake_region(c, a->args[0])->span.fd, buf, 8, 0) == 1);
	close_key(a->args[0]);
	make("one", "b");
	assert(status("b") == 0 && status("a") == -ENOENT);
	a = ask_open(CAREFUL_BLOCK_OPEN, "new", CAREFUL_BLOCK_CREATE);
	assert(a->status == 0);
	close_key(a->args[0]);
	/* The directory is moved away, and back. */
	assert(rename(at("one"), at("away")) == 0);
	assert_gone();
	assert(rename(at("away"), at("one")) == 0);
	assert(status("b") == 0);
	stop();
	remove_tree("one");
}

/* The listing of all exports tells which of them is gone, and continues. */
static void test_export__listed(void)
{
	struct fake_answer *a;
	char buf[1024];
	size_t bytes, at_byte = 0;
	int found = 0;

	make("one", "a");
	make("two", "b");
	start("one", "two");
	remove_tree("one");
	a = by_path(CAREFUL_BLOCK_LIST, "");
	assert(a->status == 0 && a->args[3] == 1 && a->args[2] < sizeof(buf));
	bytes = a->args[2];
	assert(pread(fake_region(c, a->args[0])->span.fd, buf, bytes, 0) == (ssize_t)bytes);
	while (at_byte < bytes) {
		const struct careful_block_entry *e = (void *)(buf + at_byte);
		bool gone = !memcmp(e + 1, "one", 3);

		assert(be32toh(e->error) == (gone ? ENOLINK : 0));
		assert(S_ISDIR(be32toh(e->attr.mode)) == !gone);
		at_byte += (sizeof(*e) + be16toh(e->name_bytes) + 7) & ~7UL;
		found++;
	}
	assert(found == 2);
	close_key(a->args[0]);
	assert(status("one") == -ENOLINK && status("one/a") == -ENOLINK && status("two/b") == 0);
	stop();
	remove_tree("two");
}

/* A symlink leads to an export only if it did at the start. */
static void test_export__symlinks(void)
{
	make("real", "a");
	make("secret", "a");
	assert(symlink("real", at("link")) == 0);
	start("link", NULL);
	assert(status("a") == 0);
	/* The symlink leads to the same directory again. */
	assert(unlink(at("link")) == 0 && symlink("secret", at("link")) == 0);
	put_file("secret/b", "x");
	assert(status("a") == 0 && status("b") == -ENOENT);
	assert(rename(at("real"), at("was")) == 0 && symlink("secret", at("real")) == 0);
	assert_gone();
	assert(unlink(at("real")) == 0);
	put_file("real", "");
	assert_gone();
	stop();
	remove_tree("real");
	remove_tree("was");
	remove_tree("secret");
	assert(unlink(at("link")) == 0);
}

/* Anybody who can write to the parent could make a directory there. */
static void test_export__another_owner(void)
{
	make("one", "a");
	assert(chown(at("one"), 1000, 1000) == 0);
	start("one", NULL);
	/* The same directory may get another owner. */
	assert(chown(at("one"), 1001, 1001) == 0 && status("a") == 0);
	remove_tree("one");
	make("one", "a");
	assert(chown(at("one"), 1002, 1002) == 0);
	assert_gone();
	assert(chown(at("one"), 1000, 1000) == 0 && status("a") == 0);
	assert(chown(at("one"), 0, 0) == 0 && status("a") == 0);
	stop();
	remove_tree("one");
}

static void mount_at(const char *path)
{
	assert(mount("none", at(path), "tmpfs", 0, NULL) == 0);
}

static void test_export__mounts(void)
{
	const char *why = private_mounts();

	if (why) {
		skip_part(why);
		return;
	}
	make("disk", "a");
	mount_at("disk");
	put_file("disk/b", "x");
	start("disk", NULL);
	assert(status("b") == 0 && status("a") == -ENOENT);
	/* The mount point is not the disk. */
	assert(umount2(at("disk"), MNT_DETACH) == 0);
	assert_gone();
	assert(!exists("disk/d") && !exists("disk/n"));
	/* Another mounted disk is served, and can be unmounted at any time. */
	mount_at("disk");
	put_file("disk/e", "x");
	assert(status("e") == 0 && status("b") == -ENOENT);
	assert(umount2(at("disk"), 0) == 0);
	assert_gone();
	stop();
	/* A mount now covers a plain directory. */
	start("disk", NULL);
	assert(status("a") == 0);
	mount_at("disk");
	assert(status("a") == -ENOENT && status("") == 0);
	assert(umount2(at("disk"), 0) == 0 && status("a") == 0);
	stop();
	remove_tree("disk");
}

/* A path through /proc is served under its canonical path. After the directory's removal, no path
 * leads to the directory, so the export is refused. */
static void test_serve__path_through_proc(void)
{
	struct block_export_options export = { .name = "x" };
	struct careful_error error;
	char path[64];
	int fd;

	make("one", "a");
	fd = open(at("one"), O_PATH | O_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	export.path = path;
	c = fake_create();
	assert(block_serve(c, &export, 1, &server, &error) == 0);
	assert(status("a") == 0);
	stop();
	remove_tree("one");
	c = fake_create();
	assert(block_serve(c, &export, 1, &server, &error) < 0);
	fake_destroy(c);
	close(fd);
}

int main(void)
{
	int before = open_fds();

	assert(mkdtemp(base));
	test_on_end__reports_each_file();
	test_export__use_is_counted();
	test_replace__while_a_file_is_open();
	test_export__made_again();
	test_export__listed();
	test_export__symlinks();
	test_serve__path_through_proc();
	if (geteuid() == 0)
		test_export__another_owner();
	else
		skip_part("owners need root");
	test_export__mounts();
	assert(open_fds() == before);
	remove_base();
	return 0;
}
