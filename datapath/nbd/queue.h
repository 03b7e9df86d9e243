/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the queue, and so the carefuld, that serves a host (`carefulctl up --queues`), and the
 * host's port there. control/remote.py does the same for other programs. */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

#define QUEUE_RUN_DIR "/run/careful"

/* Reports whether a carefuld serves queue 0 of an instance, even if it refuses us. */
bool queue_is_served(const char *instance);

/* Finds the socket to use for a host: the only queue's; or the queue's that has a session with the
 * host; or the queue's that the host chooses. `address` gets the host's port there. *sock: to be
 * freed. 0, or -errno. */
int queue_find(const char *instance, struct sockaddr_storage *address, char **sock);
