/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers to clients. An operation ends when its answer is in the socket. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "daemon/ipc/ipc_private.h"
#include "local/packet.h"

void ipc_arm(struct ipc_client *client)
{
	struct epoll_event ev = { .data.ptr = &client->event };

	if (client->fd < 0)
		return;
	if (ipc_may_ask(client))
		ev.events |= EPOLLIN;
	if (client->answers)
		ev.events |= EPOLLOUT;
	if (ev.events == client->armed)
		return;
	client->armed = ev.events;
	epoll_ctl(client->ipc->epoll_fd, EPOLL_CTL_MOD, client->fd, &ev);
}

void ipc_op_free(struct ipc_op *op)
{
	struct ipc_client *client = op->client;

	ipc_op_opens(op, IPC_OPENS_NOTHING);
	client->ops_used--;
	client->reserved -= op->reserve;
	op->next = client->ops_free;
	client->ops_free = op;
	ipc_arm(client);
}

struct ipc_op *ipc_op_take(struct ipc_client *client, const struct careful_ipc *head,
			   uint32_t reserve)
{
	struct ipc_op *op = client->ops_free;

	if (!op || (client->reserved && client->reserved + reserve > IPC_ANSWER_BYTES))
		return NULL;
	client->ops_free = op->next;
	*op = (struct ipc_op){
		.client = client, .id = head->id, .op = head->op, .reserve = reserve
	};
	client->ops_used++;
	client->reserved += reserve;
	return op;
}

static int queue_answer(struct ipc_op *op, const struct careful_ipc *head, const void *payload)
{
	struct ipc_answer *answer = malloc(sizeof(*answer) + head->payload_bytes);
	struct ipc_client *client = op->client;

	if (!answer)
		return -ENOMEM;
	answer->next = NULL;
	answer->op = op;
	answer->head = *head;
	if (payload)
		memcpy(answer->payload, payload, head->payload_bytes);
	*client->answers_tail = answer;
	client->answers_tail = &answer->next;
	ipc_arm(client);
	return 0;
}

void ipc_answer(struct ipc_op *op, int status, struct careful_ipc *head, const void *payload,
		uint32_t bytes)
{
	struct ipc_client *client = op->client;
	struct careful_ipc none = { 0 };
	int rc;

	head = head ? head : &none;
	head->version = CAREFUL_IPC_VERSION;
	head->op = op->op;
	head->id = op->id;
	head->status = status;
	head->payload_bytes = bytes;
	if (client->fd < 0) {
		ipc_op_free(op);
		return;
	}
	rc = client->answers ? -EAGAIN : packet_send(client->fd, head, payload, -1);
	if (rc == -EAGAIN) {
		rc = queue_answer(op, head, payload);
		if (!rc)
			return;
	}
	ipc_op_free(op);
	if (rc) { /* the caller may still use the client, so a later event ends the connection */
		client->failed = true;
		shutdown(client->fd, SHUT_RDWR);
	}
}

void ipc_flush(struct ipc_client *client)
{
	struct ipc_answer *answer;
	int rc = 0;

	while ((answer = client->answers)) {
		rc = packet_send(client->fd, &answer->head, answer->payload, -1);
		if (rc)
			break;
		client->answers = answer->next;
		if (!client->answers)
			client->answers_tail = &client->answers;
		ipc_op_free(answer->op);
		free(answer);
	}
	client->failed |= rc && rc != -EAGAIN;
	ipc_arm(client);
}

void ipc_count(struct ipc_client *client, uint32_t op, uint64_t began_ns, int status)
{
	struct careful_ipc_use *use = &client->ipc->use;
	struct careful_latency *kind = op == CAREFUL_IPC_GET   ? &use->get :
				       op == CAREFUL_IPC_STORE ? &use->store :
								 &use->request;
	uint64_t took_ns = clock_now_ns() - began_ns;
	uint32_t i = 0;

	if (status) {
		kind->failed++;
		return;
	}
	while (i < CAREFUL_IPC_BUCKETS - 1 && took_ns >= (uint64_t)CAREFUL_IPC_BUCKET_NS << i)
		i++;
	kind->buckets[i]++;
	kind->sum_ns += took_ns;
}
