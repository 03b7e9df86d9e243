/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One open file of a host, by way of carefuld. Owns its handle there, and the memory that carefuld
 * moves bytes in and out of. Calls client.c.
 */
#include "nbd/file.h"

#include <careful/block.h>
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "nbd/client.h"

enum {
	SLOTS = 16, /* operations under way */
	CONNECT_MS = 5000,
	PIECE_BYTES_MIN = 2048,
	FAILURES_MAX = 12, /* of one piece, in a row, before the host is asked for a new session */
	REOPENS_MAX = 4, /* for one call */
	RESETS_MAX = 20, /* of one request */
	FULL_S = 30, /* how long a request waits for room at the host */
	AWAY_S = 30, /* how long a host may be away that was there */
	BUSY_S = 2, /* how long a device's handle of an ended session may take to be closed */
	PAUSE_NS = 20000000,
	EXTENTS_MAX = 1024, /* of one answer */
};

/*
 * @lock:         held to write while `region` changes, to read while it is used
 * @region:       the handle; 0, which no handle is: none
 * @is_replaced:  another file has the path now: nothing is opened any more
 * @free:         a bit for each slot of `memory`
 */
struct file {
	struct client *client;
	struct sockaddr_storage address;
	char *path;
	bool is_writable, is_device, is_replaced;
	uint64_t nbytes, inode, device;
	pthread_rwlock_t lock;
	uint32_t peer, region;
	uint32_t memory_file; /* as carefuld knows it */
	int memory_fd;
	char *memory;
	pthread_mutex_t slots_lock;
	pthread_cond_t slot_free;
	uint32_t free;
};

static time_t now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* A request to the host's block service; its answer's words and payload. 0, or -errno. Where the
 * host has no room it is asked again. */
static int request_once(struct file *file, uint32_t handler, uint32_t args[4], const void *payload,
			uint32_t size, void *answer, size_t answer_size)
{
	struct timespec pause = { .tv_nsec = PAUSE_NS };
	time_t until = now_s() + FULL_S;
	struct careful_ipc packet;
	int rc;

	for (;;) {
		packet = (struct careful_ipc){
			.op = CAREFUL_IPC_REQUEST,
			.peer = file->peer,
			.handler = handler,
			.payload_bytes = size,
		};
		memcpy(packet.args, args, sizeof(packet.args));
		rc = client_ask(file->client, &packet, payload, -1, answer, answer_size);
		if (rc != -EAGAIN || now_s() >= until)
			break;
		nanosleep(&pause, NULL);
	}
	memcpy(args, packet.args, sizeof(packet.args));
	return rc;
}

/* The same, again where it was lost, too. */
static int request(struct file *file, uint32_t handler, uint32_t args[4], const void *payload,
		   uint32_t size, void *answer, size_t answer_size)
{
	uint32_t asked[4];
	int rc, resets = 0;

	memcpy(asked, args, sizeof(asked));
	do {
		memcpy(args, asked, sizeof(asked));
		rc = request_once(file, handler, args, payload, size, answer, answer_size);
	} while (rc == -ECONNRESET && resets++ < RESETS_MAX);
	return rc;
}

/* A session with the host. */
static int connect_peer(struct file *file)
{
	struct careful_ipc packet = {
		.op = CAREFUL_IPC_CONNECT,
		.bytes = CONNECT_MS,
		.payload_bytes = sizeof(file->address),
	};
	int rc = client_ask(file->client, &packet, &file->address, -1, NULL, 0);

	if (!rc)
		file->peer = packet.peer;
	return rc;
}

/* Another handle of the path. With the lock, or alone. */
static int open_path(struct file *file, uint32_t *region, struct careful_block_attr *attr)
{
	size_t path = strlen(file->path);
	struct {
		struct careful_block_open open;
		char path[4096];
	} payload = { .open.path_bytes = htobe32((uint32_t)path) };
	uint32_t args[4] = { 0 };
	int rc;

	if (path > sizeof(payload.path))
		return -ENAMETOOLONG;
	memcpy(payload.path, file->path, path);
	if (file->is_writable) {
		payload.open.flags = htobe32(CAREFUL_BLOCK_INPLACE);
		payload.open.bytes = htobe64(INT64_MAX); /* it may grow as it likes */
	}
	if (getrandom(&args[2], 8, 0) != 8)
		return -EIO;
	rc = request(file, CAREFUL_BLOCK_OPEN, args, &payload,
		     (uint32_t)(sizeof(payload.open) + path), attr, sizeof(*attr));
	if (!rc)
		*region = args[0];
	return rc;
}

static void close_region(struct file *file, uint32_t region)
{
	uint32_t args[4] = { region };

	request(file, CAREFUL_BLOCK_CLOSE, args, NULL, 0, NULL, 0);
}

