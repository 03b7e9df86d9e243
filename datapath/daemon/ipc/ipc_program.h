/* SPDX-License-Identifier: BSD-2-Clause */
/* Programs: ipc_region.c, ipc_ring.c, ipc_news.c and ipc_program.c. */
#pragma once

#include "daemon/ipc/ipc_private.h"

/* An operation of a program. */
struct ipc_program_op {
	/* next free operation, or next one that waits for others to end */
	struct ipc_program_op *next;
	struct ipc_program *program;
	uint64_t id; /* the program's number for it; 0: free */
	uint32_t file; /* index in the client's files[], plus 1; 0: none */
	uint32_t moves; /* bytes of a store or get under way; 0: none */
	struct careful_ring_entry asked; /* the program's entry, while the operation waits */
};

/* A request of a peer that the program has not answered. */
struct ipc_program_ask {
	struct careful_reply_to to;
	uint32_t id; /* 0: free */
};

struct ipc_program_region {
	uint32_t key; /* 0: free */
	uint32_t peer; /* slot, or CAREFUL_ANY_PEER */
	int fd; /* the file's; -1: the region is memory */
	uint64_t memory_off;
	bool gone; /* to be removed when no message reads or writes the region */
};

/* A program's knowledge of the peer in a slot. */
struct ipc_news {
	uint32_t peer; /* the peer's name at that time */
	uint32_t put;
	uint8_t state;
	bool known; /* the program asked for the peer, or the peer sent it something */
	bool due; /* state is not reported yet */
	bool failed; /* an earlier failure is not reported yet */
	bool unread; /* the program has not read the last note; put was told_put after that note */
};

/* An attached program: carefuld's end of its rings. The program can write anything into the
 * area, so carefuld keeps its own counters here, and never reads back those that it writes
 * there. */
struct ipc_program {
	struct ipc_client *client; /* the program's connection */
	struct ipc_program *next;
	struct careful_area *area; /* memory shared with the program */
	uint64_t area_bytes;
	struct careful_ring_entry *asks, *told;
	uint8_t *asks_payload, *told_payload, *built;
	uint8_t *memory;
	uint64_t memory_bytes;
	uint32_t asks_taken; /* entries that carefuld took */
	uint32_t told_put; /* entries that carefuld put */
	/* operations of ops[] that are taken; the ring of notes has room for the end of each */
	uint32_t ops_used;
	uint32_t answers_used;
	uint32_t handlers; /* handlers of requests that it owns */
	uint32_t regions_used;
	bool news; /* notes were put since it was last woken */
	bool armed; /* carefuld sleeps, and the area says so */
	bool blocked; /* its next entry waits for room in the engine */
	bool stalled; /* it has read no note for IPC_STALL_MS */
	bool quiet; /* it sent QUIET, or has gone: no operation begins */
	bool over; /* the program has gone */
	uint32_t read; /* told_taken at the last poll */
	uint64_t read_ns; /* when it last read a note, or had none to read */
	uint32_t answer_generation;
	uint64_t moving; /* bytes of its stores and gets under way */
	struct ipc_program_op *later; /* stores and gets that wait for those under way */
	struct ipc_program_op **later_tail;
	struct ipc_program_op *ops_free;
	struct ipc_program_op ops[IPC_PROGRAM_OPS];
	struct ipc_program_ask answers[CAREFUL_RING_ANSWERS];
	struct ipc_program_region regions[CAREFUL_AREA_REGIONS];
	bool stores[CAREFUL_HANDLERS_APP]; /* handlers of stores that it has */
	bool wants[CAREFUL_PEERS_MAX]; /* peers that it asked for and has not left */
	struct ipc_news peers[CAREFUL_PEERS_MAX];
	uint32_t news_count; /* peers with a note that is due or unread */
	struct careful_program_info info; /* its name, process and counts */
};

/* ipc_region.c */
struct ipc_program_region *ipc_region_find(struct ipc_program *p, uint32_t key);
int ipc_region_add(struct ipc_program *p, struct ipc_question *q, uint32_t *key);
/* Removes a region. -EBUSY: operations still use it, and no new one can begin. */
int ipc_region_remove(struct ipc_program *p, struct ipc_program_region *region);
void ipc_regions_remove_gone(struct ipc_program *p);

/* ipc_ring.c */
/* Returns the free entries of the ring of notes, besides one for the end of each operation. */
uint32_t ipc_ring_room(const struct ipc_program *p);
void ipc_ring_tell(struct ipc_program *p, const struct careful_ring_entry *entry,
		   const void *payload);
/* Wakes a program. A full socket wakes it, too. */
void ipc_ring_bell(struct ipc_program *p);
/* Wakes a program if it sleeps and has news. */
void ipc_ring_wake(struct ipc_program *p);
/* Drops the operations that have not begun. */
void ipc_ring_forget(struct ipc_program *p);
/* Begins some of the program's operations; returns how many. */
uint32_t ipc_ring_round(struct ipc_program *p);
/* Lets the program wake us. Returns true if an entry that can begin already waits. */
bool ipc_ring_waits(struct ipc_program *p);

/* ipc_news.c */
/* Notes a peer's new state. Called before the peer's name becomes invalid. */
void ipc_programs_peer(struct ipc *ipc, uint32_t index, uint32_t state);
/* Begins to report the changes of a slot's peer to the program. */
void ipc_news_know(struct ipc_program *p, uint32_t index);
void ipc_news_poll(struct ipc_program *p);
void ipc_news_forget(struct ipc_program *p);

/* ipc_program.c */
int ipc_program_attach(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q);
/* PROGRAMS: lists all programs. */
int ipc_programs(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q);
/* Reports whether an operation (`user`) belongs to a program (`of`). */
bool ipc_program_op_of(const void *user, const void *of);
/* Answers the other questions of a program. */
int ipc_program_ask(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q);
void ipc_program_wants(struct ipc_program *p, uint32_t index);
/* Finds programs that do not read their notes, and wakes those with news. */
void ipc_programs_poll(struct ipc *ipc);
/* Ends a program that has gone. After careful_close() there is no instance. */
void ipc_program_leave(struct ipc_client *client);
/* Reports whether nothing uses the program's memory and no peer waits for its answers. */
bool ipc_program_over(struct ipc_client *client);
void ipc_program_free(struct ipc_client *client);
