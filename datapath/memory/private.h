/* SPDX-License-Identifier: BSD-2-Clause */
/* The thread that drives an instance for the memory client. Only this thread touches the instance,
 * hosts, pieces and moves; callers post jobs and wait for them. */
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

#include <careful/memory.h>

enum {
	MEMORY_MOVE_BYTES = 256 << 10, /* the most that one get or store moves */
	MEMORY_FLYING_MAX = 64, /* moves that carefuld has */
	MEMORY_AGAIN_MS = 20, /* before a host that had no room is asked again */
	MEMORY_TICK_MS = 10, /* between two looks at the time limits */
};

/* A call that waits for the thread; on the caller's stack. */
struct memory_job {
	struct memory_job *next;
	void (*start)(struct careful_memory *memory, struct memory_job *job);
	sem_t done;
	int status;
};

struct memory_host {
	struct memory_host *next;
	struct sockaddr_storage address;
	uint32_t address_bytes;
	int peer; /* -1: none */
};

/* A request that is asked until it has an answer, or the time is over.
 *
 * @done:    called once, with the answer or with -errno in its status
 * @over:    it was called: this is freed when the engine has let go of it
 * @asked:   the engine has it
 * @again_ns: when to ask again */
struct memory_ask {
	struct memory_ask *next;
	struct careful_memory *memory;
	struct memory_host *host;
	void (*done)(struct careful_memory *memory, const struct careful_result *result,
		     void *user);
	void *user;
	uint64_t until_ns, again_ns;
	bool asked, over;
	uint16_t handler;
	uint32_t args[4];
	uint32_t bytes;
	uint8_t payload[];
};

struct careful_memory_remote {
	struct careful_memory *memory;
	struct memory_host *host;
	struct careful_memory_piece piece; /* as the host said */
	uint64_t bytes;
	uint32_t number, access, key;
	bool stale, opening;
	int status; /* why it cannot be opened again; 0: it can */
	struct careful_memory_map *map;
	struct memory_job *opener; /* waits for the first OPEN */
	uint32_t ask_bytes;
	uint8_t ask[];
};

/* A get or a store. The caller owns it until done is called.
 *
 * @until_ns: after this time it is not tried again */
struct memory_move {
	struct memory_move *next;
	struct careful_memory_remote *remote;
	uint64_t offset;
	void *local;
	uint32_t bytes;
	bool is_store, flying;
	uint64_t until_ns;
	void (*done)(struct memory_move *move, int status);
	void *user;
};

/*
 * @lock:    protects jobs and stopping
 * @event_fd: wakes the thread for jobs
 * @extra_fd: epoll: event_fd, and what maps wait for
 * @moves:   wait to begin
 * @flying:  moves that the engine has
 * @failed:  -errno: the instance is gone
 */
struct careful_memory {
	struct careful *instance;
	uint64_t patience_ns;
	pthread_t thread;
	pid_t owner;
	pthread_mutex_t lock;
	struct memory_job *jobs, **jobs_tail;
	bool stopping;
	int event_fd, extra_fd;
	struct memory_host *hosts;
	struct memory_ask *asks;
	struct memory_move *moves, **moves_tail, *flights;
	uint32_t flying;
	uint64_t tick_ns;
	int failed;
};

/* job.c: runs a job in the thread; returns its status. */
int memory_run(struct careful_memory *memory, struct memory_job *job);
void memory_end_job(struct memory_job *job, int status);

/* host.c */
struct memory_host *memory_host_get(struct careful_memory *memory, const struct sockaddr *address,
				    uint32_t bytes);
/* Begins a session if there is none. Returns the peer or -errno. */
int memory_host_peer(struct careful_memory *memory, struct memory_host *host);
/* Ends the session, and with it what is under way. */
void memory_host_leave(struct careful_memory *memory, struct memory_host *host);
int memory_ask_begin(struct careful_memory *memory, struct memory_ask *asked);
struct memory_ask *memory_ask_new(struct memory_host *host, uint16_t handler, const uint32_t *args,
				  const void *payload, uint32_t bytes);
/* Asks what is due, and ends what is late. */
void memory_ask_poll(struct careful_memory *memory, uint64_t now_ns);
/* Reports whether a status means that the session ended. */
bool memory_is_lost(int status);

/* piece.c */
void memory_move_put(struct careful_memory *memory, struct memory_move *move);
/* Begins moves while there is room, and ends those that are late. */
void memory_move_poll(struct careful_memory *memory, uint64_t now_ns);
