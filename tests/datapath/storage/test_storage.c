/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * storage/uring.c with real files: operations that end within submit(), and others. None may lose
 * or invent a byte at a file's end, on a full disk or with a bad descriptor. Needs no privilege;
 * the full disk needs a mount and is skipped without.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "mounts.h"
#include "storage/storage.h"

enum { DEPTH = 8, BYTES = 1 << 20 };

static struct storage *storage;
static char dir[] = "/var/tmp/test_storage.XXXXXX";
static unsigned char data[BYTES], back[BYTES];
static unsigned int completed;

static unsigned int seals_asked;

/* Replaces libc's: counts the lookups of a descriptor's file. */
int fcntl(int fd, int cmd, ...)
{
	va_list list;
	long arg;

	va_start(list, cmd);
	arg = va_arg(list, long);
	va_end(list);
	seals_asked += cmd == F_GET_SEALS;
	return (int)syscall(SYS_fcntl, fd, cmd, arg);
}

static void done(struct storage_io *io)
{
	(void)io;
	completed++;
}

static int file_in(const char *where, const char *name)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", where, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert(fd >= 0);
	unlink(path);
	return fd;
}

/* Fills an operation with `segments` equal pieces of one buffer. */
static void fill_io(struct storage_io *io, int fd, bool write, uint64_t offset, void *buf,
		    uint64_t bytes, unsigned int segments)
{
	memset(io, 0, sizeof(*io));
	io->fd = fd;
	io->write = write;
	io->offset = offset;
	io->bytes = bytes;
	io->iov_count = (uint16_t)segments;
	io->done = done;
	io->result = -12345;
	io->iov = calloc(segments, sizeof(*io->iov)); /* freed at the end */
	assert(io->iov && segments <= (write ? STORAGE_IO_SEGMENTS : STORAGE_READ_SEGMENTS));
	for (unsigned int i = 0; i < segments; i++) {
		io->iov[i].iov_base = (char *)buf + i * (bytes / segments);
		io->iov[i].iov_len = bytes / segments;
	}
	io->iov[segments - 1].iov_len += bytes % segments;
}

/* Waits on wait_fd, like the engine, until an operation ends. Returns the result of `io`. */
static int64_t finish(struct storage_io *io, unsigned int before)
{
	while (completed == before) {
		storage->ops->flush(storage);
		struct pollfd pfd = { .fd = storage->ops->wait_fd(storage), .events = POLLIN };

		assert(poll(&pfd, 1, 10000) == 1);
		storage->ops->poll(storage);
	}
	return io->result;
}

static int64_t run(int fd, bool write, uint64_t offset, void *buf, uint64_t bytes,
		   unsigned int segments, bool *inline_done)
{
	struct iovec was[STORAGE_READ_SEGMENTS];
	struct storage_io io;
	unsigned int before = completed;
	int rc;

	fill_io(&io, fd, write, offset, buf, bytes, segments);
	memcpy(was, io.iov, segments * sizeof(*was));
	rc = storage->ops->submit(storage, &io);
	assert(rc == 0 || rc == 1);
	if (inline_done)
		*inline_done = rc == 1;
	if (rc == 0)
		finish(&io, before);
	assert(storage->pending == 0);
	/* The caller's segments are unchanged, however often the operation was continued. */
	assert(memcmp(io.iov, was, segments * sizeof(*was)) == 0);
	free(io.iov);
	return io.result;
}

static void test_memory__ends_in_submit(void)
{
	int fd = memfd_create("storage", MFD_CLOEXEC);
	bool at_once;

	assert(run(fd, true, 4096, data, 200000, 33, &at_once) == 200000 && at_once);
	memset(back, 0, sizeof(back));
	assert(run(fd, false, 4096, back, 200000, 7, &at_once) == 200000 && at_once);
	assert(memcmp(data, back, 200000) == 0);
	close(fd);
}