/* Whether the session with the host is gone, not the handle alone. */
static bool is_away(int rc)
{
	return rc == -ENOTCONN || rc == -ETIMEDOUT || rc == -ECONNREFUSED || rc == -ECONNABORTED ||
	       rc == -EHOSTUNREACH || rc == -ENETUNREACH;
}

/* A session with a host that was there: it may take a while to come back. */
static int reconnect(struct file *file)
{
	struct timespec pause = { .tv_nsec = PAUSE_NS };
	time_t until = now_s() + AWAY_S;
	int rc;

	while (((rc = connect_peer(file)) == -ECONNRESET || is_away(rc)) && now_s() < until)
		nanosleep(&pause, NULL);
	return rc;
}

/* The same file again, where the session or the handle has ended, or seems to. Without one the next
 * call tries again. With the lock. */
static int open_again(struct file *file, bool was_away)
{
	struct timespec pause = { .tv_nsec = PAUSE_NS };
	const uint32_t old = file->region;
	struct careful_block_attr attr;
	uint32_t region;
	time_t until;
	int rc;

	file->region = 0;
	if (file->is_replaced)
		return -ESTALE;
	rc = was_away ? reconnect(file) : 0;
	if (rc)
		return rc;
	if (old) /* it may live: a device has no other beside it */
		close_region(file, old);
	until = now_s() + BUSY_S;
	while ((rc = open_path(file, &region, &attr)) == -EBUSY && now_s() < until)
		nanosleep(&pause, NULL);
	if (rc)
		return rc;
	if (be64toh(attr.inode) != file->inode || be64toh(attr.device) != file->device) {
		close_region(file, region);
		file->is_replaced = true;
		return -ESTALE;
	}
	file->region = region;
	return 0;
}

/* The same, unless another call was quicker. `stale`: the handle that has ended. */
static int reopen(struct file *file, uint32_t stale, bool was_away)
{
	int rc = 0;

	pthread_rwlock_wrlock(&file->lock);
	if (file->region == stale)
		rc = open_again(file, was_away);
	pthread_rwlock_unlock(&file->lock);
	return rc;
}

/* Whether frames were lost, or damaged. Where a host has gone, its sessions end like this, too. */
static bool is_damaged(int rc)
{
	return rc == -ECONNRESET || rc == -EBADMSG;
}

static bool is_lost(int rc)
{
	return rc == -ENOENT || rc == -EBADF || is_away(rc);
}

static unsigned int take_slot(struct file *file)
{
	unsigned int slot;

	pthread_mutex_lock(&file->slots_lock);
	while (!file->free)
		pthread_cond_wait(&file->slot_free, &file->slots_lock);
	slot = (unsigned int)__builtin_ctz(file->free);
	file->free &= ~(1U << slot);
	pthread_mutex_unlock(&file->slots_lock);
	return slot;
}

static void give_slot(struct file *file, unsigned int slot)
{
	pthread_mutex_lock(&file->slots_lock);
	file->free |= 1U << slot;
	pthread_cond_signal(&file->slot_free);
	pthread_mutex_unlock(&file->slots_lock);
}

/* One operation; `region` is the handle that it was tried with. */
static int move_once(struct file *file, uint32_t op, uint64_t at, uint64_t nbytes, uint64_t offset,
		     uint32_t *region)
{
	struct careful_ipc packet;
	int rc;

	pthread_rwlock_rdlock(&file->lock);
	packet = (struct careful_ipc){
		.op = op,
		.peer = file->peer,
		.file = file->memory_file,
		.handler = CAREFUL_HANDLERS,
		.region = file->region,
		.region_off = offset,
		.file_off = at,
		.bytes = nbytes,
	};
	*region = file->region;
	rc = client_ask(file->client, &packet, NULL, -1, NULL, 0);
	pthread_rwlock_unlock(&file->lock);
	if (!rc && op == CAREFUL_IPC_GET && packet.bytes != nbytes)
		return -EIO; /* the file ends early */
	return rc;
}

/* A range of at most FILE_PIECE_BYTES between a slot and the file, again where it was lost. */
static int move(struct file *file, uint32_t op, uint64_t at, uint64_t nbytes, uint64_t offset)
{
	uint64_t step = nbytes, piece;
	int rc, failures = 0, reopens = 0;
	uint32_t region;

	while (nbytes) {
		piece = step < nbytes ? step : nbytes;
		rc = move_once(file, op, at, piece, offset, &region);
		if (is_damaged(rc) && failures++ < FAILURES_MAX) {
			if (step > PIECE_BYTES_MIN)
				step /= 2;
			continue;
		}
		if ((is_lost(rc) || is_damaged(rc)) && reopens++ < REOPENS_MAX)
			rc = reopen(file, region, rc != -ENOENT && rc != -EBADF);
		else if (!rc)
			at += piece, offset += piece, nbytes -= piece, failures = 0;
		if (rc)
			return rc;
	}
	return 0;
}

