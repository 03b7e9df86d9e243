// SPDX-License-Identifier: BSD-2-Clause
/*
 * The memory client over an instance without a network, with a lender that lies: answers of any
 * length, impossible sizes, too few and too many bytes, another piece, and a region that is never
 * there. Then a map whose stores are answered late.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <careful/memory.h>

#include "check.h"

enum { OPERATIONS = 256, PIECE = 1 << 20, PATIENCE_MS = 300, PAGE = 4096, SLOTS = 8 << 20 };

/* Answers of the lender.
 *
 * @payload_bytes, @said: to a request
 * @moved: bytes beyond those that a get or store was asked to move
 * @refused: number of gets and stores that find no region
 * @held: gets or stores that get no answer
 * @stores: number of stores of the first page
 * @stored: its first byte in the last of them
 * @silent: whether the host with port SILENT gets no answer to gets and stores */
static struct careful {
	struct {
		careful_done_fn *done;
		void *user;
		uint32_t bytes;
		bool is_request, is_store;
		uint32_t peer;
	} operations[OPERATIONS];
	uint32_t count, begun;
	uint32_t payload_bytes;
	struct careful_memory_piece said;
	int moved;
	uint32_t refused;
	enum { HELD_NOTHING, HELD_STORES, HELD_GETS } held;
	uint32_t stores;
	uint8_t stored;
	bool silent;
} c;

enum { SILENT = 1 };

static int begin(uint32_t peer, uint32_t bytes, bool is_request, careful_done_fn *done, void *user)
{
	if (c.count == OPERATIONS)
		return -EAGAIN;
	c.operations[c.count].done = done;
	c.operations[c.count].user = user;
	c.operations[c.count].bytes = bytes;
	c.operations[c.count].peer = peer;
	c.operations[c.count].is_store = false;
	c.operations[c.count++].is_request = is_request;
	c.begun++;
	return 0;
}

int careful_request(struct careful *instance, uint32_t peer, uint16_t handler, const uint32_t *args,
		    const void *payload, uint32_t bytes, careful_done_fn *done, void *user)
{
	(void)instance, (void)handler, (void)args, (void)payload;
	return begin(peer, bytes, true, done, user);
}

int careful_get(struct careful *instance, uint32_t peer, uint32_t region, uint64_t region_off,
		const struct careful_span *local, uint32_t bytes, uint32_t flags,
		careful_done_fn *done, void *user)
{
	(void)instance, (void)region, (void)region_off, (void)local, (void)flags;
	return begin(peer, bytes, false, done, user);
}

int careful_store(struct careful *instance, uint32_t peer, uint32_t region, uint64_t region_off,
		  const struct careful_span *local, uint32_t bytes, uint16_t handler,
		  const uint32_t *args, uint32_t flags, careful_done_fn *done, void *user)
{
	int rc = careful_get(instance, peer, region, region_off, local, bytes, flags, done, user);

	(void)handler, (void)args;
	if (!rc)
		c.operations[c.count - 1].is_store = true;
	if (!rc && !region_off) {
		c.stored = *(const uint8_t *)local->base;
		__atomic_add_fetch(&c.stores, 1, __ATOMIC_SEQ_CST);
	}
	return rc;
}

/* Reports whether an operation gets no answer yet; `all`: neither do those behind it. */
static bool is_held(struct careful *instance, uint32_t index, bool *all)
{
	if (instance->operations[index].is_request)
		return false;
	*all = __atomic_load_n(&instance->held, __ATOMIC_SEQ_CST) ==
	       (instance->operations[index].is_store ? HELD_STORES : HELD_GETS);
	return *all || (__atomic_load_n(&instance->silent, __ATOMIC_SEQ_CST) &&
			instance->operations[index].peer == SILENT);
}