static void test_disk__cached_read_ends_in_submit(void)
{
	int fd = file_in(dir, "cached");
	bool at_once;

	assert(run(fd, true, 0, data, BYTES, STORAGE_IO_SEGMENTS, NULL) == BYTES);
	memset(back, 0, sizeof(back));
	assert(run(fd, false, 0, back, BYTES, 64, &at_once) == BYTES && at_once);
	assert(memcmp(data, back, BYTES) == 0);
	close(fd);
}

static void test_disk__uncached_read(void)
{
	int fd = file_in(dir, "uncached");

	assert(run(fd, true, 0, data, BYTES, 5, NULL) == BYTES);
	assert(fsync(fd) == 0);
	assert(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	/* Only pieces are cached: the operation begins at once and continues in the ring. */
	assert(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) == 0);
	assert(pread(fd, back, 40000, 0) == 40000 && pread(fd, back, 10, 300000) == 10);
	memset(back, 0, sizeof(back));
	assert(run(fd, false, 0, back, BYTES, 64, NULL) == BYTES);
	assert(memcmp(data, back, BYTES) == 0);
	close(fd);
}

static void test_read__short_at_end(void)
{
	int fds[2] = { memfd_create("short", MFD_CLOEXEC), file_in(dir, "short") };

	for (int i = 0; i < 2; i++) {
		assert(run(fds[i], true, 0, data, 1000, 3, NULL) == 1000);
		memset(back, 0x5a, sizeof(back));
		assert(run(fds[i], false, 990, back, 4096, 4, NULL) == 10);
		assert(memcmp(back, data + 990, 10) == 0 && back[10] == 0x5a);
		assert(run(fds[i], false, 1000, back, 4096, 4, NULL) == 0);
		assert(run(fds[i], false, 5000, back, 1, 1, NULL) == 0);
		assert(run(fds[i], false, 0, back, 0, 1, NULL) == 0);
		assert(run(fds[i], true, 0, back, 0, 1, NULL) == 0);
		close(fds[i]);
	}
}

static void test_offset__beyond_4_gib(void)
{
	uint64_t far = (5ULL << 30) + 12345;
	int fds[2] = { memfd_create("far", MFD_CLOEXEC), file_in(dir, "far") };
	struct stat st;

	for (int i = 0; i < 2; i++) {
		assert(run(fds[i], true, far, data, 10000, 2, NULL) == 10000);
		assert(fstat(fds[i], &st) == 0);
		assert(st.st_size == (off_t)(far + 10000) && st.st_blocks < 100);
		memset(back, 0, sizeof(back));
		assert(run(fds[i], false, far, back, 10000, 3, NULL) == 10000);
		assert(memcmp(back, data, 10000) == 0);
		/* A hole reads as zeros; nothing below 4 GiB was touched. */
		memset(back, 1, 4096);
		assert(run(fds[i], false, far - (4ULL << 30), back, 4096, 1, NULL) == 4096);
		assert(back[0] == 0 && memcmp(back, back + 1, 4095) == 0);
		close(fds[i]);
	}
}

static void test_error__bad_descriptor(void)
{
	int fd = memfd_create("closed", MFD_CLOEXEC);
	int ro = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	/* The descriptor's number belonged to memory a moment ago. */
	assert(run(fd, true, 0, data, 10, 1, NULL) == 10);
	close(fd);
	assert(run(fd, false, 0, back, 10, 1, NULL) == -EBADF);
	assert(run(fd, true, 0, data, 10, 1, NULL) == -EBADF);
	assert(run(-1, true, 0, data, 10, 1, NULL) == -EBADF);
	assert(run(ro, true, 0, data, 10, 1, NULL) == -EBADF);
	assert(run(ro, false, (uint64_t)INT64_MAX + 1, back, 10, 1, NULL) == -EINVAL);
	close(ro);
}

static void test_descriptor__number_used_again(void)
{
	int fd = memfd_create("first", MFD_CLOEXEC);
	int other = file_in(dir, "second");
	bool at_once;

	assert(run(fd, true, 0, data, 10, 1, &at_once) == 10 && at_once);
	assert(dup2(other, fd) == fd);
	assert(run(fd, true, 0, data, 10, 1, &at_once) == 10 && !at_once);
	assert(run(fd, false, 0, back, 10, 1, &at_once) == 10);
	assert(run(fd, false, 0, back, 10, 1, &at_once) == 10 && at_once);
	close(fd);
	close(other);
}

