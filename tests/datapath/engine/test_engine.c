// SPDX-License-Identifier: BSD-2-Clause
/*
 * Two instances across a veth, polled in turn by one thread: requests, stores and gets between
 * memory and files, errors, live tuning. Compares every byte; no frame may be lost.
 */
#include "instances.h"

#include <sys/mman.h>

#include "device/xsk/xsk.h"

enum { BYTES = 3000001 };

static uint8_t source[BYTES], target[BYTES];

static void fill(uint8_t *p, uint32_t bytes)
{
	uint32_t x = 12345;

	for (uint32_t i = 0; i < bytes; i++) {
		x = x * 1664525 + 1013904223;
		p[i] = (uint8_t)(x >> 24);
	}
}

static void test_request__payload_and_args_come_back(void)
{
	const uint32_t args[4] = { 1, 0xffffffff, 3, 4 };
	struct outcome outcome = { 0 };
	struct ends ends;

	ends_open(&ends, 3826);
	careful_handle(ends.c[1], 7, echo, NULL);
	CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, 7, args, "frame", 5, on_done,
				 &outcome),
		 0);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, 0);
	CHECK_EQ(outcome.result.bytes, 5);
	CHECK(!memcmp(outcome.payload, "frame", 5));
	CHECK(!memcmp(outcome.result.args, args, sizeof(args)));

	outcome.done = 0;
	careful_request(ends.c[0], (uint32_t)ends.peer, 8, NULL, NULL, 0, on_done, &outcome);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, -ENOSYS);
	CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, 7, args, source, 8192, on_done,
				 &outcome),
		 -EMSGSIZE);
	ends_close(&ends);
}

static void test_request__more_than_the_window_all_answered(void)
{
	static struct outcome outcomes[500];
	struct ends ends;

	memset(outcomes, 0, sizeof(outcomes));
	ends_open(&ends, 1500);
	careful_handle(ends.c[1], 7, echo, NULL);
	for (uint32_t i = 0; i < 500; i++)
		CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, 7, NULL, &i, sizeof(i),
					 on_done, &outcomes[i]),
			 0);
	for (uint32_t i = 0; i < 500; i++) {
		await(&ends, &outcomes[i]);
		CHECK(!memcmp(outcomes[i].payload, &i, sizeof(i)));
	}
	ends_close(&ends);
}

/* Removes a region as soon as the peer has confirmed all bytes from it. */
static void remove_region(struct ends *ends, uint32_t key)
{
	int rc;

	while ((rc = careful_region_remove(ends->c[1], key)) == -EBUSY) {
		careful_poll(ends->c[0]);
		careful_poll(ends->c[1]);
	}
	CHECK_EQ(rc, 0);
}

/* Gets between each kind of span, at one MTU. */
static void bulk(unsigned int mtu, uint32_t flags)
{
	int fd = memfd_create("target", 0);
	int from = memfd_create("source", 0);
	struct careful_span spans[2] = { { .base = target, .fd = -1 }, { .fd = fd } };
	struct ends ends;

	CHECK(fd >= 0 && from >= 0 && write(from, source, BYTES) == BYTES);
	ends_open(&ends, mtu);
	for (int k = 0; k < 4; k++) {
		struct careful_region region = {
			.span = k & 1 ? (struct careful_span){ .fd = from } :
					(struct careful_span){ .base = source, .fd = -1 },
			.bytes = BYTES,
			.access = CAREFUL_REGION_READ,
			.peer = CAREFUL_ANY_PEER,
		};
		struct outcome outcome = { 0 };
		uint32_t key;

		memset(target, 0, sizeof(target));
		CHECK(!ftruncate(fd, 0));
		CHECK_EQ(careful_region_add(ends.c[1], &region, &key), 0);
		CHECK_EQ(careful_get(ends.c[0], (uint32_t)ends.peer, key, 0, &spans[k >> 1], BYTES,
				     flags, on_done, &outcome),
			 0);
		await(&ends, &outcome);
		CHECK_EQ(outcome.result.status, 0);
		CHECK_EQ(outcome.result.bytes, BYTES);
		if (k >> 1)
			CHECK_EQ(pread(fd, target, BYTES, 0), BYTES);
		CHECK(!memcmp(source, target, BYTES));
		remove_region(&ends, key);
		CHECK_EQ(careful_region_remove(ends.c[1], key), -ENOENT);
	}
	ends_close(&ends);
	close(fd);
	close(from);
}

