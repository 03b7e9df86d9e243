/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory server: start, poll and stop. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/error.h"
#include "lend/private.h"

static const uint64_t second_ns = 1000000000;

/* Ends the pieces whose owners were away for too long. */
static void expire(struct lend_server *server)
{
	const uint64_t now_ns = clock_now_ns(),
		       keep_ns = server->options.keep_ms * UINT64_C(1000000);

	if (now_ns < server->due_ns)
		return;
	server->due_ns = 0;
	for (struct lend_piece *p = server->pieces; p; p = p->next) {
		const uint64_t due_ns = p->gone_ns + keep_ns;

		if (!p->gone_ns || p->state > LEND_READY)
			continue;
		if (p->state == LEND_READY && due_ns <= now_ns)
			lend_piece_end(p);
		else if (!server->due_ns || due_ns < server->due_ns)
			server->due_ns = due_ns > now_ns ? due_ns : now_ns + second_ns;
	}
}

void lend_poll(struct lend_server *server)
{
	struct lend_piece *piece;

	if (!server)
		return;
	if (server->answers)
		lend_answer_retry(server);
	if (server->closed)
		lend_piece_retry(server);
	while ((piece = (struct lend_piece *)pool_take(&server->pool))) {
		if (piece->state == LEND_FREEING)
			lend_deleted(piece);
		else
			lend_created(piece);
	}
	if (server->due_ns)
		expire(server);
	if (server->waits)
		lend_wait_poll(server);
}

int lend_fd(const struct lend_server *server)
{
	return server ? server->pool.event_fd : -1;
}

int lend_timeout_ms(const struct lend_server *server)
{
	uint64_t now_ns, due_ns;

	if (!server)
		return -1;
	if (server->answers || server->closed)
		return 1;
	due_ns = server->waits ? server->waits_due_ns : UINT64_MAX;
	if (server->due_ns && server->due_ns < due_ns)
		due_ns = server->due_ns;
	if (due_ns == UINT64_MAX)
		return -1;
	now_ns = clock_now_ns();
	return due_ns > now_ns ? (int)((due_ns - now_ns) / 1000000) + 1 : 0;
}

static bool is_owners_first(const struct lend_server *server, const struct lend_piece *piece)
{
	const struct lend_piece *p = server->pieces;

	while (!lend_same(&p->owner, &piece->owner))
		p = p->next;
	return p == piece;
}

uint32_t lend_use(const struct lend_server *server, struct careful_lend_use *uses, uint32_t most)
{
	uint32_t n = 1;

	if (!server)
		return 0;
	uses[0] = (struct careful_lend_use){
		.bytes = server->options.bytes,
		.used = server->used,
		.pieces = server->pieces_count,
	};
	for (const struct lend_piece *p = server->pieces; p && n < most; p = p->next) {
		struct careful_lend_use *use = &uses[n];

		if (!is_owners_first(server, p))
			continue;
		*use = (struct careful_lend_use){
			.bytes = server->options.host_bytes,
			.by = be32toh(p->owner.by),
		};
		if (p->gone_ns)
			use->gone_s = (uint32_t)((clock_now_ns() - p->gone_ns) / second_ns) + 1;
		memcpy(use->id, p->owner.id, sizeof(use->id));
		lend_piece_count(server, &p->owner, &use->used, &use->pieces);
		n++;
	}
	return n;
}

/* Reports whether this process may lock this much memory. */
static bool may_lock(uint64_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool may = memory != MAP_FAILED && !mlock2(memory, bytes, MLOCK_ONFAULT);

	if (memory != MAP_FAILED)
		munmap(memory, bytes);
	return may;
}

static int check_memory(const struct lend_options *options, struct careful_error *error)
{
	const unsigned long long mib = options->bytes >> 20;
	unsigned long long kib = 0;
	FILE *file = fopen("/proc/meminfo", "re");
	char line[128];

	while (file && !kib && fgets(line, sizeof(line), file))
		sscanf(line, "MemAvailable: %llu", &kib); /* NOLINT: the kernel wrote it */
	if (file)
		fclose(file);
	if (kib && options->bytes > kib << 10)
		return explain_option(error, -ENOMEM, "lend",
				      "needs %llu MiB, but only %llu MiB are available: lend less",
				      mib, kib >> 10);
	if (!may_lock(options->bytes))
		return explain_option(
			error, -ENOMEM, "lend",
			"needs %llu MiB of locked memory: raise the limit (ulimit -l), or allow CAP_IPC_LOCK",
			mib);
	return 0;
}

static int start(struct lend_server *server)
{
	struct careful_info info;
	int rc = careful_info(server->instance, &info);

	if (rc)
		return rc;
	server->answers_tail = &server->answers;
	server->peers_count = info.peers_max;
	server->opens_most = LEND_OPENS / info.peers_max;
	if (server->opens_most > LEND_OPENS_PEER)
		server->opens_most = LEND_OPENS_PEER;
	if (!server->options.host_bytes)
		server->options.host_bytes = server->options.bytes / 2;
	server->peers = calloc(info.peers_max, sizeof(*server->peers));
	if (!server->peers)
		return -ENOMEM;
	rc = pool_open(&server->pool, &lend_rules, server);
	for (uint16_t i = CAREFUL_MEMORY_CREATE; !rc && i <= CAREFUL_MEMORY_LAST; i++)
		rc = careful_handle(server->instance, i, lend_on_request, server);
	return rc;
}

int lend_serve(struct careful *instance, const struct lend_options *options,
	       struct lend_server **server, struct careful_error *error)
{
	struct lend_server *s;
	int rc;

	*server = NULL;
	if (!options->bytes)
		return 0;
	rc = check_memory(options, error);
	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return explain(error, -ENOMEM, "out of memory");
	s->instance = instance;
	s->options = *options;
	rc = start(s);
	if (rc) {
		free(s->peers);
		free(s);
		return explain_option(error, rc, "lend", "cannot start: %s", strerror(-rc));
	}
	*server = s;
	return 0;
}

/* Frees a list whose entries begin with the address of the next. */
static void free_list(void *entry)
{
	while (entry) {
		void *next;

		memcpy(&next, entry, sizeof(next));
		free(entry);
		entry = next;
	}
}

uint32_t lend_stop(struct lend_server *server)
{
	uint32_t left;

	if (!server)
		return 0;
	left = pool_stop(&server->pool, LEND_STOP_MS, false);
	if (left) /* workers still use the server */
		return left;
	pool_free(&server->pool);
	for (struct lend_piece *p = server->pieces, *next; p; p = next) {
		next = p->next;
		free_list(p->opens);
		lend_piece_free(p);
	}
	free_list(server->answers);
	free_list(server->waits);
	free(server->peers);
	free(server);
	return 0;
}
