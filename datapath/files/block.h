/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server of the block service (careful/block.h): directories whose files
 * peers may open, list, create and replace. Built on careful.h alone. The engine's
 * thread never waits: system calls that may block run on a few worker threads.
 */
#ifndef FILES_BLOCK_H
#define FILES_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>
#include <careful/block.h>
#include <careful/ipc.h>

enum {
	BLOCK_EXPORTS = 64,
	BLOCK_HANDLES = 128, /* that a peer may have open at a time, */
	BLOCK_LISTINGS = 16, /* of them listings, and answers to batches, */
	BLOCK_SCRATCHES = 8, /* and memory for batches */
	BLOCK_LAST = CAREFUL_BLOCK_ZERO,
	BLOCK_DISCARD = 0, /* as an op: CLOSE without an answer */
};

/* A host that may see an export: its IPv6 address, or its IPv4 address as IPv6 has it. */
struct block_host {
	uint8_t address[16];
};

/*
 * A directory that peers see. A single export is the root of all paths; of several,
 * a path's first component names one.
 *
 * @path:      the directory
 * @name:      how it is called among several
 * @writable:  files may be created and replaced
 * @owners:    owners, set-ID bits, capabilities and trusted attributes may be set, too
 * @devices:   block devices below it are served, which lie outside it: whole disks
 * @hosts:     who sees it, hosts_count of them; 0: everybody
 */
struct block_export_options {
	const char *path;
	const char *name;
	bool writable;
	bool owners;
	bool devices;
	const struct block_host *hosts;
	uint32_t hosts_count;
};

struct block_server;

/* Serves the exports (none: every path is refused). *error gets a line where an
 * export cannot be opened. */
int block_serve(struct careful *instance, const struct block_export_options *exports, uint32_t n,
		struct block_server **server, struct careful_error *error);
/* Serves these from now on; what is open goes on as it was opened. On failure the others stay. */
int block_replace(struct block_server *server, const struct block_export_options *exports,
		  uint32_t n, struct careful_error *error);
/* Ends all handles and removes uncommitted temporary files, not partial ones. After
 * careful_close(): no message uses the files any longer. Waits for work under way, for 2 s: returns
 * how many threads hang in a file system, which end when that goes on; their files are left as they
 * are. */
uint32_t block_stop(struct block_server *server);

/* To be called each round; answers what the workers have done. Returns how many. */
uint32_t block_poll(struct block_server *server);
/* Readable when workers have done something. */
int block_fd(struct block_server *server);
/* After how many ms at most to call block_poll() again; -1: when readable. */
int block_timeout_ms(struct block_server *server);
/* For careful_peer_watch(), with the server as user, or called by who watches. */
void block_watch(struct careful *instance, uint32_t peer, uint32_t state, void *user);

/*
 * How a peer's use of a file ended, or of small files in a directory.
 *
 * @is_former:     that peer had gone, and its place is another's by now
 * @path:          as the peer named it; of small files the directory
 * @small:         they came together: bytes are of requests and answers
 * @writable:      what was written is kept, unless it is null:
 * @op:            COMMIT, CLOSE: the peer's word; DISCARD: it is gone, or its session is
 * @status:        0 or -errno
 * @bytes:         of the file
 * @read_bytes, @written_bytes: that the peer asked for, and sent
 */
struct block_end {
	uint32_t peer;
	bool is_former;
	const char *path;
	bool small;
	bool writable;
	uint16_t op;
	int status;
	uint64_t bytes;
	uint64_t read_bytes, written_bytes;
	uint64_t took_ns;
};
typedef void block_end_fn(const struct block_end *end, void *user);

/* Tells of the ends of files that anything was moved of, in the engine's thread. */
void block_tell(struct block_server *server, block_end_fn *fn, void *user);

/* What peers did with each export so far; returns how many there are. */
uint32_t block_use(const struct block_server *server, struct careful_export_use *uses);

/* What it asks of the engine: requests, or items of one, were denied for their paths. */
void engine_denied(struct careful *instance, uint32_t n);
/* Of region.c: adds what peers moved from and to a region. */
void engine_moved(struct careful *instance, uint32_t key, uint64_t *read_bytes,
		  uint64_t *written_bytes);

#endif /* FILES_BLOCK_H */
