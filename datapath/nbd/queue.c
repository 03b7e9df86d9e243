/* SPDX-License-Identifier: BSD-2-Clause */
#include "nbd/queue.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "local/connection.h"

enum {
	QUEUES_MAX = 32, /* bits of CONNECT's mask */
	CONNECT_MS = 5000,
	PEERS = CAREFUL_IPC_PAYLOAD_BYTES / sizeof(struct careful_peer_info),
};

static char *socket_of(const char *instance, uint32_t queue)
{
	char *path;
	int rc = queue ? asprintf(&path, QUEUE_RUN_DIR "/%s+%u/sock", instance, queue) :
			 asprintf(&path, QUEUE_RUN_DIR "/%s/sock", instance);

	return rc < 0 ? NULL : path;
}

bool queue_is_served(const char *instance)
{
	char *path = socket_of(instance, 0);
	struct connection *connection;
	int rc = path ? connection_open(path, -1, &connection) : -ENOMEM;

	free(path);
	if (!rc)
		connection_close(connection);
	return !rc || rc == -EACCES;
}

static int ask(const char *instance, uint32_t queue, struct careful_ipc *packet,
	       const void *payload, void *answer, size_t size)
{
	char *path = socket_of(instance, queue);
	struct connection *connection;
	int rc;

	if (!path)
		return -ENOMEM;
	rc = connection_open(path, -1, &connection);
	free(path);
	if (rc)
		return rc;
	rc = connection_ask(connection, packet, payload, NULL, answer, size);
	connection_close(connection);
	return rc;
}

static bool is_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;
	const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;

	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	return !memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr));
}

static void set_port(struct sockaddr_storage *address, uint32_t port)
{
	if (address->ss_family == AF_INET)
		((struct sockaddr_in *)address)->sin_port = htons((uint16_t)port);
	else
		((struct sockaddr_in6 *)address)->sin6_port = htons((uint16_t)port);
}

/* Returns the number of a queue's sessions, or -errno. *has_host: the host has a session, whose
 * address replaces `address`. */
static int count_sessions(const char *instance, uint32_t queue, struct sockaddr_storage *address,
			  bool *has_host)
{
	struct careful_peer_info *infos = calloc(PEERS, sizeof(*infos));
	struct careful_ipc packet = { .op = CAREFUL_IPC_PEERS };
	int rc = infos ? ask(instance, queue, &packet, NULL, infos, PEERS * sizeof(*infos)) :
			 -ENOMEM;

	for (uint32_t i = 0; !rc && i < packet.payload_bytes / sizeof(*infos); i++) {
		if (infos[i].state == CAREFUL_PEER_NONE || infos[i].state == CAREFUL_PEER_FAILED)
			continue;
		rc++;
		*has_host = is_same_host(&infos[i].address, address);
		if (*has_host) {
			*address = infos[i].address;
			break;
		}
	}
	free(infos);
	return rc;
}

/* Lets the host choose among the queues with the fewest sessions; `fewest` has a bit for each. */
static int choose_queue(const char *instance, uint32_t first, uint32_t fewest,
			struct sockaddr_storage *address, uint32_t *queue)
{
	struct careful_ipc packet = { .op = CAREFUL_IPC_INFO };
	struct careful_info info = { 0 };
	int rc = ask(instance, 0, &packet, NULL, &info, sizeof(info));

	if (rc)
		return rc;
	set_port(address, info.port);
	packet = (struct careful_ipc){
		.op = CAREFUL_IPC_CONNECT,
		.bytes = CONNECT_MS,
		.args = { fewest },
		.payload_bytes = sizeof(*address),
	};
	rc = ask(instance, first, &packet, address, NULL, 0);
	*queue = first;
	if (rc != -EREMCHG)
		return rc;
	*queue = packet.args[0];
	set_port(address, packet.args[1]);
	return 0;
}

static uint32_t count_queues(const char *instance)
{
	uint32_t count = 1;

	for (bool exists = true; exists && count < QUEUES_MAX; count += exists) {
		char *path = socket_of(instance, count);

		exists = path && !access(path, F_OK);
		free(path);
	}
	return count;
}

int queue_find(const char *instance, struct sockaddr_storage *address, char **sock)
{
	const uint32_t count = count_queues(instance);
	uint32_t queue = 0, first = 0, fewest = 0;
	int rc = 0, least = INT32_MAX;
	bool has_host = false;

	for (uint32_t i = 0; count > 1 && i < count && !has_host; i++) {
		rc = count_sessions(instance, i, address, &has_host);
		if (rc < 0)
			return rc;
		queue = i;
		if (rc < least) {
			first = i;
			fewest = 0;
			least = rc;
		}
		if (rc == least)
			fewest |= 1U << i;
	}
	rc = has_host || count == 1 ? 0 : choose_queue(instance, first, fewest, address, &queue);
	if (rc)
		return rc;
	*sock = socket_of(instance, queue);
	return *sock ? 0 : -ENOMEM;
}
