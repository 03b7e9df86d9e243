/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory client. Only its thread uses the instance, hosts, pieces and moves; callers post jobs
 * to the thread and wait. */
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

#include <careful/memory.h>

enum {
	MEMORY_MOVE_BYTES = 256 << 10, /* most bytes of one get or store */
	MEMORY_FLYING_MAX = 64, /* most gets and stores under way, to a host */
	MEMORY_FIRST_MOVES = 8, /* moves to begin before a poll sends them */
	MEMORY_RETRY_MS = 20, /* pause before a request is repeated */
	MEMORY_FDS = 16, /* most descriptors of an instance */
	MEMORY_TICK_MS = 10, /* period of the checks of time limits */
};

/* A call that waits for the thread; on the caller's stack. start() and the call decide which of
 * address to bytes are set. */
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
	uint32_t flying; /* gets and stores under way */
};

/* A get, a store or a request, which is repeated until it succeeds, fails or runs out of time. */
struct memory_move {
	struct memory_move *next;
	struct careful_memory *memory;
	struct memory_host *host;
	struct careful_memory_remote *remote; /* NULL: a request */
	uint64_t offset;
	void *local; /* memory to move; a request's payload */
	uint32_t bytes;
	bool is_store;
	bool awaited; /* a thread is blocked until the move is done */
	uint16_t handler; /* of a request, like args */
	const uint32_t *args;
	const struct careful_result *result; /* of a request, in done(); NULL: no answer */
	uint64_t until_ns; /* end of the attempts */
	uint64_t retry_ns; /* time of the next attempt */
	void (*done)(struct memory_move *move, int status); /* gives the move back to its owner */
	void *user;
};

/* An open piece. */
struct careful_memory_remote {
	struct careful_memory *memory;
	struct memory_host *host;
	struct careful_memory_piece piece; /* the host's description */
	uint64_t bytes;
	uint32_t number, access, key;
	bool stale; /* key is not valid in the present session */
	bool opening; /* the move `open` is under way */
	int status; /* -errno if the piece is gone, or 0 */
	struct careful_memory_map *map;
	struct memory_move open;
	struct memory_job *opener; /* waits for the first OPEN */
	struct memory_job *closer; /* waits for the end of the last OPEN */
	uint32_t ask_bytes;
	uint8_t ask[]; /* payload of OPEN */
};

enum {
	MAP_PAGE = 4096,
	MAP_SLOT_BYTES = 64 << 10, /* pages that move together */
	MAP_SLOTS = 128,
	MAP_SLOTS_SAVE = 112, /* saving uses at most these; the others are for fetches */
	MAP_SLOTS_AHEAD = 64, /* read-ahead uses at most these */
	MAP_WINDOW_PAGES = 64, /* the largest read-ahead */
	MAP_WINDOW_FIRST = 4, /* the first read-ahead of a stream, pages */
	MAP_STREAMS = 2, /* a database reads its index and its table */
	MAP_SKIP_PAGES = 4, /* pages that a stream may skip */
};

/* Pages touched in order. */
struct map_stream {
	uint64_t next_page; /* behind the pages fetched */
	uint32_t window; /* pages of the read-ahead */
};

enum map_page {
	PAGE_ABSENT,
	PAGE_COMING,
	PAGE_CLEAN, /* equal to the piece; write-protected in a writable map */
	PAGE_DIRTY,
	PAGE_SAVING, /* on its way to the piece; write-protected */
	PAGE_REWRITTEN, /* written while it is on its way: DIRTY once it has arrived */
	PAGE_REMOVED, /* its process removed it: zeros */
	PAGE_LOST, /* touching it raises SIGBUS */
};

/* A move of pages, and the buffer that it uses. */
struct map_slot {
	struct memory_move move;
	struct map_slot *next;
	struct careful_memory_map *map;
	uint8_t *memory;
	uint64_t page;
	uint32_t pages;
	bool wanted; /* a thread waits for the first page */
	bool writes; /* that thread writes */
	bool evicts; /* the pages are dropped once they are saved */
};

/* A map of a piece. */
struct careful_memory_map {
	struct careful_memory_map *next;
	struct careful_memory_remote *remote;
	int uffd;
	int caller_uffd; /* the caller's userfaultfd, which maps of one process share; -1: ours */
	struct map_slot *late; /* slots to install after pending events (uffd_copy()) */
	bool ours; /* the memory belongs to this process */
	bool writable;
	uint64_t base, bytes, offset, pages;
	uint64_t patience_ns;
	uint8_t *states; /* enum map_page of each page */
	uint64_t local, local_most; /* pages that are CLEAN to REWRITTEN, and their limit */
	uint64_t saving; /* pages on their way: SAVING or REWRITTEN */
	struct map_stream streams[MAP_STREAMS]; /* most recently used first */
	uint64_t ahead, ahead_end; /* pages to fetch without a fault */
	uint64_t hand; /* page where eviction continues */
	uint64_t flush_page; /* page where the flush continues */
	uint64_t rest_ns; /* no eviction before this time: the last one failed */
	uint32_t under_way; /* slots that this map uses */
	struct memory_job *flush, *closer; /* callers that wait for a flush, for the end */
};

