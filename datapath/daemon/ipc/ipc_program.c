/* SPDX-License-Identifier: BSD-2-Clause */
/* Programs that share the interface: attaches them, answers their questions on the socket, passes
 * peers' requests to them, and ends them. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/ipc/ipc_program.h"
#include "engine/sharing.h"
#include "local/packet.h"

enum {
	PAGE_BYTES = 4096,
	NEWS_ROOM = 64, /* entries that peers' requests leave free for notes about peers */
	/* Entries that requests without an answer leave free for requests that need one. */
	ANSWERED_ROOM = CAREFUL_RING_NOTES / 4,
};

/* Creates the area. Returns its descriptor. Seals its size, because we crash if it shrinks. */
static int create_area(struct ipc_program *p)
{
	const uint64_t before = careful_area_before();
	const uint64_t bytes = before + p->memory_bytes;
	int fd = memfd_create("careful-program", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint8_t *at;

	if (fd < 0)
		return -errno;
	at = MAP_FAILED;
	if (!ftruncate(fd, (off_t)bytes) &&
	    !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED) {
		int rc = -errno;

		close(fd);
		return rc;
	}
	p->area = (struct careful_area *)at;
	p->area_bytes = bytes;
	p->asks = (struct careful_ring_entry *)(at + sizeof(struct careful_area));
	p->told = p->asks + CAREFUL_RING_ASKS;
	p->asks_payload = at + careful_area_payloads();
	p->told_payload = p->asks_payload + CAREFUL_RING_ASKS * CAREFUL_RING_PAYLOAD_BYTES;
	p->built = at + careful_area_built();
	p->memory = at + before;
	return fd;
}

static struct ipc_program *create_program(struct ipc_client *client, const struct ipc_question *q)
{
	struct ipc_program *p = calloc(1, sizeof(*p));
	struct ucred who = { 0 };
	socklen_t bytes = sizeof(who);

	if (!p)
		return NULL;
	p->client = client;
	p->later_tail = &p->later;
	p->memory_bytes = (q->head.bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	memcpy(p->info.name, q->payload, q->head.payload_bytes);
	getsockopt(client->fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes);
	p->info.pid = (uint32_t)who.pid;
	for (uint32_t i = IPC_PROGRAM_OPS; i-- > 0;) {
		p->ops[i].program = p;
		p->ops[i].next = p->ops_free;
		p->ops_free = &p->ops[i];
	}
	return p;
}

/* Serves all programs. The program that is first in this round is last in the next. */
static uint32_t serve_programs(struct careful *c, void *user, bool sleeps)
{
	struct ipc *ipc = user;
	struct ipc_program *first = ipc->programs, **at = &ipc->programs;
	uint32_t n = 0;

	(void)c;
	for (struct ipc_program *p = first; p; p = p->next) {
		if (!sleeps)
			n += ipc_ring_round(p);
		if (p->news)
			ipc_ring_wake(p);
		if (sleeps && ipc_ring_waits(p))
			return 1;
	}
	if (first && first->next && !sleeps) {
		ipc->programs = first->next;
		first->next = NULL;
		while (*at)
			at = &(*at)->next;
		*at = first;
	}
	return n;
}

int ipc_program_attach(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	struct careful_ipc head = {
		.version = CAREFUL_IPC_VERSION,
		.op = op->op,
		.id = op->id,
	};
	struct ipc *ipc = client->ipc;
	struct ipc_program *p;
	int fd, rc;

	if (client->program)
		return -EALREADY;
	if (!q->head.payload_bytes || q->head.payload_bytes >= sizeof(p->info.name) ||
	    q->head.bytes > CAREFUL_AREA_BYTES_MAX)
		return -EINVAL;
	p = create_program(client, q);
	if (!p)
		return -ENOMEM;
	fd = create_area(p);
	rc = fd < 0 ? fd : 0;
	head.bytes = p->memory_bytes;
	if (!rc)
		rc = packet_send(client->fd, &head, NULL, fd);
	if (fd >= 0)
		close(fd);
	if (rc) {
		if (p->area)
			munmap(p->area, p->area_bytes);
		free(p);
		return rc;
	}
	p->read_ns = clock_now_ns();
	client->program = p;
	p->next = ipc->programs;
	ipc->programs = p;
	engine_each_round(ipc->instance, serve_programs, ipc);
	ipc_op_free(op);
	return 0;
}

void ipc_program_wants(struct ipc_program *p, uint32_t index)
{
	p->wants[index] = true;
	ipc_news_know(p, index);
}

static void on_request(const struct careful_message *message, void *user)
{
	struct ipc *ipc = user;
	struct ipc_program *p = ipc->owners[message->handler];
	struct careful_ring_entry entry = {
		.kind = CAREFUL_RING_ASKED,
		.peer = ipc_peer_name(ipc, message->peer),
		.handler = message->handler,
		.bytes = message->bytes,
	};
	const uint32_t reserved = NEWS_ROOM + (message->token ? 0 : ANSWERED_ROOM);
	struct ipc_program_ask *ask = NULL;
	int status = 0;

	if (p->stalled)
		status = ETIMEDOUT;
	else if (message->bytes > CAREFUL_RING_PAYLOAD_BYTES)
		status = EMSGSIZE;
	else if (ipc_ring_room(p) <= reserved || p->answers_used == CAREFUL_RING_ANSWERS)
		status = EBUSY;
	if (status) {
		careful_reply(message, status, NULL, NULL, 0);
		return;
	}
	if (message->token) {
		uint32_t id = p->answer_id_last;

		do {
			ask = &p->answers[++id % CAREFUL_RING_ANSWERS];
		} while (ask->id);
		/* An id that is not 0 and is not used again soon. */
		if (id < CAREFUL_RING_ANSWERS)
			id += CAREFUL_RING_ANSWERS;
		p->answer_id_last = id;
		ask->id = id;
		careful_reply_name(message, &ask->to);
		p->answers_used++;
		entry.id = id;
	}
	memcpy(entry.args, message->args, sizeof(entry.args));
	ipc_news_know(p, message->peer);
	ipc_ring_put(p, &entry, message->payload);
}

/* Reports a store to the program that owns the region, if the program handles such stores. */
static void on_store(const struct careful_message *message, void *user)
{
	struct ipc *ipc = user;
	struct ipc_program_region *region = NULL;
	struct careful_ring_entry entry = {
		.kind = CAREFUL_RING_STORED,
		.peer = ipc_peer_name(ipc, message->peer),
		.handler = message->handler,
		.bytes = message->bytes,
		.region = message->region,
		.region_off = message->region_off,
	};
	struct ipc_program *p = ipc->programs;

	while (p && !(region = ipc_region_find(p, message->region)))
		p = p->next;
	if (!p || !p->stores[message->handler]) {
		engine_refuse_store(ipc->instance, ENOSYS);
	} else if (p->stalled || ipc_ring_room(p) <= NEWS_ROOM) {
		engine_refuse_store(ipc->instance, p->stalled ? ETIMEDOUT : EBUSY);
	} else {
		if (region->fd >= 0)
			entry.flags = CAREFUL_RING_OF_FILE;
		else
			entry.memory_off = region->memory_off + message->region_off;
		memcpy(entry.args, message->args, sizeof(entry.args));
		ipc_news_know(p, message->peer);
		ipc_ring_put(p, &entry, NULL);
	}
}

static int set_handler(struct ipc_program *p, const struct careful_ipc *head)
{
	struct ipc *ipc = p->client->ipc;
	struct ipc_program **owner = &ipc->owners[head->handler % CAREFUL_HANDLERS_APP];
	const bool on = head->bytes; /* else the handler is removed */

	if (head->handler >= CAREFUL_HANDLERS_APP)
		return -EINVAL;
	if (head->flags == CAREFUL_IPC_OF_STORES) {
		p->stores[head->handler] = on;
		return careful_handle_store(ipc->instance, (uint16_t)head->handler, on_store, ipc);
	}
	if (head->flags != CAREFUL_IPC_OF_REQUESTS)
		return -EINVAL;
	if (*owner && *owner != p)
		return -EBUSY;
	p->handlers += on;
	p->handlers -= *owner == p;
	*owner = on ? p : NULL;
	return careful_handle(ipc->instance, (uint16_t)head->handler, *owner ? on_request : NULL,
			      ipc);
}

static void fill_info(const struct ipc_program *p, struct careful_program_info *info)
{
	*info = p->info;
	info->stalled = p->stalled;
	info->operations = p->ops_used;
	info->unread =
		p->notes_put - __atomic_load_n(&p->area->notes_taken.value, __ATOMIC_RELAXED);
	if (info->unread > CAREFUL_RING_NOTES) /* the program wrote the number */
		info->unread = CAREFUL_RING_NOTES;
	info->unanswered = p->answers_used;
	info->handlers = p->handlers;
	info->regions = p->regions_used;
	info->memory_bytes = p->memory_bytes;
}

int ipc_programs(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	struct careful_program_info infos[IPC_CLIENTS];
	uint32_t n = 0;

	(void)q;
	for (const struct ipc_program *p = client->ipc->programs; p; p = p->next)
		fill_info(p, &infos[n++]);
	ipc_answer(op, 0, NULL, infos, n * (uint32_t)sizeof(infos[0]));
	return 0;
}

bool ipc_program_op_of(const void *user, const void *of)
{
	const struct ipc_program *p = of;
	const struct ipc_program_op *op = user;

	return op >= p->ops && op < p->ops + IPC_PROGRAM_OPS;
}

/* Stops a program's waiting operations and its writes to disk. Reports whether a write goes on. */
static bool stop_operations(struct ipc_program *p)
{
	struct careful *instance = p->client->ipc->instance;
	uint32_t writing = engine_stop_gets(instance, ipc_program_op_of, p);

	p->quiet = true;
	ipc_ring_forget(p);
	for (uint32_t i = 0; i < CAREFUL_AREA_REGIONS; i++)
		if (p->regions[i].key)
			writing += engine_stop_stores(instance, p->regions[i].key);
	return writing;
}

int ipc_program_ask(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	struct ipc_program *p = client->program;
	struct careful_ipc head = { 0 };
	struct ipc_program_region *region;
	int rc;

	switch (q->head.op) {
	case CAREFUL_IPC_BELL:
		if (q->head.flags)
			ipc_ring_bell(p);
		ipc_op_free(op);
		return 0;
	case CAREFUL_IPC_PEER_LEAVE:
		rc = ipc_peer_leave(p, q->head.peer);
		break;
	case CAREFUL_IPC_HANDLE:
		rc = set_handler(p, &q->head);
		break;
	case CAREFUL_IPC_REGION_ADD:
		rc = ipc_region_add(p, q, &head.region);
		break;
	case CAREFUL_IPC_QUIET:
		rc = stop_operations(p) ? -EBUSY : 0;
		break;
	default:
		region = ipc_region_find(p, q->head.region);
		rc = region ? ipc_region_remove(p, region) : -ENOENT;
	}
	ipc_answer(op, rc, &head, NULL, 0);
	return 0;
}

/* Fails peers' unanswered requests. Returns false if there is no room for all answers now. */
static bool fail_requests(struct ipc_program *p, int status)
{
	for (uint32_t i = 0; p->answers_used && i < CAREFUL_RING_ANSWERS; i++) {
		struct ipc_program_ask *ask = &p->answers[i];

		if (!ask->id)
			continue;
		if (careful_reply_late(p->client->ipc->instance, &ask->to, status, NULL, NULL, 0) ==
		    -EAGAIN)
			return false;
		ask->id = 0;
		p->answers_used--;
	}
	return true;
}

void ipc_programs_poll(struct ipc *ipc)
{
	const uint64_t now_ns = clock_now_ns();

	for (struct ipc_program *p = ipc->programs; p; p = p->next) {
		const uint32_t read =
			__atomic_load_n(&p->area->notes_taken.value, __ATOMIC_RELAXED);

		if (read == p->notes_put || read != p->read) {
			p->read = read;
			p->read_ns = now_ns;
			p->stalled = false;
		} else if (now_ns - p->read_ns > IPC_STALL_MS * 1000000ull) {
			p->stalled = true;
			fail_requests(p, ETIMEDOUT);
		}
		ipc_regions_remove_gone(p);
		ipc_news_poll(p);
		if (p->news)
			ipc_ring_wake(p);
	}
}

void ipc_program_leave(struct ipc_client *client)
{
	struct ipc_program *p = client->program, **at = &client->ipc->programs;
	struct ipc *ipc = client->ipc;

	if (!p || p->over)
		return;
	p->over = true;
	ipc_news_forget(p);
	if (ipc->instance)
		stop_operations(p);
	else
		ipc_ring_forget(p);
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	for (uint32_t i = 0; i < CAREFUL_AREA_REGIONS; i++)
		p->regions[i].gone = p->regions[i].key;
	for (uint32_t i = 0; i < CAREFUL_HANDLERS_APP; i++) {
		if (ipc->owners[i] != p)
			continue;
		ipc->owners[i] = NULL;
		if (ipc->instance)
			careful_handle(ipc->instance, (uint16_t)i, NULL, NULL);
	}
	if (!ipc->programs && ipc->instance)
		engine_each_round(ipc->instance, NULL, NULL);
}

bool ipc_program_over(struct ipc_client *client)
{
	struct ipc_program *p = client->program;

	if (!p)
		return true;
	if (!fail_requests(p, ECONNRESET))
		return false;
	ipc_regions_remove_gone(p);
	return !p->regions_used && !p->ops_used;
}

void ipc_program_free(struct ipc_client *client)
{
	struct ipc_program *p = client->program;

	if (!p)
		return;
	/* Any regions are left only when carefuld ends. */
	for (uint32_t i = 0; i < CAREFUL_AREA_REGIONS; i++)
		if (p->regions[i].key && p->regions[i].fd >= 0)
			ipc_close(client, p->regions[i].fd, NULL);
	munmap(p->area, p->area_bytes);
	free(p);
	client->program = NULL;
}