static void test_get__memory_and_files(void)
{
	bulk(3826, 0);
	bulk(1500, CAREFUL_NO_DIGEST);
	bulk(9000, 0);
}

/* Returns a region over the target, for stores of any peer. */
static struct careful_region written_by_all(void)
{
	return (struct careful_region){
		.span = { .base = target, .fd = -1 },
		.bytes = BYTES,
		.access = CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
	};
}

static void test_store__to_memory_checked_by_region(void)
{
	struct careful_region region = written_by_all();
	struct careful_span local = { .base = source, .fd = -1 };
	struct outcome outcome = { 0 };
	struct ends ends;
	uint32_t key;

	memset(target, 0, sizeof(target));
	ends_open(&ends, 3826);
	CHECK_EQ(careful_region_add(ends.c[1], &region, &key), 0);
	careful_store(ends.c[0], (uint32_t)ends.peer, key, 0, &local, BYTES, CAREFUL_HANDLERS, NULL,
		      0, on_done, &outcome);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, 0);
	CHECK_EQ(outcome.result.bytes, BYTES);
	CHECK(!memcmp(source, target, BYTES));

	outcome.done = 0; /* beyond the region's end */
	careful_store(ends.c[0], (uint32_t)ends.peer, key, 1, &local, BYTES, CAREFUL_HANDLERS, NULL,
		      0, on_done, &outcome);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, -ERANGE);
	outcome.done = 0; /* not readable */
	careful_get(ends.c[0], (uint32_t)ends.peer, key, 0, &local, 10, 0, on_done, &outcome);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, -EACCES);
	ends_close(&ends);
}

static void test_get__a_source_that_shrank_is_an_error(void)
{
	int from = memfd_create("source", 0);
	struct careful_region region = {
		.span = { .fd = from },
		.bytes = BYTES,
		.access = CAREFUL_REGION_READ,
		.peer = CAREFUL_ANY_PEER,
	};
	struct careful_span local = { .base = target, .fd = -1 };
	struct outcome outcome = { 0 };
	struct ends ends;
	uint32_t key;

	CHECK(!ftruncate(from, 1000000));
	ends_open(&ends, 3826);
	CHECK_EQ(careful_region_add(ends.c[1], &region, &key), 0);
	careful_get(ends.c[0], (uint32_t)ends.peer, key, 0, &local, BYTES, 0, on_done, &outcome);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, -ENODATA);
	ends_close(&ends);
	close(from);
}

static void close_peer(const struct careful_message *message, void *user)
{
	*(bool *)user = true;
	careful_peer_close(message->instance, message->peer);
}

/* No answer is left for the slot's next peer. */
static void test_store__handler_ends_the_session(void)
{
	const struct careful_span span = { .base = source, .fd = -1 };
	const struct careful_region region = written_by_all();
	struct outcome outcome = { 0 };
	bool closed = false;
	struct ends ends;
	uint32_t key;

	ends_open(&ends, 1500);
	careful_handle_store(ends.c[1], 5, close_peer, &closed);
	CHECK_EQ(careful_region_add(ends.c[1], &region, &key), 0);
	CHECK_EQ(careful_store(ends.c[0], (uint32_t)ends.peer, key, 0, &span, 100, 5, NULL, 0,
			       on_done, &outcome),
		 0);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, -ECONNRESET);
	CHECK(closed);
	CHECK_EQ(ends.c[1]->messages.peers[0].messages, 0);
	ends_close(&ends);
}

static void count_store(const struct careful_message *message, void *user)
{
	CHECK_EQ(message->bytes, 8192);
	++*(uint32_t *)user;
}

/* Returns the number of frames that were sent to the peer, without updates. */
static uint64_t answers(const struct careful *c)
{
	return c->link.peers[0].tx_frames - c->link.counters[CAREFUL_C_TX_UPDATES];
}

