/* SPDX-License-Identifier: BSD-2-Clause */
#include "nbd/file.h"

#include <careful/block.h>
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "local/connection.h"
#include "nbd/handle.h"

enum {
	SLOTS = 16, /* operations under way at most */
	PIECE_BYTES_MIN = 2048,
	EXTENTS_MAX = 1024, /* most extents in one answer */
};

struct file {
	struct handle handle;
	bool is_device;
	uint64_t nbytes;
	uint32_t memory_file; /* carefuld's handle of the memory */
	int memory_fd;
	char *memory;
	pthread_mutex_t slots_lock;
	pthread_cond_t slot_free;
	uint32_t free; /* a set bit for each free slot of `memory` */
};

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

/* Runs one operation. *region: the handle that it used. */
static int move_once(struct file *file, uint32_t op, uint64_t at, uint64_t nbytes, uint64_t offset,
		     uint32_t *region)
{
	struct careful_ipc packet;
	int rc;

	pthread_rwlock_rdlock(&file->handle.lock);
	packet = (struct careful_ipc){
		.op = op,
		.peer = file->handle.peer,
		.file = file->memory_file,
		.handler = CAREFUL_HANDLERS,
		.region = file->handle.region,
		.region_off = offset,
		.file_off = at,
		.bytes = nbytes,
	};
	*region = file->handle.region;
	rc = connection_ask(file->handle.connection, &packet, NULL, NULL, NULL, 0);
	pthread_rwlock_unlock(&file->handle.lock);
	if (!rc && op == CAREFUL_IPC_GET && packet.bytes != nbytes)
		return -EIO; /* the file is shorter */
	return rc;
}

/* Moves at most FILE_PIECE_BYTES between a slot and the file. Repeats lost pieces. */
static int move(struct file *file, uint32_t op, uint64_t at, uint64_t nbytes, uint64_t offset)
{
	struct handle_tries tries = { 0 };
	uint64_t step = nbytes, piece;
	uint32_t region;
	int rc;

	while (nbytes) {
		piece = step < nbytes ? step : nbytes;
		rc = move_once(file, op, at, piece, offset, &region);
		if (!rc) {
			at += piece, offset += piece, nbytes -= piece, tries.failures = 0;
			continue;
		}
		if (handle_lost_data(rc) && step > PIECE_BYTES_MIN)
			step /= 2;
		rc = handle_recover(&file->handle, &tries, region, rc);
		if (rc)
			return rc;
	}
	return 0;
}

/* Copies a range between a buffer and the file, in pieces of a slot. */
static int copy(struct file *file, uint32_t op, char *buffer, uint64_t nbytes, uint64_t offset)
{
	unsigned int slot = take_slot(file);
	uint64_t at = (uint64_t)slot * FILE_PIECE_BYTES, piece;
	int rc = 0;

	for (; nbytes && !rc; nbytes -= piece, offset += piece, buffer += piece) {
		piece = nbytes < FILE_PIECE_BYTES ? nbytes : FILE_PIECE_BYTES;
		if (op == CAREFUL_IPC_STORE)
			memcpy(file->memory + at, buffer, piece);
		rc = move(file, op, at, piece, offset);
		if (!rc && op == CAREFUL_IPC_GET)
			memcpy(buffer, file->memory + at, piece);
	}
	give_slot(file, slot);
	return rc;
}

int file_read(struct file *file, void *buffer, uint64_t nbytes, uint64_t offset)
{
	return copy(file, CAREFUL_IPC_GET, buffer, nbytes, offset);
}

int file_write(struct file *file, const void *buffer, uint64_t nbytes, uint64_t offset)
{
	return copy(file, CAREFUL_IPC_STORE, (char *)(uintptr_t)buffer, nbytes, offset);
}

int file_sync(struct file *file)
{
	return handle_commit(&file->handle);
}