static void answer(struct careful *instance, uint32_t index)
{
	struct careful_result result = { .bytes = instance->operations[index].bytes };
	careful_done_fn *done = instance->operations[index].done;
	void *user = instance->operations[index].user, *payload = NULL;

	if (instance->operations[index].is_request) {
		/* A copy of the exact size, so that reads beyond it are found. */
		payload = calloc(1, instance->payload_bytes ? instance->payload_bytes : 1);
		CHECK(payload);
		memcpy(payload, &instance->said,
		       instance->payload_bytes < sizeof(instance->said) ? instance->payload_bytes :
									  sizeof(instance->said));
		result.payload = payload;
		result.bytes = instance->payload_bytes;
	} else if (instance->refused) {
		instance->refused--;
		result.status = -ENOENT;
	} else {
		result.bytes += (uint32_t)instance->moved;
	}
	instance->count--;
	memmove(instance->operations + index, instance->operations + index + 1,
		(instance->count - index) * sizeof(instance->operations[0]));
	done(&result, user);
	free(payload);
}

int careful_poll(struct careful *instance)
{
	bool all = false;

	for (uint32_t n = instance->count, index = 0; n-- && !all;) {
		if (is_held(instance, index, &all))
			index++;
		else
			answer(instance, index);
	}
	return 0;
}

int careful_wait(struct careful *instance, int timeout_ms, int extra_fd)
{
	(void)timeout_ms, (void)extra_fd;
	return careful_poll(instance);
}

int careful_wait_fds(struct careful *instance, int *fds, uint32_t n, int *timeout_ms)
{
	(void)instance, (void)n;
	*fds = -1;
	*timeout_ms = 10;
	return 0;
}

int careful_peer(struct careful *instance, const struct sockaddr *address, uint32_t bytes)
{
	(void)instance, (void)bytes;
	return ntohs(((const struct sockaddr_in *)address)->sin_port);
}

int careful_peer_close(struct careful *instance, uint32_t peer)
{
	(void)instance, (void)peer;
	return 0;
}

int careful_memory(struct careful *instance, uint64_t bytes, void **base)
{
	static _Alignas(PAGE) uint8_t slots[SLOTS];

	(void)instance;
	*base = slots;
	return bytes <= sizeof(slots) ? 0 : -ENOMEM;
}

int careful_close(struct careful *instance)
{
	(void)instance;
	return 0;
}

static struct careful_memory *memory;
static const struct sockaddr_in host = { .sin_family = AF_INET };
static struct sockaddr_in silent_host = { .sin_family = AF_INET };
static uint8_t page[4096];

static void start_with(uint32_t patience_ms)
{
	c = (struct careful){
		.payload_bytes = sizeof(c.said),
		.said = { .bytes = htobe64(PIECE), .number = htobe32(7), .access = htobe32(3) },
	};
	CHECK_EQ(careful_memory_start(&c, patience_ms, &memory), 0);
}

static void start(void)
{
	start_with(PATIENCE_MS);
}

static int open_piece_at(const struct sockaddr_in *at, struct careful_memory_remote **remote)
{
	const struct careful_memory_ask ask = { .bytes = 0 };
	struct careful_memory_piece piece;

	return careful_memory_open(memory, (const void *)at, sizeof(*at), &ask, sizeof(ask), &piece,
				   remote);
}

static int open_piece(struct careful_memory_remote **remote)
{
	return open_piece_at(&host, remote);
}

static int move(struct careful_memory_remote *remote, uint64_t offset, uint32_t flags)
{
	const struct careful_memory_part part = { offset, sizeof(page), page };

	return careful_memory_move(remote, &part, 1, flags);
}

static void test_open__answers_of_any_length(void)
{
	struct careful_memory_remote *remote;

	start();
	for (c.payload_bytes = 0; c.payload_bytes < sizeof(c.said); c.payload_bytes++)
		CHECK_EQ(open_piece(&remote), -EPROTO);
	for (; c.payload_bytes < sizeof(c.said) + 3; c.payload_bytes++) {
		CHECK_EQ(open_piece(&remote), 0);
		CHECK_EQ(careful_memory_close(remote), 0);
	}
	careful_memory_stop(memory);
}

