/* SPDX-License-Identifier: BSD-2-Clause */
/* Private header of the items*.c files, which run batches of careful_block_item records (block.h).
 * All names lie beneath one directory; a failed item does not stop the batch. */
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
	/* Limits of one batch. Our own batches read at most 64 MiB, and sync at most 16 times: for
	 * 1024 files in as many directories. */
	ITEMS_READ_BYTES = 256 << 20,
	ITEMS_SYNCS = 64,
};

/* A record, as it is in the batch; pointers point into the batch. */
struct items_record {
	struct careful_block_item head;
	const char *name, *text, *xattrs, *data;
	size_t name_bytes, text_bytes, xattrs_bytes, data_bytes;
};

/* The item being run, its integers in host order; xattrs and data point into the batch. */
struct item {
	struct careful_block_attr attr;
	uint16_t op;
	const char *xattrs, *data;
	size_t xattrs_bytes, data_bytes;
	uint64_t digest;
	char name[PATH_MAX], text[PATH_MAX];
};

/* A written file that gets its name after the sync. */
struct pending {
	uint32_t dir; /* index in `dirs` */
	size_t answer; /* offset of its answer in `out` */
	char temporary[ITEMS_TEMPORARY_BYTES];
	char name[NAME_MAX + 1];
};

/* The owner that new files get in the parent directory, and their mode if created with `asked`. */
struct items_fresh {
	bool owner_known, mode_known;
	uint32_t uid, gid;
	mode_t asked, mode;
};

/* A batch under way. */
struct items {
	int base; /* the directory that all names are beneath */
	uint32_t flags, umask;
	uint64_t file_max;
	bool writable, is_root, no_symlinks, squashed;
	/* the directory of the last item, or -1; parent_name is its path beneath base */
	int parent;
	char parent_name[PATH_MAX];
	bool parent_locked; /* see items_temporary() */
	struct items_fresh fresh;
	bool no_nameless; /* the parent's file system has no O_TMPFILE */
	struct pending *pending;
	uint32_t pending_count;
	int dirs[ITEMS_DIRS]; /* directories of pending files */
	uint32_t dirs_count;
	char *out; /* the answer so far, `used` of `room` bytes; room is at most room_max */
	size_t used, room, room_max;
	uint32_t failed, denied;
	uint64_t counter; /* makes names of temporary files */
	uint32_t rereads; /* reads repeated because a file changed */
	uint64_t read_bytes; /* contents read, even if not in the answer */
	uint32_t syncs; /* syncs so far; files that wait together count once */
	bool is_unwanted; /* the caller has left */
	int unkept; /* -errno of an attribute that the last file could not get, or 0 */
	bool keeps_mode; /* the item has the mode of the file that it replaces; no umask applies */
	struct item item;
};

/* items_record.c */
/* Reads the record at *at, and moves *at behind it. -EPROTO: no record there. */
int items_cut(const char *in, size_t bytes, size_t *at, struct items_record *record);
/* Makes room for `bytes` more of the answer. 0, -EOVERFLOW (answer too long) or -ENOMEM. */
int items_reserve(struct items *s, size_t bytes);
/* Returns a record's bytes, without padding. */
size_t items_length(const struct careful_block_item *record);
/* Completes the answer's record at s->used; its name and contents are already in place. */
void items_answer(struct items *s, struct careful_block_item *record, int status);
/* Opens a name's directory. Returns a descriptor that the batch owns, or -errno. *last: the name's
 * last component; a NUL replaces the slash before it. */
int items_parent(struct items *s, char *name, const char **last);

/* items_read.c: runs READ and DIGEST, and answers. */
void items_read(struct items *s);

/* items_file.c: runs FILE. Returns a status, or 1 if the answer comes later. */
int items_make_file(struct items *s, int dir, const char *name);
/* Makes an unused name in the parent. The batch locks that directory (flock, shared) until the next
 * directory, and the directories of pending files until these have their names. A process that
 * removes temporary files needs the lock exclusively. */
void items_temporary(struct items *s, char temporary[ITEMS_TEMPORARY_BYTES]);
/* Syncs the pending files and gives them their names. */
void items_flush(struct items *s);

/* items_name.c: run RENAME, LINK and APPEND. Return a status. */
int items_rename(struct items *s);
int items_link(struct items *s);
int items_append(struct items *s);

/* items_write.c: makes or changes something. Returns a status, or 1 if the answer comes later. */
int items_write(struct items *s);
