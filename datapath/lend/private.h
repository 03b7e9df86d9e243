/* SPDX-License-Identifier: BSD-2-Clause */
/* Pieces and peers of the memory server. A worker owns a piece's memory while the piece is FILLING
 * or FREEING; the engine's thread owns everything else. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "lend/lend.h"

enum {
	LEND_PIECES = 1024, /* of all hosts */
	LEND_PIECES_HOST = 128,
	LEND_OPENS = CAREFUL_REGIONS_MAX / 2, /* regions of all peers */
	LEND_OPENS_PEER = 256,
	LEND_ANSWERS_PEER = 64, /* waiting answers of a peer; further ones are dropped */
	LEND_WAITS_PEER = 64,
	LEND_WAIT_MS = 1000, /* the longest WAIT */
	LEND_WORKERS = 3,
	LEND_STOP_MS = 2000,
	LEND_STEP_BYTES = 64 << 20, /* bytes that a worker locks between checks of `stop` */
	LEND_HUGE_BYTES = 2 << 20,
	LEND_PAGE_BYTES = 4096,
};

/* A region of a piece, for one peer. */
struct lend_open {
	struct lend_open *next;
	uint32_t peer, key;
	bool closed; /* to the peer; messages still use it */
};

enum lend_state {
	LEND_FILLING, /* a worker maps the memory */
	LEND_READY,
	LEND_ENDING, /* messages still use its regions */
	LEND_FREEING, /* a worker unmaps the memory */
};

struct lend_piece {
	struct pool_job pooled;
	struct lend_piece *next;
	struct lend_server *server;
	enum lend_state state;
	int status;
	uint32_t number;
	bool asked; /* a CREATE or DELETE waits for a worker: `to`, of `peer` */
	uint32_t peer;
	struct careful_reply_to to;
	uint64_t attempt; /* the client's name for its CREATE; 0: none */
	uint32_t notified; /* number of NOTIFYs */
	uint64_t bytes;
	uint64_t mapped; /* bytes in whole pages, which limits count */
	uint64_t gone_ns; /* end of the owner's last session; 0: it has one */
	uint8_t *memory;
	uint32_t page_bytes;
	struct lend_open *opens;
	struct careful_memory_host owner, hosts[CAREFUL_MEMORY_HOSTS];
	uint32_t hosts_count;
	uint32_t name_bytes;
	char name[CAREFUL_MEMORY_NAME_BYTES];
};

struct lend_peer {
	bool present;
	struct careful_memory_host host; /* its identity, if present */
	uint32_t opens, answers, waits;
	struct pool_group fills; /* its pieces that workers map */
};

/* An answer for which the engine has no room yet. */
struct lend_answer {
	struct lend_answer *next;
	struct careful_reply_to to;
	int status;
	uint32_t args[4];
	uint32_t bytes;
	uint8_t payload[];
};

/* A WAIT. */
struct lend_wait {
	struct lend_wait *next;
	struct careful_reply_to to;
	uint32_t number; /* of its piece */
	uint32_t seen; /* NOTIFYs that the peer has seen */
	uint64_t until_ns;
};

struct lend_server {
	struct careful *instance;
	struct lend_options options;
	struct pool pool;
	struct pool_group frees;
	struct lend_peer *peers;
	uint32_t peers_count;
	uint32_t opens_most; /* most regions of one peer */
	struct lend_piece *pieces; /* oldest first */
	uint32_t pieces_count, numbers;
	uint32_t closed; /* lend_open.closed of all pieces */
	uint64_t used; /* bytes mapped for all pieces */
	uint64_t due_ns; /* when the next piece expires; 0: none */
	struct lend_answer *answers, **answers_tail;
	struct lend_wait *waits;
	uint64_t waits_due_ns; /* when to check the WAITs; 0: now */
};

static inline bool lend_same(const struct careful_memory_host *a,
			     const struct careful_memory_host *b)
{
	return a->by == b->by && !__builtin_memcmp(a->id, b->id, sizeof(a->id));
}

/* piece.c */
/* Returns the bytes to map for a piece: whole huge pages if it is large and they fit into `room`,
 * else whole pages. The result exceeds `room` if the piece does not fit. */
uint64_t lend_piece_mapped(uint64_t bytes, uint64_t room);
struct lend_piece *lend_piece_create(struct lend_server *server, uint64_t bytes, uint64_t mapped);
/* Counts the bytes and pieces of an owner, including pieces that are being freed. */
void lend_piece_count(const struct lend_server *server, const struct careful_memory_host *owner,
		      uint64_t *bytes, uint32_t *pieces);
int lend_piece_open(struct lend_piece *piece, uint32_t peer, uint32_t access, uint32_t *key);
/* Closes a piece's regions of one peer, or of all (CAREFUL_ANY_PEER). */
void lend_piece_close(struct lend_piece *piece, uint32_t peer);
void lend_piece_end(struct lend_piece *piece);
/* Removes closed regions that no message uses now. */
void lend_piece_retry(struct lend_server *server);
void lend_piece_free(struct lend_piece *piece);
extern const struct pool_rules lend_rules;

/* presence.c: notes a peer's host. Must precede its requests. */
void lend_meet(struct lend_server *server, uint32_t peer);

/* request.c */
void lend_on_request(const struct careful_message *message, void *user);
/* Answers the CREATE of a piece whose worker has finished. */
void lend_created(struct lend_piece *piece);
void lend_deleted(struct lend_piece *piece);
void lend_answer_retry(struct lend_server *server);
void lend_wait_poll(struct lend_server *server);
