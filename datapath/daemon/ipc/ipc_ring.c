/* SPDX-License-Identifier: BSD-2-Clause */
/* carefuld's end of a program's rings (ipc.h): begins the program's operations and writes its
 * notes. The program can write anything into the area at any time. So an entry is copied before it
 * is checked, and positions in rings are masked. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <careful/memory.h>

#include "daemon/ipc/ipc_program.h"
#include "daemon/log.h"
#include "engine/sharing.h"
#include "local/packet.h"
#include "local/ring_number.h"

/* Most entries taken from a program in one round: if it is the only one; if there are several. */
enum { ROUND = 32, ROUND_SHARED = 8 };

/* Disconnects a program; a later event ends the connection. */
static void disconnect_program(struct ipc_program *p, const char *why)
{
	static struct log_limit limit;

	if (p->over || p->client->failed)
		return;
	if (log_allowed(&limit))
		log_line("program %s (process %u): %s; it is disconnected", p->info.name,
			 p->info.pid, why);
	p->client->failed = true;
	shutdown(p->client->fd, SHUT_RDWR);
}

uint32_t ipc_ring_room(const struct ipc_program *p)
{
	const uint32_t used = p->notes_put - read_number(&p->area->notes_taken) + IPC_PROGRAM_OPS;

	return used < CAREFUL_RING_NOTES ? CAREFUL_RING_NOTES - used : 0;
}

void ipc_ring_put(struct ipc_program *p, const struct careful_ring_entry *entry,
		  const void *payload)
{
	const uint32_t at = p->notes_put % CAREFUL_RING_NOTES;

	p->told[at] = *entry;
	if (payload && entry->bytes)
		memcpy(p->told_payload + (size_t)at * CAREFUL_RING_PAYLOAD_BYTES, payload,
		       entry->bytes);
	write_number(&p->area->notes_put, ++p->notes_put);
	p->info.told++;
	p->news = true;
}

void ipc_ring_bell(struct ipc_program *p)
{
	const struct careful_ipc head = {
		.version = CAREFUL_IPC_VERSION,
		.op = CAREFUL_IPC_BELL,
		.id = UINT64_MAX,
	};

	if (!p->over)
		packet_send(p->client->fd, &head, NULL, -1);
}

void ipc_ring_wake(struct ipc_program *p)
{
	p->news = false;
	/* The program sees the new entry before it sleeps, or we see below that it sleeps. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!read_number(&p->area->notes_asleep))
		return;
	write_number(&p->area->notes_asleep, 0);
	ipc_ring_bell(p);
}

static void end_move(struct ipc_program_op *op)
{
	struct ipc_program *p = op->program;

	if (op->file)
		ipc_file_unuse(p->client, op->file - 1);
	p->moving -= op->moves;
	op->file = 0;
	op->moves = 0;
}

static void free_op(struct ipc_program_op *op)
{
	struct ipc_program *p = op->program;

	end_move(op);
	op->id = 0;
	op->next = p->ops_free;
	p->ops_free = op;
	p->ops_used--;
}

static void end_op(struct ipc_program_op *op, struct careful_ring_entry *entry, const void *payload)
{
	struct ipc_program *p = op->program;

	entry->kind = CAREFUL_RING_DONE;
	entry->id = op->id;
	free_op(op);
	if (!p->over)
		ipc_ring_put(p, entry, payload);
}

static void op_done(const struct careful_result *result, void *user)
{
	struct careful_ring_entry entry = {
		.status = result->status,
		.bytes = result->bytes,
		.digest = result->digest,
		.flags = result->payload ? 1 : 0,
	};

	if (result->payload && result->bytes > CAREFUL_RING_PAYLOAD_BYTES) {
		entry.status = -EMSGSIZE;
		entry.bytes = 0;
	}
	memcpy(entry.args, result->args, sizeof(entry.args));
	end_op(user, &entry, result->payload);
}

static int ring_request(struct ipc_program *p, uint32_t index, const struct careful_ring_entry *e,
			const void *payload, struct ipc_program_op *op)
{
	/* Programs may use handlers of applications and of the memory service, but no others: all
	 * programs of a host share the handles that peers grant to the host. */
	if (e->handler >= CAREFUL_HANDLERS_APP &&
	    (e->handler < CAREFUL_MEMORY_CREATE || e->handler > CAREFUL_MEMORY_LAST))
		return -EINVAL;
	if (e->bytes > CAREFUL_RING_PAYLOAD_BYTES)
		return -EMSGSIZE;
	if (e->flags & CAREFUL_RING_OF_BUILT) {
		if (e->memory_off >= CAREFUL_RING_BUILT)
			return -EFAULT;
		payload = p->built + e->memory_off * CAREFUL_RING_PAYLOAD_BYTES;
	}
	/* ops[] bounds only operations with an answer, so bound the other requests here. */
	if (!op && engine_waiting(p->client->ipc->instance, index) >= IPC_PROGRAM_OPS)
		return -EAGAIN;
	return careful_request(p->client->ipc->instance, index, (uint16_t)e->handler, e->args,
			       payload, e->bytes, op ? op_done : NULL, op);
}

