/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which carefuld of an instance with several queues (`carefulctl up --queues`) serves a host, and
 * where the host is reached by that: as control/remote.py has it for other programs.
 */
#ifndef CAREFUL_NBD_QUEUE_H
#define CAREFUL_NBD_QUEUE_H

#include <stdbool.h>
#include <sys/socket.h>

#define QUEUE_RUN_DIR "/run/careful"

/* Reports whether a carefuld serves an instance's queue 0, maybe not us. */
bool queue_is_served(const char *instance);

/*
 * Of an instance with one queue: its socket. Otherwise that of the queue which has a session with
 * the host, or which the host chose for one; address has the host's port there.
 *
 * @sock: to be freed
 *
 * 0, or -errno.
 */
int queue_find(const char *instance, struct sockaddr_storage *address, char **sock);

#endif /* CAREFUL_NBD_QUEUE_H */
