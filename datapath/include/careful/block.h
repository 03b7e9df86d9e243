/* SPDX-License-Identifier: BSD-2-Clause */
/* The only declaration of the block service's formats: requests, replies, and the records of
 * listings and batches. The cffi binding and the scapy layer are generated from this file. wire.h
 * declares the frames below.
 *
 * Layout is naturally aligned, big-endian and padded by name, never packed, because cffi must parse
 * it (it sees the file preprocessed with CAREFUL_CDEF). */
#ifndef CAREFUL_BLOCK_H
#define CAREFUL_BLOCK_H

#ifndef CAREFUL_CDEF
#include <linux/types.h>
#endif

/* Handlers that a request can name. A handle is a region key: blocks move with GET and STORE.
 * Paths are relative to the export and hold no NUL.
 *
 * OPEN    payload careful_block_open, then the path. Reply: args[0] is the handle, the payload
 *         careful_block_attr. With CREATE the handle is a temporary file of `bytes` bytes next to
 *         path; COMMIT gives the file its name. With a tag it is a partial file: the tag makes its
 *         name, and it stays if its handle ends without COMMIT. An existing partial file is
 *         continued (args[1] is 1), but not changed if its size is not `bytes` plus `tail_bytes`.
 *         -EBUSY: another handle has the partial file. With COPY, args[0] is the handle of a
 *         regular file, whose contents the new file begins with; args[1] of the reply is 2.
 * COMMIT  args[0] handle, args[1] CAREFUL_BLOCK_*; payload careful_block_open (its path is unused).
 *         Cuts the file to size, syncs it, sets mode and time, and renames it. The handle ends.
 *         Reply: payload careful_block_attr.
 * CLOSE   args[0] handle, args[1] CAREFUL_BLOCK_*. Ends the handle and removes an uncommitted
 *         temporary file (a partial one only with DISCARD). With args[0] 0 it closes what the
 *         attempt in args[2] and args[3] opened; EAGAIN: the attempt is still running. An attempt
 *         that waits for its turn ends with ECANCELED.
 *         Reply: payload careful_block_attr of the file as it is now.
 * LIST    args[0] CAREFUL_BLOCK_*; payload path. Reply: args[0] is the listing's handle, args[1]
 *         and args[2] its bytes (high, low), args[3] the number of entries that could not be read.
 *         The listing is careful_block_entry records, each padded to 8 bytes.
 * STAT    args[0] CAREFUL_BLOCK_*; payload path. Reply: payload careful_block_attr.
 * MKDIR   payload careful_block_open, then the path. Reply: status. A directory that exists is no
 *         error.
 * DIGEST  args[0] handle; payload careful_block_range. Reply: args[0] is n, the payload the digests
 *         of the first n blocks of the range, which may be fewer than all.
 * EXTENTS args[0] handle; payload careful_block_range. Reply: args[0] is n. The payload is n
 *         careful_block_extent records, in order, for the parts that hold data. The answer ends at
 *         args[1] and args[2] (high, low): the end of the range, if all of it fitted.
 * BATCH   args[0] handle of an OPEN with SCRATCH, args[1] CAREFUL_BATCH_*, payload
 *         careful_block_batch. Runs the careful_block_item records that were stored there, one
 *         after the other; names are relative to the directory that was opened. Reply: args[0] is
 *         the answer's handle, args[1] and args[2] its bytes (high, low), args[3] the number of
 *         items that failed. The answer has a record for each item, in the same order. Beyond
 *         256 MiB read, or 64 syncs, an item's status is EOVERFLOW.
 *
 * If the peer already has its share of BATCH answers, the server runs a BATCH when its turn comes.
 *
 * A path that does not fit into a frame can lie in memory at the server.
 * The payload then has no path: args[1] of OPEN, LIST, STAT and MKDIR is the handle of an OPEN with
 * SCRATCH and NULL whose `bytes` are the path. The client still closes that handle. A client
 * that holds such a handle does not ask with WAIT, because other clients may need the memory first.
 *
 * EAGAIN, to any request: the server has no room now and has done nothing. The client waits a
 * moment and asks again.
 *
 * ENOLINK, to any request with a path: the exported directory itself does not exist now. The server
 * looks it up by its path at each request.
 *
 * A request may be repeated after ECONNRESET. args[2] and args[3] of OPEN, LIST and BATCH name the
 * attempt (random; 0: no name), and the same name gets the same handle. A COMMIT or CLOSE that did
 * end its handle gets the same answer again. */