static bool may_move(const struct ipc_program *p, uint32_t bytes)
{
	return !p->moving || p->moving + bytes <= IPC_PROGRAM_BYTES;
}

static int begin_move(struct ipc_program *p, uint32_t index, const struct careful_ring_entry *e,
		      struct ipc_program_op *op)
{
	struct careful *instance = p->client->ipc->instance;
	struct careful_span span = { .fd = -1, .offset = e->memory_off };

	if (e->flags & CAREFUL_RING_OF_FILE) {
		if (e->memory_off > INT64_MAX)
			return -EINVAL;
		span.fd = ipc_file_use(p->client, (uint32_t)e->status); /* the file's index */
		if (span.fd < 0)
			return span.fd;
		op->file = (uint32_t)e->status + 1;
	} else if (e->memory_off > p->memory_bytes || e->bytes > p->memory_bytes - e->memory_off) {
		return -EFAULT;
	} else {
		span.base = p->memory + e->memory_off;
	}
	op->moves = e->bytes;
	p->moving += e->bytes;
	if (e->kind == CAREFUL_RING_GET)
		return careful_get(instance, index, e->region, e->region_off, &span, e->bytes,
				   e->flags, op_done, op);
	if (e->handler > CAREFUL_HANDLERS)
		return -EINVAL;
	return careful_store(instance, index, e->region, e->region_off, &span, e->bytes,
			     (uint16_t)e->handler, e->args, e->flags, op_done, op);
}

/* Begins a store or get, or puts it into @later, so that it does not block the ring. */
static int ring_move(struct ipc_program *p, uint32_t index, const struct careful_ring_entry *e,
		     struct ipc_program_op *op)
{
	if (!p->later && may_move(p, e->bytes))
		return begin_move(p, index, e, op);
	op->asked = *e;
	op->next = NULL;
	*p->later_tail = op;
	p->later_tail = &op->next;
	return 0;
}

static void op_pinged(const struct careful_ping_result *result, void *user)
{
	struct careful_ring_entry entry = {
		.status = result->status,
		.bytes = sizeof(*result),
		.flags = 1,
	};

	end_op(user, &entry, result);
}

/* Sends a ping. Fails the ping if it cannot be sent now: to wait would block later entries. */
static int ring_ping(struct ipc_program *p, uint32_t index, const struct careful_ring_entry *e,
		     struct ipc_program_op *op)
{
	const struct careful_ping_ask ask = {
		.stage = e->args[0],
		.ttl = e->args[1],
		.timeout_ms = e->args[2],
		.bytes = e->args[3],
	};
	struct careful_ring_entry end = { 0 };
	int rc = ask.timeout_ms > IPC_PING_MS ?
			 -EINVAL :
			 careful_ping(p->client->ipc->instance, index, &ask, op_pinged, op);

	if (rc) {
		end.status = rc;
		end_op(op, &end, NULL);
	}
	return 0;
}

/* Begins an operation. Returns -EAGAIN if there is no room now. */
static int ring_operate(struct ipc_program *p, const struct careful_ring_entry *e,
			const void *payload)
{
	struct ipc *ipc = p->client->ipc;
	struct careful_ring_entry end = { 0 };
	struct ipc_program_op *op = NULL;
	int index = ipc_peer_index(ipc, e->peer), rc;

	if (index >= 0 && ipc->held[index])
		return -EAGAIN;
	if (e->id || e->kind != CAREFUL_RING_REQUEST) {
		op = p->ops_free;
		if (!op)
			return -EAGAIN;
		p->ops_free = op->next;
		p->ops_used++;
		op->id = e->id;
	}
	if (index < 0)
		rc = index;
	else if (e->kind == CAREFUL_RING_REQUEST)
		rc = ring_request(p, (uint32_t)index, e, payload, op);
	else if (e->kind == CAREFUL_RING_PING)
		rc = ring_ping(p, (uint32_t)index, e, op);
	else
		rc = ring_move(p, (uint32_t)index, e, op);
	if (rc == -EAGAIN && op) {
		free_op(op);
	} else if (rc && rc != -EAGAIN && op) {
		end.status = rc;
		end_op(op, &end, NULL);
		rc = 0;
	}
	return rc == -EAGAIN ? rc : 0;
}