static void test_store__unanswered_without_a_waiter(void)
{
	const struct careful_span span = { .base = source, .fd = -1 };
	const struct careful_region region = written_by_all();
	uint32_t came = 0, free_count, key;
	uint64_t before;
	struct ends ends;

	ends_open(&ends, 3826);
	free_count = ends.c[0]->operations_free_count;
	careful_handle_store(ends.c[1], 5, count_store, &came);
	CHECK_EQ(careful_region_add(ends.c[1], &region, &key), 0);
	before = answers(ends.c[1]);
	for (uint32_t i = 1; i <= 20; i++) {
		CHECK_EQ(careful_store(ends.c[0], (uint32_t)ends.peer, key, 0, &span, 8192, 5, NULL,
				       0, NULL, NULL),
			 0);
		for (int k = 0; k < PATIENCE && came < i; k++)
			poll_both(&ends);
		CHECK_EQ(came, i);
	}
	/* A few are answered, since they are measured (live_latency.c). */
	CHECK(answers(ends.c[1]) - before <= 10);
	for (int k = 0; k < PATIENCE && ends.c[0]->operations_free_count < free_count; k++)
		poll_both(&ends);
	CHECK_EQ(ends.c[0]->operations_free_count, free_count);
	CHECK_EQ(ends.c[0]->link.peers[0].operations, 0);
	ends_close(&ends);
}

static void test_store__of_no_bytes_of_a_file(void)
{
	const struct careful_span span = { .fd = memfd_create("empty", 0) };
	struct careful_region region = {
		.span = { .base = target, .fd = -1 },
		.bytes = BYTES,
		.access = CAREFUL_REGION_WRITE | CAREFUL_REGION_READ,
		.peer = CAREFUL_ANY_PEER,
	};
	struct outcome outcome = { 0 };
	struct ends ends;
	uint32_t key;

	ends_open(&ends, 1500);
	CHECK_EQ(careful_region_add(ends.c[1], &region, &key), 0);
	CHECK_EQ(careful_store(ends.c[0], (uint32_t)ends.peer, key, 7, &span, 0, CAREFUL_HANDLERS,
			       NULL, 0, on_done, &outcome),
		 0);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, 0);
	CHECK_EQ(outcome.result.bytes, 0);
	ends_close(&ends);
	close(span.fd);
}

/* Changes minpulse, also above any window, and fragment sizes while messages flow. */
static void test_tune__live_and_never_stuck(void)
{
	static const uint32_t sizes[] = { 0, 1, 100, 1000, 3000, 100000, UINT32_MAX };
	struct careful_region region = {
		.span = { .base = source, .fd = -1 },
		.bytes = BYTES,
		.access = CAREFUL_REGION_READ,
		.peer = CAREFUL_ANY_PEER,
	};
	struct careful_span local = { .base = target, .fd = -1 };
	struct ends ends;
	uint32_t key;

	ends_open(&ends, 3826);
	CHECK_EQ(careful_region_add(ends.c[1], &region, &key), 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct outcome outcome = { 0 };
		uint32_t bytes = 100000;

		for (int side = 0; side < 2; side++)
			for (uint32_t slot = 0; slot < 8; slot++) {
				struct queue *queue = ends.c[side]->queue;
				struct careful_tune_entry *entry =
					queue->port->ops->tune(queue->port, slot);

				plan_default(entry, sizes[i]);
				for (int class = 0; class < CAREFUL_CLASSES; class ++)
					memset(entry->version[0].classes[class].minpulse_bytes,
					       0xff, sizeof(uint32_t[CAREFUL_SINKS]));
			}
		memset(target, 0, bytes);
		careful_get(ends.c[0], (uint32_t)ends.peer, key, 0, &local, bytes, 0, on_done,
			    &outcome);
		await(&ends, &outcome);
		CHECK_EQ(outcome.result.status, 0);
		CHECK(!memcmp(source, target, bytes));
	}
	ends_close(&ends);
}

/* Adds `more` to all counters of both ends, as if the epoch were older. */
static void count_on(struct ends *ends, uint32_t more)
{
	for (int side = 0; side < 2; side++)
		for (uint32_t slot = 0; slot < ends->c[side]->link.peers_max; slot++) {
			struct link_peer *peer = &ends->c[side]->link.peers[slot];
			struct careful_peer_entry *entry;

			if (peer->state != CAREFUL_PEER_UP)
				continue;
			peer->flow.seq_out += more;
			peer->flow.seq_in += more;
			entry = &to_xsk_port(ends->c[side]->queue->port)->peers[slot];
			entry->seq_last += more;
			entry->seq_taken += more;
			peer->repair.acked += more;
			peer->repair.highest += more;
			entry->filled += more;
			entry->limit += more;
			entry->may_fill += more;
			peer->flow.tx.sent += more;
			peer->flow.tx.credits += more;
			peer->flow.rx.received += more;
			peer->flow.rx.returned += more;
			peer->flow.rx.announced += more;
		}
}

