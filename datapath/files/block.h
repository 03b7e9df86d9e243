/* SPDX-License-Identifier: BSD-2-Clause */
/* The server of the block service (careful/block.h): peers open, list, create and replace files
 * below exported directories. Uses only careful.h. The engine's thread never waits: worker threads
 * make the system calls that may block. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>
#include <careful/block.h>
#include <careful/ipc.h>

enum {
	BLOCK_EXPORTS = 64,
	BLOCK_HANDLES = 128, /* most open handles of a peer */
	BLOCK_LISTINGS = 16, /* most of these that are listings or answers to batches */
	BLOCK_SCRATCHES = 8, /* most scratches (memory for batches) of a host */
	BLOCK_LAST = CAREFUL_BLOCK_BATCH,
	BLOCK_DISCARD = 0, /* as an op: CLOSE without an answer */
};

/* A host that may see an export; IPv4 addresses are mapped to IPv6 (RFC 4291). */
struct block_host {
	uint8_t address[16];
};

/* A directory that peers see. A single export is the root of all paths. With several exports, the
 * first component of a path names the export. */
struct block_export_options {
	const char *path; /* the directory */
	const char *name; /* the export's name; used with several exports */
	bool writable; /* peers may create and replace files */
	/* peers may also set owners, set-ID bits, capabilities and trusted attributes */
	bool owners;
	/* peers may open block devices below the directory, whose contents lie outside of it */
	bool devices;
	const struct block_host *hosts; /* hosts that see the export; hosts_count 0: every host */
	uint32_t hosts_count;
};

struct block_server;

/* Serves the exports. Without exports, every path is refused. On failure *error has text. */
int block_serve(struct careful *instance, const struct block_export_options *exports, uint32_t n,
		struct block_server **server, struct careful_error *error);
/* Serves these exports from now on. Open handles stay open. On failure the old exports stay. */
int block_replace(struct block_server *server, const struct block_export_options *exports,
		  uint32_t n, struct careful_error *error);
/* Ends all handles and removes uncommitted temporary files, but keeps partial ones. Call it after
 * careful_close(), when no message uses the files. Waits at most 2 s for running jobs. Returns how
 * many threads still hang in a file system; these, and their files, stay until it answers. */
uint32_t block_stop(struct block_server *server);

/* Answers the jobs that the workers have finished; returns how many. Call it each round. */
uint32_t block_poll(struct block_server *server);
/* Returns a descriptor that is readable when a worker has finished a job. */
int block_fd(struct block_server *server);
/* Returns the longest wait for block_fd() before the next block_poll(), in ms; -1: no limit. */
int block_timeout_ms(struct block_server *server);
/* Handles a peer's new state. For careful_peer_watch() with the server as user. */
void block_watch(struct careful *instance, uint32_t peer, uint32_t state, void *user);

/* Reports that a peer's use of a file, or of small files in a directory, has ended. */
struct block_end {
	uint32_t peer;
	bool is_former; /* the peer has gone and another peer has its slot */
	const char *path; /* as the peer named it; small files: their directory */
	bool small; /* small files in batches: the byte counts are of requests and answers */
	bool writable; /* written bytes are stored (not so with CAREFUL_BLOCK_NULL) */
	/* COMMIT or CLOSE: the peer's request; DISCARD: the peer or its session is gone */
	uint16_t op;
	int status; /* 0 or -errno */
	uint64_t bytes; /* size of the file */
	uint64_t read_bytes, written_bytes; /* bytes that the peer read and sent */
	uint64_t took_ns;
};
typedef void block_end_fn(const struct block_end *end, void *user);

/* Sets the function that is called in the engine's thread when a use ends that moved bytes,
 * committed or failed. */
void block_on_end(struct block_server *server, block_end_fn *fn, void *user);

/* Sets *uses to what peers did with each export so far. Returns the number of exports. */
uint32_t block_use(const struct block_server *server, struct careful_export_use *uses);

/* Adds n to the counted requests, or items of a batch, with denied paths. Defined by the engine. */
void engine_denied(struct careful *instance, uint32_t n);
/* Adds a region's bytes that peers read, and wrote, to the two counts. Defined by the engine. */
void engine_moved(struct careful *instance, uint32_t key, uint64_t *read_bytes,
		  uint64_t *written_bytes);
