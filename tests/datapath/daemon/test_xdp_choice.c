// SPDX-License-Identifier: BSD-2-Clause
/* Tests the choice of the XDP mode from given figures, and the memory of it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "check.h"
#include "daemon/process/rundir.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/xdp/xdp_choice.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/xdp/xdp_memory.c" /* NOLINT(bugprone-suspicious-include) */

static char dir[] = "/tmp/test_xdp_choice.XXXXXX";
static struct careful_error why;

/* Returns the choice if generic differs by these factors, on a machine whose speed changes. */
static uint32_t chosen(double trip, double rate, const double *speed)
{
	struct xdp_figures arms[XDP_ARMS];

	for (uint32_t i = 0; i < XDP_ARMS; i++)
		arms[i] = (struct xdp_figures){
			.trip_ns = 4000 * (i % 2 ? trip : 1) / speed[i],
			.rate = 1000 * (i % 2 ? rate : 1) * speed[i],
		};
	return xdp_choose(arms);
}

static const double steady[XDP_ARMS] = { 1, 1, 1, 1, 1, 1 };

static void test_choose__the_better_of_both_figures_together(void)
{
	CHECK_EQ(chosen(0.94, 1.15, steady), CAREFUL_XDP_GENERIC);
	CHECK_EQ(chosen(1.10, 1.30, steady), CAREFUL_XDP_GENERIC);
	CHECK_EQ(chosen(1.00, 1.00, steady), CAREFUL_XDP_NATIVE);
	CHECK_EQ(chosen(0.98, 1.02, steady), CAREFUL_XDP_NATIVE); /* within the margin */
	CHECK_EQ(chosen(0.80, 0.70, steady), CAREFUL_XDP_NATIVE);
	CHECK_EQ(chosen(1.20, 0.90, steady), CAREFUL_XDP_NATIVE);
}

/* Other work makes the machine half as fast from one arm on. */
static void test_choose__a_machine_that_changes_once(void)
{
	for (uint32_t at = 1; at < XDP_ARMS; at++) {
		double slower[XDP_ARMS], faster[XDP_ARMS];

		for (uint32_t i = 0; i < XDP_ARMS; i++) {
			slower[i] = i < at ? 1 : 0.5;
			faster[i] = i < at ? 0.5 : 1;
		}
		CHECK_EQ(chosen(0.9, 1.1, slower), CAREFUL_XDP_GENERIC);
		CHECK_EQ(chosen(0.9, 1.1, faster), CAREFUL_XDP_GENERIC);
		CHECK_EQ(chosen(1.1, 0.9, slower), CAREFUL_XDP_NATIVE);
		CHECK_EQ(chosen(1.1, 0.9, faster), CAREFUL_XDP_NATIVE);
	}
}

static void test_choose__figures_that_vary_too_much_decide_nothing(void)
{
	const double wild[XDP_ARMS] = { 1, 3, 4, 1, 0.3, 2 };

	CHECK_EQ(chosen(1, 1, wild), CAREFUL_XDP_AUTO);
}

static void test_choose__figures_that_are_none(void)
{
	const struct xdp_figures none[XDP_ARMS] = { 0 };

	CHECK_EQ(xdp_choose(none), CAREFUL_XDP_NATIVE);
}

static void write_file(const char *name, const char *text, size_t bytes)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	CHECK(fd >= 0);
	CHECK_EQ(write(fd, text, bytes), bytes);
	close(fd);
}

static int recall(uint32_t *mode)
{
	why.text[0] = 0;
	return xdp_recall(dir, "veth", mode, &why);
}

static void test_remember__can_be_recalled_and_replaced(void)
{
	uint32_t mode = 0;

	CHECK_EQ(recall(&mode), -ENOENT);
	for (uint32_t i = CAREFUL_XDP_NATIVE; i <= CAREFUL_XDP_GENERIC; i++) {
		CHECK_EQ(xdp_remember(dir, "veth", i, &why), 0);
		CHECK_EQ(recall(&mode), 0);
		CHECK_EQ(mode, i);
	}
	CHECK_EQ(xdp_recall(dir, "igb", &mode, &why), -ENOENT);
}

static void test_remember__makes_its_directory(void)
{
	char deep[256];
	uint32_t mode = 0;

	snprintf(deep, sizeof(deep), "%s/a/b", dir);
	CHECK_EQ(xdp_remember(deep, "veth", CAREFUL_XDP_GENERIC, &why), 0);
	CHECK_EQ(xdp_recall(deep, "veth", &mode, &why), 0);
	CHECK_EQ(mode, CAREFUL_XDP_GENERIC);
}