struct careful_memory {
	struct careful *instance;
	uint64_t patience_ns;
	pthread_t thread;
	pid_t owner;
	pthread_mutex_t lock; /* protects jobs and stopping */
	struct memory_job *jobs, **jobs_tail;
	bool stopping;
	uint64_t posts, posts_read; /* wake-ups posted, and those read from event_fd */
	int event_fd;
	int extra_fd; /* epoll: event_fd and the maps' userfaultfds */
	int sleep_fd, watched[MEMORY_FDS]; /* epoll: the same, and the instance's watched fds */
	uint32_t watched_count;
	struct memory_host *hosts;
	struct memory_move *moves, **moves_tail; /* wait to begin */
	struct memory_move *flights; /* under way in the engine */
	uint32_t flying; /* gets and stores under way, of all hosts */
	uint32_t awaited; /* awaited moves in flights */
	bool served; /* the last awaited move has just ended: yield the CPU to its thread */
	struct careful_memory_map *maps;
	struct map_slot *slots, *slots_free; /* made with the first map */
	uint32_t slots_used;
	uint64_t tick_ns;
	int failed; /* -errno: the instance is gone */
};

/* job.c: runs a job in the thread and returns its status. */
int memory_run(struct careful_memory *memory, struct memory_job *job);
/* Wakes the thread. */
void memory_post(struct careful_memory *memory);
void memory_end_job(struct memory_job *job, int status);

/* host.c */
struct memory_host *memory_host_get(struct careful_memory *memory, const struct sockaddr *address,
				    uint32_t bytes);
/* Begins a session if there is none. Returns the peer or -errno. */
int memory_host_peer(struct careful_memory *memory, struct memory_host *host);
/* Ends the session and its operations. */
void memory_host_leave(struct careful_memory *memory, struct memory_host *host);
/* Reports whether a status means that the session ended. */
bool memory_is_lost(int status);

/* move.c */
void memory_piece_open(struct careful_memory_remote *remote);
void memory_move_queue(struct careful_memory *memory, struct memory_move *move);
/* Begins moves while there is room, and ends those that are out of time. */
void memory_move_poll(struct careful_memory *memory, uint64_t now_ns);

/* uffd.c: uffd_open() returns a descriptor or -errno. */
int uffd_open(void);
int uffd_register(int uffd, uint64_t base, uint64_t bytes, bool writable);
/* Installs pages and wakes their threads. Returns 0 or -errno; -EAGAIN: read pending events first. */
int uffd_copy(int uffd, uint64_t to, const void *from, uint64_t bytes, bool protect);
/* Installs a page of zeros. Returns false if the thread that waits for it has to touch it again, for
 * instance because events are pending. */
bool uffd_zero(int uffd, uint64_t page);
void uffd_wake(int uffd, uint64_t base, uint64_t bytes);
int uffd_protect(int uffd, uint64_t base, uint64_t bytes, bool protect);
/* Makes a page raise SIGBUS when it is touched. */
void uffd_lose(int uffd, uint64_t page, bool ours);

/* fetch.c: slot_take() returns NULL if `most` slots are in use. */
struct map_slot *slot_take(struct careful_memory_map *map, uint64_t page, uint32_t pages,
			   uint32_t most);
void slot_put(struct map_slot *slot);
/* Serves a fault on a page, and chooses pages to fetch ahead. */
void fetch_fault(struct careful_memory_map *map, uint64_t page, bool writes);
/* Installs the late slots. */
void fetch_late(struct careful_memory_map *map);
/* Fetches the pages from ahead to ahead_end while there are slots. */
void fetch_ahead(struct careful_memory_map *map);
/* Returns how many pages to read ahead after a fault: 0 if no stream leads to the page. Moves the
 * page's stream to the front.
 *
 * begins: if no stream leads to the page, it replaces the least recently used stream */
uint32_t fetch_window(struct map_stream *streams, uint64_t page, uint64_t most, bool begins);

/* save.c */
void save_evict(struct careful_memory_map *map, uint64_t now_ns);
void save_flush(struct careful_memory_map *map);

/* map.c */
void memory_map_poll(struct careful_memory *memory);
/* Evicts pages beyond the maps' limits. Sends new moves first, since threads may wait for them. */
void memory_map_evict(struct careful_memory *memory, uint64_t now_ns);