static void test_error__sealed(void)
{
	int fd = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert(ftruncate(fd, 4096) == 0);
	assert(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK) == 0);
	assert(run(fd, true, 0, data, 10, 1, NULL) == -EPERM);
	close(fd);
}

/* One operation after another on the same file, like a message's. */
static void test_kind__is_read_once(void)
{
	for (int memory = 0; memory < 2; memory++) {
		int fd = memory ? memfd_create("kind", MFD_CLOEXEC) : file_in(dir, "kind");
		unsigned int asked = seals_asked;
		struct storage_io io;

		fill_io(&io, fd, true, 0, data, 4096, 2);
		for (int i = 0; i < 5; i++) {
			unsigned int before = completed;
			int rc;

			io.offset += io.bytes;
			rc = storage->ops->submit(storage, &io);
			assert(rc == memory);
			assert((rc ? io.result : finish(&io, before)) == 4096);
		}
		assert(io.kind == (memory ? STORAGE_MEMORY : STORAGE_OTHER));
		assert(seals_asked == asked + 1);
		free(io.iov);
		close(fd);
	}
}

static void test_submit__many_at_once(void)
{
	int fd = file_in(dir, "many");
	static struct storage_io io[2 * DEPTH];
	unsigned int before = completed, accepted = 0, again = 0;

	assert(ftruncate(fd, BYTES) == 0);
	for (int i = 0; i < 2 * DEPTH; i++) {
		int rc;

		fill_io(&io[i], fd, true, (uint64_t)i * 4096, data + i * 4096, 4096, 2);
		rc = storage->ops->submit(storage, &io[i]);
		assert(rc == 0 || rc == -EAGAIN);
		accepted += rc == 0;
		again += rc == -EAGAIN;
	}
	/* At most DEPTH are accepted; the others are unchanged. */
	assert(accepted == DEPTH && again == DEPTH);
	assert(storage->pending == DEPTH);
	while (completed - before < accepted)
		finish(&io[0], completed);
	for (int i = 0; i < DEPTH; i++)
		assert(io[i].result == 4096);
	for (int i = DEPTH; i < 2 * DEPTH; i++)
		assert(run(fd, true, (uint64_t)i * 4096, data + i * 4096, 4096, 2, NULL) == 4096);
	assert(run(fd, false, 0, back, 2 * DEPTH * 4096, 9, NULL) == 2 * DEPTH * 4096);
	assert(memcmp(back, data, 2 * DEPTH * 4096) == 0);
	close(fd);
}

