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
	MEMORY_BEGIN_FIRST = 8, /* parts of a vector that leave before the others begin */
	MEMORY_AGAIN_MS = 20, /* wait before a host without room is asked again */
	MEMORY_FDS = 16, /* descriptors of an instance */
	MEMORY_TICK_MS = 10, /* between two looks at the time limits */
};

/* A call that waits for the thread; on the caller's stack. @address to @bytes: of some calls */
struct memory_job {
	struct memory_job *next;
	void (*start)(struct careful_memory *memory, struct memory_job *job);
	const struct sockaddr *address;
	uint32_t address_bytes;
	struct careful_memory_remote *remote;
	struct careful_memory_map *map;
	uint64_t offset, bytes;
	sem_t done;
	int status;
};

struct memory_host {
	struct memory_host *next;
	struct sockaddr_storage address;
	uint32_t address_bytes;
	int peer; /* -1: none */
};

/* A get, a store or a request, which is repeated until it has an answer or the time is over. The
 * caller owns it until done is called.
 *
 * @remote:   NULL: a request
 * @local:    its memory; a request's payload
 * @result:   of a request, in done; NULL: there is no answer
 * @awaited:  a thread does nothing else until it is done
 * @until_ns: after this time it is not tried again; @again_ns: when to try it again */
struct memory_move {
	struct memory_move *next;
	struct careful_memory *memory;
	struct memory_host *host;
	struct careful_memory_remote *remote;
	uint64_t offset;
	void *local;
	uint32_t bytes;
	bool is_store, flying, awaited;
	uint16_t handler;
	const uint32_t *args;
	const struct careful_result *result;
	uint64_t until_ns, again_ns;
	void (*done)(struct memory_move *move, int status);
	void *user;
};

/* @status:  errno if it cannot be opened again, or 0
 * @open:    the OPEN, while it is under way (opening)
 * @opener:  waits for the first OPEN; @closer: for the end of the last
 * @ask:     payload of OPEN */
struct careful_memory_remote {
	struct careful_memory *memory;
	struct memory_host *host;
	struct careful_memory_piece piece; /* from the host's description */
	uint64_t bytes;
	uint32_t number, access, key;
	bool stale, opening;
	int status;
	struct careful_memory_map *map;
	struct memory_move open;
	struct memory_job *opener, *closer;
	uint32_t ask_bytes;
	uint8_t ask[];
};

enum {
	MAP_PAGE = 4096,
	MAP_SLOT_BYTES = 64 << 10, /* pages that move together */
	MAP_SLOTS = 128,
	MAP_SLOTS_SAVE = 112, /* slots for saving; the others are for fetches */
	MAP_SLOTS_AHEAD = 64, /* slots for reading ahead; the others are for touched pages */
	MAP_WINDOW_PAGES = 64, /* the largest read-ahead */
	MAP_WINDOW_FIRST = 4,
	MAP_STREAMS = 2, /* a database's index, and its table */
	MAP_SKIP_PAGES = 4, /* reading ahead over these is faster than another fault */
};

/* Pages touched in order. @next_page: behind those fetched; @window: pages of the read-ahead */
struct map_stream {
	uint64_t next_page;
	uint32_t window;
};

enum map_page {
	PAGE_ABSENT,
	PAGE_COMING,
	PAGE_CLEAN, /* equal to the piece, and write-protected if the map is writable */
	PAGE_DIRTY,
	PAGE_SAVING, /* write-protected, and on its way to the piece */
	PAGE_REMOVED, /* given up by its process: zeros */
	PAGE_LOST, /* touching it raises SIGBUS */
};

/* A move of pages, and the memory that it uses.
 *
 * @wanted: a thread waits for the first page; it wants to write */
struct map_slot {
	struct memory_move move;
	struct map_slot *next;
	struct careful_memory_map *map;
	uint8_t *memory;
	uint64_t page;
	uint32_t pages;
	bool wanted, writes, evicts;
};

/* @given:   the userfaultfd that the caller named; maps of one process have the same
 * @late:    slots that could not be installed yet, because of an event that is to be read first
 * @ours: the memory belongs to this process
 * @states:  enum map_page of each page
 * @local:   pages that are CLEAN, DIRTY or SAVING; @saving: SAVING
 * @streams: the one used last is first
 * @ahead, @ahead_end: pages that are to be fetched without a fault
 * @hand:    where eviction goes on
 * @under_way: slots that this map uses
 * @flush, @flush_page: the caller that waits for a flush, and what is next
 * @closer:  the caller that waits for the end
 * @rest_ns: no eviction before this time: the last one failed */
