/* SPDX-License-Identifier: BSD-2-Clause */
/* Pieces and peers of the memory server. The engine's thread owns a piece, except while it is
 * FILLING or FREEING: then a worker owns its memory. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "lend/lend.h"

enum {
	LEND_PIECES = 1024, /* for all hosts together */
	LEND_PIECES_HOST = 128,
	LEND_OPENS = CAREFUL_REGIONS_MAX / 2, /* regions, for all peers together */
	LEND_OPENS_PEER = 256,
	LEND_ANSWERS_PEER = 64, /* answers that wait for room; a peer's further requests get none */
	LEND_WAITS_PEER = 64,
	LEND_WAIT_MS = 1000, /* the longest WAIT */
	LEND_WORKERS = 3,
	LEND_STOP_MS = 2000,
	LEND_STEP_BYTES = 64 << 20, /* a stopping worker ends after this much */
	LEND_HUGE_BYTES = 2 << 20,
	LEND_PAGE_BYTES = 4096,
};

/* A region of a piece, for one peer. @ended: closed to the peer, but messages still use it */
struct lend_open {
	struct lend_open *next;
	uint32_t peer, key;
	bool ended;
};

enum lend_state {
	LEND_FILLING, /* a worker maps the memory */
	LEND_READY,
	LEND_ENDING, /* waits until no message uses its regions */
	LEND_FREEING, /* a worker unmaps the memory */
};

/* @to, @asked: the CREATE or DELETE that waits for a worker
 * @peer:       of that request
 * @attempt:    the client's name for its CREATE; 0: none
 * @mapped:     bytes including whole pages; these count
 * @gone_ns:    when the last session of the owner ended; 0: one exists */
struct lend_piece {
	struct pool_job pooled;
	struct lend_piece *next;
	struct lend_server *server;
	enum lend_state state;
	int status;
	uint32_t number, peer;
	struct careful_reply_to to;
	bool asked;
	uint64_t attempt;
	uint32_t notified; /* number of NOTIFYs */
	uint64_t bytes, mapped, gone_ns;
	uint8_t *memory;
	uint32_t page_bytes;
	struct lend_open *opens;
	struct careful_memory_host owner, hosts[CAREFUL_MEMORY_HOSTS];
	uint32_t hosts_count;
	uint32_t name_bytes;
	char name[CAREFUL_MEMORY_NAME_BYTES];
};

/* @host: the peer's identity, if it is present; @fills: its pieces that workers map */
struct lend_peer {
	bool present;
	struct careful_memory_host host;
	uint32_t opens, answers, waits;
	struct pool_group fills;
};

/* An answer that waits for room in the engine. */
struct lend_answer {
	struct lend_answer *next;
	struct careful_reply_to to;
	int status;
	uint32_t args[4];
	uint32_t bytes;
	uint8_t payload[];
};

/* A WAIT. @number: of its piece; @seen: NOTIFYs that the peer has seen */
struct lend_wait {
	struct lend_wait *next;
	struct careful_reply_to to;
	uint32_t number, seen;
	uint64_t until_ns;
};

/* @used:    bytes mapped for all pieces
 * @opens_most: regions that one peer may have
 * @ended:   regions that messages still use
 * @due_ns:  when the next kept piece is freed; 0: none
 * @waits_due_ns: when to look at the WAITs again; 0: now */
struct lend_server {
	struct careful *instance;
	struct lend_options options;
	struct pool pool;
	struct pool_group frees;
	struct lend_peer *peers;
	uint32_t peers_count, opens_most;
	struct lend_piece *pieces; /* the oldest first */
	uint32_t pieces_count, numbers, ended;
	uint64_t used, due_ns;
	struct lend_answer *answers, **answers_tail;
	struct lend_wait *waits;
	uint64_t waits_due_ns;
};

static inline bool lend_same(const struct careful_memory_host *a,
			     const struct careful_memory_host *b)
{
	return a->by == b->by && !__builtin_memcmp(a->id, b->id, sizeof(a->id));
}

/* piece.c */
struct lend_piece *lend_piece_create(struct lend_server *server, uint64_t bytes);
/* Adds up the bytes and the pieces of an owner, including those that are being freed. */
void lend_piece_count(const struct lend_server *server, const struct careful_memory_host *owner,
		      uint64_t *bytes, uint32_t *pieces);
int lend_piece_open(struct lend_piece *piece, uint32_t peer, uint32_t access, uint32_t *key);
/* Closes a piece's regions of one peer, or of all (CAREFUL_ANY_PEER). */
void lend_piece_close(struct lend_piece *piece, uint32_t peer);
void lend_piece_end(struct lend_piece *piece);
/* Removes regions that no message uses any longer. */
void lend_piece_retry(struct lend_server *server);
/* Frees a piece, and its memory unless a worker has unmapped it. */
void lend_piece_free(struct lend_piece *piece);
extern const struct pool_rules lend_rules;

/* presence.c: notes which host a peer is. Called before its requests are served. */
void lend_meet(struct lend_server *server, uint32_t peer);

/* request.c */
void lend_on_request(const struct careful_message *message, void *user);
/* Answers the CREATE of a piece that has its memory, or could not get it. */
void lend_created(struct lend_piece *piece);
void lend_deleted(struct lend_piece *piece);
void lend_answer_retry(struct lend_server *server);
/* Answers WAITs that have ended. */
void lend_wait_poll(struct lend_server *server);
