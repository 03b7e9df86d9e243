// SPDX-License-Identifier: BSD-2-Clause
/*
 * Slots of bulk messages. The sender reuses a message's slot as soon as its last fragment has left,
 * while the receiver may still be writing it to a file. The receiver's storage writes only when the
 * test allows it.
 */
#include "instances.h"

#include <sys/mman.h>

enum {
	MESSAGES = 2 * MESSAGE_SLOTS - 2, /* each fills a buffer; W is 64, half of it may be held */
	BYTES = 100,
};

static struct slow {
	struct storage base;
	struct storage *real;
	struct storage_io *first, **last;
	bool open;
} slow;

static int slow_submit(struct storage *storage, struct storage_io *io)
{
	(void)storage;
	io->next = NULL;
	*slow.last = io;
	slow.last = &io->next;
	slow.base.pending++;
	return 0;
}

static uint32_t slow_poll(struct storage *storage)
{
	uint32_t n = 0;

	(void)storage;
	while (slow.open && slow.first) {
		struct storage_io *io = slow.first;

		slow.first = io->next;
		if (!slow.first)
			slow.last = &slow.first;
		slow.base.pending--;
		io->result = pwritev(io->fd, io->iov, io->iov_count, (off_t)io->offset);
		io->done(io);
		n++;
	}
	return n;
}

static bool slow_waits(struct storage *storage, struct storage_io *io)
{
	(void)storage;
	(void)io;
	return true;
}

static void slow_down(struct careful *c)
{
	static const struct storage_ops ops = {
		.submit = slow_submit,
		.waits = slow_waits,
		.poll = slow_poll,
	};

	if (c->storage != &slow.base)
		slow.real = c->storage;
	slow = (struct slow){ .base.ops = &ops, .real = slow.real, .last = &slow.first };
	c->storage = c->messages.storage = &slow.base;
}

static void speed_up(struct careful *c)
{
	c->storage = c->messages.storage = slow.real;
}

static void test_slot__used_again_while_the_receiver_writes(void)
{
	static struct outcome outcomes[MESSAGES];
	static uint8_t sent[MESSAGES * BYTES], got[MESSAGES * BYTES];
	int fd = memfd_create("slots", 0);
	struct careful_region region = {
		.span = { .fd = fd },
		.bytes = sizeof(sent),
		.access = CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
	};
	struct ends ends;
	uint32_t key;

	for (size_t i = 0; i < sizeof(sent); i++)
		sent[i] = (uint8_t)(i * 7 + i / 256);
	ends_open(&ends, 1500);
	slow_down(ends.c[1]);
	CHECK_EQ(careful_region_add(ends.c[1], &region, &key), 0);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		struct careful_span local = { .base = sent + i * BYTES, .fd = -1 };

		CHECK_EQ(careful_store(ends.c[0], (uint32_t)ends.peer, key, i * BYTES, &local,
				       BYTES, CAREFUL_HANDLERS, NULL, 0, on_done, &outcomes[i]),
			 0);
	}
	for (int i = 0; i < PATIENCE && slow.base.pending < MESSAGES; i++) {
		poll_both(&ends);
		CHECK_EQ(ends.c[1]->link.counters[CAREFUL_C_DROP_MESSAGE], 0);
	}
	CHECK_EQ(slow.base.pending, MESSAGES); /* more than there are slots, and none has ended */
	slow.open = true;
	for (uint32_t i = 0; i < MESSAGES; i++) {
		await(&ends, &outcomes[i]);
		CHECK_EQ(outcomes[i].result.status, 0);
	}
	CHECK_EQ(pread(fd, got, sizeof(got), 0), sizeof(got));
	CHECK(!memcmp(sent, got, sizeof(got)));
	speed_up(ends.c[1]);
	ends_close(&ends);
	close(fd);
}

/* The source cannot be read, and every send buffer except that of its message is under way. */
static void test_abort__waits_for_a_send_buffer(void)
{
	static uint64_t taken[512];
	struct careful_span local = { .base = taken, .fd = -1 };
	int fd = memfd_create("slots", 0);
	struct careful_region region = {
		.span = { .fd = fd },
		.bytes = BYTES,
		.access = CAREFUL_REGION_READ,
		.peer = CAREFUL_ANY_PEER,
	};
	struct outcome outcome = { 0 };
	struct storage_io *io;
	struct ends ends;
	struct link *link;
	uint32_t key, n;

	ends_open(&ends, 1500);
	slow_down(ends.c[1]);
	link = &ends.c[1]->link;
	CHECK_EQ(careful_region_add(ends.c[1], &region, &key), 0);
	CHECK_EQ(careful_get(ends.c[0], (uint32_t)ends.peer, key, 0, &local, BYTES, 0, on_done,
			     &outcome),
		 0);
	for (int i = 0; i < PATIENCE && !slow.base.pending; i++)
		poll_both(&ends);
	CHECK(slow.first);
	link_complete(link);
	n = link->tx_free_count;
	memcpy(taken, link->tx_free, n * sizeof(taken[0]));
	link->tx_free_count = 0;
	io = slow.first;
	slow_down(ends.c[1]);
	io->result = -EIO;
	io->done(io);
	careful_poll(ends.c[1]);
	CHECK_EQ(link->tx_free_count, 1);
	memcpy(link->tx_free + 1, taken, n * sizeof(taken[0]));
	link->tx_free_count += n;
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, -EIO);
	speed_up(ends.c[1]);
	ends_close(&ends);
	close(fd);
}

