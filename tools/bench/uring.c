/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measures what registered files and buffers of io_uring would save of the
 * operations that datapath/storage/uring.c makes: one vectored read or write, one
 * submission. All ways in turn within each round; a row is the median over rounds of
 * the CPU time of an operation, the kernel's workers included, and its ratio to the
 * plain way's of the same round. Usage: uring FILE [ROUNDS]; FILE is made, and removed.
 */
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
	FILE_BYTES = 16 << 20,
	/* A frame's payload, behind its headers, in a buffer of UMEM. */
	SEGMENT_BYTES = 3694,
	HEADERS_BYTES = 90,
	BUFFER_BYTES = 4096,
	SEGMENTS = 16,
	OPS = 512,
	ROUNDS_MAX = 400,
	/* Linux 6.15; liburing 2.3 does not name them. */
	READV_FIXED = 60,
	WRITEV_FIXED = 61,
};

enum { PLAIN, FILES, BUFFERS, FILES_AND_BUFFERS, WAYS };
static const char *const WAY[] = { "plain", "registered file", "registered buffers", "both" };

enum { READ_CACHED, READ_DEVICE, WRITE, WORKS };
static const char *const WORK[] = { "read, cached", "read from the device", "write" };

static struct io_uring ring;
static char *memory;
static int fd;

static double cpu_us(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e6 +
	       (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* One operation on `segments` frames that are not neighbours, as UMEM's are. */
static int operation(int work, int way, unsigned int segments, unsigned int k)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	unsigned int bytes = segments * SEGMENT_BYTES;
	uint64_t offset = (uint64_t)k * bytes % (FILE_BYTES / 2);
	struct iovec iov[SEGMENTS];
	struct io_uring_cqe *cqe;
	int rc;

	for (unsigned int i = 0; i < segments; i++)
		iov[i] = (struct iovec){ memory + 2ul * i * BUFFER_BYTES + HEADERS_BYTES,
					 SEGMENT_BYTES };
	if (work == WRITE)
		io_uring_prep_writev(sqe, fd, iov, segments, offset);
	else
		io_uring_prep_readv(sqe, fd, iov, segments, offset);
	if (way == FILES || way == FILES_AND_BUFFERS) {
		sqe->fd = 0;
		sqe->flags |= IOSQE_FIXED_FILE;
	}
	if (way == BUFFERS || way == FILES_AND_BUFFERS) {
		sqe->opcode = work == WRITE ? WRITEV_FIXED : READV_FIXED;
		sqe->buf_index = 0;
	}
	io_uring_submit(&ring);
	if (io_uring_wait_cqe(&ring, &cqe))
		return -EIO;
	rc = cqe->res;
	io_uring_cqe_seen(&ring, cqe);
	return rc < 0 ? rc : rc == (int)bytes ? 0 : -EIO;
}

/* CPU time of an operation, µs; below 0: -errno. */
static double some(int work, int way, unsigned int segments)
{
	unsigned int count = segments > 1 ? OPS / 2 : OPS;
	double began;
	int rc = 0;

	if (work == READ_DEVICE) {
		fdatasync(fd);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	}
	began = cpu_us();
	for (unsigned int k = 0; k < count && !rc; k++)
		rc = operation(work, way, segments, k);
	if (rc)
		return rc;
	return (cpu_us() - began) / count;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, unsigned int count)
{
	qsort(values, count, sizeof(*values), compare);
	return values[count / 2];
}

static void table(int work, unsigned int segments, unsigned int rounds)
{
	static double us[WAYS][ROUNDS_MAX], ratio[WAYS][ROUNDS_MAX];

	for (int way = 0; way < WAYS; way++)
		some(work, way, segments);
	for (unsigned int k = 0; k < rounds; k++)
		for (unsigned int turn = 0; turn < WAYS; turn++) {
			unsigned int way = (turn + k) % WAYS;

			us[way][k] = some(work, (int)way, segments);
		}
	for (int way = 0; way < WAYS; way++) {
		if (us[way][0] < 0) {
			printf("%-22s %2u frames  %-20s %s\n", WORK[work], segments, WAY[way],
			       strerror((int)-us[way][0]));
			continue;
		}
		for (unsigned int k = 0; k < rounds; k++)
			ratio[way][k] = us[way][k] / us[PLAIN][k];
	}
	for (int way = 0; way < WAYS; way++)
		if (us[way][0] >= 0)
			printf("%-22s %2u frames  %-20s %7.2f us  %.3f\n", WORK[work], segments,
			       WAY[way], median(us[way], rounds), median(ratio[way], rounds));
}

int main(int argc, char **argv)
{
	unsigned int rounds = argc > 2 ? (unsigned int)strtoul(argv[2], NULL, 10) : 40;
	uint64_t bytes = 2ul * SEGMENTS * BUFFER_BYTES;
	struct iovec all;
	int rc;

	if (argc < 2 || rounds < 1 || rounds > ROUNDS_MAX) {
		fprintf(stderr, "usage: uring FILE [ROUNDS]\n");
		return 2;
	}
	rc = io_uring_queue_init(64, &ring, 0);
	if (rc < 0) {
		printf("SKIP: io_uring_setup: %s\n", strerror(-rc));
		return rc == -ENOSYS || rc == -EPERM ? 77 : 1;
	}
	fd = open(argv[1], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fd < 0 || memory == MAP_FAILED) {
		perror(argv[1]);
		return 1;
	}
	unlink(argv[1]);
	memset(memory, 1, bytes);
	all = (struct iovec){ memory, bytes };
	for (uint64_t at = 0; at < FILE_BYTES; at += bytes)
		if (pwrite(fd, memory, bytes, (off_t)at) != (ssize_t)bytes)
			return 1;
	if (io_uring_register_files(&ring, &fd, 1) || io_uring_register_buffers(&ring, &all, 1)) {
		perror("io_uring_register");
		return 1;
	}
	for (int work = 0; work < WORKS; work++)
		for (unsigned int segments = 1; segments <= SEGMENTS; segments += SEGMENTS - 1)
			table(work, segments, rounds);
	io_uring_queue_exit(&ring);
	return 0;
}