enum careful_block_handler {
	CAREFUL_BLOCK_OPEN = 128,
	CAREFUL_BLOCK_COMMIT = 129,
	CAREFUL_BLOCK_CLOSE = 130,
	CAREFUL_BLOCK_LIST = 131,
	CAREFUL_BLOCK_STAT = 132,
	CAREFUL_BLOCK_MKDIR = 133,
	CAREFUL_BLOCK_DIGEST = 134,
	CAREFUL_BLOCK_EXTENTS = 135,
	CAREFUL_BLOCK_BATCH = 136,
	CAREFUL_BLOCK_ZERO = 137, /* reserved; answered with ENOSYS */
};

enum careful_block_flag {
	CAREFUL_BLOCK_CREATE = 0x01, /* OPEN: to write a new file */
	CAREFUL_BLOCK_REPLACE = 0x02, /* OPEN, COMMIT: an existing file may be replaced */
	CAREFUL_BLOCK_RECURSIVE = 0x04, /* LIST: the whole tree, parents first */
	CAREFUL_BLOCK_NOSYNC = 0x08, /* COMMIT: without fsync */
	CAREFUL_BLOCK_SPARSE = 0x10, /* OPEN with CREATE: allocate no space in advance */
	CAREFUL_BLOCK_SEED = 0x20, /* OPEN with CREATE: begin with what path holds now */
	/* OPEN with CREATE: COMMIT's `bytes` sets the length of the file. */
	CAREFUL_BLOCK_STREAM = 0x40,
	/* OPEN: write into the file or block device itself; COMMIT syncs it. */
	CAREFUL_BLOCK_INPLACE = 0x80,
	/* OPEN: no file; GET reads `bytes` zeros, STORE discards the data. */
	CAREFUL_BLOCK_NULL = 0x100,
	CAREFUL_BLOCK_DISCARD = 0x200, /* CLOSE: remove the partial file */
	/* OPEN: path is a directory; the handle is `bytes` of memory for the items of a BATCH
	 * there. With NULL: the memory is for a path, without a directory. */
	CAREFUL_BLOCK_SCRATCH = 0x400,
	/* OPEN with SCRATCH, LIST: if the peer has its share, wait for a turn; without, the answer
	 * is EMFILE at once. */
	CAREFUL_BLOCK_WAIT = 0x800,
	/* COMMIT: set `mode`; without, a file that replaces another keeps the mode of the other. */
	CAREFUL_BLOCK_MODE = 0x1000,
	/* OPEN with CREATE: begin with what the file of the handle args[0] holds. */
	CAREFUL_BLOCK_COPY = 0x2000,
};

/* @flags:       CAREFUL_BLOCK_*
 * @mode:        permission bits of a new file or directory
 * @bytes:       OPEN with CREATE: size of the file; COMMIT: the same, for STREAM
 * @mtime_ns:    COMMIT: modification time, ns since 1970; 0: leave it
 * @tag:         OPEN with CREATE: names the partial file; 0: a temporary file
 * @tail_bytes:  OPEN with CREATE and tag: space behind the file for the client's notes;
 *               COMMIT cuts it off
 * @path_bytes:  length of the path that follows */
struct careful_block_open {
	__be32 flags;
	__be32 mode;
	__be64 bytes;
	__be64 mtime_ns;
	__be64 tag;
	__be32 tail_bytes;
	__be32 path_bytes;
};

/* The result of stat; mode includes the type bits.
 * @allocated: bytes that the file occupies on its file system */
struct careful_block_attr {
	__be32 mode;
	__be32 nlink;
	__be32 uid;
	__be32 gid;
	__be64 bytes;
	__be64 mtime_ns;
	__be64 ctime_ns;
	__be64 inode;
	__be64 device;
	__be64 allocated;
};

enum careful_block_algorithm {
	CAREFUL_BLOCK_XXH3 = 1, /* 8 bytes, big-endian */
	/* 32 bytes: the chaining value of the range as a subtree of its file. Block sizes
	 * are powers of two from 1024, and a range begins at a multiple of its block size. */
	CAREFUL_BLOCK_BLAKE3 = 2,
	CAREFUL_BLOCK_BLAKE3_ROOT = 3, /* 32 bytes: digest of the range as a separate file */
};

/* DIGEST: one digest for each block_bytes of the range (the last may be shorter). */
struct careful_block_range {
	__be64 offset;
	__be64 bytes;
	__be32 block_bytes;
	__be32 algorithm;
};

struct careful_block_extent {
	__be64 offset;
	__be64 bytes;
};

