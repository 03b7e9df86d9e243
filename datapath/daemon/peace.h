/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peace: while a peer tries XDP modes, nothing moves between the two hosts but what it sends for
 * that. What is given to peers, what is asked of them, and whether a peer is quiet enough for it.
 */
#ifndef DAEMON_PEACE_H
#define DAEMON_PEACE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/trial.h"

/* Gives it to peers that ask. */
int peace_serve(struct trial *trial);
/* It is over, if the peer was given any. */
void peace_end(struct trial *trial, uint32_t peer);
/* Asks all peers at once; trial_ask_all() describes the result. -EBUSY: not now; another -errno: not
 * with this peer. */
int peace_ask(const struct trial *trial, const uint32_t *peers, uint32_t count, uint32_t *first);
/* Tells a peer that the peace is over. Nothing waits for the answer: without this word the peer ends
 * the peace after CAREFUL_PEACE_MS by itself. */
void peace_release(const struct trial *trial, uint32_t peer);

/* What careful_peer_info() says; CAREFUL_PEER_NONE where it says nothing. */
struct careful_peer_info trial_peer(const struct trial *trial, uint32_t peer);
bool trial_is_up(uint32_t state);
/* Reports whether nothing went to and fro since it was last looked. */
bool trial_is_quiet(struct trial *trial, uint32_t peer);

#endif /* DAEMON_PEACE_H */
