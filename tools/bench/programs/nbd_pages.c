// SPDX-License-Identifier: BSD-2-Clause
/*
 * Memory whose pages come over NBD when they are touched: the handler that people write today. A
 * thread reads the touched page and installs it, then reads the pages behind it while faults are
 * sequential. Without a URI, pages come from local memory. A library for memory_work.py.
 */
#include <libnbd.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "memory/private.h"

enum { BURST = 64 };

/* @ring: pages that are here, the oldest at `oldest`; @here: their number */
static struct pages {
	struct nbd_handle *nbd;
	uint8_t *base, *from;
	uint64_t pages, most, oldest, here;
	struct map_stream streams[MAP_STREAMS];
	uint64_t *ring;
	uint8_t *is_here, buffer[MAP_WINDOW_PAGES * MAP_PAGE];
	int uffd;
} p;

static void fetch(uint64_t page, uint64_t n)
{
	const uint64_t at = page * MAP_PAGE;
	const uint8_t *from = p.nbd ? p.buffer : p.from + at;

	if (!n || (p.nbd && nbd_pread(p.nbd, p.buffer, n * MAP_PAGE, at, 0)))
		return;
	for (; p.here + n > p.most && p.here; p.here--) {
		const uint64_t old = p.ring[p.oldest++ % p.pages];

		p.is_here[old] = 0;
		madvise(p.base + old * MAP_PAGE, MAP_PAGE, MADV_DONTNEED);
	}
	uffd_copy(p.uffd, (uintptr_t)p.base + at, from, n * MAP_PAGE, false);
	for (uint64_t i = page; i < page + n; i++) {
		p.is_here[i] = 1;
		p.ring[(p.oldest + p.here++) % p.pages] = i;
	}
}

static void fault(uint64_t page)
{
	uint32_t ahead = 0, window;

	fetch(page, !p.is_here[page]);
	window = fetch_window(p.streams, page, MAP_WINDOW_PAGES, true);
	while (ahead < window && page + 1 + ahead < p.pages && !p.is_here[page + 1 + ahead])
		ahead++;
	fetch(page + 1, ahead);
	p.streams[0].next_page = page + 1 + ahead; /* of a new stream, too */
}

static void *serve(void *unused)
{
	struct uffd_msg message;

	(void)unused;
	for (;;) {
		struct pollfd pfd = { .fd = p.uffd, .events = POLLIN };

		poll(&pfd, 1, -1);
		if (read(p.uffd, &message, sizeof(message)) == sizeof(message))
			fault((message.arg.pagefault.address - (uintptr_t)p.base) / MAP_PAGE);
	}
	return NULL;
}

static struct nbd_handle *connect_to(const char *uri)
{
	struct nbd_handle *nbd = nbd_create();

	return nbd && !nbd_connect_uri(nbd, uri) ? nbd : NULL;
}

/* Maps memory until the process ends; NULL: failed. One map in a process. local_bytes: 0: all. */
void *nbd_pages_map(const char *uri, uint64_t bytes, uint64_t local_bytes)
{
	pthread_t thread;

	p.pages = bytes / MAP_PAGE;
	p.most = local_bytes ? local_bytes / MAP_PAGE : p.pages;
	p.ring = calloc(p.pages, sizeof(*p.ring));
	p.is_here = calloc(p.pages, 1);
	p.from = calloc(p.pages, MAP_PAGE);
	p.base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	p.uffd = uffd_open();
	if (p.from)
		memset(p.from, 1, bytes);
	if (*uri && !(p.nbd = connect_to(uri)))
		return NULL;
	if (!p.ring || !p.is_here || !p.from || p.base == MAP_FAILED || p.uffd < 0 ||
	    madvise(p.base, bytes, MADV_NOHUGEPAGE) ||
	    uffd_register(p.uffd, (uintptr_t)p.base, bytes, false) ||
	    pthread_create(&thread, NULL, serve, NULL))
		return NULL;
	return p.base;
}

/* Returns the seconds of the fastest of `rounds` reads of 64 pages, all under way at once; a
 * negative number: failed. */
double nbd_pages_burst(const char *uri, const uint64_t *offsets, uint32_t rounds)
{
	static uint8_t into[BURST][MAP_PAGE];
	struct nbd_handle *nbd = connect_to(uri);
	uint64_t best = UINT64_MAX;

	if (!nbd)
		return -1;
	for (uint32_t round = 0; round < rounds; round++) {
		const uint64_t began = clock_now_ns();

		for (int i = 0; i < BURST; i++)
			if (nbd_aio_pread(nbd, into[i], MAP_PAGE, offsets[i], NBD_NULL_COMPLETION,
					  0) < 0)
				return -1;
		while (nbd_aio_in_flight(nbd) > 0)
			if (nbd_poll(nbd, -1) < 0)
				return -1;
		while (nbd_aio_peek_command_completed(nbd) > 0)
			nbd_aio_command_completed(nbd,
						  (uint64_t)nbd_aio_peek_command_completed(nbd));
		best = best < clock_now_ns() - began ? best : clock_now_ns() - began;
	}
	nbd_close(nbd);
	return (double)best / 1e9;
}