static void test_open__impossible_sizes(void)
{
	const uint64_t sizes[] = { 0, UINT64_MAX, (uint64_t)INT64_MAX + 1 };
	struct careful_memory_remote *remote;

	start();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		c.said.bytes = htobe64(sizes[i]);
		CHECK_EQ(open_piece(&remote), -EPROTO);
	}
	careful_memory_stop(memory);
}

static void test_ask__answer_is_too_long(void)
{
	struct {
		struct careful_memory_answer answer;
		uint8_t behind[64];
	} all;

	start();
	memset(&all, 0xee, sizeof(all));
	c.payload_bytes = CAREFUL_MEMORY_ANSWER_BYTES + 5000;
	CHECK_EQ(careful_memory_ask(memory, (const void *)&host, sizeof(host), CAREFUL_MEMORY_LIST,
				    (uint32_t[4]){ 0 }, NULL, 0, &all.answer),
		 0);
	CHECK_EQ(all.answer.bytes, CAREFUL_MEMORY_ANSWER_BYTES);
	for (size_t i = 0; i < sizeof(all.behind); i++)
		CHECK_EQ(all.behind[i], 0xee);
	careful_memory_stop(memory);
}

/* Another number of bytes than was asked for is an error. A move beyond a piece's end fails before
 * anything is sent. */
static void test_move__of_another_length(void)
{
	const int lies[] = { -1, 1, -4096, 4096 };
	struct careful_memory_remote *remote;
	uint32_t begun;

	start();
	CHECK_EQ(open_piece(&remote), 0);
	for (uint32_t flags = 0; flags <= CAREFUL_MEMORY_STORE; flags++) {
		for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
			c.moved = lies[i];
			CHECK_EQ(move(remote, 0, flags), -EPROTO);
		}
		c.moved = 0;
		CHECK_EQ(move(remote, PIECE - sizeof(page), flags), 0);
		begun = c.begun;
		CHECK_EQ(move(remote, PIECE - sizeof(page) + 1, flags), -ERANGE);
		CHECK_EQ(move(remote, UINT64_MAX, flags), -ERANGE);
		CHECK_EQ(c.begun, begun);
	}
	CHECK_EQ(careful_memory_close(remote), 0);
	careful_memory_stop(memory);
}

/* A region that is gone is opened again; another piece of the same name is refused. */
static void test_region__is_gone(void)
{
	struct careful_memory_remote *remote;
	int rc;

	start();
	CHECK_EQ(open_piece(&remote), 0);
	c.refused = 1;
	CHECK_EQ(move(remote, 0, 0), 0);
	c.refused = UINT_MAX; /* for ever */
	rc = move(remote, 0,
		  0); /* the time ends during a move, or while the piece is opened again */
	CHECK(rc == -ENOENT || rc == -ECONNRESET);
	c.refused = 1;
	c.said.bytes = htobe64(2 * PIECE);
	CHECK_EQ(move(remote, 0, 0), -ESTALE);
	c.said.bytes = htobe64(PIECE);
	c.said.number = htobe32(8);
	CHECK_EQ(move(remote, 0, 0), -ESTALE);
	CHECK_EQ(careful_memory_close(remote), 0);
	careful_memory_stop(memory);
}

enum { MANY = 100 };

/* Moves more parts than a client has moves under way to one host. */
static void *move_many(void *remote)
{
	static uint8_t bytes[MANY];
	struct careful_memory_part parts[MANY];

	for (size_t i = 0; i < MANY; i++)
		parts[i] = (struct careful_memory_part){ 2 * i, 1, &bytes[i] };
	return (void *)(intptr_t)careful_memory_move(remote, parts, MANY, 0);
}