/* Sequence numbers and credits on the wire pass 2^32. */
static void test_counters__wrap_around(void)
{
	const uint32_t before = UINT32_MAX - 40;
	struct careful_region region = {
		.span = { .base = source, .fd = -1 },
		.bytes = BYTES,
		.access = CAREFUL_REGION_READ,
		.peer = CAREFUL_ANY_PEER,
	};
	struct careful_span local = { .base = target, .fd = -1 };
	struct outcome outcome = { 0 };
	struct link_peer *peer;
	struct ends ends;
	uint32_t key;

	ends_open(&ends, 1500);
	careful_handle(ends.c[1], 7, echo, NULL);
	CHECK_EQ(careful_region_add(ends.c[1], &region, &key), 0);
	careful_request(ends.c[0], (uint32_t)ends.peer, 7, NULL, NULL, 0, on_done, &outcome);
	await(&ends, &outcome);
	for (int i = 0; i < 100; i++)
		poll_both(&ends);
	count_on(&ends, before);
	peer = &ends.c[0]->link.peers[ends.peer];
	for (int i = 0; i < 100; i++) {
		outcome.done = 0;
		careful_request(ends.c[0], (uint32_t)ends.peer, 7, NULL, &i, sizeof(i), on_done,
				&outcome);
		await(&ends, &outcome);
		CHECK(!memcmp(outcome.payload, &i, sizeof(i)));
	}
	CHECK(peer->flow.seq_in < before && peer->flow.seq_out < before);
	CHECK(peer->flow.tx.credits < before && peer->flow.rx.announced < before);
	count_on(&ends, 0u - 200); /* again, in the middle of a message */
	outcome.done = 0;
	careful_get(ends.c[0], (uint32_t)ends.peer, key, 0, &local, BYTES, 0, on_done, &outcome);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, 0);
	CHECK(!memcmp(source, target, BYTES));
	ends_close(&ends);
}

/* It is refused at once, even before the peer's frame size is known. */
static void test_request__larger_than_a_frame(void)
{
	struct outcome outcome = { 0 };
	struct ends ends;

	ends_open(&ends, 1500);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, 7, NULL, source, 1450,
					 on_done, &outcome),
			 -EMSGSIZE);
		CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, 7, NULL, source,
					 UINT32_MAX - 10, on_done, &outcome),
			 -EMSGSIZE);
		CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, 7, NULL, source, 1000,
					 on_done, &outcome),
			 0);
		await(&ends, &outcome);
		CHECK_EQ(outcome.result.status, -ENOSYS);
		outcome.done = 0;
	}
	ends_close(&ends);
}

/* Sends one frame of a bulk message, like a foreign implementation. */
static void send_data(struct careful *c, uint32_t token, uint32_t id, uint32_t message_bytes,
		      uint32_t bytes)
{
	const struct careful_am am = { .kind = CAREFUL_AM_GET_DATA, .token = htobe32(token) };
	struct link_peer *peer = &c->link.peers[0];
	struct link_send_args args = {
		.type = CAREFUL_DATA,
		.flags = CAREFUL_F_BULK | CAREFUL_F_FIRST,
		.msg_id = id,
		.msg_bytes = message_bytes,
		.frag_bytes = (uint16_t)bytes,
		.crc_bytes = sizeof(am),
	};
	struct link_txframe frame;

	if (bytes == message_bytes)
		args.flags |= CAREFUL_F_LAST;
	CHECK(link_tx_get(peer, (uint32_t)sizeof(am) + bytes, &frame));
	link_tx_write(&frame, 0, &am, sizeof(am));
	link_tx_write(&frame, sizeof(am), source, bytes);
	link_send(&frame, &args);
	link_kick(&c->link);
}

static void keep_quiet(const struct careful_message *message, void *user)
{
	(void)message;
	(void)user;
}

/* More data for a get arrives while its data is under way. The first data counts, and the operation
 * does not end while that is still being placed. */
