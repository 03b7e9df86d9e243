// SPDX-License-Identifier: BSD-2-Clause
/* Hosts that lend memory, and requests to them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
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
	case ENOENT: /* the region went with its session */
	case EBADMSG:
	case EADDRINUSE:
		return true;
	default:
		return false;
	}
}

struct memory_ask *memory_ask_new(struct memory_host *host, uint16_t handler, const uint32_t *args,
				  const void *payload, uint32_t bytes)
{
	struct memory_ask *asked = calloc(1, sizeof(*asked) + bytes);

	if (!asked)
		return NULL;
	asked->host = host;
	asked->handler = handler;
	asked->bytes = bytes;
	if (args)
		memcpy(asked->args, args, sizeof(asked->args));
	if (bytes)
		memcpy(asked->payload, payload, bytes);
	return asked;
}

static void finish(struct memory_ask *asked, const struct careful_result *result)
{
	if (!asked->over)
		asked->done(asked->memory, result, asked->user);
	asked->over = true;
}

static void on_answer(const struct careful_result *result, void *user)
{
	struct memory_ask *asked = user;
	const bool is_lost = result->status != -ENOENT && memory_is_lost(result->status);

	asked->asked = false;
	if (is_lost) /* the next attempt begins another session */
		asked->host->peer = -1;
	if (!is_lost && result->status != -EAGAIN)
		finish(asked, result);
	else
		asked->again_ns = clock_in_ms(MEMORY_AGAIN_MS);
}

/* Asks once. Returns 0, or an errno for which a repetition is useless. */
static int ask(struct memory_ask *asked)
{
	struct careful_memory *memory = asked->memory;
	int rc = memory_host_peer(memory, asked->host);

	if (rc >= 0)
		rc = careful_request(memory->instance, (uint32_t)rc, asked->handler, asked->args,
				     asked->payload, asked->bytes, on_answer, asked);
	asked->asked = !rc;
	asked->again_ns = clock_in_ms(MEMORY_AGAIN_MS);
	if (rc && rc != -EAGAIN)
		asked->host->peer = -1;
	return rc == -EAGAIN || memory_is_lost(rc) ? 0 : rc;
}

int memory_ask_begin(struct careful_memory *memory, struct memory_ask *asked)
{
	int rc;

	asked->memory = memory;
	asked->until_ns = clock_now_ns() + memory->patience_ns;
	rc = ask(asked);
	if (rc) {
		free(asked);
		return rc;
	}
	asked->next = memory->asks;
	memory->asks = asked;
	return 0;
}

void memory_ask_poll(struct careful_memory *memory, uint64_t now_ns)
{
	static const struct careful_result late = { .status = -ECONNRESET };
	struct memory_ask **at = &memory->asks, *asked;

	while ((asked = *at)) {
		struct careful_result wrong = { 0 };

		if (!asked->over && (memory->failed || now_ns >= asked->until_ns))
			finish(asked, &late);
		if (!asked->over && !asked->asked && now_ns >= asked->again_ns)
			wrong.status = ask(asked);
		if (wrong.status)
			finish(asked, &wrong);
		if (asked->over && (!asked->asked || memory->failed)) {
			*at = asked->next;
			free(asked);
			continue;
		}
		at = &asked->next;
	}
}

struct ask_job {
	struct memory_job job;
	const struct sockaddr *address;
	uint32_t address_bytes;
	uint16_t handler;
	const uint32_t *args;
	const void *payload;
	uint32_t bytes;
	struct careful_memory_answer *answer;
};

static void job_answered(struct careful_memory *memory, const struct careful_result *result,
			 void *user)
{
	struct ask_job *job = user;
	struct careful_memory_answer *answer = job->answer;

	(void)memory;
	answer->status = result->status;
	answer->bytes = result->bytes < sizeof(answer->payload) ? result->bytes :
								  sizeof(answer->payload);
	memcpy(answer->args, result->args, sizeof(answer->args));
	if (result->payload)
		memcpy(answer->payload, result->payload, answer->bytes);
	else
		answer->bytes = 0;
	memory_end_job(&job->job, result->status);
}

static void job_ask(struct careful_memory *memory, struct memory_job *one)
{
	struct ask_job *job = (struct ask_job *)one;
	struct memory_host *host = memory_host_get(memory, job->address, job->address_bytes);
	struct memory_ask *asked =
		host ? memory_ask_new(host, job->handler, job->args, job->payload, job->bytes) :
		       NULL;
	int rc = -ENOMEM;

	if (asked) {
		asked->done = job_answered;
		asked->user = job;
		rc = memory_ask_begin(memory, asked);
	}
	if (rc)
		memory_end_job(one, rc);
}

int careful_memory_ask(struct careful_memory *memory, const struct sockaddr *host,
		       uint32_t host_bytes, uint16_t handler, const uint32_t *args,
		       const void *payload, uint32_t bytes, struct careful_memory_answer *answer)
{
	struct ask_job job = {
		.job.start = job_ask,
		.address = host,
		.address_bytes = host_bytes,
		.handler = handler,
		.args = args,
		.payload = payload,
		.bytes = bytes,
		.answer = answer,
	};

	answer->bytes = 0;
	return memory_run(memory, &job.job);
}
