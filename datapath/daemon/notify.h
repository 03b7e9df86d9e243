/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A service manager that waits for us is told when we serve, what we do, and that we live:
 * datagrams to $NOTIFY_SOCKET (sd_notify(3)). Without one nothing is said.
 */
#ifndef DAEMON_NOTIFY_H
#define DAEMON_NOTIFY_H

#include <stdbool.h>

#include <careful/careful.h>

#include "daemon/queues.h"

/*
 * @fd:       -1: nobody waits
 * @watched:  a sign of life is wanted; each health check gives one, where all queues live
 * @status:   as it was told last
 */
struct notify {
	int fd;
	bool watched;
	char status[256];
};

void notify_init(struct notify *notify);
void notify_deinit(struct notify *notify);
void notify_ready(struct notify *notify, struct careful *instance, const struct queues *queues);
/* Once a second or so, of every queue. */
void notify_alive(struct notify *notify, struct careful *instance, struct queues *queues);
void notify_failed(struct notify *notify, int rc, const char *why);
void notify_stopping(struct notify *notify);

#endif /* DAEMON_NOTIFY_H */
