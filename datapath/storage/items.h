/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Batches (careful_block_item records, block.h): what the files of items*.c share. All
 * names lie beneath one directory; an item's failure is its own.
 */
#ifndef STORAGE_ITEMS_H
#define STORAGE_ITEMS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <careful/files.h>
#include <careful/block.h>

enum {
	ITEMS_PENDING = 512, /* files that wait for one sync together */
	ITEMS_DIRS = 64, /* directories they stand in */
	ITEMS_TEMPORARY_BYTES = 40,
	/* Of one batch, for items may be many and small. Ours reads 64 MiB at most, and is synced
	 * sixteen times: 1024 files in as many directories. */
	ITEMS_READ_BYTES = 256 << 20,
	ITEMS_SYNCS = 64,
};

/* A record of a batch, as it stands there: what is in it lies within. */
struct items_record {
	struct careful_block_item head;
	const char *name, *text, *xattrs, *data;
	size_t name_bytes, text_bytes, xattrs_bytes, data_bytes;
};

/* One record, its integers in host order; xattrs and data point into the batch. */
struct item {
	struct careful_block_attr attr;
	uint16_t op;
	const char *xattrs, *data;
	size_t xattrs_bytes, data_bytes;
	uint64_t digest;
	char name[PATH_MAX], text[PATH_MAX];
};

/* A file that is written, and gets its name once it is synced.
 * @answer: where its answer stands */
struct pending {
	uint32_t dir;
	size_t answer;
	char temporary[ITEMS_TEMPORARY_BYTES];
	char name[NAME_MAX + 1];
};

/* What a file that is made in the parent turns out to be, as far as it is known: its owner,
 * and its mode where `asked` was asked for. */
struct items_fresh {
	bool owner_known, mode_known;
	uint32_t uid, gid;
	mode_t asked, mode;
};

/*
 * A batch under way.
 *
 * @base:      the directory
 * @parent:    the directory of the last item, or -1; its name beneath base
 * @parent_held: it is locked, see items_temporary()
 * @no_nameless: its file system has no files without a name
 * @dirs:      directories that pending files stand in
 * @out:       the answer so far, used of room bytes, room at most room_max
 * @counter:   makes names of temporary files
 * @rereads:   of files that changed while they were read
 * @read_bytes: of contents, whether they are in the answer or not
 * @syncs:     so far; of files that wait together one
 * @in_vain:   nobody wants it any more
 * @unkept:    of the last file, which is made: why it lacks an attribute (-errno), or 0
 * @keeps_mode: the item's mode is that of the file it replaces; no umask applies
 */
struct items {
	int base;
	uint32_t flags, umask;
	uint64_t file_max;
	bool writable, is_root, no_symlinks, squashed;
	int parent;
	char parent_name[PATH_MAX];
	bool parent_held;
	struct items_fresh fresh;
	bool no_nameless;
	struct pending *pending;
	uint32_t pending_count;
	int dirs[ITEMS_DIRS];
	uint32_t dirs_count;
	char *out;
	size_t used, room, room_max;
	uint32_t failed, denied;
	uint64_t counter;
	uint32_t rereads;
	uint64_t read_bytes;
	uint32_t syncs;
	bool in_vain;
	int unkept;
	bool keeps_mode;
	struct item item;
};

/* items_record.c. Takes the record at *at apart, moves *at behind it. -EPROTO: there is none. */
int items_cut(const char *in, size_t bytes, size_t *at, struct items_record *record);
/* Room for bytes behind the answer: 0, -EOVERFLOW if it is too long, -ENOMEM. */
int items_reserve(struct items *s, size_t bytes);
/* Writes the answer's record at s->used, what follows it being there already. */
void items_answer(struct items *s, struct careful_block_item *record, int status);
/* The directory that name stands in: a descriptor that stays the batch's, or -errno.
 * *last is the name's last component. */
int items_parent(struct items *s, char *name, const char **last);

/* items_read.c: READ and DIGEST; answers itself. */
void items_read(struct items *s);

/* items_file.c: FILE: status, or 1 if it is answered later. */
int items_make_file(struct items *s, int dir, const char *name);
/* A name that nothing has, for what is to be in the parent. Until the batch leaves that
 * directory it has a shared lock on it (flock), and on those of pending files until they have
 * their names: whoever clears temporary files away needs it for himself. The kernel drops it
 * with the process. */
void items_temporary(struct items *s, char temporary[ITEMS_TEMPORARY_BYTES]);
/* Makes `temporary` be `name`. */
int items_give_name(int dir, const char *temporary, const char *name, bool replace);
/* Writes all of it: 0 or -errno. */
int items_put(int fd, const char *data, size_t bytes);
/* Syncs what is pending, and gives it its names. */
void items_flush(struct items *s);

/* items_name.c: RENAME, LINK, APPEND: status. */
int items_rename(struct items *s);
int items_link(struct items *s);
int items_append(struct items *s);

/* items_write.c: what makes or changes something: status, or 1 if it is answered later. */
int items_write(struct items *s);

#endif /* STORAGE_ITEMS_H */
