/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that clients passed. A removed file closes after the last operation that uses it. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "daemon/ipc/ipc_private.h"
#include "engine/sharing.h"

int ipc_file_check(int fd)
{
	struct statx st;
	int flags = fcntl(fd, F_GETFL);

	/* DONT_SYNC: a file's type never changes, and a network file system's server may hang. */
	if (flags < 0 || statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st))
		return -errno;
	/* O_APPEND ignores offsets. */
	if (flags & (O_APPEND | O_PATH))
		return -EINVAL;
	if (S_ISREG(st.stx_mode) || S_ISBLK(st.stx_mode))
		return 0;
	/* /dev/null, /dev/zero */
	if (S_ISCHR(st.stx_mode) && st.stx_rdev_major == 1 &&
	    (st.stx_rdev_minor == 3 || st.stx_rdev_minor == 5))
		return 0;
	return -ENOTSUP;
}

int ipc_file_add(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	struct careful_ipc head = { 0 };
	int rc = q->fd < 0 ? -EBADF : ipc_file_check(q->fd);

	if (rc)
		return rc;
	while (client->files[head.file].fd >= 0)
		if (++head.file == CAREFUL_IPC_FILES)
			return -EMFILE;
	client->files[head.file].fd = q->fd;
	q->fd = -1;
	engine_keep_file(client->ipc->instance, client->files[head.file].fd);
	ipc_answer(op, 0, &head, NULL, 0);
	return 0;
}

static struct ipc_file *find_file(struct ipc_client *client, uint32_t index)
{
	struct ipc_file *file = index < CAREFUL_IPC_FILES ? &client->files[index] : NULL;

	return file && file->fd >= 0 && !file->remover ? file : NULL;
}

int ipc_file_use(struct ipc_client *client, uint32_t index)
{
	struct ipc_file *file = find_file(client, index);

	if (!file)
		return -EBADF;
	file->users++;
	return file->fd;
}

static void close_file(struct ipc_client *client, struct ipc_file *file)
{
	struct ipc_op *remover = file->remover;

	if (client->ipc->instance)
		engine_lose_file(client->ipc->instance, file->fd);
	ipc_close(client, file->fd, remover);
	file->fd = -1;
	file->remover = NULL;
}

int ipc_file_remove(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	struct ipc_file *file = find_file(client, q->head.file);

	if (!file)
		return -EBADF;
	file->remover = op;
	if (!file->users)
		close_file(client, file);
	return 0;
}

void ipc_file_unuse(struct ipc_client *client, uint32_t index)
{
	struct ipc_file *file = &client->files[index];

	assert(file->users);
	if (!--file->users && file->remover)
		close_file(client, file);
}

void ipc_close_files(struct ipc_client *client)
{
	for (uint32_t i = 0; i < CAREFUL_IPC_FILES; i++) {
		assert(!client->files[i].users);
		if (client->files[i].fd >= 0)
			close_file(client, &client->files[i]);
	}
}
