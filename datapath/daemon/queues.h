/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An interface with several queues: a carefuld for each, which share nothing but what the device
 * does (xsk_spread.c). The first one starts the others, and all end when one does.
 */
#ifndef DAEMON_QUEUES_H
#define DAEMON_QUEUES_H

#include <stdbool.h>
#include <stdint.h>

#include <careful/abi.h>
#include <careful/careful.h>

#include "daemon/options.h"

/*
 * @count: of queues
 * @index: ours
 * @fds:   a socket to the process of each, but to oneself; of another than the first, to that alone
 * @lives: of the first, of each queue: it gave a sign of life since queues_live() last was true
 * @up:    peers that are up there, as it said then
 */
struct queues {
	uint32_t count;
	uint32_t index;
	int fds[CAREFUL_SPREAD_MAX];
	bool lives[CAREFUL_SPREAD_MAX];
	uint32_t up[CAREFUL_SPREAD_MAX];
};

/* Starts the processes of the other queues, before anything is opened. It returns in each of them,
 * where *options are that queue's from then on. */
int queues_fork(struct queues *queues, struct daemon_options *options, struct careful_error *error);
/* Of another than the first: returns when the first one is open; false: it never will be. */
bool queues_wait(struct queues *queues);
/* Of another: tells the first how its own start went; NULL: it serves. */
void queues_say(struct queues *queues, const char *error);
/* Of the first, which is open: has the others open theirs. */
int queues_open(struct queues *queues, struct careful_error *error);
/* One of these sockets has something to say, or its process is gone. Returns 1 for a sign of life;
 * else all are to end: 0 if it ends as it was told to, or -EPIPE: it died. */
int queues_heard(struct queues *queues, uint32_t index);
/* Once a second or so: this queue lives, and so many peers are up. Of the first: returns whether
 * each of the others has said so since that was last true. */
bool queues_live(struct queues *queues, uint32_t up);
/* At our end: the others end, too, and the first one waits for that, for a while. */
void queues_end(struct queues *queues);

#endif /* DAEMON_QUEUES_H */
