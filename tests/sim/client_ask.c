// SPDX-License-Identifier: BSD-2-Clause
/* The questions of programs that flood carefuld. */
#include <endian.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <careful/block.h>
#include <careful/wire.h>

#include "clients.h"

enum {
	ITEM_AT = 256, /* offset in a program's file of the record for the first kind's batches */
	GET_AT = 8192, /* likewise, target of its gets */
};

static const uint8_t steps[KINDS][6] = {
	[WRITES] = { CREATE, STORE, COMMIT },
	[READS] = { OPEN, GET, CLOSE },
	[STATS] = { STAT },
	[MAKES] = { MKDIR },
	[LISTS] = { LIST, CLOSE },
	[APPENDS] = { SCRATCH, STORE_ITEM, BATCH, CLOSE_ANSWER, CLOSE },
	[RENAMES] = { SCRATCH, STORE_ITEM, BATCH, CLOSE_ANSWER, CLOSE },
};

/* @opens: the payload begins with a careful_block_open; @path: a path follows; @numbered: with a
 *   number */
static const struct {
	uint16_t op, handler;
	bool opens, numbered;
	uint32_t flags;
	const char *path;
} questions[] = {
	[CREATE] = { CAREFUL_IPC_REQUEST, CAREFUL_BLOCK_OPEN, true, true,
		     CAREFUL_BLOCK_CREATE | CAREFUL_BLOCK_REPLACE | CAREFUL_BLOCK_WAIT, "w" },
	[OPEN] = { CAREFUL_IPC_REQUEST, CAREFUL_BLOCK_OPEN, true, false, CAREFUL_BLOCK_WAIT,
		   "read" },
	[SCRATCH] = { CAREFUL_IPC_REQUEST, CAREFUL_BLOCK_OPEN, true, false,
		      CAREFUL_BLOCK_SCRATCH | CAREFUL_BLOCK_WAIT, "" },
	[LIST] = { CAREFUL_IPC_REQUEST, CAREFUL_BLOCK_LIST, false, false, CAREFUL_BLOCK_WAIT, "d" },
	[STAT] = { CAREFUL_IPC_REQUEST, CAREFUL_BLOCK_STAT, false, false, 0, "read" },
	[MKDIR] = { CAREFUL_IPC_REQUEST, CAREFUL_BLOCK_MKDIR, true, true, 0, "d/" },
	[BATCH] = { CAREFUL_IPC_REQUEST, CAREFUL_BLOCK_BATCH, false, false, 0, "" },
	[COMMIT] = { CAREFUL_IPC_REQUEST, CAREFUL_BLOCK_COMMIT, true, false, 0, "" },
	[CLOSE] = { CAREFUL_IPC_REQUEST, CAREFUL_BLOCK_CLOSE, false, false, 0, "" },
	[CLOSE_ANSWER] = { CAREFUL_IPC_REQUEST, CAREFUL_BLOCK_CLOSE, false, false, 0, "" },
	[STORE] = { CAREFUL_IPC_STORE, CAREFUL_HANDLERS, false, false, 0, "" },
	[STORE_ITEM] = { CAREFUL_IPC_STORE, CAREFUL_HANDLERS, false, false, 0, "" },
	[GET] = { CAREFUL_IPC_GET, CAREFUL_HANDLERS, false, false, 0, "" },
};

enum step client_step(const struct task *task)
{
	return steps[task->kind][task->at];
}

static uint32_t item_bytes(enum kind kind)
{
	return sizeof(struct careful_block_item) + (kind == APPENDS ? 24 : 8);
}

void client_put_item(const struct program *p, enum kind kind)
{
	const bool appends = kind == APPENDS;
	struct {
		struct careful_block_item item;
		char text[24];
	} record = {
		.item = {
			.op = htobe16(appends ? CAREFUL_ITEM_APPEND : CAREFUL_ITEM_RENAME),
			.attr.mode = htobe32(0600),
			.name_bytes = htobe32(3),
			.text_bytes = htobe32(appends ? 0 : 3),
			.data_bytes = htobe64(appends ? 16 : 0),
		},
		.text = "loglog",
	};

	pwrite(p->memory, &record, item_bytes(kind), ITEM_AT * kind);
}

bool client_send(struct program *p, struct careful_ipc *head, const void *payload)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr header;
	} control = { .header = { .cmsg_len = CMSG_LEN(sizeof(int)),
				  .cmsg_level = SOL_SOCKET,
				  .cmsg_type = SCM_RIGHTS } };
	struct iovec iov[2] = { { head, sizeof(*head) }, { (void *)payload, head->payload_bytes } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };

	head->version = CAREFUL_IPC_VERSION;
	if (head->op == CAREFUL_IPC_FILE_ADD) {
		memcpy(CMSG_DATA(&control.header), &p->memory, sizeof(p->memory));
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
	}
	return sendmsg(p->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

bool client_ask(struct program *p, struct task *task)
{
	const enum step step = client_step(task);
	struct careful_ipc head = { .op = questions[step].op,
				    .id = (uint64_t)(task - p->task) + 1,
				    .handler = questions[step].handler,
				    .peer = p->peer,
				    .file = p->file,
				    .region = task->handle,
				    .bytes = CLIENTS_BYTES,
				    .args = { task->handle } };
	struct careful_block_open open = { .flags = htobe32(questions[step].flags),
					   .mode = htobe32(0700),
					   .bytes = htobe64(CLIENTS_BYTES) };
	struct careful_block_batch batch = { .bytes = htobe64(item_bytes(task->kind)) };
	char payload[128], number[16] = "";
	uint32_t at = questions[step].opens ? sizeof(open) : 0, n;

	if (questions[step].numbered)
		snprintf(number, sizeof(number), "%x",
			 step == MKDIR ? task->attempt % 8 : task->attempt);
	n = (uint32_t)snprintf(payload + at, sizeof(payload) - at, "%s%s", questions[step].path,
			       number);
	open.path_bytes = htobe32(n);
	memcpy(payload, &open, at);
	head.payload_bytes = at + n;
	if (step <= LIST) /* distinct names */
		memcpy(head.args,
		       (uint32_t[]){ step == LIST ? CAREFUL_BLOCK_WAIT : 0, 0, 1, task->attempt },
		       sizeof(head.args));
	if (step == BATCH) {
		memcpy(payload, &batch, sizeof(batch));
		head.payload_bytes = sizeof(batch);
		memcpy(head.args + 1,
		       (uint32_t[]){ CAREFUL_BATCH_REPLACE | CAREFUL_BATCH_NODIGEST, 2,
				     task->attempt },
		       3 * sizeof(head.args[0]));
	}
	if (step == COMMIT)
		head.args[1] = CAREFUL_BLOCK_REPLACE | CAREFUL_BLOCK_NOSYNC;
	if (step == CLOSE_ANSWER)
		head.args[0] = task->answer;
	if (step == STORE_ITEM)
		head.bytes = item_bytes(task->kind);
	head.file_off = step == STORE_ITEM ? ITEM_AT * task->kind : step == GET ? GET_AT : 0;
	return client_send(p, &head, payload);
}
