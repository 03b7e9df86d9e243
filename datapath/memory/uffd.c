// SPDX-License-Identifier: BSD-2-Clause
/* userfaultfd: faults of this process's memory, or of another process's. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory/private.h"

/* UFFDIO_POISON, Linux 6.6. */
struct poison {
	struct uffdio_range range;
	uint64_t mode;
	int64_t updated;
};
#define POISON _IOWR(UFFDIO, 0x08, struct poison)

int uffd_open(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC), uffd = -1;

	if (device >= 0) {
		uffd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
		close(device);
	}
	if (uffd < 0)
		uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (uffd < 0)
		return -errno;
	if (ioctl(uffd, UFFDIO_API, &api)) {
		close(uffd);
		return -EOPNOTSUPP;
	}
	return uffd;
}

int uffd_register(int uffd, uint64_t base, uint64_t bytes, bool writable)
{
	struct uffdio_register range = {
		.range = { base, bytes },
		.mode = UFFDIO_REGISTER_MODE_MISSING | (writable ? UFFDIO_REGISTER_MODE_WP : 0),
	};

	return ioctl(uffd, UFFDIO_REGISTER, &range) ? -errno : 0;
}

int uffd_copy(int uffd, uint64_t to, const void *from, uint64_t bytes, bool protect)
{
	struct uffdio_copy copy = {
		.dst = to,
		.src = (uintptr_t)from,
		.len = bytes,
		.mode = protect ? UFFDIO_COPY_MODE_WP : 0,
	};

	while (copy.len && ioctl(uffd, UFFDIO_COPY, &copy)) {
		uint64_t done = copy.copy > 0 ? (uint64_t)copy.copy : 0;

		if (errno == EEXIST) { /* the page is installed already */
			uffd_wake(uffd, copy.dst, MAP_PAGE);
			done += MAP_PAGE;
		} else if (errno != EAGAIN || !done) {
			return -errno;
		}
		copy.dst += done;
		copy.src += done;
		copy.len -= done;
		copy.copy = 0;
	}
	return 0;
}

bool uffd_zero(int uffd, uint64_t page)
{
	struct uffdio_zeropage zero = { .range = { page, MAP_PAGE } };
	const bool done = !ioctl(uffd, UFFDIO_ZEROPAGE, &zero) || errno == EEXIST;

	uffd_wake(uffd, page, MAP_PAGE);
	return done;
}

void uffd_wake(int uffd, uint64_t base, uint64_t bytes)
{
	struct uffdio_range range = { base, bytes };

	ioctl(uffd, UFFDIO_WAKE, &range);
}

int uffd_protect(int uffd, uint64_t base, uint64_t bytes, bool protect)
{
	struct uffdio_writeprotect range = {
		.range = { base, bytes },
		.mode = protect ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
	};
	int rc;

	do
		rc = ioctl(uffd, UFFDIO_WRITEPROTECT, &range);
	while (rc && errno == EAGAIN);
	return rc ? -errno : 0;
}

void uffd_lose(int uffd, uint64_t page, bool ours)
{
	struct poison poison = { .range = { page, MAP_PAGE } };

	/* Without UFFDIO_POISON, a mapping beyond the end of a file raises SIGBUS, too. */
	if (ioctl(uffd, POISON, &poison) && ours) {
		int file = memfd_create("careful-lost", MFD_CLOEXEC);
		const void *at = mmap((void *)page, MAP_PAGE, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_FIXED, file, 0);

		close(file);
		if (at == MAP_FAILED) /* the thread then waits on */
			return;
	}
	uffd_wake(uffd, page, MAP_PAGE);
}
