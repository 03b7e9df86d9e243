/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that flood carefuld (clients.c) with questions (client_ask.c); their carefuld and block
 * server are in carefuld.c.
 */
#ifndef SIM_CLIENTS_H
#define SIM_CLIENTS_H

#include <sys/types.h>

#include <careful/ipc.h>

#include "cluster.h"

enum {
	CLIENTS_HOST = 0, /* the programs' node */
	CLIENTS_SERVER = 1, /* the node that serves files */
	CLIENTS_BYTES = 200, /* of each file */
};

enum { CLIENTS_TASKS_MAX = 480 }; /* tasks of a flooding program, all at a time */

/* Kinds of tasks; those before KINDS_BESIDE also of the program that does not flood. */
enum kind { WRITES, READS, STATS, MAKES, LISTS, APPENDS, RENAMES, KINDS, KINDS_BESIDE = LISTS };

/* Questions of a task; CREATE to LIST open a handle, and COMMIT to CLOSE_ANSWER end one. */
enum step {
	OVER,
	CREATE,
	OPEN,
	SCRATCH,
	LIST,
	STAT,
	MKDIR,
	BATCH,
	COMMIT,
	CLOSE,
	CLOSE_ANSWER,
	STORE,
	STORE_ITEM,
	GET,
};

/* @began_ns, @asked_ns, @again_ns: time of its first question, of the one under way, or 0, and of
 *   the next */
struct task {
	uint8_t kind, at;
	uint32_t attempt, handle, answer;
	uint64_t again_ns, began_ns, asked_ns;
};

/*
 * @fd: -1: not connected
 * @life: 0: not begun
 * @done: finished tasks of this life
 * @answers: answers in this life; after kill_at it is killed
 * @resets: answers in a row that the session ended
 * @ready: it has a session and a file
 * @next_ns: when the next question is due
 */
struct program {
	int fd, memory;
	uid_t user;
	uint32_t index, life, peer, file, tasks, done, answers, kill_at, resets;
	bool ready;
	uint64_t next_ns;
	struct task task[CLIENTS_TASKS_MAX];
};

/* client_ask.c */
enum step client_step(const struct task *task);
/* Writes the item of a kind's batches into the program's file. */
void client_put_item(const struct program *p, enum kind kind);
/* Sends a question, perhaps with the program's file. Returns false if the socket is full. */
bool client_send(struct program *p, struct careful_ipc *head, const void *payload);
/* Sends a task's next question. */
bool client_ask(struct program *p, struct task *task);

/* carefuld.c; the rest of it is in cluster.h */
void carefuld_begin(struct cluster *cluster);
void carefuld_end(void);
/* Connects as a user; -1: carefuld does not run. */
int carefuld_connect(uid_t user);
/* Runs one round of a node. Returns the time at which the next round is due. */
uint64_t carefuld_run(const struct node *node);
/* Reports whether carefuld has no clients and the server neither handles nor waiting requests. */
bool carefuld_holds_nothing(void);

#endif /* SIM_CLIENTS_H */
