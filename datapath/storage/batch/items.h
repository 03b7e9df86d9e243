/* SPDX-License-Identifier: BSD-2-Clause */
/* Batches of careful_block_item records (block.h): shared by the items*.c files. All names lie
 * beneath one directory; a failed item does not stop the batch. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <careful/files.h>
#include <careful/block.h>

enum {
	ITEMS_PENDING = 512, /* most files that wait for one shared sync */
	ITEMS_DIRS = 64, /* most directories of pending files */
	ITEMS_TEMPORARY_BYTES = 40,
	/* Limits of one batch, because items may be many and small. Our own batches read at most 64
	 * MiB and sync at most sixteen times: 1024 files in as many directories. */
	ITEMS_READ_BYTES = 256 << 20,
	ITEMS_SYNCS = 64,
};

/* A record of a batch; the pointers point into the batch. */
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

/* A written file that gets its name after the sync. @answer: offset of its answer in `out` */
struct pending {
	uint32_t dir;
	size_t answer;
	char temporary[ITEMS_TEMPORARY_BYTES];
	char name[NAME_MAX + 1];
};

/* The owner of new files in the parent directory, and their mode if made with `asked`. */
struct items_fresh {
	bool owner_known, mode_known;
	uint32_t uid, gid;
	mode_t asked, mode;
};

/* A batch under way.
 *
 * @base: the directory that all names are beneath
 * @parent: the directory of the last item, or -1; parent_name is its path beneath base
 * @parent_held: the parent is locked (items_temporary())
 * @no_nameless: the parent's file system has no O_TMPFILE
 * @dirs: directories of pending files
 * @out: the answer so far, `used` of `room` bytes; room is at most room_max
 * @counter: makes names of temporary files
 * @rereads: reads repeated because a file changed meanwhile
 * @read_bytes: contents read, even if not in the answer
 * @syncs: syncs so far; files that wait together count once
 * @in_vain: nobody waits for the batch any more
 * @unkept: -errno of an attribute that the last file could not get, or 0
 * @keeps_mode: the item's mode comes from the file it replaces; no umask applies */
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

/* Splits the record at *at and moves *at behind it. -EPROTO: no record there. In items_record.c, as
 * are the next three. */
int items_cut(const char *in, size_t bytes, size_t *at, struct items_record *record);
/* Makes room for `bytes` more of the answer. 0, -EOVERFLOW (answer too long) or -ENOMEM. */
int items_reserve(struct items *s, size_t bytes);
/* Completes the answer's record at s->used; its name and contents are already in place. */
void items_answer(struct items *s, struct careful_block_item *record, int status);
/* Returns a name's directory, owned by the batch, or -errno. *last: the name's last component. */
int items_parent(struct items *s, char *name, const char **last);

/* items_read.c: runs READ and DIGEST, and answers. */
void items_read(struct items *s);

/* items_file.c: runs FILE. Returns a status, or 1 if the answer comes later. */
int items_make_file(struct items *s, int dir, const char *name);
/* Makes an unused name in the parent. The batch locks that directory (flock, shared) until the next
 * directory, and the directories of pending files until these have their names. A process that
 * clears temporary files away needs the lock exclusively. The kernel drops the lock with the
 * process. */
void items_temporary(struct items *s, char temporary[ITEMS_TEMPORARY_BYTES]);
/* Renames `temporary` to `name`. */
int items_give_name(int dir, const char *temporary, const char *name, bool replace);
/* Writes all bytes. 0 or -errno. */
int items_put(int fd, const char *data, size_t bytes);
/* Syncs the pending files and gives them their names. */
void items_flush(struct items *s);

/* items_name.c: run RENAME, LINK and APPEND. Return a status. */
int items_rename(struct items *s);
int items_link(struct items *s);
int items_append(struct items *s);

/* items_write.c: makes or changes something. Returns a status, or 1 if the answer comes later. */
int items_write(struct items *s);