static void test_get__answered_twice(void)
{
	struct careful_span local = { .base = target, .fd = -1 };
	struct outcome outcome = { 0 };
	struct operation *op;
	struct ends ends;

	ends_open(&ends, 3826);
	careful_handle(ends.c[1], 7, keep_quiet, NULL);
	CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, 7, NULL, NULL, 0, on_done,
				 &outcome),
		 0);
	while (!ends.c[1]->link.counters[CAREFUL_C_RX_FRAMES])
		poll_both(&ends);
	/* The request of that handler is never answered: its operation becomes a get. */
	op = NULL;
	for (uint32_t i = 0; i < ends.c[0]->limits.operations; i++)
		if (ends.c[0]->operations[i].token)
			op = &ends.c[0]->operations[i];
	CHECK(op);
	op->kind = CAREFUL_AM_GET;
	op->local = local;
	op->bytes = 2000;
	memset(target, 0, 2000);
	send_data(ends.c[1], op->token, 16, 2000, 1000);
	send_data(ends.c[1], op->token, 17, 2000, 2000);
	send_data(ends.c[1], op->token, 18, 0, 0);
	for (int i = 0; i < 1000; i++)
		poll_both(&ends);
	CHECK_EQ(outcome.done, 0);
	CHECK(!memcmp(target, source, 1000));
	CHECK_EQ(target[1500], 0);
	/* Nothing of the operation outlives the session. */
	CHECK_EQ(careful_peer_close(ends.c[0], (uint32_t)ends.peer), 0);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, -ECONNRESET);
	ends_close(&ends);
}

/* A peer answers a get without sending data: the get fails. */
static void test_get__answered_without_data(void)
{
	const int statuses[] = { 0, 0x1000 };

	for (int i = 0; i < 2; i++) {
		struct careful_am am = {
			.kind = CAREFUL_AM_REPLY,
			.status = htobe32((uint32_t)statuses[i]),
		};
		struct outcome outcome = { 0 };
		struct operation *op;
		struct ends ends;

		ends_open(&ends, 1500);
		for (int k = 0; k < PATIENCE && !ends.c[1]->link.peers[0].flow.tx.size; k++)
			poll_both(&ends);
		op = operation_new(ends.c[0], &ends.c[0]->link.peers[ends.peer], CAREFUL_AM_GET,
				   on_done, &outcome);
		op->local = (struct careful_span){ .base = target, .fd = -1 };
		op->bytes = 2000;
		am.token = htobe32(op->token);
		CHECK_EQ(message_small(&ends.c[1]->messages, &ends.c[1]->link.peers[0], &am, NULL,
				       0),
			 0);
		await(&ends, &outcome);
		CHECK_EQ(outcome.result.status, -EPROTO);
		CHECK_EQ(outcome.result.bytes, 0);
		ends_close(&ends);
	}
}

static void ignore_io(struct storage_io *io)
{
	(void)io;
}

/* As many writes to a disk as possible are under way: one for each receive buffer. */
static void test_storage__an_operation_for_each_buffer(void)
{
	static struct storage_io io[512];
	static struct iovec iov[512];
	char name[] = "./storage-XXXXXX";
	int fd = mkstemp(name);
	struct storage *storage;
	struct ends ends;

	CHECK(fd >= 0 && !unlink(name));
	ends_open(&ends, 1500);
	storage = ends.c[0]->storage;
	for (uint32_t i = 0; i < 512; i++) {
		io[i] = (struct storage_io){
			.fd = fd,
			.write = true,
			.iov_count = 1,
			.offset = i,
			.bytes = 1,
			.done = ignore_io,
			.iov = &iov[i],
		};
		iov[i] = (struct iovec){ .iov_base = source, .iov_len = 1 };
		CHECK(storage->ops->submit(storage, &io[i]) >= 0);
	}
	for (int i = 0; i < PATIENCE && storage->pending; i++) {
		storage->ops->flush(storage);
		storage->ops->poll(storage);
	}
	CHECK_EQ(storage->pending, 0);
	ends_close(&ends);
	close(fd);
}

int main(void)
{
	RUN(test_request__larger_than_a_frame);
	RUN(test_get__answered_twice);
	RUN(test_get__answered_without_data);
	RUN(test_storage__an_operation_for_each_buffer);
	fill(source, BYTES);
	RUN(test_request__payload_and_args_come_back);
	RUN(test_request__more_than_the_window_all_answered);
	RUN(test_get__memory_and_files);
	RUN(test_store__to_memory_checked_by_region);
	RUN(test_get__a_source_that_shrank_is_an_error);
	RUN(test_store__handler_ends_the_session);
	RUN(test_store__unanswered_without_a_waiter);
	RUN(test_store__of_no_bytes_of_a_file);
	RUN(test_tune__live_and_never_stuck);
	RUN(test_counters__wrap_around);
	return 0;
}