static struct ipc_program_op *pop_later(struct ipc_program *p)
{
	struct ipc_program_op *op = p->later;

	p->later = op->next;
	if (!p->later)
		p->later_tail = &p->later;
	return op;
}

/* Begins the stores and gets in @later for which there is room. Returns their number. */
static uint32_t begin_later(struct ipc_program *p)
{
	struct ipc *ipc = p->client->ipc;
	uint32_t n = 0;

	for (; p->later && may_move(p, p->later->asked.bytes); n++) {
		struct ipc_program_op *op = p->later;
		const struct careful_ring_entry *e = &op->asked;
		struct careful_ring_entry end = { 0 };
		int index = ipc_peer_index(ipc, e->peer), rc = index;

		if (index >= 0 && ipc->held[index])
			break;
		if (index >= 0)
			rc = begin_move(p, (uint32_t)index, e, op);
		if (rc == -EAGAIN) {
			end_move(op);
			break;
		}
		pop_later(p);
		end.status = rc;
		if (rc)
			end_op(op, &end, NULL);
	}
	return n;
}

void ipc_ring_forget(struct ipc_program *p)
{
	while (p->later)
		free_op(pop_later(p));
}

static int ring_reply(struct ipc_program *p, const struct careful_ring_entry *e,
		      const void *payload)
{
	struct ipc_program_ask *ask = &p->answers[e->id % CAREFUL_RING_ANSWERS];
	struct careful *instance = p->client->ipc->instance;
	int status = (int)((uint32_t)e->status & 0xfff);
	int rc;

	if (!ask->id || ask->id != e->id) /* answered already */
		return 0;
	rc = e->bytes > CAREFUL_RING_PAYLOAD_BYTES ?
		     -EMSGSIZE :
		     careful_reply_late(instance, &ask->to, status, e->args, payload, e->bytes);
	if (rc == -EMSGSIZE)
		rc = careful_reply_late(instance, &ask->to, EMSGSIZE, NULL, NULL, 0);
	if (rc == -EAGAIN)
		return rc;
	ask->id = 0;
	p->answers_used--;
	return 0;
}

/* Begins the operation of an entry. Returns -EAGAIN if there is no room now. */
static int ring_begin(struct ipc_program *p, uint32_t at)
{
	const void *payload = p->asks_payload + (size_t)at * CAREFUL_RING_PAYLOAD_BYTES;
	struct careful_ring_entry entry;

	memcpy(&entry, &p->asks[at], sizeof(entry));
	/* Keeps the compiler from reading the ring again. */
	__asm__ volatile("" : : "r"(&entry) : "memory");
	switch (entry.kind) {
	case CAREFUL_RING_REQUEST:
	case CAREFUL_RING_GET:
	case CAREFUL_RING_STORE:
	case CAREFUL_RING_PING:
		return ring_operate(p, &entry, payload);
	case CAREFUL_RING_REPLY:
		return ring_reply(p, &entry, payload);
	default:
		disconnect_program(p, "it asked for an unknown operation");
		return -EAGAIN;
	}
}

uint32_t ipc_ring_round(struct ipc_program *p)
{
	const uint32_t most = p->client->ipc->programs->next ? ROUND_SHARED : ROUND;
	uint32_t waiting, n = 0, begun = 0;

	if (p->client->failed || p->quiet)
		return 0;
	if (p->armed)
		write_number(&p->area->asks_asleep, 0);
	p->armed = false;
	if (p->later)
		begun = begin_later(p);
	waiting = read_number(&p->area->asks_put) - p->asks_taken;
	if (!waiting)
		return begun;
	if (waiting > CAREFUL_RING_ASKS) {
		disconnect_program(p, "its ring has more entries than places");
		return 0;
	}
	p->blocked = false;
	while (n < waiting && n < most) {
		if (ring_begin(p, p->asks_taken % CAREFUL_RING_ASKS)) {
			p->blocked = true;
			break;
		}
		p->asks_taken++;
		n++;
	}
	if (!n)
		return begun;
	p->info.asked += n;
	write_number(&p->area->asks_taken, p->asks_taken);
	/* The program sees the room before it sleeps, or we see below that the ring was full. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (read_number(&p->area->asks_put) - p->asks_taken + n >= CAREFUL_RING_ASKS)
		p->news = true;
	return begun + n;
}

bool ipc_ring_waits(struct ipc_program *p)
{
	p->armed = true;
	write_number(&p->area->asks_asleep, 1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return read_number(&p->area->asks_put) != p->asks_taken && !p->blocked && !p->quiet &&
	       !p->client->failed;
}