enum careful_block_item_op {
	/* Answered with the item that makes the same elsewhere: FILE, with the contents if
	 * attr.bytes is not 0 and the file is not too large; DIRECTORY; SYMLINK; or META. */
	CAREFUL_ITEM_READ = 1,
	CAREFUL_ITEM_FILE = 2, /* make a regular file with these contents */
	/* Make a directory; answered with META if it was there already. */
	CAREFUL_ITEM_DIRECTORY = 3,
	CAREFUL_ITEM_SYMLINK = 4, /* text: its target */
	CAREFUL_ITEM_LINK = 5, /* make another name for the file `text` */
	CAREFUL_ITEM_META = 6, /* set attributes of what is there */
	/* Remove a file, a link or an empty directory; its absence is no error. EBUSY: a
	 * transfer is using the partial file. */
	CAREFUL_ITEM_REMOVE = 7,
	CAREFUL_ITEM_SYNC = 8, /* sync the file system that holds name's directory */
	/* Answered as READ of a file is, but with the digest alone. EOVERFLOW: the file is
	 * too large; ENOTSUP: it is not a regular file. */
	CAREFUL_ITEM_DIGEST = 9,
	/* Renames the file `text` to this name with one rename(2). A file of
	 * that name is replaced if that is permitted; otherwise nothing changes. EXDEV: the two
	 * names are on different file systems. EINVAL: a directory would move into itself. */
	CAREFUL_ITEM_RENAME = 10,
	/* Writes the contents at the end of a regular file (O_APPEND), and
	 * creates the file if it does not exist. Symlinks are followed. Other appends come before
	 * or after, never in between. */
	CAREFUL_ITEM_APPEND = 11,
};

/* Flags of a BATCH: which attributes are set, and how. */
enum careful_batch_flag {
	CAREFUL_BATCH_MODE = 0x01, /* the whole mode; else only permissions of new files */
	CAREFUL_BATCH_OWNER = 0x02, /* as far as the receiver is permitted to */
	CAREFUL_BATCH_TIME = 0x04,
	CAREFUL_BATCH_XATTRS = 0x08, /* READ: the answer includes them */
	/* An existing file may be replaced. The new file keeps its mode, unless MODE is set. */
	CAREFUL_BATCH_REPLACE = 0x10,
	CAREFUL_BATCH_SYNC = 0x20, /* files are synced before they get their names */
	CAREFUL_BATCH_NODIGEST = 0x40,
};

/* @bytes:           length of the items in the handle's memory
 * @file_bytes_max:  READ: size up to which a file's contents are sent
 * @umask:           cleared from new modes unless CAREFUL_BATCH_MODE is set */
struct careful_block_batch {
	__be64 bytes;
	__be32 file_bytes_max;
	__be32 umask;
};

/* One item of a batch; name, text, extended attributes and data follow, then zeros up to
 * a multiple of 8 bytes. An answer does not repeat the request's fields, except the name of READ
 * and DIGEST.
 *
 * @attr:          attributes to set; in the answer to READ and DIGEST, those found
 * @op:            enum careful_block_item_op
 * @status:        answer: 0 or a positive errno, if the item was not done; ENOSYS or
 *                 ERANGE: it was done, but the file system there cannot hold all of its extended
 *                 attributes, or its time
 * @xattrs_bytes:  length of the careful_block_xattr records, which have no padding
 * @digest:        XXH3 of the data, unless CAREFUL_BATCH_NODIGEST; in the answer to DIGEST
 *                 always, of the data that was not sent */
struct careful_block_item {
	struct careful_block_attr attr;
	__be16 op;
	__be16 pad;
	__be32 status;
	__be32 name_bytes;
	__be32 text_bytes;
	__be32 xattrs_bytes;
	__be32 pad2;
	__be64 data_bytes;
	__be64 digest;
};

/* An extended attribute; its name and value follow. */
struct careful_block_xattr {
	__be32 name_bytes;
	__be32 value_bytes;
};

/* One record of a listing. The name, relative to the listed path and without a NUL,
 * follows; after a symlink's name its target; then zeros up to a multiple of 8 bytes.
 *
 * @error:  a positive errno if the entry could not be read. attr is then 0, unless only
 *          the contents of a directory or symlink could not be read. */
struct careful_block_entry {
	struct careful_block_attr attr;
	__be16 name_bytes;
	__be16 target_bytes;
	__be32 error;
};

#ifndef CAREFUL_CDEF

_Static_assert(sizeof(struct careful_block_open) == 40, "careful_block_open is 40 bytes");
_Static_assert(sizeof(struct careful_block_attr) == 64, "careful_block_attr is 64 bytes");
_Static_assert(sizeof(struct careful_block_range) == 24, "careful_block_range is 24 bytes");
_Static_assert(sizeof(struct careful_block_extent) == 16, "careful_block_extent is 16 bytes");
_Static_assert(sizeof(struct careful_block_batch) == 16, "careful_block_batch is 16 bytes");
_Static_assert(sizeof(struct careful_block_item) == 104, "careful_block_item is 104 bytes");
_Static_assert(sizeof(struct careful_block_xattr) == 8, "careful_block_xattr is 8 bytes");
_Static_assert(sizeof(struct careful_block_entry) == 72, "careful_block_entry is 72 bytes");

#endif /* CAREFUL_CDEF */
#endif /* CAREFUL_BLOCK_H */
