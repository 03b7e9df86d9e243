/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the queue, and so the carefuld, that serves a host (`carefulctl up --queues`), and the
 * host's port there. control/instance/remote.py does the same for other programs. */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

#define QUEUE_RUN_DIR "/run/careful"

/* Reports whether a carefuld serves queue 0 of an instance, even if it refuses this user. */
bool queue_is_served(const char *instance);

/* Finds the socket of the queue for a host: the only queue, the queue that has a session with the
 * host, or the queue that the host chooses. Sets the port in `address`. *sock is allocated. 0 or
 * -errno. */
int queue_find(const char *instance, struct sockaddr_storage *address, char **sock);