int file_read(struct file *file, void *buffer, uint64_t nbytes, uint64_t offset)
{
	unsigned int slot = take_slot(file);
	uint64_t at = (uint64_t)slot * FILE_PIECE_BYTES, piece;
	int rc = 0;

	for (; nbytes && !rc; nbytes -= piece, offset += piece) {
		piece = nbytes < FILE_PIECE_BYTES ? nbytes : FILE_PIECE_BYTES;
		rc = move(file, CAREFUL_IPC_GET, at, piece, offset);
		if (!rc)
			memcpy(buffer, file->memory + at, piece);
		buffer = (char *)buffer + piece;
	}
	give_slot(file, slot);
	return rc;
}

int file_write(struct file *file, const void *buffer, uint64_t nbytes, uint64_t offset)
{
	unsigned int slot = take_slot(file);
	uint64_t at = (uint64_t)slot * FILE_PIECE_BYTES, piece;
	int rc = 0;

	for (; nbytes && !rc; nbytes -= piece, offset += piece) {
		piece = nbytes < FILE_PIECE_BYTES ? nbytes : FILE_PIECE_BYTES;
		memcpy(file->memory + at, buffer, piece);
		rc = move(file, CAREFUL_IPC_STORE, at, piece, offset);
		buffer = (const char *)buffer + piece;
	}
	give_slot(file, slot);
	return rc;
}

int file_sync(struct file *file)
{
	struct careful_block_open payload = { .flags = htobe32(CAREFUL_BLOCK_REPLACE) };
	struct careful_block_attr attr;
	uint32_t args[4];
	int rc = 0, opened, tries;
	bool again;

	/* The handle ends with its COMMIT: nobody else may find that, however often we sync. Nor may
	 * it be committed again: the host would answer as it did, without a sync. */
	pthread_rwlock_wrlock(&file->lock);
	for (tries = 0; tries < REOPENS_MAX; tries++) {
		memcpy(args, (uint32_t[4]){ file->region, CAREFUL_BLOCK_REPLACE }, sizeof(args));
		rc = request(file, CAREFUL_BLOCK_COMMIT, args, &payload, sizeof(payload), &attr,
			     sizeof(attr));
		/* Where the handle was lost: another one's COMMIT syncs the same file. */
		again = is_lost(rc) || is_damaged(rc);
		if (!rc)
			file->region = 0;
		opened = open_again(file, is_away(rc) || is_damaged(rc));
		if (opened && (!rc || again))
			rc = opened;
		if (opened || !again)
			break;
	}
	pthread_rwlock_unlock(&file->lock);
	return rc;
}

/* What is asked of a range of the file, with such flags; again where it was lost. args: the answer's
 * words. */
static int ask_range(struct file *file, uint32_t handler, uint32_t flags, uint64_t nbytes,
		     uint64_t offset, uint32_t args[4], void *answer, size_t answer_size)
{
	const struct careful_block_range range = {
		.offset = htobe64(offset),
		.bytes = htobe64(nbytes),
	};
	uint32_t region, again = 0;
	int rc, failures = 0, reopens = 0;

	for (;;) {
		pthread_rwlock_rdlock(&file->lock);
		region = file->region;
		memcpy(args, (uint32_t[4]){ region, flags, again }, 4 * sizeof(*args));
		rc = request_once(file, handler, args, &range, sizeof(range), answer, answer_size);
		pthread_rwlock_unlock(&file->lock);
		again = 1; /* a ZERO that still runs ends before another begins */
		if (is_damaged(rc) && failures++ < FAILURES_MAX)
			continue;
		if ((!is_lost(rc) && !is_damaged(rc)) || reopens++ >= REOPENS_MAX)
			return rc;
		rc = reopen(file, region, rc != -ENOENT && rc != -EBADF);
		if (rc)
			return rc;
	}
}

int file_extents(struct file *file, uint64_t nbytes, uint64_t offset,
		 int (*found)(void *arg, uint64_t offset, uint64_t nbytes, bool is_data), void *arg)
{
	struct careful_block_extent extents[EXTENTS_MAX];
	uint64_t at = offset, from, end;
	uint32_t args[4];
	int rc = ask_range(file, CAREFUL_BLOCK_EXTENTS, 0, nbytes, offset, args, extents,
			   sizeof(extents));

	if (rc)
		return rc;
	end = (uint64_t)args[1] << 32 | args[2];
	if (args[0] > EXTENTS_MAX || end <= offset || end > offset + nbytes)
		return -EPROTO;
	for (uint32_t i = 0; i < args[0]; i++) {
		from = be64toh(extents[i].offset);
		nbytes = be64toh(extents[i].bytes);
		if (from < at || from > end || nbytes > end - from)
			return -EPROTO;
		if (from > at && (rc = found(arg, at, from - at, false)))
			return rc;
		if (nbytes && (rc = found(arg, from, nbytes, true)))
			return rc;
		at = from + nbytes;
	}
	return at < end ? found(arg, at, end - at, false) : 0;
}