int file_extents(struct file *file, uint64_t nbytes, uint64_t offset,
		 int (*on_extent)(void *arg, uint64_t offset, uint64_t nbytes, bool is_data),
		 void *arg)
{
	struct careful_block_extent extents[EXTENTS_MAX];
	uint64_t at = offset, from, end;
	uint32_t args[4];
	int rc = handle_ask_range(&file->handle, CAREFUL_BLOCK_EXTENTS, 0, nbytes, offset, args,
				  extents, sizeof(extents));

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
		if (from > at && (rc = on_extent(arg, at, from - at, false)))
			return rc;
		if (nbytes && (rc = on_extent(arg, from, nbytes, true)))
			return rc;
		at = from + nbytes;
	}
	return at < end ? on_extent(arg, at, end - at, false) : 0;
}

int file_zero(struct file *file, uint64_t nbytes, uint64_t offset, bool give_back)
{
	uint32_t args[4];
	int rc = handle_ask_range(&file->handle, CAREFUL_BLOCK_ZERO,
				  give_back ? CAREFUL_BLOCK_SPARSE : 0, nbytes, offset, args, NULL,
				  0);

	return rc == -ENOSYS || rc == -EINVAL ? -EOPNOTSUPP : rc;
}

static int share_memory(struct file *file)
{
	struct careful_ipc packet = { .op = CAREFUL_IPC_FILE_ADD };
	size_t size = (size_t)SLOTS * FILE_PIECE_BYTES;
	int rc, fd;

	file->memory_fd = memfd_create("careful-nbd", MFD_CLOEXEC);
	if (file->memory_fd < 0 || ftruncate(file->memory_fd, (off_t)size))
		return -errno;
	file->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file->memory_fd, 0);
	if (file->memory == MAP_FAILED) {
		file->memory = NULL;
		return -errno;
	}
	fd = file->memory_fd;
	rc = connection_ask(file->handle.connection, &packet, NULL, &fd, NULL, 0);
	file->memory_file = packet.file;
	return rc;
}

static int open_handle(struct file *file, bool writable)
{
	struct careful_block_attr attr;
	int rc = share_memory(file);

	if (!rc)
		rc = handle_open(&file->handle, writable, &attr);
	if (rc)
		return rc;
	file->nbytes = be64toh(attr.bytes);
	file->is_device = S_ISBLK(be32toh(attr.mode));
	return 0;
}

int file_open(const char *sock, const struct sockaddr_storage *address, const char *path,
	      bool writable, struct file **file)
{
	struct file *new = calloc(1, sizeof(*new));
	int rc;

	if (!new)
		return -ENOMEM;
	new->memory_fd = -1;
	new->free = (1U << SLOTS) - 1;
	pthread_mutex_init(&new->slots_lock, NULL);
	pthread_cond_init(&new->slot_free, NULL);
	rc = handle_init(&new->handle, sock, address, path);
	if (!rc)
		rc = open_handle(new, writable);
	if (rc)
		file_close(new);
	else
		*file = new;
	return rc;
}

void file_close(struct file *file)
{
	handle_deinit(&file->handle);
	if (file->memory)
		munmap(file->memory, (size_t)SLOTS * FILE_PIECE_BYTES);
	if (file->memory_fd >= 0)
		close(file->memory_fd);
	pthread_cond_destroy(&file->slot_free);
	pthread_mutex_destroy(&file->slots_lock);
	free(file);
}

uint64_t file_bytes(const struct file *file)
{
	return file->nbytes;
}

bool file_is_writable(const struct file *file)
{
	return file->handle.is_writable;
}

bool file_is_exclusive(const struct file *file)
{
	return file->handle.is_writable && file->is_device;
}

int file_nbd_error(int rc)
{
	switch (-rc) {
	case EPERM:
	case EACCES:
	case EROFS:
		return EPERM;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return ENOSPC;
	case ENOMEM:
	case EINVAL:
	case EOVERFLOW:
	case EOPNOTSUPP:
	case ESHUTDOWN:
		return -rc;
	default:
		return EIO;
	}
}
