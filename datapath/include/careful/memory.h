/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory service: a carefuld lends memory, and its peers create, share, read and write pieces
 * of it. This file declares the requests and replies; the cffi binding is generated from it.
 *
 * A piece belongs to the host that created it. A host is known by its key; without keys it is known
 * by its address. Bytes move with GET and STORE of the region that CREATE and OPEN return.
 *
 * Layout is naturally aligned, big-endian and padded by name. */
#ifndef CAREFUL_MEMORY_H
#define CAREFUL_MEMORY_H

#ifndef CAREFUL_CDEF
#include <linux/types.h>
#include <stdint.h>
#include <sys/socket.h>
#include <careful/careful.h>
#ifdef __cplusplus
extern "C" {
#endif
#endif

enum {
	CAREFUL_MEMORY_NAME_BYTES = 255,
	CAREFUL_MEMORY_HOSTS = 16, /* hosts with which a piece is shared */
};

/* All requests except LIST have a careful_memory_ask as payload; then its hosts, then the name.
 *
 * CREATE  Makes a piece of `bytes` zeros. args[0] and args[1] name the attempt: a repeated request
 *         gets the answer of the first. Reply: as OPEN. EEXIST: this host has a piece of that name.
 *         EDQUOT: above this host's share. ENOSPC: more than is free.
 * OPEN    Reply: args[0] is the region; payload careful_memory_piece. A peer that opens a piece
 *         again gets the same region. The region lasts until the piece is deleted or the session
 *         ends. EMFILE: the peer has too many pieces open.
 * DELETE  Frees a piece of the asking host. Reply when the memory is free.
 * LIST    Lists the pieces that the peer may open. args[0]: number of the last piece that the peer
 *         has seen, or 0. Reply: args[0] is 1 if there are more; payload careful_memory_piece and
 *         name, for each piece, each padded to 8 bytes.
 * STAT    Without a name: payload careful_memory_room. With one: as OPEN, without a region.
 * NOTIFY  Ends the WAITs for a piece that the peer may write. Reply: args[0] is the number of
 *         NOTIFYs so far.
 * WAIT    args[0]: number of NOTIFYs that the peer has seen; args[1]: longest wait, ms. Reply:
 *         args[0] is the number of NOTIFYs, as soon as it changes or the time is over.
 *
 * ENOENT: there is no such piece, or it is not shared with the peer. ENOTUNIQ: several owners share
 * a piece of that name, and the request names no owner. EAGAIN: ask again in a moment.
 * ENOSYS: the host lends no memory. */
enum careful_memory_handler {
	CAREFUL_MEMORY_CREATE = 138,
	CAREFUL_MEMORY_OPEN = 139,
	CAREFUL_MEMORY_DELETE = 140,
	CAREFUL_MEMORY_LIST = 141,
	CAREFUL_MEMORY_STAT = 142,
	CAREFUL_MEMORY_NOTIFY = 143,
	CAREFUL_MEMORY_WAIT = 144,
	CAREFUL_MEMORY_LAST = CAREFUL_MEMORY_WAIT,
};

enum careful_memory_by {
	/* OPEN, STAT: the asking host's piece, else any host's; sharing: with every host */
	CAREFUL_MEMORY_ANY = 0,
	CAREFUL_MEMORY_KEY = 1, /* id is a public key */
	CAREFUL_MEMORY_ADDRESS =
		2, /* id is an IPv6 address; IPv4 addresses are mapped (RFC 4291) */
};

enum careful_memory_access {
	CAREFUL_MEMORY_READ = 1,
	CAREFUL_MEMORY_WRITE = 2,
};

/* A host.
 *
 * @by:      enum careful_memory_by
 * @access:  sharing: what the host may do, CAREFUL_MEMORY_*
 * @id:      zeros after an address */
struct careful_memory_host {
	__be32 by;
	__be32 access;
	__u8 id[32];
};

/* @bytes:       CREATE: size
 * @hosts:       CREATE: how many careful_memory_host follow, with which the piece is shared
 * @name_bytes:  length of the name behind them
 * @owner:       OPEN, STAT: of the piece */
struct careful_memory_ask {
	__be64 bytes;
	__be32 hosts;
	__be32 name_bytes;
	struct careful_memory_host owner;
};

/* @bytes:       size
 * @number:      ascends with each piece
 * @access:      what the peer may do, CAREFUL_MEMORY_*
 * @page_bytes:  size of its pages there
 * @name_bytes:  LIST: length of the name that follows
 * @owner:       its access is 1 if the owner is the asking host */
struct careful_memory_piece {
	__be64 bytes;
	__be32 number;
	__be32 access;
	__be32 page_bytes;
	__be32 name_bytes;
	struct careful_memory_host owner;
};

/* The memory that a host lends.
 *
 * @bytes:      to all peers
 * @free:       not lent
 * @mine:       lent to the asking host
 * @mine_most:  the most that may be lent to it
 * @pieces, @pieces_most: of the asking host
 * @keep_ms:    how long pieces stay after the owner's session ended */
struct careful_memory_room {
	__be64 bytes;
	__be64 free;
	__be64 mine;
	__be64 mine_most;
	__be32 pieces;
	__be32 pieces_most;
	__be32 keep_ms;
	__be32 pad;
};

/* The client. The client's own thread drives the instance, so any thread may make these calls; each
 * returns when it is done. They return 0 or -errno. -ECONNRESET and -ETIMEDOUT: the host did not
 * answer for patience_ms of careful_memory_start(). */
struct careful_memory;
struct careful_memory_map;
struct careful_memory_remote; /* an open piece */

enum {
	CAREFUL_MEMORY_ANSWER_BYTES = 16384,
	CAREFUL_MEMORY_STORE = 1, /* write into the piece; else read */
	/* A vector's next part begins when the one before is in place. */
	CAREFUL_MEMORY_ORDERED = 2,
};

/* An answer: its status and words, and `bytes` of payload. */
struct careful_memory_answer {
	int32_t status;
	uint32_t bytes;
	uint32_t args[4];
	uint8_t payload[CAREFUL_MEMORY_ANSWER_BYTES];
};

/* A part of a piece, and the memory that it is read into or written from. */
struct careful_memory_part {
	uint64_t offset;
	uint64_t bytes;
	void *local;
};

/* Gives an instance to a thread, which closes it at the end. A page fault takes half the time if
 * the instance owns its queue rather than is attached. patience_ms: how long calls wait for a host
 * that does not answer. */
int careful_memory_start(struct careful *instance, uint32_t patience_ms,
			 struct careful_memory **memory);
/* Ends the thread. Calls under way, and maps, must have ended. In a child of fork(), it only frees
 * what the child inherited. */
int careful_memory_stop(struct careful_memory *memory);
/* Sends a request to a host, and repeats it while the host has no room (-EAGAIN). */
int careful_memory_ask(struct careful_memory *memory, const struct sockaddr *host,
		       uint32_t host_bytes, uint16_t handler, const uint32_t *args,
		       const void *payload, uint32_t bytes, struct careful_memory_answer *answer);
/* Opens a piece: ask is the payload of an OPEN. *piece gets the host's description. If the session
 * ends, the piece is opened again when it is used; -ESTALE: another piece has its name. */
int careful_memory_open(struct careful_memory *memory, const struct sockaddr *host,
			uint32_t host_bytes, const void *ask, uint32_t bytes,
			struct careful_memory_piece *piece, struct careful_memory_remote **remote);
/* Closes a piece. Calls that use it must have ended. -EBUSY: it has a map. */
int careful_memory_close(struct careful_memory_remote *remote);
/* Moves the parts between a piece and memory, several at a time. On failure, any part may have been
 * moved. -ERANGE: beyond the piece; -EFAULT: a part lies in a map; nothing was moved. */
int careful_memory_move(struct careful_memory_remote *remote,
			const struct careful_memory_part *parts, uint32_t n, uint32_t flags);

/* A map: memory of this process whose pages come from the piece when they are touched.
 *
 * @uffd: a userfaultfd that serves [base, base + bytes), perhaps of another process; the caller
 *               still owns it, and other maps may serve other parts. -1: the map makes its own
 *               memory
 * @base:        with uffd: where the memory is
 * @offset:      where in the piece the map begins; a multiple of 4096
 * @bytes:       0: to the piece's end
 * @local_bytes: most bytes of pages here, without moving ones; 0: all; with uffd always 0
 * @writable:    written pages go back to the piece; with uffd always 0
 * @patience_ms: longest wait for a touched page; then the thread gets SIGBUS */
struct careful_memory_map_options {
	int uffd;
	uint64_t base;
	uint64_t offset;
	uint64_t bytes;
	uint64_t local_bytes;
	uint32_t writable;
	uint32_t patience_ms;
};

/* Maps a piece. A child of fork() does not have the memory. -EPERM: this process may not use
 * userfaultfd. -EBUSY: the piece has a map. -EINVAL: an option that does not go with uffd. */
int careful_memory_map(struct careful_memory_remote *remote,
		       const struct careful_memory_map_options *options, void **base);
/* Writes changed pages back. On failure they stay changed. */
int careful_memory_flush(struct careful_memory_remote *remote);
/* Begins to fetch pages of the map, and does not wait for them. */
int careful_memory_prefetch(struct careful_memory_remote *remote, uint64_t offset, uint64_t bytes);
/* Ends the map and its memory; pages that are not written back are lost. */
int careful_memory_unmap(struct careful_memory_remote *remote);

#ifndef CAREFUL_CDEF

_Static_assert(sizeof(struct careful_memory_host) == 40, "careful_memory_host is 40 bytes");
_Static_assert(sizeof(struct careful_memory_ask) == 56, "careful_memory_ask is 56 bytes");
_Static_assert(sizeof(struct careful_memory_piece) == 64, "careful_memory_piece is 64 bytes");
_Static_assert(sizeof(struct careful_memory_room) == 48, "careful_memory_room is 48 bytes");

#ifdef __cplusplus
}
#endif
#endif /* CAREFUL_CDEF */
#endif /* CAREFUL_MEMORY_H */
