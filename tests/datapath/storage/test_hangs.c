// SPDX-License-Identifier: BSD-2-Clause
/*
 * Writes in one file system hang until the test lets them end; storage serves others meanwhile. The
 * writes hang because their memory has missing pages (userfaultfd). ramfs is a file system that
 * storage does not treat as memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "mounts.h"
#include "storage/storage.h"

enum {
	DEPTH = 128,
	BYTES = 4096,
	FILES = 400, /* files share 64 places in the kernel */
	HANG = 100, /* more than the kernel has workers */
	PAGES = HANG + 2,
	PATIENCE_MS = 60000,
};

static struct storage *storage;
static char dir[] = "/tmp/test_hangs.XXXXXX";
static int fault_fd;
static char *missing;
static unsigned char data[BYTES], back[BYTES];
static uint32_t completed, files;

/* Starts to catch page faults of this process, which are resolved only on command. */
static void begin(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	const char *why;

	fault_fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (fault_fd < 0 || ioctl(fault_fd, UFFDIO_API, &api))
		skip("no userfaultfd in this kernel, or not for us");
	missing = mmap(NULL, (size_t)PAGES * BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(missing != MAP_FAILED);
	range.range.start = (uintptr_t)missing;
	range.range.len = (uint64_t)PAGES * BYTES;
	CHECK(!ioctl(fault_fd, UFFDIO_REGISTER, &range));
	why = private_mounts();
	if (why)
		skip(why);
	CHECK(mkdtemp(dir) && !mount("none", dir, "tmpfs", 0, NULL));
}

static void end_hang(uint32_t page, uint32_t count)
{
	struct uffdio_range range = { (uintptr_t)missing + (uint64_t)page * BYTES,
				      (uint64_t)count * BYTES };

	CHECK(!ioctl(fault_fd, UFFDIO_UNREGISTER, &range));
}

/* Waits until this many more writes hang, since one that has not begun would be cancelled. */
static void await_faults(uint32_t count)
{
	struct pollfd pfd = { .fd = fault_fd, .events = POLLIN };
	struct uffd_msg message;

	while (count) {
		CHECK_EQ(poll(&pfd, 1, PATIENCE_MS), 1);
		count -= read(fault_fd, &message, sizeof(message)) == sizeof(message);
	}
}

static const char *at(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void make_disk(const char *name)
{
	CHECK(!mkdir(at(name), 0700) && !mount("none", at(name), "ramfs", 0, NULL));
}

static int new_file(const char *disk)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s/%u", dir, disk, files++);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	return fd;
}

static void done(struct storage_io *io)
{
	(void)io;
	completed++;
}

/* Submits a write, which ends only with io.done(). */
static void submit(struct storage_io *io, struct iovec *iov, const char *disk, void *from)
{
	*iov = (struct iovec){ from, BYTES };
	*io = (struct storage_io){ .fd = new_file(disk),
				   .write = true,
				   .iov_count = 1,
				   .bytes = BYTES,
				   .done = done,
				   .iov = iov };
	CHECK_EQ(storage->ops->submit(storage, io), 0);
	storage->ops->flush(storage);
}

static void hang(struct storage_io *io, struct iovec *iov, const char *disk, uint32_t page)
{
	submit(io, iov, disk, missing + (size_t)page * BYTES);
}

static void await(uint32_t count)
{
	while (completed < count) {
		struct pollfd pfd = { .fd = storage->ops->wait_fd(storage), .events = POLLIN };

		storage->ops->flush(storage);
		CHECK_EQ(poll(&pfd, 1, PATIENCE_MS), 1);
		storage->ops->poll(storage);
	}
}

/* Writes new files, one after another, and reads each back. */
static void write_files(const char *disk, uint32_t count)
{
	struct storage_io io;
	struct iovec iov;

	for (uint32_t i = 0; i < count; i++) {
		memset(data, (int)i, BYTES);
		submit(&io, &iov, disk, data);
		await(completed + 1);
		CHECK_EQ(io.result, BYTES);
		CHECK(pread(io.fd, back, BYTES, 0) == BYTES && !memcmp(data, back, BYTES));
		close(io.fd);
	}
}

int main(void)
{
	static struct storage_io io[PAGES];
	static struct iovec iov[PAGES];
	int rc = uring_open(DEPTH, &storage);

	if (rc == -ENOSYS || rc == -EPERM)
		skip("no io_uring here");
	CHECK_EQ(rc, 0);
	begin();
	make_disk("a");
	make_disk("b");
	make_disk("c");
	write_files("a", 1);
	hang(&io[0], &iov[0], "a", 0);
	write_files("b", FILES);
	/* More files of one file system than the kernel has workers for. */
	for (uint32_t i = 1; i < HANG - 1; i++)
		hang(&io[i], &iov[i], "a", i);
	write_files("b", 1);
	/* While another file system hangs, too. */
	hang(&io[HANG - 1], &iov[HANG - 1], "b", HANG - 1);
	write_files("c", FILES);
	CHECK_EQ(completed, 1 + FILES + 1 + FILES);
	CHECK_EQ(storage->pending, HANG);
	end_hang(0, HANG);
	await(completed + HANG);
	for (uint32_t i = 0; i < HANG; i++)
		CHECK_EQ(io[i].result, BYTES);
	CHECK_EQ(storage->pending, 0);
	/* In the ring, and in worker threads. */
	hang(&io[HANG], &iov[HANG], "a", HANG);
	hang(&io[HANG + 1], &iov[HANG + 1], "b", HANG + 1);
	write_files("c", 1);
	await_faults(2);
	CHECK_EQ(storage->ops->close(storage), 2);
	end_hang(HANG, 2);
	printf("test_hangs: ok\n");
	return 0;
}
