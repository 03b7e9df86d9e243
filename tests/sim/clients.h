/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs of a host that flood carefuld (clients.c) with questions (client_ask.c), and the
 * carefuld and the block server that they flood (carefuld.c).
 */
#ifndef SIM_CLIENTS_H
#define SIM_CLIENTS_H

#include <sys/types.h>

#include <careful/ipc.h>

#include "cluster.h"

enum {
	CLIENTS_HOST = 0, /* the node whose carefuld they ask */
	CLIENTS_SERVER = 1, /* the node that serves files */
	CLIENTS_BYTES = 200, /* of each file that they read or write */
};

enum { CLIENTS_TASKS_MAX = 480 }; /* of a program that floods, all at a time */

/* Kinds of tasks. */
enum kind { WRITES, READS, STATS, MAKES, LISTS, APPENDS, RENAMES, KINDS, KINDS_BESIDE = LISTS };

/* Questions of a task, one after the other; the first four open something. */
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

/* @began_ns: when it first asked; @asked_ns: when it asked what is under way; 0: nothing is */
struct task {
	uint8_t kind, at;
	uint32_t attempt, handle, answer;
	uint64_t again_ns, began_ns, asked_ns;
};

/*
 * @fd:      -1: not connected
 * @life:    0: it has not begun
 * @done:    tasks of this life that are over
 * @answers: of this life; at kill_at it is killed
 * @ready:   it has a session and a file
 * @next_ns: when a task may be asked
 */
struct program {
	int fd, memory;
	uid_t user;
	uint32_t index, life, peer, file, tasks, done, answers, kill_at;
	bool ready;
	uint64_t next_ns;
	struct task task[CLIENTS_TASKS_MAX];
};

/* client_ask.c */
enum step client_step(const struct task *task);
/* Puts the item of a kind's batches into the program's file. */
void client_put_item(const struct program *p, enum kind kind);
/* Sends a question, with the program's file if it is passed; false: the socket has no room. */
bool client_send(struct program *p, struct careful_ipc *head, const void *payload);
/* Asks what a task is at. */
bool client_ask(struct program *p, struct task *task);

/* carefuld.c; the rest of it is in cluster.h */
void carefuld_begin(struct cluster *cluster);
void carefuld_end(void);
/* Returns a user's connection, or -1 while carefuld does not run. */
int carefuld_connect(uid_t user);
/* Runs one round of a node; returns when the next one is due. */
uint64_t carefuld_run(const struct node *node);
/* Reports whether carefuld has no clients, and the server no handles and nobody who waits. */
bool carefuld_holds_nothing(void);

#endif /* SIM_CLIENTS_H */
