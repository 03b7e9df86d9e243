// SPDX-License-Identifier: BSD-2-Clause
/* Times bulk messages of live traffic, by the version of their plan, so that the controller can
 * compare plans. Owns the live map's entries (abi.h).
 *
 * The time of a message lasts from its start to an answer that cannot overtake the data. A store is
 * answered by its reply. Behind the data of a get we send a question: an empty request, whose
 * reply is the answer. (When the last credit returns depends on the number of fragments.)
 *
 * The time includes waiting behind other messages. A message does not count if it failed, if its
 * epoch changed, if its question found no credit at once, or if it took longer than a second.
 *
 * At most one message of a peer is timed in 2 ms. The cost is two clock reads and, for a get, two
 * empty frames. A message that arrives for a file is timed until all its bytes are written. */
#include "engine/engine.h"

enum {
	PAUSE_NS = 2 * 1000 * 1000, /* between two measured messages of a peer */
	MOST_NS = 1000 * 1000 * 1000, /* longer times are not the plan's, and are not counted */
};

/* Like MOST_NS, for files: disks are slow. The square still fits 64 bits. */
static const uint64_t stored_most_ns = UINT32_MAX;

/* Returns where to store a new question's token, or NULL if too many questions are unanswered. */
static uint32_t *free_question(struct careful *c, const struct link_peer *peer)
{
	uint32_t *questions = c->live[peer->slot].questions;

	for (uint32_t i = 0; i < ENGINE_QUESTIONS; i++)
		if (!operation_find(c, questions[i], peer, peer->epoch))
			return &questions[i];
	return NULL;
}

/* Begins the operation of the question behind the data of a get; NULL: not possible now. */
static struct operation *ask(struct careful *c, struct message_out *out)
{
	uint32_t *question = free_question(c, out->peer);
	struct operation *op;

	/* The last quarter of the operations is for the application. */
	if (!question || c->operations_free_count <= c->limits.operations / 4)
		return NULL;
	op = operation_new(c, out->peer, CAREFUL_AM_REQUEST, NULL, NULL);
	*question = out->question = op->token;
	return op;
}

static void begin(struct careful *c, struct message_out *out, struct operation *op)
{
	if (!op)
		op = ask(c, out);
	if (!op)
		return;
	c->live[out->peer->slot].at_ns = c->link.now_ns;
	op->live = (struct live_sample){
		.began_ns = c->port->ops->now_ns(c->port),
		.class = (uint8_t)plan_class(out->bytes),
		.version = (uint8_t)out->plan.version,
	};
}

/* Begins to time a message, if the pause is over. op: the store, or NULL for the data of a get. */
void live_begin(struct careful *c, struct message_out *out, struct operation *op)
{
	const struct link_peer *peer = out->peer;

	if (c->link.now_ns - c->live[peer->slot].at_ns >= PAUSE_NS &&
	    peer->state == CAREFUL_PEER_UP)
		begin(c, out, op);
}

/* Called when a message with a question was sent. Drops the question if it was not sent. */
void live_sent(struct careful *c, struct message_out *out)
{
	struct operation *op = operation_find(c, out->question, out->peer, out->epoch);

	if (op && !out->asked)
		operation_drop(c, op);
}

// NOLINTNEXTLINE(readability-non-const-parameter): the word is written
static void write_word(__u64 *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static void add_to(__u64 *word, uint64_t value)
{
	write_word(word, *word + value);
}

static void add_square(__u64 *low, __u64 *high, uint64_t value)
{
	add_to(low, value * value);
	add_to(high, *low < value * value);
}

/* Makes the sequence odd, so that readers notice the write. */
static void open_entry(struct careful_live_entry *entry)
{
	write_word(&entry->sequence, entry->sequence | 1); /* it may be odd already */
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

static void close_entry(struct careful_live_entry *entry)
{
	__atomic_store_n(&entry->sequence, entry->sequence + 1, __ATOMIC_RELEASE);
}

static void add_sample(struct careful_live_entry *entry, const struct live_sample *live,
		       uint64_t took_ns, bool asked)
{
	struct careful_live_cell *cell = &entry->cells[live->class][live->version];

	open_entry(entry);
	add_to(&cell->count, 1);
	add_to(&cell->asked, asked);
	add_to(&cell->sum_ns, took_ns);
	add_square(&cell->sum_square_low, &cell->sum_square_high, took_ns);
	close_entry(entry);
}

/* Counts the time of the message that the operation's answer ends. Returns true if the operation
 * was only a question, which is then dropped. */
bool live_answered(struct careful *c, struct operation *op, int status)
{
	bool asked = op->kind == CAREFUL_AM_REQUEST;
	uint64_t took_ns = c->port->ops->now_ns(c->port) - op->live.began_ns;

	if ((asked || !status) && took_ns <= MOST_NS)
		add_sample(c->port->ops->live(c->port, op->peer->slot), &op->live, took_ns, asked);
	if (asked)
		operation_drop(c, op);
	return asked;
}

/* Begins to time an incoming message to a file. Called when its destination or error is known. */
void live_arrives(struct careful *c, struct message_in *in)
{
	struct live_peer *live = &c->live[in->peer->slot];

	if (in->error || in->sink.base || c->link.now_ns - live->stored_at_ns < PAUSE_NS)
		return;
	live->stored_at_ns = c->link.now_ns;
	in->stamps.began_ns = c->port->ops->now_ns(c->port);
	in->stamps.frames_count = in->stamps.writes_count = 0;
}

static void add_write(struct careful_live_entry *entry, const struct message_write *write)
{
	struct careful_live_write *cell = &entry->writes[plan_class(write->bytes)];

	add_to(&cell->count, 1);
	add_to(&cell->bytes, write->bytes);
	add_to(&cell->sum_ns, write->took_ns);
	add_square(&cell->sum_square_low, &cell->sum_square_high, write->took_ns);
}

void live_stored(struct careful *c, const struct message_in *in)
{
	const struct message_stamps *stamps = &in->stamps;
	uint64_t took_ns = c->port->ops->now_ns(c->port) - stamps->began_ns;
	struct careful_live_entry *entry;
	struct careful_live_stored *cell;

	if (!stamps->began_ns || in->error || in->epoch != in->peer->epoch ||
	    took_ns > stored_most_ns)
		return;
	entry = c->port->ops->live(c->port, in->peer->slot);
	cell = &entry->stored[plan_class(in->bytes)][stamps->version];
	open_entry(entry);
	add_to(&cell->count, 1);
	add_to(&cell->frames, stamps->frames_count);
	add_to(&cell->writes, stamps->writes_count);
	add_to(&cell->bytes, in->bytes);
	add_to(&cell->sum_came_ns, stamps->came_ns - stamps->began_ns);
	add_to(&cell->sum_ns, took_ns);
	add_square(&cell->sum_square_low, &cell->sum_square_high, took_ns);
	for (uint32_t i = 0; i < stamps->writes_count && i < MESSAGE_WRITES; i++)
		add_write(entry, &stamps->writes[i]);
	close_entry(entry);
}
