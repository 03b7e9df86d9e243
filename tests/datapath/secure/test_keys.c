// SPDX-License-Identifier: BSD-2-Clause
/* Tests which keys count. tests/system/test_keys.py tests how they are read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "secure/keys.h"

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

int main(void)
{
	RUN(test_directory__of_a_host_with_a_key);
	return 0;
}