static void test_move__beside_a_silent_host(void)
{
	struct careful_memory_remote *remote, *silent;
	pthread_t thread;
	uint32_t begun;
	void *status;

	start_with(10000);
	silent_host.sin_port = htons(SILENT);
	CHECK_EQ(open_piece(&remote), 0);
	CHECK_EQ(open_piece_at(&silent_host, &silent), 0);
	__atomic_store_n(&c.silent, true, __ATOMIC_SEQ_CST);
	begun = c.begun;
	CHECK_EQ(pthread_create(&thread, NULL, move_many, silent), 0);
	while (__atomic_load_n(&c.begun, __ATOMIC_SEQ_CST) < begun + 64)
		usleep(1000);
	CHECK_EQ(move(remote, 0, 0), 0);
	CHECK(pthread_tryjoin_np(thread, &status) != 0);
	__atomic_store_n(&c.silent, false, __ATOMIC_SEQ_CST);
	CHECK_EQ(pthread_join(thread, &status), 0);
	CHECK_EQ((intptr_t)status, 0);
	CHECK_EQ(careful_memory_close(silent), 0);
	CHECK_EQ(careful_memory_close(remote), 0);
	careful_memory_stop(memory);
}

static void *flush(void *remote)
{
	return (void *)(intptr_t)careful_memory_flush(remote);
}

static void hold(int what)
{
	__atomic_store_n(&c.held, what, __ATOMIC_SEQ_CST);
}

static uint32_t stores(void)
{
	return __atomic_load_n(&c.stores, __ATOMIC_SEQ_CST);
}

/* A page that is written while it is saved is saved again, but only after the first save: a
 * repaired frame of that one might otherwise arrive last. */
static void test_map__a_page_written_while_it_is_saved(void)
{
	const struct careful_memory_map_options options = {
		.uffd = -1, .writable = 1, .local_bytes = PAGE, .patience_ms = 10000
	};
	struct careful_memory_remote *remote;
	pthread_t thread;
	void *base, *status;
	volatile uint8_t *bytes;
	int rc;

	start();
	CHECK_EQ(open_piece(&remote), 0);
	rc = careful_memory_map(remote, &options, &base);
	if (rc == -EPERM) {
		printf("SKIP: a part: no userfaultfd\n");
		CHECK_EQ(careful_memory_close(remote), 0);
		careful_memory_stop(memory);
		return;
	}
	CHECK_EQ(rc, 0);
	bytes = base;
	hold(HELD_STORES);
	bytes[0] = 1;
	bytes[PAGE] = 1; /* beyond the limit: the first page is evicted */
	while (!stores())
		usleep(1000);
	bytes[0] = 2;
	CHECK_EQ(pthread_create(&thread, NULL, flush, remote), 0);
	usleep(100000);
	CHECK_EQ(stores(), 1);
	hold(HELD_NOTHING);
	CHECK_EQ(pthread_join(thread, &status), 0);
	CHECK_EQ((intptr_t)status, 0);
	CHECK_EQ(stores(), 2);
	CHECK_EQ(c.stored, 2);
	CHECK_EQ(careful_memory_unmap(remote), 0);
	CHECK_EQ(careful_memory_close(remote), 0);
	careful_memory_stop(memory);
}

/* Pages of a caller's userfaultfd, perhaps of another process, are neither saved nor evicted. */
static void test_map__options_beside_a_userfaultfd(void)
{
	const struct careful_memory_map_options wrong[] = { { .local_bytes = PAGE },
							    { .writable = 1 } };
	struct careful_memory_remote *remote;
	void *base;

	start();
	CHECK_EQ(open_piece(&remote), 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) /* uffd: any descriptor */
		CHECK_EQ(careful_memory_map(remote, &wrong[i], &base), -EINVAL);
	CHECK_EQ(careful_memory_close(remote), 0);
	careful_memory_stop(memory);
}

static void *touch(void *byte)
{
	return (void *)(uintptr_t) * (volatile uint8_t *)byte;
}

/* A map of memory whose pages may be removed, like a virtual machine's. */
struct removable {
	int fd; /* -1: this machine has no userfaultfd */
	size_t bytes;
	void *base;
	struct careful_memory_remote *remote;
};