/* A read has many more pieces than a write may have, from memory and from a device. */
static void test_read__of_many_pieces(void)
{
	int fd = file_in(dir, "pieces");

	assert(run(fd, true, 0, data, BYTES, STORAGE_IO_SEGMENTS, NULL) == BYTES);
	for (int turn = 0; turn < 2; turn++) {
		memset(back, 0, BYTES);
		assert(run(fd, false, 0, back, BYTES, STORAGE_READ_SEGMENTS, NULL) == BYTES);
		assert(memcmp(back, data, BYTES) == 0);
		assert(!fdatasync(fd) && !posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	}
	close(fd);
}

/* The writes of a round need one system call. */
static void test_flush__one_call_for_all(void)
{
	static struct storage_io io[DEPTH];
	int fd = file_in(dir, "flush");
	unsigned int before;
	uint64_t calls;

	storage->ops->keep(storage, fd);
	/* The file behind a descriptor is examined once, whoever writes. */
	assert(run(fd, true, 0, data, 4096, 1, NULL) == 4096);
	calls = storage->calls;
	for (int i = 0; i < DEPTH; i++) {
		fill_io(&io[i], fd, true, (uint64_t)i * 65536, data + (size_t)i * 65536, 65536, 16);
		assert(storage->ops->submit(storage, &io[i]) == 0);
	}
	assert(storage->calls == calls + 1); /* the second operation registers the file */
	storage->ops->flush(storage);
	assert(storage->calls == calls + 2);
	storage->ops->flush(storage);
	assert(storage->calls == calls + 2);
	before = completed;
	while (completed < before + DEPTH)
		finish(&io[0], completed);
	assert(run(fd, false, 0, back, DEPTH * 65536, 1, NULL) == DEPTH * 65536);
	assert(memcmp(back, data, DEPTH * 65536) == 0);
	storage->ops->lose(storage, fd);
	close(fd);
}

/* A registered number means its present file, not the previous one. */
static void test_keep__file_and_memory_are_registered(void)
{
	struct storage *own;
	int first = file_in(dir, "kept"), fd = first;
	char *memory =
		mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct storage *shared = storage;

	assert(uring_open(DEPTH, &own) == 0 && memory != MAP_FAILED);
	memcpy(memory, data, BYTES);
	storage = own;
	own->ops->memory(own, memory, BYTES);
	for (int turn = 0; turn < 2; turn++) {
		uint64_t registered = own->registered;

		own->ops->keep(own, fd);
		own->ops->keep(own, fd);
		for (int i = 0; i < 3; i++)
			assert(run(fd, true, (uint64_t)i * 4096, memory + i * 4096, 4096, 1,
				   NULL) == 4096);
		/* Pieces that are not adjacent, and one that reaches beyond the memory. */
		assert(run(fd, true, 12288, memory + 12288, 8192, 4, NULL) == 8192);
		assert(run(fd, true, 20480, data + 20480, 4096, 2, NULL) == 4096);
		assert(own->registered == registered + 5);
		own->ops->lose(own, fd);
		assert(run(fd, true, 24576, data + 24576, 4096, 2, NULL) == 4096);
		own->ops->lose(own, fd);
		memset(back, 0, 32768);
		assert(pread(fd, back, 32768, 0) == 28672 && memcmp(back, data, 28672) == 0);
		close(fd);
		fd = file_in(dir, "again");
		assert(fd == first);
	}
	close(fd);
	own->ops->close(own);
	storage = shared;
	munmap(memory, BYTES);
}

/* /proc/self/mem is a file too, but registered pieces would be written differently. */
static void test_keep__proc_mem_is_not_registered(void)
{
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	char *memory =
		mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const uint64_t at = (uintptr_t)back;
	struct storage *own, *shared = storage;

	assert(fd >= 0 && uring_open(DEPTH, &own) == 0 && memory != MAP_FAILED);
	storage = own;
	own->ops->memory(own, memory, BYTES);
	own->ops->keep(own, fd);
	for (unsigned int pieces = 1; pieces <= 16; pieces *= 2) {
		memcpy(memory, data, 40000);
		memset(back, 0, 50000);
		assert(run(fd, true, at + 5, memory, 40000, pieces, NULL) == 40000);
		assert(memcmp(back + 5, data, 40000) == 0 && !back[4] && !back[40005]);
		memset(memory, 0, 40000);
		assert(run(fd, false, at + 5, memory, 40000, pieces, NULL) == 40000);
		assert(memcmp(memory, data, 40000) == 0);
	}
	assert(run(fd, true, 16, memory, 40000, 2, NULL) < 0); /* nothing is there */
	own->ops->lose(own, fd);
	own->ops->close(own);
	storage = shared;
	munmap(memory, BYTES);
	close(fd);
}

/* Large writes go to another thread, even if memory holds the file; small ones and reads are copied
 * here. */
static void test_aside__threads_make_large_writes(void)
{
	int memory = memfd_create("aside", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	bool at_once;

	storage->aside_bytes = 64 << 10;
	assert(run(memory, true, 0, data, BYTES, 64, &at_once) == BYTES && !at_once);
	memset(back, 0, BYTES);
	assert(run(memory, false, 0, back, BYTES, 64, &at_once) == BYTES && at_once);
	assert(memcmp(back, data, BYTES) == 0);
	assert(run(memory, true, 8, data, (64 << 10) - 1, 1, &at_once) == 65535 && at_once);
	assert(run(memory, true, 0, data, 64 << 10, 1, &at_once) == 65536 && !at_once);
	assert(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE) == 0);
	assert(run(memory, true, 0, data, BYTES, 16, &at_once) == -EPERM && !at_once);
	storage->aside_bytes = 0;
	assert(run(memory, true, 0, data, BYTES, 16, &at_once) == -EPERM && at_once);
	close(memory);
}

static void test_close__with_writes_under_way(void)
{
	static struct storage_io io[DEPTH];
	struct storage *other;
	int fd = file_in(dir, "close");
	unsigned int before = completed;

	assert(uring_open(DEPTH, &other) == 0);
	for (int i = 0; i < DEPTH; i++) {
		fill_io(&io[i], fd, true, (uint64_t)i * BYTES, data, BYTES, 64);
		assert(other->ops->submit(other, &io[i]) == 0);
	}
	other->ops->close(other);
	assert(completed == before);
	close(fd);
}

static void test_open__depth(void)
{
	struct storage *other;

	assert(uring_open(0, &other) == -EINVAL);
	assert(uring_open(1 << 20, &other) == -EINVAL);
}

/* Fills a tmpfs of 256 KiB. Returns false if it cannot be mounted. */
static bool test_error__full_disk(void)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/full", dir);
	if (private_mounts())
		return false;
	assert(mkdir(path, 0700) == 0);
	if (mount("none", path, "tmpfs", 0, "size=256k"))
		return false;
	fd = file_in(path, "f");
	assert(run(fd, true, 0, data, BYTES, 16, NULL) == -ENOSPC);
	assert(run(fd, true, 0, data, 4096, 1, NULL) == 4096);
	assert(run(fd, true, 4096, data, BYTES, 16, NULL) == -ENOSPC);
	close(fd);
	assert(umount(path) == 0 && rmdir(path) == 0);
	return true;
}

