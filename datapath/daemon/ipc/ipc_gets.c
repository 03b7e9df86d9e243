/* SPDX-License-Identifier: BSD-2-Clause */
/* GETS: one question for many ranges of a region. After a failure, no further range begins. The
 * answer is sent when ranges are no longer under way. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/ipc/ipc_private.h"

enum { UNDER_WAY = 32 }; /* ranges of one question, so that other clients get their turn */

struct gets_range {
	struct ipc_gets *gets;
	struct careful_ipc_range range;
	uint64_t began_ns;
};

struct ipc_gets {
	struct ipc_op *op;
	int fd;
	uint32_t region, flags;
	uint32_t count;
	uint32_t next; /* index of the first range that has not begun */
	uint32_t under_way;
	bool beginning; /* begin_ranges() runs: a range that ends now must not call it */
	int status; /* status of the first range that failed */
	uint64_t bytes;
	struct gets_range ranges[];
};

static void continue_gets(struct ipc_gets *gets);

static void get_done(const struct careful_result *result, void *user)
{
	struct gets_range *item = user;
	struct ipc_gets *gets = item->gets;
	int status = result->status;

	if (!status && result->bytes != item->range.bytes)
		status = -ENODATA;
	ipc_count(gets->op->client, CAREFUL_IPC_GET, item->began_ns, status);
	gets->under_way--;
	gets->bytes += result->bytes;
	if (!gets->status)
		gets->status = status;
	if (!gets->beginning)
		continue_gets(gets);
}

static int begin_range(struct ipc_gets *gets, struct gets_range *item)
{
	struct ipc_client *client = gets->op->client;
	const struct careful_span span = { .fd = gets->fd, .offset = item->range.file_off };
	int index = ipc_peer_index(client->ipc, gets->op->peer);

	if (index < 0)
		return index;
	if (client->fd < 0) /* nobody waits for the answer */
		return -ECANCELED;
	item->began_ns = clock_now_ns();
	return careful_get(client->ipc->instance, (uint32_t)index, gets->region,
			   item->range.region_off, &span, item->range.bytes, gets->flags, get_done,
			   item);
}

/* Begins ranges while the engine has room; called again by the end of a range. */
static void begin_ranges(struct ipc_gets *gets)
{
	int rc = 0;

	gets->beginning = true;
	while (!rc && !gets->status && gets->next < gets->count && gets->under_way < UNDER_WAY) {
		gets->under_way++; /* the range may end within the call */
		rc = begin_range(gets, &gets->ranges[gets->next]);
		if (rc)
			gets->under_way--;
		else
			gets->next++;
	}
	gets->beginning = false;
	if (rc && !gets->status && (rc != -EAGAIN || !gets->under_way))
		gets->status = rc;
}

static void continue_gets(struct ipc_gets *gets)
{
	struct ipc_op *op = gets->op;
	struct careful_ipc head = { 0 };

	begin_ranges(gets);
	if (gets->under_way || (!gets->status && gets->next < gets->count))
		return;
	head.bytes = gets->bytes;
	ipc_file_unuse(op->client, op->file);
	ipc_answer(op, gets->status, &head, NULL, 0);
	free(gets);
}

static struct ipc_gets *read_ranges(struct ipc_op *op, const struct ipc_question *q, int *rc)
{
	const uint32_t count = q->head.payload_bytes / (uint32_t)sizeof(struct careful_ipc_range);
	struct ipc_gets *gets;

	*rc = -EINVAL;
	if (!count || count > CAREFUL_IPC_RANGES ||
	    q->head.payload_bytes % sizeof(gets->ranges->range))
		return NULL;
	*rc = -ENOMEM;
	gets = calloc(1, sizeof(*gets) + count * sizeof(gets->ranges[0]));
	if (!gets)
		return NULL;
	gets->op = op;
	gets->count = count;
	gets->region = q->head.region;
	gets->flags = q->head.flags;
	for (uint32_t i = 0; i < count; i++) {
		struct gets_range *item = &gets->ranges[i];

		item->gets = gets;
		memcpy(&item->range, (const char *)q->payload + i * sizeof(item->range),
		       sizeof(item->range));
		if (item->range.file_off > INT64_MAX) {
			*rc = -EINVAL;
			free(gets);
			return NULL;
		}
	}
	return gets;
}

int ipc_gets(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	int rc;
	struct ipc_gets *gets = read_ranges(op, q, &rc);

	if (!gets)
		return rc;
	op->peer = q->head.peer;
	op->file = q->head.file;
	gets->fd = ipc_file_use(client, op->file);
	if (gets->fd < 0) {
		free(gets);
		return -EBADF;
	}
	continue_gets(gets);
	return 0;
}