static struct removable map_removable(size_t bytes)
{
	struct removable map = {
		.fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK),
		.bytes = bytes,
		.base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0),
	};
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_EVENT_REMOVE };
	struct uffdio_register range = { .range = { (uintptr_t)map.base, bytes },
					 .mode = UFFDIO_REGISTER_MODE_MISSING };
	const struct careful_memory_map_options options = {
		.uffd = map.fd, .base = (uintptr_t)map.base, .bytes = bytes, .patience_ms = 10000
	};

	CHECK(map.base != MAP_FAILED);
	if (map.fd < 0 || ioctl(map.fd, UFFDIO_API, &api)) {
		printf("SKIP: a part: no userfaultfd\n");
		map.fd = -1;
		return map;
	}
	CHECK_EQ(ioctl(map.fd, UFFDIO_REGISTER, &range), 0);
	start();
	CHECK_EQ(open_piece(&map.remote), 0);
	CHECK_EQ(careful_memory_map(map.remote, &options, &map.base), 0);
	return map;
}

static void unmap_removable(const struct removable *map)
{
	CHECK_EQ(careful_memory_unmap(map->remote), 0);
	CHECK_EQ(careful_memory_close(map->remote), 0);
	careful_memory_stop(memory);
	close(map->fd);
	munmap(map->base, map->bytes);
}

/* A thread that waits for a page continues if the page is removed meanwhile, and reads zero. */
static void test_map__a_page_removed_while_it_is_fetched(void)
{
	const struct removable map = map_removable(PAGE);
	struct timespec until = { .tv_sec = time(NULL) + 20 };
	pthread_t thread;
	uint32_t begun;
	void *read_byte;

	if (map.fd < 0)
		return;
	hold(HELD_GETS);
	begun = c.begun;
	CHECK_EQ(pthread_create(&thread, NULL, touch, map.base), 0);
	while (__atomic_load_n(&c.begun, __ATOMIC_SEQ_CST) == begun)
		usleep(1000);
	CHECK_EQ(madvise(map.base, PAGE, MADV_DONTNEED), 0);
	hold(HELD_NOTHING);
	CHECK_EQ(pthread_timedjoin_np(thread, &read_byte, &until), 0);
	CHECK_EQ((uintptr_t)read_byte, 0);
	unmap_removable(&map);
}

enum { REMOVED_PAGES = 9, TOUCHES = 500 };

static bool touched;

/* Removes and touches the first page, again and again. */
static void *remove_and_touch(void *base)
{
	uintptr_t sum = 0;

	for (int i = 0; i < TOUCHES; i++) {
		CHECK_EQ(madvise(base, PAGE, MADV_DONTNEED), 0);
		sum |= (uintptr_t)touch(base);
	}
	__atomic_store_n(&touched, true, __ATOMIC_SEQ_CST);
	return (void *)sum;
}

/* While other pages are removed, the kernel does not install zeros: the thread touches its page
 * again. */
static void test_map__pages_removed_next_to_a_touched_one(void)
{
	const struct removable map = map_removable(REMOVED_PAGES * (size_t)PAGE);
	const time_t end = time(NULL) + 20;
	pthread_t thread;
	void *sum;

	if (map.fd < 0)
		return;
	CHECK_EQ(pthread_create(&thread, NULL, remove_and_touch, map.base), 0);
	while (!__atomic_load_n(&touched, __ATOMIC_SEQ_CST) && time(NULL) < end) {
		CHECK_EQ(madvise((uint8_t *)map.base + PAGE, map.bytes - PAGE, MADV_DONTNEED), 0);
		usleep(1000);
	}
	CHECK(__atomic_load_n(&touched, __ATOMIC_SEQ_CST));
	CHECK_EQ(pthread_join(thread, &sum), 0);
	CHECK_EQ((uintptr_t)sum, 0);
	unmap_removable(&map);
}

int main(void)
{
	RUN(test_open__answers_of_any_length);
	RUN(test_open__impossible_sizes);
	RUN(test_ask__answer_is_too_long);
	RUN(test_move__of_another_length);
	RUN(test_region__is_gone);
	RUN(test_move__beside_a_silent_host);
	RUN(test_map__a_page_written_while_it_is_saved);
	RUN(test_map__options_beside_a_userfaultfd);
	RUN(test_map__a_page_removed_while_it_is_fetched);
	RUN(test_map__pages_removed_next_to_a_touched_one);
	return 0;
}
