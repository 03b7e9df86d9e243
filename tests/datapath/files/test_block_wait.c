/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The handles of each peer are bounded. Waiting requests get their turn in order, and no peer waits
 * for another waiting peer.
 */
#include "block_end.h"
#include "files/private.h"

enum { BIG_BYTES = 64 << 10, READS = 60 };

static uint32_t send_open(uint32_t peer, uint32_t flags)
{
	struct careful_block_open open = {
		.flags = htobe32(CAREFUL_BLOCK_SCRATCH | flags),
		.bytes = htobe64(BLOCK_BATCH_BYTES),
	};
	uint32_t args[4] = { 0 };

	return fake_request(c, peer, CAREFUL_BLOCK_OPEN, args, &open, sizeof(open));
}

static uint32_t send_list(uint32_t flags)
{
	uint32_t args[4] = { flags };

	return fake_request(c, 0, CAREFUL_BLOCK_LIST, args, "", 0);
}

static void close_key(uint32_t key)
{
	uint32_t args[4] = { key };

	assert(answer(fake_request(c, 0, CAREFUL_BLOCK_CLOSE, args, NULL, 0))->status == 0);
}

/* Runs all possible work. Reports whether the request is answered. */
static bool is_answered(uint32_t token)
{
	for (int i = 0; i < 50 && !c->answers[token]->given; i++) {
		struct pollfd pfd = { .fd = block_fd(server), .events = POLLIN };

		poll(&pfd, 1, 2);
		block_poll(server);
	}
	return c->answers[token]->given;
}

static uint32_t key_of(uint32_t token)
{
	struct fake_answer *a = answer(token);

	assert(a->status == 0);
	return a->args[0];
}

/* Writes a batch that reads one large file this many times. */
static size_t fill(uint32_t scratch, uint32_t reads)
{
	struct careful_block_item head = {
		.attr = { .bytes = htobe64(1) },
		.op = htobe16(CAREFUL_ITEM_READ),
		.name_bytes = htobe32(3),
	};
	char record[sizeof(head) + 8] = { 0 };
	int fd = fake_region(c, scratch)->span.fd;

	memcpy(record, &head, sizeof(head));
	memcpy(record + sizeof(head), "big", 3); /* NOLINT: a counted string */
	for (uint32_t i = 0; i < reads; i++)
		assert(pwrite(fd, record, sizeof(record), (off_t)(i * sizeof(record))) ==
		       sizeof(record));
	return reads * sizeof(record);
}

static uint32_t send_batch(uint32_t scratch, size_t bytes)
{
	struct careful_block_batch how = {
		.bytes = htobe64(bytes),
		.file_bytes_max = htobe32(BIG_BYTES),
	};
	uint32_t args[4] = { scratch, CAREFUL_BATCH_NODIGEST };

	return fake_request(c, 0, CAREFUL_BLOCK_BATCH, args, &how, sizeof(how));
}

static void start(void)
{
	struct block_export_options export = { .path = base };
	struct careful_error error;

	c = fake_create();
	assert(block_serve(c, &export, 1, &server, &error) == 0);
	careful_peer_watch(c, block_watch, server);
}

static void test_scratch__in_turn(void)
{
	uint32_t keys[BLOCK_SCRATCHES], first, second, other;

	start();
	for (int i = 0; i < BLOCK_SCRATCHES; i++)
		keys[i] = key_of(send_open(0, 0));
	assert(answer(send_open(0, 0))->status == -EMFILE);
	first = send_open(0, CAREFUL_BLOCK_WAIT);
	second = send_open(0, CAREFUL_BLOCK_WAIT);
	assert(!is_answered(first) && !is_answered(second));
	/* Another peer is not affected, nor are other handles. */
	other = send_open(1, CAREFUL_BLOCK_WAIT);
	assert(answer(other)->status == 0);
	close_key(key_of(send_list(CAREFUL_BLOCK_WAIT)));
	close_key(keys[0]);
	assert(answer(first)->status == 0);
	assert(!is_answered(second));
	close_key(keys[1]);
	assert(answer(second)->status == 0);
	stop();
}

/* A peer with all scratches taken still gets its answers, and so can free scratches. */
static void test_batch__never_waits_for_a_scratch(void)
{
	uint32_t keys[BLOCK_SCRATCHES], waiting[BLOCK_WAITING];
	size_t bytes = 0;

	start();
	for (int i = 0; i < BLOCK_SCRATCHES; i++) {
		keys[i] = key_of(send_open(0, 0));
		bytes = fill(keys[i], 1);
	}
	for (int i = 0; i < BLOCK_WAITING; i++)
		waiting[i] = send_open(0, CAREFUL_BLOCK_WAIT);
	assert(answer(send_open(0, CAREFUL_BLOCK_WAIT))->status == -EMFILE);
	for (int i = 0; i < BLOCK_SCRATCHES; i++)
		close_key(key_of(send_batch(keys[i], bytes)));
	for (int i = 0; i < BLOCK_SCRATCHES; i++)
		close_key(keys[i]);
	for (int i = 0; i < BLOCK_WAITING; i++)
		close_key(key_of(waiting[i]));
	stop();
}

