/* SPDX-License-Identifier: BSD-2-Clause */
/* The calls, besides careful.h, by which carefuld shares an instance between programs. */
#pragma once

#include <stdbool.h>

#include <careful/abi.h>
#include <careful/careful.h>

/* Does the work that is due, and returns how much it did. @sleeps: the instance is about to sleep;
 * the function then only reports whether work waits. */
typedef uint32_t engine_each_round_fn(struct careful *c, void *user, bool sleeps);

/* Sets the function that is called in each round and before each wait; NULL: none. */
void engine_each_round(struct careful *c, engine_each_round_fn *fn, void *user);

/* For a handler of stores: its store fails at the sender with this errno. The bytes stay. */
void engine_refuse_store(struct careful *c, int error);

/* Closes the region to new operations of peers. careful_region_remove() must follow. */
void engine_revoke_region(struct careful *c, uint32_t key);

/* Revokes a region, and stops stores under way to it. Returns how many writes are at a disk. */
uint32_t engine_stop_stores(struct careful *c, uint32_t key);

/* Promises that the descriptor refers to the same file until engine_lose_file(). */
void engine_keep_file(struct careful *c, int fd);
void engine_lose_file(struct careful *c, int fd);

/* Returns the number of single-frame messages that wait for the peer's credits. */
uint32_t engine_waiting(const struct careful *c, uint32_t peer);

/* Sets *address to the address from which a peer answered that failed with EADDRNOTAVAIL; AF_UNSPEC
 * for another failure. Returns -ENOENT if there is no such peer. */
int engine_elsewhere(struct careful *c, uint32_t peer, struct sockaddr_storage *address);

/* Returns the cookie of the frames that a peer sends us. */
uint64_t engine_cookie(const struct careful *c, uint32_t peer);

/* Returns the list of arrivals that XDP records (abi.h). */
struct careful_arrivals *engine_arrivals(struct careful *c);

/* Reports whether two peers are sessions of one host. */
bool engine_same_host(const struct careful *c, uint32_t a, uint32_t b);

/* Copies the public key that a peer proved. Returns false if sessions need no key. */
bool engine_peer_key(const struct careful *c, uint32_t peer, uint8_t *key);

/* Reports whether an operation, by its `user`, belongs to `of`. */
typedef bool engine_match_fn(const void *user, const void *of);

/* Ends the matching requests and pings with -ECANCELED in the next round, and drops their later
 * answers. Safe without an answer, because requests and pings do not use our memory. */
void engine_forget(struct careful *c, engine_match_fn *match, const void *of);

/* Stops the matching gets from writing; each still ends. Returns how many writes are at a disk. */
uint32_t engine_stop_gets(struct careful *c, engine_match_fn *match, const void *of);

/* Sets the scratch file, which pings are written to. @fd stays open until the next call; with -1,
 * pings wait for a file. @scratch is an enum careful_scratch; with NONE, no ping is written. */
void engine_scratch(struct careful *c, int fd, uint8_t scratch);
/* Returns how many pings have asked for a write so far. */
uint64_t engine_scratch_asked(const struct careful *c);

/* Changes wait_mode, spin_us, sync_ms and stall_ms of the instance. */
void engine_set_times(struct careful *c, const struct careful_options *options);
