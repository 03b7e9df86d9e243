// SPDX-License-Identifier: BSD-2-Clause
/* Tests where a host's keys are, and how many hosts `--seal` may name.
 * tests/system/instance/test_keys.py tests how keys are read. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "secure/keys.h"
#include "secure/seal_rule.h"

static void test_directory__of_a_host_with_a_key(void)
{
	char usual[] = "/tmp/careful-keys.XXXXXX", path[64];
	FILE *file;

	CHECK(mkdtemp(usual));
	CHECK(!keys_directory(NULL, usual));
	CHECK(!keys_directory(NULL, "/nowhere/at/all"));
	snprintf(path, sizeof(path), "%s/private", usual);
	CHECK(!keys_directory(NULL, path));
	file = fopen(path, "w");
	CHECK(file && !fclose(file));
	CHECK(keys_directory(NULL, usual) == usual);
	CHECK(!keys_directory("none", usual));
	CHECK(!strcmp(keys_directory("other", usual), "other"));
	/* An unreadable directory may have a key: it is refused later, not treated as absent. */
	if (geteuid() == 0) {
		CHECK_EQ(chmod(usual, 0), 0);
		CHECK_EQ(seteuid(65534), 0);
		CHECK(keys_directory(NULL, usual) == usual);
		CHECK_EQ(seteuid(0), 0);
	}
	CHECK_EQ(unlink(path), 0);
	CHECK_EQ(rmdir(usual), 0);
}

static void test_seal_rules__name_the_limit_of_hosts(void)
{
	static char text[(SEAL_RULES_MAX + 1) * sizeof("auth@10.0.255.255,")];
	struct seal_rules rules;
	struct careful_error error;
	size_t end = 0;

	for (uint32_t i = 0; i <= SEAL_RULES_MAX; i++) {
		text[end ? end - 1 : 0] = end ? ',' : 0;
		end += (size_t)sprintf(text + end, "auth@10.0.%u.%u", i / 256, i % 256) + 1;
		CHECK_EQ(seal_rules_read(&rules, text, &error), i < SEAL_RULES_MAX ? 0 : -E2BIG);
	}
	CHECK(!strcmp(error.text, "auth@10.0.1.0: there can be at most 256 hosts"));
	CHECK(!strcmp(error.option, "seal"));
	CHECK_EQ(seal_rules_read(&rules, "on@10.0.0.1", &error), -EINVAL);
	CHECK(strstr(error.text, "must be off, auth or encrypt"));
}

int main(void)
{
	RUN(test_seal_rules__name_the_limit_of_hosts);
	RUN(test_directory__of_a_host_with_a_key);
	return 0;
}