int file_zero(struct file *file, uint64_t nbytes, uint64_t offset, bool give_back)
{
	uint32_t args[4];
	int rc = ask_range(file, CAREFUL_BLOCK_ZERO, give_back ? CAREFUL_BLOCK_SPARSE : 0, nbytes,
			   offset, args, NULL, 0);

	return rc == -ENOSYS || rc == -EINVAL ? -EOPNOTSUPP : rc;
}

/* Memory that carefuld knows, too. */
static int share_memory(struct file *file)
{
	struct careful_ipc packet = { .op = CAREFUL_IPC_FILE_ADD };
	size_t size = (size_t)SLOTS * FILE_PIECE_BYTES;
	int rc;

	file->memory_fd = memfd_create("careful-nbd", MFD_CLOEXEC);
	if (file->memory_fd < 0 || ftruncate(file->memory_fd, (off_t)size))
		return -errno;
	file->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file->memory_fd, 0);
	if (file->memory == MAP_FAILED) {
		file->memory = NULL;
		return -errno;
	}
	rc = client_ask(file->client, &packet, NULL, file->memory_fd, NULL, 0);
	file->memory_file = packet.file;
	return rc;
}

/* The first handle. Where a device is in use, another nbdkit may be about to end, as after --run: a
 * few more tries. Many could come between a flush of one that goes on and its next handle. */
static int open_first(struct file *file, struct careful_block_attr *attr)
{
	struct timespec pause = { .tv_nsec = 50000000 };
	int rc = open_path(file, &file->region, attr);

	for (; rc == -EBUSY && pause.tv_nsec < 1000000000; pause.tv_nsec *= 2) {
		nanosleep(&pause, NULL);
		rc = open_path(file, &file->region, attr);
	}
	return rc;
}

static int begin(struct file *file, const char *sock, bool wanted)
{
	struct careful_block_attr attr;
	int rc = client_connect(sock, &file->client);

	if (rc == -ENOENT || rc == -ECONNREFUSED)
		return -ENOTCONN; /* no file of the host's is missing */
	if (!rc)
		rc = share_memory(file);
	if (!rc)
		rc = connect_peer(file);
	if (rc)
		return rc;
	file->is_writable = wanted;
	rc = open_first(file, &attr);
	if (wanted && (rc == -EROFS || rc == -EACCES || rc == -EPERM)) {
		file->is_writable = false;
		rc = open_path(file, &file->region, &attr);
	}
	if (rc)
		return rc;
	file->nbytes = be64toh(attr.bytes);
	file->inode = be64toh(attr.inode);
	file->device = be64toh(attr.device);
	file->is_device = S_ISBLK(be32toh(attr.mode));
	return 0;
}

/* Reads and writes that overlap hold up no flush: who comes later waits for it. */
static void init_lock(pthread_rwlock_t *lock)
{
	pthread_rwlockattr_t attr;

	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(lock, &attr);
	pthread_rwlockattr_destroy(&attr);
}

int file_open(const char *sock, const struct sockaddr_storage *address, const char *path,
	      bool wanted, struct file **file)
{
	struct file *made = calloc(1, sizeof(*made));
	int rc;

	if (!made)
		return -ENOMEM;
	made->address = *address;
	made->memory_fd = -1;
	made->free = (1U << SLOTS) - 1;
	init_lock(&made->lock);
	pthread_mutex_init(&made->slots_lock, NULL);
	pthread_cond_init(&made->slot_free, NULL);
	made->path = strdup(path);
	rc = made->path ? begin(made, sock, wanted) : -ENOMEM;
	if (rc)
		file_close(made);
	else
		*file = made;
	return rc;
}

void file_close(struct file *file)
{
	if (file->region)
		close_region(file, file->region);
	if (file->client)
		client_close(file->client);
	if (file->memory)
		munmap(file->memory, (size_t)SLOTS * FILE_PIECE_BYTES);
	if (file->memory_fd >= 0)
		close(file->memory_fd);
	pthread_cond_destroy(&file->slot_free);
	pthread_mutex_destroy(&file->slots_lock);
	pthread_rwlock_destroy(&file->lock);
	free(file->path);
	free(file);
}

uint64_t file_bytes(const struct file *file)
{
	return file->nbytes;
}

bool file_is_writable(const struct file *file)
{
	return file->is_writable;
}

bool file_is_exclusive(const struct file *file)
{
	return file->is_writable && file->is_device;
}
