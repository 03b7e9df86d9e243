/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Batches from the first record to the last: taking them apart, and putting the answer
 * together. What an item does is items_read.c's and items_write.c's.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "storage/beneath.h"
#include "storage/items.h"

enum { ROOM_FIRST = 64 << 10 };

int items_reserve(struct items *s, size_t bytes)
{
	size_t need = s->used + bytes, room = s->room ? s->room : ROOM_FIRST;
	char *more;

	if (need > s->room_max)
		return -EOVERFLOW;
	if (need <= s->room)
		return 0;
	while (room < need)
		room *= 2;
	more = realloc(s->out, room);
	if (!more)
		return -ENOMEM;
	s->out = more;
	s->room = room;
	return 0;
}

static size_t padded(size_t bytes)
{
	return (bytes + 7) & ~(size_t)7;
}

void items_answer(struct items *s, struct careful_block_item *record, int status)
{
	size_t bytes = sizeof(*record) + be32toh(record->name_bytes) + be32toh(record->text_bytes) +
		       be32toh(record->xattrs_bytes) + be64toh(record->data_bytes);

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
	s->parent_held = false;
	s->fresh = (struct items_fresh){ 0 };
	s->no_nameless = false;
	s->parent = beneath_open(s->base, folder, O_RDONLY | O_DIRECTORY, 0);
	if (s->parent >= 0)
		strcpy(s->parent_name, folder); /* NOLINT: both have PATH_MAX */
	return s->parent;
}

static int take_name(char *to, const char *from, size_t bytes)
{
	if (bytes >= PATH_MAX)
		return -ENAMETOOLONG;
	if (memchr(from, 0, bytes))
		return -EINVAL;
	memcpy(to, from, bytes);
	to[bytes] = 0;
	return 0;
}

int items_cut(const char *in, size_t bytes, size_t *at, struct items_record *r)
{
	size_t rest = bytes - *at, whole;

	if (rest < sizeof(r->head))
		return -EPROTO;
	memcpy(&r->head, in + *at, sizeof(r->head));
	r->name_bytes = be32toh(r->head.name_bytes);
	r->text_bytes = be32toh(r->head.text_bytes);
	r->xattrs_bytes = be32toh(r->head.xattrs_bytes);
	r->data_bytes = be64toh(r->head.data_bytes);
	whole = sizeof(r->head) + r->name_bytes + r->text_bytes + r->xattrs_bytes;
	if (whole > rest || r->data_bytes > rest - whole)
		return -EPROTO;
	r->name = in + *at + sizeof(r->head);
	r->text = r->name + r->name_bytes;
	r->xattrs = r->text + r->text_bytes;
	r->data = r->xattrs + r->xattrs_bytes;
	whole = padded(whole + r->data_bytes);
	*at = whole > rest ? bytes : *at + whole;
	return 0;
}

/* Takes the record at *at. -EPROTO: the rest of the batch is none. */
static int next(struct item *item, const char *in, size_t bytes, size_t *at, int *status)
{
	struct items_record r;
	int rc = items_cut(in, bytes, at, &r);
	uint32_t code;

	if (rc)
		return rc;
	code = be32toh(r.head.status) & 0xfff;
	item->attr = r.head.attr;
	item->op = be16toh(r.head.op);
	item->digest = be64toh(r.head.digest);
	item->xattrs = r.xattrs;
	item->xattrs_bytes = r.xattrs_bytes;
	item->data = r.data;
	item->data_bytes = r.data_bytes;
	/* What the other end could not read is answered as it said. */
	if (r.head.status)
		*status = code ? -(int)code : -EIO;
	else
		*status = take_name(item->name, r.name, r.name_bytes);
	if (!*status)
		*status = take_name(item->text, r.text, r.text_bytes);
	return 0;
}

static int one(struct items *s, int status)
{
	struct careful_block_item record = { 0 };
	int rc = items_reserve(s, sizeof(record) + 8);

	if (rc)
		return rc;
	if (!status && (s->item.op == CAREFUL_ITEM_READ || s->item.op == CAREFUL_ITEM_DIGEST)) {
		items_read(s);
		return 0;
	}
	if (!status)
		status = s->writable ? items_write(s) : -EROFS;
	record.op = htobe16(s->item.op);
	record.digest = htobe64(s->item.digest);
	record.attr.bytes = htobe64(s->item.data_bytes);
	items_answer(s, &record, status > 0 ? 0 : status);
	return 0;
}

static int all(struct items *s, const char *in, size_t bytes)
{
	size_t at = 0;
	int rc = 0, status = 0;

	while (!rc && at < bytes) {
		rc = next(&s->item, in, bytes, &at, &status);
		if (!rc)
			rc = one(s, status);
	}
	items_flush(s);
	return rc;
}

int careful_batch(int base, const void *items, uint64_t bytes, const struct careful_batch_how *how,
		  struct careful_batch_answer *answer)
{
	struct items *s = calloc(1, sizeof(*s));
	int rc;

	*answer = (struct careful_batch_answer){ 0 };
	if (!s)
		return -ENOMEM;
	s->out = how->memory;
	s->room = s->out ? how->answer_bytes_max : 0;
	s->base = base;
	s->flags = how->flags;
	s->umask = how->umask;
	s->file_max = how->file_bytes_max;
	s->writable = how->writable;
	s->room_max = how->answer_bytes_max;
	s->is_root = !geteuid();
	s->parent = -1;
	rc = getrandom(&s->counter, sizeof(s->counter), 0) == sizeof(s->counter) ? 0 : -EIO;
	if (!rc)
		rc = all(s, items, bytes);
	if (s->parent >= 0)
		close(s->parent);
	if (rc) {
		if (!how->memory)
			free(s->out);
	} else {
		answer->items = s->out;
		answer->bytes = s->used;
		answer->failed = s->failed;
	}
	free(s->pending);
	free(s);
	return rc;
}

void careful_batch_release(struct careful_batch_answer *answer)
{
	free(answer->items);
	answer->items = NULL;
}
