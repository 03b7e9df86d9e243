// SPDX-License-Identifier: BSD-2-Clause
/* Hosts that lend memory, and their sessions. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "memory/private.h"

struct memory_host *memory_host_get(struct careful_memory *memory, const struct sockaddr *address,
				    uint32_t bytes)
{
	struct memory_host *host = memory->hosts;

	if (bytes > sizeof(host->address))
		return NULL;
	while (host &&
	       (host->address_bytes != bytes || memcmp(&host->address, address, bytes) != 0))
		host = host->next;
	if (host)
		return host;
	host = calloc(1, sizeof(*host));
	if (!host)
		return NULL;
	memcpy(&host->address, address, bytes);
	host->address_bytes = bytes;
	host->peer = -1;
	host->next = memory->hosts;
	memory->hosts = host;
	return host;
}

int memory_host_peer(struct careful_memory *memory, struct memory_host *host)
{
	if (host->peer < 0)
		host->peer =
			careful_peer(memory->instance, (void *)&host->address, host->address_bytes);
	return host->peer;
}

void memory_host_leave(struct careful_memory *memory, struct memory_host *host)
{
	if (host->peer >= 0)
		careful_peer_close(memory->instance, (uint32_t)host->peer);
	host->peer = -1;
}

bool memory_is_lost(int status)
{
	switch (-status) {
	case ECONNRESET:
	case ENOTCONN:
	case ETIMEDOUT:
	case ECONNREFUSED:
	case EHOSTUNREACH:
	case ENETUNREACH:
	case ENOENT: /* the region ended with its session */
	case EBADMSG:
	case EADDRINUSE:
		return true;
	default:
		return false;
	}
}
