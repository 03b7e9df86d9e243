/* SPDX-License-Identifier: BSD-2-Clause */
/* Records of a batch and of its answer, and the directories of their names. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/batch/items.h"
#include "storage/tree/tree.h"

enum { ROOM_FIRST = 64 << 10 };

int items_reserve(struct items *s, size_t bytes)
{
	size_t need = s->used + bytes, room = s->room ? s->room : ROOM_FIRST;
	char *out;

	if (need > s->room_max)
		return -EOVERFLOW;
	if (need <= s->room)
		return 0;
	while (room < need)
		room *= 2;
	out = realloc(s->out, room);
	if (!out)
		return -ENOMEM;
	s->out = out;
	s->room = room;
	return 0;
}

size_t items_length(const struct careful_block_item *record)
{
	return sizeof(*record) + be32toh(record->name_bytes) + be32toh(record->text_bytes) +
	       be32toh(record->xattrs_bytes) + be64toh(record->data_bytes);
}

static size_t padded(size_t bytes)
{
	return (bytes + 7) & ~(size_t)7;
}

void items_answer(struct items *s, struct careful_block_item *record, int status)
{
	size_t bytes = items_length(record);

	record->status = htobe32((uint32_t)-status);
	s->failed += status != 0;
	memcpy(s->out + s->used, record, sizeof(*record));
	memset(s->out + s->used + bytes, 0, padded(bytes) - bytes);
	s->used += padded(bytes);
}

int items_parent(struct items *s, char *name, const char **last)
{
	char *slash = strrchr(name, '/');
	const char *folder = slash ? name : ".";

	*last = slash ? slash + 1 : name;
	if (!**last || !strcmp(*last, ".."))
		return -EINVAL;
	if (slash)
		*slash = 0;
	if (s->parent >= 0 && !strcmp(folder, s->parent_name))
		return s->parent;
	if (s->parent >= 0)
		close(s->parent);
	s->parent_locked = false;
	s->fresh = (struct items_fresh){ 0 };
	s->no_nameless = false;
	s->parent = beneath_open(s->base, folder, O_RDONLY | O_DIRECTORY,
				 s->no_symlinks ? RESOLVE_NO_SYMLINKS : 0);
	if (s->parent >= 0)
		strcpy(s->parent_name, folder); /* NOLINT: both have PATH_MAX */
	return s->parent;
}

int items_cut(const char *in, size_t bytes, size_t *at, struct items_record *r)
{
	size_t rest = bytes - *at, length;

	if (rest < sizeof(r->head))
		return -EPROTO;
	memcpy(&r->head, in + *at, sizeof(r->head));
	r->name_bytes = be32toh(r->head.name_bytes);
	r->text_bytes = be32toh(r->head.text_bytes);
	r->xattrs_bytes = be32toh(r->head.xattrs_bytes);
	r->data_bytes = be64toh(r->head.data_bytes);
	length = sizeof(r->head) + r->name_bytes + r->text_bytes + r->xattrs_bytes;
	if (length > rest || r->data_bytes > rest - length)
		return -EPROTO;
	r->name = in + *at + sizeof(r->head);
	r->text = r->name + r->name_bytes;
	r->xattrs = r->text + r->text_bytes;
	r->data = r->xattrs + r->xattrs_bytes;
	length = padded(length + r->data_bytes);
	*at = length > rest ? bytes : *at + length;
	return 0;
}
