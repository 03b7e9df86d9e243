/* SPDX-License-Identifier: BSD-2-Clause */
/* An interface with several queues has a carefuld for each. They share only the device
 * (xsk_dispatcher.c). The first starts the others, and all end when one does. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/abi.h>
#include <careful/careful.h>

#include "daemon/options.h"

/*
 * @count: number of queues
 * @index: the queue of this process
 * @fds:   first queue: sockets to the others' processes; other queues: fds[0] leads to the first
 * @lives: first queue: this queue has given a sign of life since queues_live() was last true
 * @up:    peers that were up at that sign of life
 */
struct queues {
	uint32_t count;
	uint32_t index;
	int fds[CAREFUL_SPREAD_MAX];
	bool lives[CAREFUL_SPREAD_MAX];
	uint32_t up[CAREFUL_SPREAD_MAX];
};

/* Starts the other queues' processes before anything is opened. Returns in each process, with that
 * queue's *options. */
int queues_fork(struct queues *queues, struct daemon_options *options, struct careful_error *error);
/* Waits, in another queue than the first, until the first is open. Returns false on its failure. */
bool queues_wait(struct queues *queues);
/* Reports this queue's start to the first; NULL: it serves. */
void queues_say(struct queues *queues, const char *error);
/* Lets the other queues open, once the first is open, and waits for them. */
int queues_open(struct queues *queues, struct careful_error *error);
/* Handles an event of another queue's socket. Returns 1 for a sign of life. Otherwise all queues
 * must end: 0 if the other ended on request, -EPIPE if it died. */
int queues_heard(struct queues *queues, uint32_t index);
/* Reports that this queue lives and how many peers are up; call it about once a second. In the
 * first queue, returns true once each other queue has reported since the last true. */
bool queues_live(struct queues *queues, uint32_t up);
/* Ends the other queues. The first waits for them, for a limited time. */
void queues_end(struct queues *queues);