struct careful_memory_map {
	struct careful_memory_map *next;
	struct careful_memory_remote *remote;
	int uffd, given;
	struct map_slot *late;
	bool ours, writable;
	uint64_t base, bytes, offset, pages;
	uint64_t patience_ns;
	uint8_t *states;
	uint64_t local, local_most, saving;
	struct map_stream streams[MAP_STREAMS];
	uint64_t ahead, ahead_end, hand, flush_page, rest_ns;
	uint32_t under_way;
	struct memory_job *flush, *closer;
};

/* @lock:    protects jobs and stopping
 * @posts:   wake-ups of the thread for jobs; @posts_read: those that it took from event_fd
 * @extra_fd: epoll: event_fd, and what maps wait for
 * @sleep_fd: the same, and @watched: what the instance waits for
 * @moves:   wait to begin
 * @flying:  gets and stores that the engine has
 * @awaited: moves that the engine has, and that a thread waits for
 * @served:  what a thread waited for has just come, so the CPU is for that thread
 * @failed:  -errno: the instance is gone */
struct careful_memory {
	struct careful *instance;
	uint64_t patience_ns;
	pthread_t thread;
	pid_t owner;
	pthread_mutex_t lock;
	struct memory_job *jobs, **jobs_tail;
	bool stopping;
	uint64_t posts, posts_read;
	int event_fd, extra_fd, sleep_fd, watched[MEMORY_FDS];
	uint32_t watched_count;
	struct memory_host *hosts;
	struct memory_move *moves, **moves_tail, *flights;
	uint32_t flying, awaited;
	bool served;
	struct careful_memory_map *maps;
	struct map_slot *slots, *slots_free; /* made with the first map */
	uint32_t slots_used;
	uint64_t tick_ns;
	int failed;
};

/* job.c: runs a job in the thread; returns its status. */
int memory_run(struct careful_memory *memory, struct memory_job *job);
/* Wakes the thread. */
void memory_post(struct careful_memory *memory);
void memory_end_job(struct memory_job *job, int status);

/* host.c */
struct memory_host *memory_host_get(struct careful_memory *memory, const struct sockaddr *address,
				    uint32_t bytes);
/* Begins a session if there is none. Returns the peer or -errno. */
int memory_host_peer(struct careful_memory *memory, struct memory_host *host);
/* Ends the session, and with it what is under way. */
void memory_host_leave(struct careful_memory *memory, struct memory_host *host);
/* Reports whether a status means that the session ended. */
bool memory_is_lost(int status);

/* move.c: memory_piece_open() opens a piece, perhaps again. */
void memory_piece_open(struct careful_memory_remote *remote);
void memory_move_put(struct careful_memory *memory, struct memory_move *move);
/* Begins moves while there is room, and ends those that are late. */
void memory_move_poll(struct careful_memory *memory, uint64_t now_ns);

/* uffd.c: the system calls. uffd_open() returns a descriptor or -errno. */
int uffd_open(void);
int uffd_register(int uffd, uint64_t base, uint64_t bytes, bool writable);
/* Installs pages and wakes the threads that wait for them. Returns 0 or -errno; -EAGAIN: an event
 * is to be read first. */
int uffd_copy(int uffd, uint64_t to, const void *from, uint64_t bytes, bool protect);
void uffd_zero(int uffd, uint64_t page);
void uffd_wake(int uffd, uint64_t base, uint64_t bytes);
int uffd_protect(int uffd, uint64_t base, uint64_t bytes, bool protect);
/* Makes threads that touch a page get SIGBUS. */
void uffd_lose(int uffd, uint64_t page, bool ours);

/* fetch.c: pages to here. slot_take() returns NULL if `most` slots are in use. */
struct map_slot *slot_take(struct careful_memory_map *map, uint64_t page, uint32_t pages,
			   uint32_t most);
void slot_put(struct map_slot *slot);
/* Fetches the page that a thread touched, and pages behind it. */
void fetch_fault(struct careful_memory_map *map, uint64_t page, bool writes);
/* Installs pages that could not be installed before. */
void fetch_late(struct careful_memory_map *map);
/* Fetches what is to come without a fault, while there are slots. */
void fetch_ahead(struct careful_memory_map *map);
/* Returns how many pages to read ahead after a fault: 0 unless the fault follows a stream, or has
 * caught up with its read-ahead. The stream is then the first. */
uint32_t fetch_window(struct map_stream *streams, uint64_t page, uint64_t most, bool begins);

/* save.c: pages to the piece. save_evict() keeps a map within its limit. */
void save_evict(struct careful_memory_map *map, uint64_t now_ns);
void save_flush(struct careful_memory_map *map);

/* map.c: serves faults and the calls that wait for maps. */
void memory_map_poll(struct careful_memory *memory);
/* Keeps maps within their limits, after what was begun has left: a thread may wait for that. */
void memory_map_evict(struct careful_memory *memory, uint64_t now_ns);
