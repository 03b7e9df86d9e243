/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs a batch from its first record to its last. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "storage/batch/items.h"
#include "storage/tree/tree.h"

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

/* Reads the record at *at. -EPROTO: no record there. *status: why the item cannot be run, or 0. */
static int read_item(struct item *item, const char *in, size_t bytes, size_t *at, int *status)
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
	if (r.head.status) /* the sender could not read the item */
		*status = code ? -(int)code : -EIO;
	else
		*status = take_name(item->name, r.name, r.name_bytes);
	if (!*status)
		*status = take_name(item->text, r.text, r.text_bytes);
	return 0;
}

/* Runs an item, and answers. status: why the item cannot be run, or 0. */
static int run_item(struct items *s, int status)
{
	struct careful_block_item record = { 0 };
	int rc = items_reserve(s, sizeof(record) + 8);

	if (rc)
		return rc;
	if (!status && (s->item.op == CAREFUL_ITEM_READ || s->item.op == CAREFUL_ITEM_DIGEST)) {
		items_read(s);
		return 0;
	}
	if (!status) {
		s->unkept = 0;
		status = s->writable ? items_write(s) : -EROFS;
		if (status >= 0 && s->unkept)
			status = s->unkept;
		s->denied += beneath_denied(status);
	}
	record.op = htobe16(s->item.op);
	record.digest = htobe64(s->item.digest);
	record.attr.bytes = htobe64(s->item.data_bytes);
	items_answer(s, &record, status > 0 ? 0 : status);
	return 0;
}

static int run_items(struct items *s, const char *in, size_t bytes,
		     const struct batch_wanted *wanted)
{
	size_t at = 0;
	int rc = 0, status = 0;

	while (!rc && at < bytes) {
		s->is_unwanted = wanted && wanted->is_unwanted(wanted->user);
		rc = s->is_unwanted ? -ECONNRESET : read_item(&s->item, in, bytes, &at, &status);
		if (!rc)
			rc = run_item(s, status);
	}
	items_flush(s);
	return rc;
}

int batch_run(int base, const void *items, uint64_t bytes, const struct careful_batch_how *how,
	      const struct batch_wanted *wanted, struct careful_batch_answer *answer)
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
	s->no_symlinks = how->no_symlinks;
	s->squashed = how->squashed;
	if (s->squashed)
		s->flags &= ~(uint32_t)CAREFUL_BATCH_OWNER;
	s->room_max = how->answer_bytes_max;
	s->is_root = !geteuid();
	s->parent = -1;
	rc = getrandom(&s->counter, sizeof(s->counter), 0) == sizeof(s->counter) ? 0 : -EIO;
	if (!rc)
		rc = run_items(s, items, bytes, wanted);
	if (s->parent >= 0)
		close(s->parent);
	if (rc) {
		if (!how->memory)
			free(s->out);
	} else {
		answer->items = s->out;
		answer->bytes = s->used;
		answer->failed = s->failed;
		answer->denied = s->denied;
	}
	free(s->pending);
	free(s);
	return rc;
}

int careful_batch(int base, const void *items, uint64_t bytes, const struct careful_batch_how *how,
		  struct careful_batch_answer *answer)
{
	return batch_run(base, items, bytes, how, NULL, answer);
}

void careful_batch_release(struct careful_batch_answer *answer)
{
	free(answer->items);
	answer->items = NULL;
}
