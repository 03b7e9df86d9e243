// SPDX-License-Identifier: BSD-2-Clause
#include "files.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

static struct files *to_files(struct storage *storage)
{
	return (struct files *)storage; /* its first member */
}

/* Moves the bytes; a read stops at the end of the file. */
static void carry_out(struct files *files, struct storage_io *io)
{
	struct file *file = &files->file[io->fd % FILES_MAX];
	uint64_t at = io->offset;

	if (io->fd >= FILES_MAX) {
		io->result = io->write ? pwritev(io->fd, io->iov, io->iov_count, (off_t)at) :
					 preadv(io->fd, io->iov, io->iov_count, (off_t)at);
		return;
	}
	io->result = 0;
	for (uint32_t i = 0; i < io->iov_count; i++) {
		uint64_t rest = at < file->count ? file->count - at : 0;
		uint64_t bytes = io->iov[i].iov_len < rest ? io->iov[i].iov_len : rest;

		if (io->write)
			memcpy(file->bytes + at, io->iov[i].iov_base, bytes);
		else
			memcpy(io->iov[i].iov_base, file->bytes + at, bytes);
		at += bytes;
		io->result += (int64_t)bytes;
	}
}

static bool is_frozen(const struct files *files, const struct storage_io *io)
{
	return io->fd < 64 && files->frozen >> io->fd & 1 && files->time_ns < files->thaw_ns;
}

static bool files_waits(struct storage *storage, struct storage_io *io)
{
	return to_files(storage)->delay_ns || is_frozen(to_files(storage), io);
}

/* Inserts the operation by the time of its end. */
static void insert(struct files *files, struct storage_io *io, uint64_t due_ns)
{
	uint32_t at = files->storage.pending++;

	for (; at; at--) {
		uint32_t before = (files->head + at - 1) % FILES_DEPTH;

		if (files->due_ns[before] <= due_ns)
			break;
		files->queue[(before + 1) % FILES_DEPTH] = files->queue[before];
		files->due_ns[(before + 1) % FILES_DEPTH] = files->due_ns[before];
	}
	at = (files->head + at) % FILES_DEPTH;
	files->queue[at] = io;
	files->due_ns[at] = due_ns;
}

static int files_submit(struct storage *storage, struct storage_io *io)
{
	struct files *files = to_files(storage);
	uint64_t due_ns = files->time_ns + files->delay_ns;

	if (io->fd < 0 || (io->fd < FILES_MAX && !files->file[io->fd].bytes))
		return -EBADF;
	if (io->write)
		files->writes++;
	else
		files->reads++;
	if (!files_waits(storage, io)) {
		carry_out(files, io);
		return 1;
	}
	if (files->storage.pending == FILES_DEPTH)
		return -EAGAIN;
	insert(files, io, is_frozen(files, io) ? files->thaw_ns : due_ns);
	return 0;
}

static uint32_t files_poll(struct storage *storage)
{
	struct files *files = to_files(storage);
	uint32_t done = 0;

	while (files->storage.pending && files->due_ns[files->head] <= files->time_ns) {
		struct storage_io *io = files->queue[files->head];

		files->head = (files->head + 1) % FILES_DEPTH;
		files->storage.pending--;
		/* Not earlier: the operation owns the memory until it ends. */
		carry_out(files, io);
		io->done(io);
		done++;
	}
	return done;
}

static int files_wait_fd(struct storage *storage)
{
	(void)storage;
	return -1;
}

static uint32_t files_close(struct storage *storage)
{
	storage->pending = 0;
	return 0;
}

static const struct storage_ops files_ops = {
	.submit = files_submit,
	.waits = files_waits,
	.poll = files_poll,
	.wait_fd = files_wait_fd,
	.close = files_close,
};

void files_init(struct files *files, uint64_t delay_ns)
{
	memset(files, 0, sizeof(*files));
	files->storage.ops = &files_ops;
	files->delay_ns = delay_ns;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): writes go there */
void files_set(struct files *files, int fd, uint8_t *bytes, uint32_t count)
{
	files->file[fd] = (struct file){ .bytes = bytes, .count = count };
}

uint64_t files_next_ns(const struct files *files)
{
	return files->storage.pending ? files->due_ns[files->head] : UINT64_MAX;
}