/* Answers that no client fetches: at most BLOCK_ANSWERS_BYTES. */
static void test_batch__all_answers_share_a_budget(void)
{
	uint32_t scratch, tokens[BLOCK_LISTINGS], answered = 0, next;
	uint64_t held = 0;
	size_t bytes;

	start();
	scratch = key_of(send_open(0, 0));
	bytes = fill(scratch, READS);
	for (int i = 0; i < BLOCK_LISTINGS; i++)
		tokens[i] = send_batch(scratch, bytes);
	while (answered < BLOCK_LISTINGS && is_answered(tokens[answered]))
		held += fake_region(c, key_of(tokens[answered++]))->bytes;
	assert(answered >= 4 && answered < BLOCK_LISTINGS && held <= BLOCK_ANSWERS_BYTES);
	/* Each fetched answer makes room for the next. */
	for (next = 0; next < BLOCK_LISTINGS; next++)
		close_key(key_of(tokens[next]));
	stop();
}

/* All sessions of one host together get the budget of one session. */
static void test_scratch__all_sessions_of_a_host_share_a_budget(void)
{
	uint32_t keys[BLOCK_SCRATCHES], used = 0;

	start();
	for (c->one_host = true; used < BLOCK_SCRATCHES; used++)
		keys[used] = key_of(send_open(used % FAKE_PEERS, 0));
	for (uint32_t peer = 0; peer < FAKE_PEERS; peer++)
		assert(answer(send_open(peer, 0))->status == -EMFILE);
	close_key(keys[0]);
	assert(answer(send_open(1, 0))->status == 0);
	stop();
	start();
	for (uint32_t i = 0; i < BLOCK_SCRATCHES; i++)
		keys[i] = key_of(send_open(0, 0));
	assert(answer(send_open(0, 0))->status == -EMFILE);
	assert(answer(send_open(1, 0))->status == 0); /* another host */
	stop();
}

static uint32_t send_attempt(uint32_t flags, uint32_t attempt)
{
	struct {
		struct careful_block_open open;
		char path[3];
	} asked = {
		.open = { .flags = htobe32(flags), .path_bytes = htobe32(3) },
		.path = { 'b', 'i', 'g' },
	};
	uint32_t args[4] = { 0, 0, 0, attempt };

	return fake_request(c, 0, CAREFUL_BLOCK_OPEN, args, &asked,
			    sizeof(asked.open) + sizeof(asked.path));
}

static uint32_t send_file(uint32_t flags)
{
	return send_attempt(flags, 0);
}

/* Files wait for handles in order, but not behind scratches, whose holders open files. */
static void test_file__in_turn(void)
{
	uint32_t keys[BLOCK_HANDLES], first, second, scratch;

	start();
	for (int i = 0; i < BLOCK_HANDLES; i++)
		keys[i] = key_of(i < BLOCK_SCRATCHES ? send_open(0, 0) : send_file(0));
	assert(answer(send_file(0))->status == -EMFILE);
	scratch = send_open(0, CAREFUL_BLOCK_WAIT);
	first = send_file(CAREFUL_BLOCK_WAIT);
	second = send_file(CAREFUL_BLOCK_WAIT);
	assert(!is_answered(first) && !is_answered(second));
	close_key(keys[BLOCK_HANDLES - 1]);
	assert(answer(first)->status == 0);
	assert(!is_answered(second) && !is_answered(scratch));
	close_key(keys[BLOCK_HANDLES - 2]);
	assert(answer(second)->status == 0);
	stop();
}

/* The requests of a client that has gone are closed: one that waits ends, and the others keep their
 * order. */
static void test_close__with_waiting_operations(void)
{
	uint32_t keys[BLOCK_HANDLES], waiting[3], args[4] = { 0, 0, 0, 2 };

	start();
	for (int i = 0; i < BLOCK_HANDLES; i++)
		keys[i] = key_of(send_file(0));
	for (uint32_t i = 0; i < 3; i++)
		waiting[i] = send_attempt(CAREFUL_BLOCK_WAIT, i + 1);
	assert(answer(fake_request(c, 0, CAREFUL_BLOCK_CLOSE, args, NULL, 0))->status == -EBADF);
	assert(answer(waiting[1])->status == -ECANCELED);
	assert(!is_answered(waiting[0]) && !is_answered(waiting[2]));
	for (uint32_t i = 0; i < 2; i++) {
		close_key(keys[i]);
		assert(answer(waiting[2 * i])->status == 0);
	}
	stop();
}

static void test_peer__gone_while_some_wait(void)
{
	int before = open_fds();

	start();
	for (int i = 0; i < 2 * BLOCK_SCRATCHES; i++)
		send_open(0, CAREFUL_BLOCK_WAIT);
	for (int i = 0; i < 2 * BLOCK_LISTINGS; i++)
		send_list(CAREFUL_BLOCK_WAIT);
	block_watch(c, 0, CAREFUL_PEER_FAILED, server);
	/* A new session begins without handles. */
	for (int i = 0; i < 2000 && server->peers[0].handles_count; i++) {
		usleep(1000);
		block_poll(server);
	}
	for (int i = 0; i < BLOCK_SCRATCHES; i++)
		assert(answer(send_open(0, 0))->status == 0);
	stop();
	assert(open_fds() == before);
}

int main(void)
{
	static const char big[BIG_BYTES];
	int fd;

	assert(mkdtemp(base));
	fd = open(at("big"), O_CREAT | O_WRONLY, 0600);
	assert(fd >= 0 && write(fd, big, sizeof(big)) == sizeof(big) && close(fd) == 0);
	test_scratch__in_turn();
	test_batch__never_waits_for_a_scratch();
	test_batch__all_answers_share_a_budget();
	test_scratch__all_sessions_of_a_host_share_a_budget();
	test_file__in_turn();
	test_close__with_waiting_operations();
	test_peer__gone_while_some_wait();
	remove_base();
	return 0;
}
