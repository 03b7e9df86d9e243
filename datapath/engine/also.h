/* SPDX-License-Identifier: BSD-2-Clause */
/* What carefuld has of an instance beside the calls of careful.h, for programs that share it. */
#ifndef SERVICE_ALSO_H
#define SERVICE_ALSO_H

#include <stdbool.h>

#include <careful/careful.h>

/* Does what there is to do, and returns how much that was. @sleeps: it will not be asked for a
 * while, does nothing, and tells whether there is something. */
typedef uint32_t engine_also_fn(struct careful *c, void *user, bool sleeps);

/* Asked in each round, and before each wait. NULL: nobody is. */
void engine_also(struct careful *c, engine_also_fn *fn, void *user);

/* Of the store whose handler is running: who sent it hears this errno, its bytes in place. */
void engine_refuse_store(struct careful *c, int error);

/* No peer begins anything at the region any more. careful_region_remove() is due yet. */
void engine_revoke_region(struct careful *c, uint32_t key);

/* Nor is anything written into it by what is under way already: how many writes disks have yet. */
uint32_t engine_stop_stores(struct careful *c, uint32_t key);

/* The descriptor is the same file until engine_lose_file(), which comes before it is closed. */
void engine_keep_file(struct careful *c, int fd);
void engine_lose_file(struct careful *c, int fd);

/* Messages of one frame that wait until they may leave for a peer. */
uint32_t engine_waiting(const struct careful *c, uint32_t peer);

/* Which address a peer answered from that failed with EADDRNOTAVAIL, or AF_UNSPEC; -ENOENT: there
 * is no such peer. */
int engine_elsewhere(struct careful *c, uint32_t peer, struct sockaddr_storage *address);

/* Reports whether two peers are sessions of one host. */
bool engine_same_host(const struct careful *c, uint32_t a, uint32_t b);

/* Reports whether an operation is one that nobody waits for; user: its own. */
typedef bool engine_whose_fn(const void *user, const void *of);

/* Ends those requests and pings with -ECANCELED, within the next round: answers that come later are
 * nobody's. A peer need never answer, and nothing of ours is read or written for them. */
void engine_forget(struct careful *c, engine_whose_fn *whose, const void *of);

/* None of those gets puts anything in its place any more; their ends come as before. How many
 * writes disks have yet. */
uint32_t engine_stop_gets(struct careful *c, engine_whose_fn *whose, const void *of);

/* From now on it waits as wait_mode, spin_us, sync_ms and stall_ms of these say. */
void engine_wait_as(struct careful *c, const struct careful_options *options);

#endif /* SERVICE_ALSO_H */