static void test_recall__garbage_and_other_kernels_are_none(void)
{
	static const char *const texts[] = {
		"",
		"{",
		"generic\n",
		"{\"schema\": 1, \"kernel\": \"0.1\", \"mode\": \"generic\"}\n",
		"{\"schema\": 2, \"mode\": \"generic\"}\n",
	};
	static const char zeros[5000];
	uint32_t mode = 7;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		write_file("xdp.veth.json", texts[i], strlen(texts[i]));
		CHECK_EQ(recall(&mode), -ENOENT);
	}
	write_file("xdp.veth.json", zeros, sizeof(zeros));
	CHECK_EQ(recall(&mode), -ENOENT);
	CHECK_EQ(mode, 7);
	CHECK_EQ(xdp_remember(dir, "veth", CAREFUL_XDP_NATIVE, &why), 0);
	CHECK_EQ(recall(&mode), 0);
}

static void test_recall__a_file_that_others_may_write_is_ignored(void)
{
	char path[256];
	uint32_t mode = 0;

	snprintf(path, sizeof(path), "%s/xdp.veth.json", dir);
	CHECK_EQ(xdp_remember(dir, "veth", CAREFUL_XDP_GENERIC, &why), 0);
	CHECK(!chmod(path, 0666));
	CHECK_EQ(recall(&mode), -EPERM);
	CHECK(strstr(why.text, "not used"));
	CHECK(!chmod(path, 0644));
	CHECK(!chmod(dir, 0777));
	CHECK_EQ(recall(&mode), -EPERM);
	CHECK_EQ(xdp_remember(dir, "veth", CAREFUL_XDP_NATIVE, &why), -EPERM);
	CHECK(strstr(why.text, "nothing is saved"));
	CHECK(!chmod(dir, 0755));
	unlink(path);
	CHECK(!symlink("/etc/passwd", path));
	CHECK_EQ(recall(&mode), -ELOOP);
	unlink(path);
	CHECK(!mkfifo(path, 0644));
	CHECK_EQ(recall(&mode), -EINVAL);
	unlink(path);
}

static void test_remember__a_directory_without_write_access(void)
{
	char file[256];
	uint32_t mode = 0;

	write_file("taken", "x", 1);
	snprintf(file, sizeof(file), "%s/taken", dir);
	CHECK(xdp_remember(file, "veth", CAREFUL_XDP_NATIVE, &why) < 0);
	CHECK(xdp_recall(file, "veth", &mode, &why) < 0);
	CHECK(xdp_remember("/proc/none", "veth", CAREFUL_XDP_NATIVE, &why) < 0);
	CHECK_EQ(xdp_remember(dir, "../veth", CAREFUL_XDP_NATIVE, &why), -EINVAL);
	CHECK_EQ(xdp_remember(dir, "", CAREFUL_XDP_NATIVE, &why), -EINVAL);
}

/* Another user reads root's files, and writes nothing. */
static void test_remember__without_root(void)
{
	uint32_t mode = 0;

	if (geteuid()) {
		skip_part("needs root");
		return;
	}
	CHECK_EQ(xdp_remember(dir, "veth", CAREFUL_XDP_GENERIC, &why), 0);
	CHECK(!seteuid(65534));
	CHECK_EQ(xdp_remember(dir, "veth", CAREFUL_XDP_NATIVE, &why), -EACCES);
	CHECK_EQ(recall(&mode), 0);
	CHECK_EQ(mode, CAREFUL_XDP_GENERIC);
	CHECK(!seteuid(0));
}

static void remove_all(void)
{
	char command[300];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	CHECK(!system(command)); // NOLINT: a test's own words
}

int main(void)
{
	CHECK(mkdtemp(dir));
	CHECK(!chmod(dir, 0755));
	RUN(test_choose__the_better_of_both_figures_together);
	RUN(test_choose__a_machine_that_changes_once);
	RUN(test_choose__figures_that_vary_too_much_decide_nothing);
	RUN(test_choose__figures_that_are_none);
	RUN(test_remember__can_be_recalled_and_replaced);
	RUN(test_remember__makes_its_directory);
	RUN(test_recall__garbage_and_other_kernels_are_none);
	RUN(test_recall__a_file_that_others_may_write_is_ignored);
	RUN(test_remember__a_directory_without_write_access);
	RUN(test_remember__without_root);
	remove_all();
	return 0;
}