static uint32_t ends_slot(struct ends *ends)
{
	struct link *link = &ends->c[1]->link;

	for (uint32_t i = 0; i < link->peers_max; i++)
		if (link->peers[i].state != CAREFUL_PEER_NONE)
			return i;
	CHECK(false);
	return 0;
}

/* Reports whether the receiver has the last fragment of this epoch's message to a region. */
static bool has_come(struct careful *c, uint32_t region)
{
	for (uint32_t i = 0; i < c->messages.ins_count; i++) {
		const struct message_in *in = &c->messages.ins[i];

		if (in->active && in->region == region && in->epoch == in->peer->epoch && in->last)
			return true;
	}
	return false;
}

/* A write of copied bytes from an old epoch is under way: the next epoch does not wait for it. A
 * later write to the same file waits, since the two could overwrite each other. */
static void test_epoch__a_late_write_belongs_to_no_later_epoch(void)
{
	enum { LARGE = 50000 };
	static uint8_t old[LARGE], new[LARGE], got[LARGE];
	struct outcome outcomes[3] = { 0 };
	struct careful_region regions[2];
	uint32_t keys[2];
	struct careful_span spans[] = { { .base = old, .fd = -1 }, { .base = new, .fd = -1 } };
	struct link_peer *peer;
	struct storage_io *io;
	struct ends ends;
	uint64_t epoch;

	memset(old, 1, sizeof(old));
	memset(new, 2, sizeof(new));
	ends_open(&ends, 1500);
	slow_down(ends.c[1]);
	for (int i = 0; i < 2; i++) {
		regions[i] = (struct careful_region){
			.span = { .fd = memfd_create("late", 0) },
			.bytes = LARGE,
			.access = CAREFUL_REGION_WRITE,
			.peer = CAREFUL_ANY_PEER,
		};
		CHECK_EQ(careful_region_add(ends.c[1], &regions[i], &keys[i]), 0);
	}
	CHECK_EQ(careful_store(ends.c[0], (uint32_t)ends.peer, keys[0], 0, &spans[0], LARGE,
			       CAREFUL_HANDLERS, NULL, 0, on_done, &outcomes[0]),
		 0);
	for (int i = 0; i < PATIENCE && !has_come(ends.c[1], keys[0]); i++)
		poll_both(&ends);
	CHECK(has_come(ends.c[1], keys[0]) && slow.first);
	/* The first write uses held frames; all the rest is copied. */
	peer = &ends.c[1]->link.peers[ends_slot(&ends)];
	io = slow.first;
	slow_down(ends.c[1]);
	io->result = pwritev(io->fd, io->iov, io->iov_count, (off_t)io->offset);
	io->done(io);
	CHECK_EQ(slow.base.pending, 1);
	CHECK_EQ(peer->kept, 0);
	epoch = peer->epoch;
	link_break(peer);
	for (int i = 0; i < PATIENCE && (peer->epoch == epoch || !outcomes[0].done); i++)
		poll_both(&ends);
	CHECK_EQ(outcomes[0].result.status, -ECONNRESET);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(careful_store(ends.c[0], (uint32_t)ends.peer, keys[i], 0, &spans[1], LARGE,
				       CAREFUL_HANDLERS, NULL, 0, on_done, &outcomes[1 + i]),
			 0);
	for (int i = 0; i < PATIENCE && (!has_come(ends.c[1], keys[0]) || slow.base.pending < 2);
	     i++)
		poll_both(&ends);
	CHECK(has_come(ends.c[1], keys[0]));
	CHECK_EQ(slow.base.pending, 2); /* the other file's write */
	slow.open = true;
	for (int i = 1; i < 3; i++) {
		await(&ends, &outcomes[i]);
		CHECK_EQ(outcomes[i].result.status, 0);
		CHECK_EQ(pread(regions[i - 1].span.fd, got, LARGE, 0), LARGE);
		CHECK(!memcmp(new, got, LARGE));
	}
	for (uint32_t i = 0; i < MESSAGE_LATE; i++)
		CHECK_EQ(ends.c[1]->messages.late[i], 0);
	speed_up(ends.c[1]);
	careful_close(ends.c[0]);
	careful_close(ends.c[1]);
	pair_close(&ends.pair);
	close(regions[0].span.fd);
	close(regions[1].span.fd);
}

int main(void)
{
	RUN(test_epoch__a_late_write_belongs_to_no_later_epoch);
	RUN(test_abort__waits_for_a_send_buffer);
	RUN(test_slot__used_again_while_the_receiver_writes);
	return 0;
}
