/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes READ batches of the small files of a listing, and checks that the answers match. */
#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <careful/files.h>

#include "storage/batch/items.h"
#include "storage/tree/partial.h"

enum {
	READS_BYTES_MAX = 1 << 20, /* items of a batch */
	RAMP_PARTS = 3, /* smaller batches at the start */
	HOLE_BYTES = 4096, /* a file that allocates this much less than its size has holes */
};

struct splitter {
	const struct careful_list_split_how *how;
	struct careful_list_split *out;
	uint32_t parts_room;
};

static bool is_component(const char *text, size_t bytes)
{
	return bytes && !(bytes <= 2 && !memcmp(text, "..", bytes));
}

/* Reports whether a peer's name stays below the target directory. */
static bool is_safe(const char *name, size_t bytes)
{
	size_t from = 0;

	if (bytes >= PATH_MAX || memchr(name, 0, bytes))
		return false;
	for (size_t i = 0; i <= bytes; i++) {
		if (i < bytes && name[i] != '/')
			continue;
		if (!is_component(name + from, i - from))
			return false;
		from = i + 1;
	}
	return true;
}

static bool is_partial(const char *path, size_t bytes)
{
	const char *slash = memrchr(path, '/', bytes);
	size_t parent = slash ? (size_t)(slash + 1 - path) : 0;

	return partial_is_named(path + parent, bytes - parent);
}

/* Reports whether a batch can have the entry: a small file that the answer describes completely. */
static bool is_small_file(const struct careful_block_entry *e,
			  const struct careful_list_split_how *how)
{
	uint64_t bytes = be64toh(e->attr.bytes);
	int64_t mtime_ns = (int64_t)be64toh(e->attr.mtime_ns);

	if (is_partial((const char *)(e + 1), be16toh(e->name_bytes)))
		return false;
	/* These values mean a time outside 64 bits, which is reported for files of the rest. */
	if (mtime_ns == INT64_MAX || mtime_ns == INT64_MIN)
		return false;
	return !e->error && S_ISREG(be32toh(e->attr.mode)) && bytes <= how->file_bytes_max &&
	       be64toh(e->attr.allocated) + HOLE_BYTES > bytes &&
	       (be32toh(e->attr.nlink) <= 1 || !how->no_links);
}

/* Reports whether the last batch can take another file. The first batches are an eighth, a quarter
 * and a half of the normal size, so the other end starts sooner. */
static bool has_room(const struct splitter *s, uint64_t bytes, size_t item_bytes)
{
	uint32_t last = s->out->parts_count - 1, ramp = last < RAMP_PARTS ? RAMP_PARTS - last : 0;
	const struct careful_list_part *part = &s->out->parts[last];

	return part->files < s->how->part_files_max >> ramp &&
	       part->data_bytes + bytes <= s->how->part_bytes_max >> ramp &&
	       part->bytes + item_bytes <= READS_BYTES_MAX;
}

/* Returns the batch for a file of `bytes` whose item has item_bytes, or NULL (no memory). */
static struct careful_list_part *find_part(struct splitter *s, uint64_t bytes, size_t item_bytes)
{
	struct careful_list_split *out = s->out;
	struct careful_list_part *parts = out->parts;
	uint32_t room = s->parts_room ? 2 * s->parts_room : 16;

	if (out->parts_count && has_room(s, bytes, item_bytes))
		return &parts[out->parts_count - 1];
	if (!parts || out->parts_count == s->parts_room) {
		parts = realloc(parts, room * sizeof(*parts));
		if (!parts)
			return NULL;
		out->parts = parts;
		s->parts_room = room;
	}
	parts += out->parts_count++;
	*parts = (struct careful_list_part){ .offset = out->reads_bytes };
	return parts;
}

static int add_read(struct splitter *s, const struct careful_block_entry *e, size_t name_bytes)
{
	struct careful_block_item item = {
		.attr = e->attr,
		.op = htobe16(CAREFUL_ITEM_READ),
		.name_bytes = htobe32((uint32_t)name_bytes),
	};
	size_t bytes = (sizeof(item) + name_bytes + 7) & ~(size_t)7;
	struct careful_list_part *part = find_part(s, be64toh(e->attr.bytes), bytes);
	char *to = (char *)s->out->reads + s->out->reads_bytes;

	if (!part)
		return -ENOMEM;
	if (!item.attr.bytes) /* 0 would omit the contents */
		item.attr.bytes = htobe64(1);
	memset(to + bytes - 8, 0, 8);
	memcpy(to, &item, sizeof(item));
	memcpy(to + sizeof(item), e + 1, name_bytes);
	s->out->reads_bytes += bytes;
	s->out->files++;
	part->bytes += bytes;
	part->data_bytes += be64toh(e->attr.bytes);
	part->files++;
	return 0;
}

/* Adds the record to a batch, or to the rest. *length: its bytes. */
static int add_entry(struct splitter *s, const char *record, uint64_t bytes, size_t *length)
{
	const struct careful_block_entry *e = (const void *)record;
	size_t name_bytes;

	if (bytes < sizeof(*e))
		return -EPROTO;
	name_bytes = be16toh(e->name_bytes);
	*length = (sizeof(*e) + name_bytes + be16toh(e->target_bytes) + 7) & ~(size_t)7;
	if (*length > bytes || !is_safe(record + sizeof(*e), name_bytes))
		return -EPROTO;
	if (is_small_file(e, s->how))
		return add_read(s, e, name_bytes);
	memcpy((char *)s->out->rest + s->out->rest_bytes, record, *length);
	s->out->rest_bytes += *length;
	return 0;
}

int careful_list_split(const void *entries, uint64_t bytes,
		       const struct careful_list_split_how *how, struct careful_list_split *split)
{
	const size_t more = sizeof(struct careful_block_item) - sizeof(struct careful_block_entry);
	uint64_t most = bytes / sizeof(struct careful_block_entry);
	struct splitter s = { .how = how, .out = split };
	size_t length = 0;
	int rc = 0;

	*split = (struct careful_list_split){
		.reads = malloc(bytes + most * more + 1),
		.rest = malloc(bytes + 1),
	};
	if (!split->reads || !split->rest)
		rc = -ENOMEM;
	for (uint64_t at = 0; !rc && at < bytes; at += length)
		rc = add_entry(&s, (const char *)entries + at, bytes - at, &length);
	if (rc)
		careful_list_split_release(split);
	return rc;
}

void careful_list_split_release(struct careful_list_split *split)
{
	free(split->reads);
	free(split->rest);
	free(split->parts);
	*split = (struct careful_list_split){ 0 };
}

int careful_match(const void *reads, uint64_t reads_bytes, const void *answer,
		  uint64_t answer_bytes, struct careful_moved *moved, uint32_t count)
{
	struct items_record read, file;
	size_t at = 0, answer_at = 0;
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		rc = items_cut(reads, reads_bytes, &at, &read);
		if (!rc)
			rc = items_cut(answer, answer_bytes, &answer_at, &file);
		if (rc)
			return rc;
		if (file.head.status || be16toh(file.head.op) != CAREFUL_ITEM_FILE ||
		    file.name_bytes != read.name_bytes ||
		    memcmp(file.name, read.name, read.name_bytes) != 0)
			return -ESTALE;
		moved[i].bytes = file.data_bytes;
		moved[i].digest = be64toh(file.head.digest);
	}
	return at == reads_bytes && answer_at == answer_bytes ? 0 : -EPROTO;
}
