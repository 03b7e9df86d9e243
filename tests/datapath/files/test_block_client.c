/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The block client and the block server, joined without a network. Answers are lost on purpose: a
 * repeated request must not have effect twice.
 */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_careful.c" /* NOLINT(bugprone-suspicious-include) */
#include "files/block.h"
#include "block_client.h"

static char base[] = "/tmp/test_block_client.XXXXXX";
static struct careful *c;
static struct block_server *server;
static unsigned int lose; /* answers still to be lost */
static unsigned int full; /* requests that the server will still refuse */

static void end(struct fake_operation *op, int status, const uint32_t *args, const void *payload,
		uint32_t bytes)
{
	struct careful_result result = { .status = status, .payload = payload, .bytes = bytes };
	careful_done_fn *done = op->done;
	void *user = op->user;

	if (lose) {
		lose--;
		result = (struct careful_result){ .status = -ECONNRESET };
	} else if (args) {
		memcpy(result.args, args, sizeof(result.args));
	}
	op->kind = 0;
	done(&result, user);
}

static void run_request(struct fake_operation *op)
{
	struct fake_answer *a;
	uint32_t token;

	if (full) {
		full--;
		end(op, -EAGAIN, NULL, NULL, 0);
		return;
	}
	token = fake_request(c, op->peer, op->handler, op->args, op->payload, op->payload_bytes);
	a = c->answers[token];

	/* The answer may come after the client has asked again. */
	while (!a->given && !lose)
		block_poll(server);
	end(op, a->status, a->args, a->payload, a->bytes);
}

static void run_bulk(struct fake_operation *op)
{
	struct careful_region *r = fake_region(c, op->region);
	uint32_t bytes = op->bytes;
	ssize_t n;

	assert(r && op->region_off + bytes <= r->bytes && op->span.base);
	if (op->kind == 'g')
		n = pread(r->span.fd, op->span.base, bytes, (off_t)op->region_off);
	else
		n = pwrite(r->span.fd, op->span.base, bytes, (off_t)op->region_off);
	end(op, 0, NULL, NULL, (uint32_t)n);
}

/* Plays the engine and its peer. */
int careful_wait(struct careful *instance, int timeout_ms, int extra_fd)
{
	(void)timeout_ms;
	(void)extra_fd;
	block_poll(server);
	for (int i = 0; i < 512; i++) {
		struct fake_operation *op = &instance->operations[i];

		if (op->kind == 'r')
			run_request(op);
		else if (op->kind)
			run_bulk(op);
	}
	return 1;
}

static int entries(void)
{
	char command[64];
	FILE *f;
	int n;

	snprintf(command, sizeof(command), "find %s | wc -l", base);
	f = popen(command, "r");
	assert(f && fscanf(f, "%d", &n) == 1);
	pclose(f);
	return n - 1;
}

static uint32_t handles(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < FAKE_REGIONS; i++)
		n += c->regions[i].used;
	return n;
}

static void put_and_get(unsigned int losses)
{
	char data[] = "what crosses the link", back[64] = "";
	struct careful_span from = { .base = data }, to = { .base = back };
	struct careful_block_attr attr;
	struct remote_file file;

	lose = losses;
	assert(remote_file_create(c, 0, "f", 0, sizeof(data), &file) == 0);
	assert(file.bytes == sizeof(data) && handles() == 1);
	lose = losses;
	assert(remote_file_put(c, &file, 0, &from, sizeof(data), 0) == 0);
	lose = losses;
	assert(remote_file_commit(c, &file, 0, 0640, 1234567890, &attr) == 0);
	assert(be64toh(attr.mtime_ns) == 1234567890 && entries() == 1 && handles() == 0);

	lose = losses;
	assert(remote_file_open(c, 0, "f", &file) == 0 && handles() == 1);
	lose = losses;
	assert(remote_file_get(c, &file, 0, &to, sizeof(data), 0) == 0 && !strcmp(data, back));
	lose = losses;
	assert(remote_file_close(c, &file, &attr) == 0 && be64toh(attr.bytes) == sizeof(data));
	assert(handles() == 0);

	lose = losses;
	assert(remote_file_mkdir(c, 0, "d", 0755) == 0);
	lose = losses;
	assert(remote_file_list(c, 0, "", CAREFUL_BLOCK_RECURSIVE, &file) == 0 && handles() == 1);
	assert(file.bytes == 2 * 80 && file.unreadable == 0);
	assert(remote_file_close(c, &file, NULL) == 0 && handles() == 0);
	lose = losses;
	assert(remote_file_stat(c, 0, "d", &attr) == 0 && S_ISDIR(be32toh(attr.mode)));
	lose = losses;
	assert(remote_file_create(c, 0, "f", 0, 1, &file) == -EEXIST);
	assert(remote_file_open(c, 0, "none", &file) == -ENOENT);
}

static void start(void)
{
	struct block_export_options export = { .path = base, .writable = true };
	struct careful_error error;

	c = fake_create();
	assert(block_serve(c, &export, 1, &server, &error) == 0);
}

static void stop(void)
{
	block_stop(server);
	fake_destroy(c);
}

int main(void)
{
	char command[64];

	assert(mkdtemp(base));
	snprintf(command, sizeof(command), "rm -rf %s/*", base);
	for (unsigned int losses = 0; losses < 8; losses++) {
		start();
		put_and_get(losses);
		stop();
		assert(system(command) == 0);
	}
	/* If all answers are lost the client gives up. */
	start();
	lose = 1000000;
	struct careful_block_attr attr;

	assert(remote_file_stat(c, 0, "", &attr) == -ECONNRESET);
	lose = 0;
	/* A server without room is asked again, but not without end. */
	full = 100;
	assert(remote_file_stat(c, 0, "", &attr) == 0 && full == 0);
	full = 1000000;
	assert(remote_file_stat(c, 0, "", &attr) == -EAGAIN);
	full = 0;
	/* An operation that cannot begin fails at once. */
	c->begin_errno = -ENOTCONN;
	assert(remote_file_stat(c, 0, "", &attr) == -ENOTCONN);
	stop();
	assert(rmdir(base) == 0);
	printf("test_block_client: ok\n");
	return 0;
}
