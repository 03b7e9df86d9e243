/* SPDX-License-Identifier: BSD-2-Clause */
/* Programs: ipc_region.c, ipc_ring.c, ipc_news.c and ipc_program.c. */
#pragma once

#include "daemon/ipc/ipc_private.h"

struct ipc_program_op {
	/* next free operation, or next operation in @later */
	struct ipc_program_op *next;
	struct ipc_program *program;
	uint64_t id; /* the program's number for the operation; 0: free */
	uint32_t file; /* index in the client's files[], plus 1; 0: no file */
	uint32_t moves; /* bytes of a store or get under way; 0: no such operation */
	struct careful_ring_entry asked; /* the program's entry, while the operation is in @later */
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
	bool gone; /* to be removed as soon as no message uses it */
};

/* The changes of the peer in a slot that a program must learn. */
struct ipc_news {
	uint32_t peer; /* the peer's name at that time */
	uint32_t put; /* value of notes_put after the last note about the peer */
	uint8_t state;
	bool known; /* the program asked for the peer, or the peer sent it something */
	bool due; /* @state is not reported yet */
	bool failed; /* a failure before @state is not reported yet */
	bool unread; /* the program has not read the last note about the peer */
};

/* An attached program: carefuld's end of its rings. The program can write anything into the area.
 * So carefuld keeps copies of its counters here, and never reads them from the area. */
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
	uint32_t notes_put; /* entries that carefuld put */
	/* operations of ops[] in use; the ring of notes keeps an entry free for the end of each */
	uint32_t ops_used;
	uint32_t answers_used;
	uint32_t handlers; /* handlers of requests that it owns */
	uint32_t regions_used;
	bool news; /* notes were put since the program was last woken */
	bool armed; /* asks_asleep is set: carefuld may sleep until the program's BELL */
	bool blocked; /* the program's next entry waits for room in the engine */
	bool stalled; /* the program has read no note for IPC_STALL_MS */
	bool quiet; /* the program sent QUIET, or has gone: no operation begins */
	bool over; /* the program has gone */
	uint32_t read; /* notes_taken at the last poll */
	uint64_t read_ns; /* when the program last read a note, or had no unread note */
	uint32_t answer_id_last; /* id of the latest entry of answers[]; the remainder is its index */
	uint64_t moving; /* bytes of its stores and gets under way */
	struct ipc_program_op *later; /* queue of stores and gets that wait (IPC_PROGRAM_BYTES) */
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
/* Returns the free entries of the ring of notes, less one for the end of each operation. */
uint32_t ipc_ring_room(const struct ipc_program *p);
void ipc_ring_put(struct ipc_program *p, const struct careful_ring_entry *entry,
		  const void *payload);
/* Wakes a program by a message. A full socket also wakes the program. */
void ipc_ring_bell(struct ipc_program *p);
/* Wakes a program if it sleeps and has news. */
void ipc_ring_wake(struct ipc_program *p);
/* Drops the operations that have not begun. */
void ipc_ring_forget(struct ipc_program *p);
/* Begins some of the program's operations; returns how many. */
uint32_t ipc_ring_round(struct ipc_program *p);
/* Prepares for sleep: the program must send BELL from now on. Returns true if carefuld must not
 * sleep, because an entry already waits that can begin. */
bool ipc_ring_waits(struct ipc_program *p);

/* ipc_news.c */
/* Records a peer's new state for all programs. Called while the peer's name is still valid. */
void ipc_programs_peer(struct ipc *ipc, uint32_t index, uint32_t state);
/* From now on, reports the changes of a slot's peer to the program. */
void ipc_news_know(struct ipc_program *p, uint32_t index);
void ipc_news_poll(struct ipc_program *p);
void ipc_news_forget(struct ipc_program *p);

/* ipc_program.c */
int ipc_program_attach(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q);
/* PROGRAMS: lists all programs. */
int ipc_programs(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q);
/* Reports whether an operation (`user`) belongs to a program (`of`). */
bool ipc_program_op_of(const void *user, const void *of);
/* Answers a program's questions other than ATTACH and PROGRAMS. */
int ipc_program_ask(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q);
void ipc_program_wants(struct ipc_program *p, uint32_t index);
/* Finds the programs that stopped reading notes, and wakes the programs with new notes. */
void ipc_programs_poll(struct ipc *ipc);
/* Begins to end a program that has gone. Also works after careful_close(), without an instance. */
void ipc_program_leave(struct ipc_client *client);
/* Reports whether a gone program's memory is unused and all peers' requests to it are answered. */
bool ipc_program_over(struct ipc_client *client);
void ipc_program_free(struct ipc_client *client);
