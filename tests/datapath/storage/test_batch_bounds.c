// SPDX-License-Identifier: BSD-2-Clause
/* The cost of a batch for its server is bounded, however many items it has. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batch.h"
#include "check.h"
#include "storage/batch/items.h"
#include "storage/tree/tree.h"

static int top;

/* Many DIGEST items have small answers, so a limit of its own ends their reads. */
static void test_batch__bytes_read_are_limited(void)
{
	enum { FILE_BYTES = 8 << 20, COUNT = 40 };
	const struct careful_batch_how how = {
		.file_bytes_max = FILE_BYTES,
		.answer_bytes_max = FILE_BYTES + (1 << 20),
	};
	struct careful_batch_answer found;
	int fd = openat(top, "eight", O_CREAT | O_WRONLY, 0600);

	CHECK(ftruncate(fd, FILE_BYTES) == 0 && close(fd) == 0);
	for (int i = 0; i < COUNT; i++)
		put(CAREFUL_ITEM_DIGEST, "eight", "", 0, 0);
	CHECK_EQ(careful_batch(top, batch, used, &how, &found), 0);
	used = 0;
	CHECK(!unlinkat(top, "eight", 0));
	/* The last file read exceeds the limit; a new file may be read twice. */
	CHECK(found.failed < COUNT);
	CHECK(COUNT - found.failed <= ITEMS_READ_BYTES / FILE_BYTES + 1);
	careful_batch_release(&found);
}

static bool after_two(void *user)
{
	return ++*(int *)user > 2;
}

static void test_batch__ends_when_cancelled(void)
{
	static const uint32_t flags[] = { 0, CAREFUL_BATCH_SYNC };

	for (int i = 0; i < 2; i++) {
		struct careful_batch_how how = {
			.flags = CAREFUL_BATCH_NODIGEST | flags[i],
			.writable = 1,
			.answer_bytes_max = 1 << 20,
		};
		struct careful_batch_answer made;
		int asked = 0;
		const struct batch_wanted wanted = { after_two, &asked };

		put(CAREFUL_ITEM_FILE, "v1", "", S_IFREG | 0600, 0);
		put(CAREFUL_ITEM_FILE, "v2", "", S_IFREG | 0600, 0);
		put(CAREFUL_ITEM_FILE, "v3", "", S_IFREG | 0600, 0);
		CHECK_EQ(batch_run(top, batch, used, &how, &wanted, &made), -ECONNRESET);
		used = 0;
		CHECK(!made.items && asked == 3);
		/* Files that waited for a sync were not made. */
		CHECK_EQ(entries(top), flags[i] ? 0 : 2);
		unlinkat(top, "v1", 0);
		unlinkat(top, "v2", 0);
	}
}

/* In memory, where a sync does nothing. */
static void test_batch__syncs_are_limited(void)
{
	const struct careful_batch_how how = {
		.flags = CAREFUL_BATCH_NODIGEST | CAREFUL_BATCH_SYNC,
		.writable = 1,
		.answer_bytes_max = 1 << 20,
	};
	char shm[] = "/dev/shm/careful-batch-XXXXXX";
	struct careful_batch_answer made;
	int dir;

	if (!mkdtemp(shm))
		skip("no /dev/shm");
	dir = open(shm, O_RDONLY | O_DIRECTORY);
	for (int i = 0; i < ITEMS_SYNCS - 1; i++)
		put(CAREFUL_ITEM_SYNC, ".", "", 0, 0);
	put(CAREFUL_ITEM_FILE, "a", "", S_IFREG | 0600, 0);
	put(CAREFUL_ITEM_DIRECTORY, "d", "", 0700, 0);
	put(CAREFUL_ITEM_FILE, "d/b", "", S_IFREG | 0600, 0);
	put(CAREFUL_ITEM_SYNC, ".", "", 0, 0);
	CHECK_EQ(careful_batch(dir, batch, used, &how, &made), 0);
	used = 0;
	CHECK_EQ(made.failed, 2);
	careful_batch_release(&made);
	CHECK(!unlinkat(dir, "a", 0) && !unlinkat(dir, "d", AT_REMOVEDIR));
	CHECK(entries(dir) == 0 && !rmdir(shm));
	close(dir);
}

int main(void)
{
	char root[] = "/tmp/careful-batch-bounds-XXXXXX";

	CHECK(mkdtemp(root));
	top = open(root, O_RDONLY | O_DIRECTORY);
	RUN(test_batch__bytes_read_are_limited);
	RUN(test_batch__ends_when_cancelled);
	close(top);
	CHECK(!rmdir(root));
	RUN(test_batch__syncs_are_limited);
	return 0;
}
