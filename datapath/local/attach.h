/* SPDX-License-Identifier: BSD-2-Clause */
/* An instance that is attached to carefuld (careful_attach()). */
#pragma once

#include <stdbool.h>

#include <careful/ipc.h>
#include <careful/ping.h>

#include "engine/engine.h"
#include "local/ring_number.h"

enum { ATTACH_PAGE_BYTES = 4096 };

struct attached_op {
	uint64_t id; /* 0: free */
	careful_done_fn *done;
	careful_ping_fn *pinged; /* ping: the callback, instead of done */
	void *user;
	uint32_t peer;
	/* its peer was closed; carefuld still answers; the callback has run, but not with @lands */
	bool abandoned;
	bool lands; /* get: carefuld writes into the program's memory until it reports the end */
	void *into; /* get: destination of the copy; NULL: the bytes are in place */
	uint64_t memory_off;
	uint32_t pages; /* number of pages, from memory_off on, that the copy occupies */
	uint32_t file; /* carefuld's number of the file, + 1; 0: memory */
};

/* The state of a payload for careful_send(). SENT: an entry of the ring names it, and carefuld may
 * not have taken the entry. */
enum attached_built { ATTACHED_FREE, ATTACHED_OWN, ATTACHED_SENT };

struct attached_region {
	uint32_t key; /* 0: free */
	uint8_t *base;
};

/* A reply without payload that found the ring full. */
struct attached_answer {
	uint32_t token;
	int status;
};

struct attached {
	int open_fd; /* the socket to carefuld until we close it; -1: none */
	int socket_fd; /* the same; -1: carefuld has ended */
	uint64_t last_id; /* the last question's */
	struct careful_area *area;
	uint64_t area_bytes;
	struct careful_ring_entry *asks, *told;
	uint8_t *asks_payload, *told_payload, *built;
	uint8_t *memory;
	uint64_t memory_bytes;
	uint8_t *pages_used; /* a byte for each page of the memory */
	uint32_t pages_count, free_count;
	bool lent; /* the application has some of the memory */
	/* our own copies, because other processes can write to the area */
	uint32_t asks_put, notes_taken;
	bool armed; /* notes_asleep is set */
	bool refused; /* an entry found no room, and no wait has reported room since */
	bool closed; /* a peer was closed, or carefuld has ended: operations must end */
	uint32_t looks; /* polls so far; only some check the socket */
	uint64_t generation;
	uint8_t free[CAREFUL_RING_OPERATIONS]; /* indices of free ops[] */
	struct attached_op ops[CAREFUL_RING_OPERATIONS];
	/* enum attached_built, for each payload that the application may build */
	uint8_t built_state[CAREFUL_RING_BUILT];
	/* for each entry of the ring: the built payload that it names, + 1 */
	uint8_t asks_built[CAREFUL_RING_ASKS];
	uint32_t own_file; /* carefuld's number of our /proc/self/mem, + 1; 0: not yet passed */
	/* regions in memory that is not shared */
	struct attached_region regions[CAREFUL_AREA_REGIONS];
	/* replies that wait for room in the ring; at most as many as peers wait for */
	struct attached_answer owed[CAREFUL_RING_ANSWERS];
	uint32_t owed_at, owed_count;
};

/* socket.c */
int attached_connect(struct attached *a, const char *path);
int attached_exchange(struct careful *c, struct careful_ipc *head, const void *payload, int *fd,
		      void *answer, uint32_t bytes);
int attached_ask(struct careful *c, struct careful_ipc *head, void *answer, uint32_t bytes);
int attached_pass(struct careful *c, struct careful_ipc *head, const void *payload, int fd,
		  void *answer, uint32_t bytes);
void attached_bell(const struct attached *a, uint32_t flags);
void attached_look(struct careful *c);

/* memory.c */
int attached_pages(struct attached *a, uint64_t bytes, uint64_t *memory_off);
int attached_memory(struct careful *c, uint64_t bytes, void **base);
int attached_file_add(struct careful *c, int fd, uint32_t *file);
void attached_file_remove(struct careful *c, uint32_t file);
int attached_own_file(struct careful *c);
void attached_quiet(struct careful *c);
int attached_region_add(struct careful *c, const struct careful_region *region, uint32_t *key);
int attached_region_remove(struct careful *c, uint32_t key);
const uint8_t *attached_stored(const struct attached *a, uint32_t key, uint64_t off);

/* ring_out.c */
bool attached_may_begin(struct careful *c, uint32_t requests);
bool attached_handed_over(const struct careful *c);
__typeof__(careful_request) attached_request;
__typeof__(careful_alloc) attached_alloc;
__typeof__(careful_free) attached_free;
__typeof__(careful_send) attached_send;
__typeof__(careful_reply_late) attached_reply;
__typeof__(careful_store) attached_store;
__typeof__(careful_get) attached_get;
__typeof__(careful_ping) attached_ping;
void attached_answer_owed(struct careful *c);
void attached_free_op(struct attached *a, struct attached_op *op);

/* ring_in.c */
uint64_t attached_now_ns(const struct careful *c);
struct careful_kept *attached_keep(const struct careful_message *message);
void attached_release(struct careful *c, struct careful_kept *kept);
int attached_poll(struct careful *c);
int attached_wait_fds(struct careful *c, int *fds, uint32_t n, int *timeout_ms);
