/* SPDX-License-Identifier: BSD-2-Clause */
/* Reports readiness, status and watchdog signs to the service manager by datagrams to
 * $NOTIFY_SOCKET (sd_notify(3)). Does nothing without that variable. */
#pragma once

#include <stdbool.h>

#include <careful/careful.h>

#include "daemon/queues.h"

struct notify {
	int fd; /* -1: no manager listens */
	/* the manager wants watchdog signs, which are sent while all queues are alive */
	bool has_watchdog;
	char status[256]; /* the status line sent last */
};

void notify_init(struct notify *notify);
void notify_ready(struct notify *notify, struct careful *instance, const struct queues *queues);
/* Call it in each queue's process about once a second. */
void notify_alive(struct notify *notify, struct careful *instance, struct queues *queues);
void notify_failed(struct notify *notify, int rc, const char *why);
void notify_stopping(struct notify *notify);
