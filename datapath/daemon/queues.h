/* SPDX-License-Identifier: BSD-2-Clause */
/* Each queue of an interface has its own carefuld process. The processes share only the device
 * (xsk_dispatcher.c). The first queue's process starts the others; when one ends, all end. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/abi.h>
#include <careful/careful.h>

#include "daemon/options.h"

struct queues {
	uint32_t count; /* number of queues */
	uint32_t index; /* the queue of this process */
	/* first queue: sockets to the others' processes; other queues: fds[0] leads to the first */
	int fds[CAREFUL_SPREAD_MAX];
	/* first queue: the queues that reported after queues_report_alive() last returned true */
	bool alive[CAREFUL_SPREAD_MAX];
	uint32_t up[CAREFUL_SPREAD_MAX]; /* peers that were up at each queue's last report */
};

/* Starts the other queues' processes. Call it before anything is opened. Returns in each process,
 * with *options for the queue of that process. */
int queues_fork(struct queues *queues, struct daemon_options *options, struct careful_error *error);
/* Waits until the first queue is open; called by the others. Returns false if the first failed. */
bool queues_wait(struct queues *queues);
/* Reports to the first queue that this queue serves (NULL) or why it failed. */
void queues_report_start(struct queues *queues, const char *error);
/* Lets the other queues open, and waits for them. Called by the first queue after its own open. */
int queues_open(struct queues *queues, struct careful_error *error);
/* Reads a message of another queue. Returns 1 if that queue is alive, 0 if it ended on request, or
 * -EPIPE if it died. After 0 and -EPIPE, all queues must end. */
int queues_receive(struct queues *queues, uint32_t index);
/* Reports that this queue is alive, and how many of its peers are up. Call it about once a second.
 * In the first queue, returns true if each other queue has reported since the last true. */
bool queues_report_alive(struct queues *queues, uint32_t up);
/* Ends the other queues. The first queue waits for them up to a time limit. */
void queues_end(struct queues *queues);