/* Without io_uring, as a container's seccomp filter denies it: worker threads do the work. */
static void test_denied__worker_threads_do_the_work(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog filter = { .len = 4, .filter = code };
	int status;
	pid_t child = fork();

	if (!child) {
		assert(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
		assert(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
		assert(uring_open(DEPTH, &storage) == 0 && storage->denied == EPERM);
		test_memory__ends_in_submit();
		test_disk__cached_read_ends_in_submit();
		test_disk__uncached_read();
		test_read__short_at_end();
		test_offset__beyond_4_gib();
		test_error__bad_descriptor();
		test_descriptor__number_used_again();
		test_error__sealed();
		test_read__of_many_pieces();
		test_aside__threads_make_large_writes();
		test_close__with_writes_under_way();
		assert(storage->ops->close(storage) == 0);
		_exit(0);
	}
	assert(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
	assert(mkdtemp(dir));
	for (int i = 0; i < BYTES; i++)
		data[i] = (unsigned char)((unsigned int)i * 2654435761U >> 24);
	test_denied__worker_threads_do_the_work();
	int rc = uring_open(DEPTH, &storage);

	if (rc == -ENOSYS || rc == -EPERM) {
		rmdir(dir);
		skip(rc == -ENOSYS ? "no io_uring in this kernel" : "io_uring is denied");
	}
	assert(rc == 0);
	test_memory__ends_in_submit();
	test_disk__cached_read_ends_in_submit();
	test_disk__uncached_read();
	test_read__short_at_end();
	test_offset__beyond_4_gib();
	test_error__bad_descriptor();
	test_descriptor__number_used_again();
	test_error__sealed();
	test_kind__is_read_once();
	test_submit__many_at_once();
	test_read__of_many_pieces();
	test_flush__one_call_for_all();
	test_keep__file_and_memory_are_registered();
	test_keep__proc_mem_is_not_registered();
	test_aside__threads_make_large_writes();
	test_close__with_writes_under_way();
	test_open__depth();
	if (!test_error__full_disk())
		skip_part("cannot mount a file system to fill");
	assert(storage->pending == 0);
	storage->ops->close(storage);
	rmdir(dir);
	return 0;
}
