// SPDX-License-Identifier: BSD-2-Clause
/*
 * The nodes' work: requests, stores and gets, repeated until they succeed, and handlers that answer
 * at once or keep the message. Each operation's result is compared with its effect.
 */
#include "cluster.h"

#include <errno.h>
#include <string.h>

enum {
	POOL_BYTES = 1 << 18,
	HANDLER_REQUEST = 1,
	HANDLER_STORE = 2,
	SMALL_BYTES = 16, /* payload that fits any peer */
	RETRY_NS = 1000 * 1000,
	STREAM_RETRY = 0x600,
};

/* All payload is taken from here. */
static uint8_t pool[POOL_BYTES + OP_BYTES_MAX];

void work_init(void)
{
	for (uint32_t i = 0; i + 8 <= sizeof(pool); i += 8) {
		uint64_t word = sim_hash(0, 0x700, i);

		memcpy(pool + i, &word, 8);
	}
}

static const uint8_t *source_of(const struct op *op)
{
	return pool + op->pool_at % POOL_BYTES;
}

static bool poisoned(const uint8_t *p, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		if (p[i] != POISON)
			return false;
	return true;
}

void work_begin(struct cluster *cluster)
{
	for (uint32_t i = 0; i < cluster->scenario.ops_count; i++) {
		struct op *op = &cluster->scenario.ops[i];

		op->cluster = cluster;
		op->state = cluster->scenario.ops_left_out >> i & 1 ? OP_DONE : OP_WAITS;
		cluster->ops_done += op->state == OP_DONE;
		op->attempt = 0;
		op->key_life = 0;
		op->last_status = 0;
		op->again_ns = op->at_ns;
		op->target = cluster->targets + (size_t)i * (OP_BYTES_MAX + GUARD_BYTES);
		memset(op->target, POISON, op->bytes + GUARD_BYTES);
	}
}

static struct node *node_of(struct cluster *cluster, uint32_t port)
{
	return &cluster->nodes[port];
}

/* Returns the operation that a message names. If there is none, the run fails and NULL is
 * returned. */
static struct op *op_of(struct node *node, const struct careful_message *message)
{
	struct scenario *s = &node->cluster->scenario;
	const uint32_t *args = message->args;
	struct op *op = &s->ops[args[0] % OPS_MAX];
	bool found = args[0] < s->ops_count && op->to == node->port && args[1] <= op->attempt;

	if (peer_distrusted(node, message->peer))
		return found && op_distrusted(op) ? op : NULL;
	if (found)
		return op;
	sim_fail(node->cluster->world, "node %u: a handler's arguments are wrong: %u, %u",
		 node->port, args[0], args[1]);
	return NULL;
}

static void ran(struct op *op, uint32_t attempt)
{
	if (op_distrusted(op))
		return;
	if (op->attempt - attempt < ATTEMPTS && ++op->ran[attempt % ATTEMPTS] > 1)
		sim_fail(op->cluster->world, "operation %u, attempt %u ran twice", op->index,
			 attempt);
}

/* Checks that a node's requests to another are handled in order. */
static void ran_in_turn(struct op *op, uint32_t number)
{
	uint32_t *last = &op->cluster->handled[op->from][op->to];

	if (op_distrusted(op))
		return;
	if (number <= *last)
		sim_fail(op->cluster->world, "operation %u, request %u of node %u, ran after %u",
			 op->index, number, op->from, *last);
	*last = number;
}

static int answer(struct node *node, struct op *op, uint32_t attempt,
		  const struct careful_reply_to *to)
{
	int most = careful_payload_bytes(node->c, to->peer);
	uint32_t bytes = most < (int)op->reply_bytes ? SMALL_BYTES : op->reply_bytes;
	const uint32_t args[4] = { op->index, attempt, ~op->index, bytes };

	op->answered_bytes = bytes;
	return careful_reply_late(node->c, to, 0, args, source_of(op) + 1, bytes);
}

static void add_late(struct node *node, const struct late *late)
{
	if (node->late_count == LATE_MAX)
		sim_fail(node->cluster->world, "node %u: too many answers wait", node->port);
	else
		node->late[node->late_count++] = *late;
}

/* Called in each callback: tries a nested round, and closes the sessions if that is due. */
static void inside(struct node *node)
{
	if (careful_poll(node->c) != -EDEADLK)
		sim_fail(node->cluster->world, "node %u: a round inside a round", node->port);
	if (node->closing)
		work_close_peers(node);
}

static void on_request(const struct careful_message *message, void *user)
{
	struct node *node = user;
	struct op *op = op_of(node, message);
	struct sim_fault *keep = NULL;
	struct careful_reply_to to;
	struct late late;
	uint64_t reply_ns;

	if (!op)
		return;
	reply_ns = op->reply_ns + misdeeds_late_ns(node);
	careful_reply_name(message, &to);
	late = (struct late){
		.to = to,
		.op = op,
		.attempt = message->args[1],
		.bytes = message->bytes,
		.at_ns = sim_now_ns(node->cluster->world) + reply_ns,
	};
	ran(op, late.attempt);
	ran_in_turn(op, message->args[3]);
	if (!op_distrusted(op) && (message->bytes != message->args[2] ||
				   memcmp(message->payload, source_of(op), message->bytes) != 0))
		sim_fail(node->cluster->world, "operation %u: the request's payload is wrong",
			 op->index);
	inside(node);
	if (cluster_fault_on(node->cluster, FAULT_KEEP, node->port, &keep)) {
		keep->hits++;
		late.at_ns = keep->until_ns;
	}
	if (!reply_ns && !keep && answer(node, op, late.attempt, &late.to) != -EAGAIN)
		return;
	if (reply_ns || keep)
		late.kept = careful_keep(message);
	late.op = op;
	add_late(node, &late);
}

static void on_stored(const struct careful_message *message, void *user)
{
	struct node *node = user;
	struct op *op = op_of(node, message);

	if (!op)
		return;
	ran(op, message->args[1]);
	if (op_distrusted(op))
		return;
	if (message->bytes != op->bytes || memcmp(op->target, source_of(op), op->bytes) != 0)
		sim_fail(node->cluster->world, "operation %u: what was stored is wrong", op->index);
	inside(node);
}

/* Sends the delayed answers that are due. Returns the time of the next answer. */
static uint64_t run_late(struct node *node)
{
	uint64_t now_ns = sim_now_ns(node->cluster->world);
	uint64_t next_ns = UINT64_MAX;

	for (uint32_t i = 0; i < node->late_count;) {
		struct late *late = &node->late[i];

		if (late->at_ns > now_ns) {
			if (late->at_ns < next_ns)
				next_ns = late->at_ns;
			i++;
			continue;
		}
		if (late->kept) {
			if (!op_distrusted(late->op) &&
			    memcmp(careful_kept_payload(late->kept), source_of(late->op),
				   late->bytes) != 0)
				sim_fail(node->cluster->world, "operation %u: kept payload changed",
					 late->op->index);
			careful_release(node->c, late->kept);
			late->kept = NULL;
		}
		if (answer(node, late->op, late->attempt, &late->to) == -EAGAIN) {
			late->at_ns = now_ns + RETRY_NS;
			continue;
		}
		*late = node->late[--node->late_count];
	}
	return next_ns;
}

/* Reports whether some frame of the run could not hold this payload. */
static bool outgrew_an_mtu(const struct scenario *s, uint32_t bytes)
{
	const uint32_t beside = LINK_IPV4_BYTES - ETHERNET_BYTES + LINK_IPV6_MORE + LINK_HDR_BYTES +
				sizeof(struct careful_seal_end);

	for (uint32_t i = 0; i < s->faults_count; i++)
		if (s->faults[i].kind == SIM_MTU &&
		    beside + MESSAGE_AM_BYTES + bytes > s->faults[i].amount)
			return true;
	return false;
}

/* Reports whether this payload waited between two epochs, and the second has smaller frames. */
static bool too_large(const struct cluster *cluster, uint32_t from, uint32_t to, uint32_t bytes)
{
	const struct node *node = &cluster->nodes[from];
	const struct link_peer *peer;
	union address address;

	sim_address(cluster->world, to, &address);
	peer = node->c ? link_peer_find(&node->c->link, &address) : NULL;
	/* By now there may be another session with larger frames, or none. */
	return outgrew_an_mtu(&cluster->scenario, bytes) ||
	       (peer && link_knows_size(peer) && MESSAGE_AM_BYTES + bytes > link_body_single(peer));
}

static bool outgrown(const struct op *op)
{
	return op->kind == OP_REQUEST &&
	       (too_large(op->cluster, op->from, op->to, op->asked_bytes) ||
		too_large(op->cluster, op->to, op->from, op->answered_bytes));
}

/* Reports whether large frames vanish on the way. */
static bool is_narrow(const struct scenario *s)
{
	for (uint32_t i = 0; i < s->faults_count; i++)
		if (s->faults[i].longer || s->faults[i].kind == SIM_MTU)
			return true;
	return false;
}

/* Reports whether someone who sees each HELLO forges answers to it. */
static bool is_forged(const struct scenario *s)
{
	for (uint32_t i = 0; i < s->faults_count; i++)
		if (s->faults[i].forges)
			return true;
	return false;
}

/* Reports whether this run's faults allow an operation to end with this status. */
static bool excused(const struct op *op, int status)
{
	const struct scenario *s = &op->cluster->scenario;
	bool reborn = op->lives[0] != op->cluster->nodes[op->from].life ||
		      op->lives[1] != op->cluster->nodes[op->to].life;

	if (op_distrusted(op))
		return true;
	switch (status) {
	case -ECONNRESET:
	case -ETIMEDOUT:
	case -ECONNREFUSED:
	case -ECOMM:
	case -EIO: /* like ECOMM, if the lost fragment is too short to carry the reason */
		return s->excused;
	case -EKEYREJECTED: /* several unproved refusals in a row (handshake.c) */
		return s->excused && is_forged(s);
	case -EUSERS:
		return s->excused && s->misdeeds;
	case -EMSGSIZE:
		return outgrown(op) || is_narrow(s);
	case -EBADMSG:
		return s->damage;
	case -ENOENT: /* a region of the node's earlier process */
		return s->excused && reborn;
	default:
		return false;
	}
}

static void failed(struct op *op, int status)
{
	struct cluster *cluster = op->cluster;

	op->state = OP_WAITS;
	op->last_status = status;
	op->again_ns = sim_now_ns(cluster->world) +
		       cluster_random(&cluster->scenario, STREAM_RETRY + op->index, op->attempt) %
			       (20 * RETRY_NS);
	if (!excused(op, status))
		sim_fail(cluster->world, "operation %u, attempt %u ends with %s", op->index,
			 op->attempt, strerrorname_np(-status));
	if (op->kind == OP_GET) /* no byte may arrive any longer */
		memset(op->target, POISON, op->bytes);
}

static const char *wrong(const struct op *op, const struct careful_result *result)
{
	if (op_distrusted(op))
		return NULL;
	if (op->kind != OP_GET && op->lives[1] == op->cluster->nodes[op->to].life &&
	    op->ran[op->attempt % ATTEMPTS] != 1)
		return "is done, and its handler did not run";
	if (op->kind != OP_REQUEST)
		return result->bytes != op->bytes		      ? "moved other bytes" :
		       memcmp(op->target, source_of(op), op->bytes)   ? "has wrong bytes" :
		       !poisoned(op->target + op->bytes, GUARD_BYTES) ? "wrote beyond its end" :
									NULL;
	if (result->args[0] != op->index || result->args[1] != op->attempt ||
	    result->args[2] != ~op->index || result->args[3] != result->bytes)
		return "got another's answer";
	return memcmp(result->payload, source_of(op) + 1, result->bytes) ? "got a wrong answer" :
									   NULL;
}

static void ended(struct op *op, const struct careful_result *result)
{
	const char *what;

	if (op->state != OP_RUNS) {
		sim_fail(op->cluster->world, "operation %u ends twice", op->index);
		return;
	}
	if (result->status) {
		failed(op, result->status);
		return;
	}
	what = wrong(op, result);
	if (what)
		sim_fail(op->cluster->world, "operation %u, attempt %u %s", op->index, op->attempt,
			 what);
	op->state = OP_DONE;
	op->done_ns = sim_now_ns(op->cluster->world);
	op->cluster->ops_done++;
}

static void start(struct node *node, struct op *op);

/* Ends an operation, and starts the node's operations that are due. */
static void on_done(const struct careful_result *result, void *user)
{
	struct op *op = user;
	struct node *node = node_of(op->cluster, op->from);
	struct scenario *s = &op->cluster->scenario;
	uint64_t now_ns = sim_now_ns(op->cluster->world);

	ended(op, result);
	inside(node);
	for (uint32_t i = 0; i < s->ops_count; i++) {
		struct op *next = &s->ops[i];

		if (next->from == op->from && next->state == OP_WAITS && next->again_ns <= now_ns)
			start(node, next);
	}
}

/* Adds the region at the other end, and notes its key, unless it exists. */
static void provide(struct op *op)
{
	struct node *node = node_of(op->cluster, op->to);
	bool get = op->kind == OP_GET;
	bool file = get ? op->from_file : op->to_file;
	uint8_t *bytes = get ? (uint8_t *)source_of(op) : op->target;
	struct careful_region region = {
		.span = { .base = file ? NULL : bytes, .fd = file ? (int)op->index : -1 },
		.bytes = op->bytes,
		.access = get ? CAREFUL_REGION_READ : CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
	};

	if (!node->c || op->key_life == node->life || op->kind == OP_REQUEST)
		return;
	files_set(&node->files, (int)op->index, bytes, op->bytes);
	if (careful_region_add(node->c, &region, &op->key))
		sim_fail(op->cluster->world, "no region for operation %u", op->index);
	op->key_life = node->life;
}

static int issue(struct node *node, struct op *op, uint32_t peer)
{
	bool get = op->kind == OP_GET;
	bool file = get ? op->to_file : op->from_file;
	uint8_t *bytes = get ? op->target : (uint8_t *)source_of(op);
	int fd = OPS_MAX + (int)op->index;
	struct careful_span local = { .base = file ? NULL : bytes, .fd = file ? fd : -1 };
	uint32_t args[4] = { op->index, op->attempt, op->bytes, 0 };
	uint32_t flags = op->digest ? 0 : CAREFUL_NO_DIGEST;
	int most;

	files_set(&node->files, fd, bytes, op->bytes);
	switch (op->kind) {
	case OP_REQUEST:
		most = careful_payload_bytes(node->c, peer);
		if (most < (int)op->bytes)
			args[2] = most > SMALL_BYTES ? (uint32_t)most : SMALL_BYTES;
		op->asked_bytes = args[2];
		args[3] = ++op->cluster->requests[op->from][op->to];
		return careful_request(node->c, peer, HANDLER_REQUEST, args, bytes, args[2],
				       op->silent ? NULL : on_done, op);
	case OP_STORE:
		return careful_store(node->c, peer, op->key, 0, &local, op->bytes, HANDLER_STORE,
				     args, flags, on_done, op);
	default:
		return careful_get(node->c, peer, op->key, 0, &local, op->bytes, flags, on_done,
				   op);
	}
}

static void start(struct node *node, struct op *op)
{
	struct cluster *cluster = node->cluster;
	union address address;
	int rc, peer;

	sim_address(cluster->world, op->to, &address);
	peer = careful_peer(node->c, &address.sa, sizeof(address));
	if (peer < 0) { /* not all buffers of a closed session are back */
		op->again_ns = sim_now_ns(cluster->world) + RETRY_NS;
		/* A liar's other addresses may have taken the share of its host. */
		if (peer != -EAGAIN && !cluster->scenario.excused && !op_distrusted(op))
			sim_fail(cluster->world, "node %u has no place for a peer", node->port);
		return;
	}
	if (op->kind == OP_GET && !op_distrusted(op) && !poisoned(op->target, op->bytes))
		sim_fail(cluster->world, "operation %u: bytes came after its end", op->index);
	provide(op);
	op->attempt++;
	op->ran[op->attempt % ATTEMPTS] = 0;
	op->lives[0] = node->life;
	op->lives[1] = cluster->nodes[op->to].life;
	op->state = OP_RUNS;
	rc = issue(node, op, (uint32_t)peer);
	if (!rc && op->silent) { /* no callback follows */
		op->state = OP_DONE;
		op->done_ns = sim_now_ns(cluster->world);
		cluster->ops_done++;
	}
	if (!rc)
		return;
	op->state = OP_WAITS;
	op->again_ns = sim_now_ns(cluster->world) + RETRY_NS;
	if (rc != -EAGAIN)
		failed(op, rc);
}

uint64_t work_run(struct node *node)
{
	struct scenario *s = &node->cluster->scenario;
	uint64_t now_ns = sim_now_ns(node->cluster->world);
	uint64_t next_ns = run_late(node);

	for (uint32_t i = 0; i < s->ops_count; i++) {
		struct op *op = &s->ops[i];

		if (op->from != node->port || op->state != OP_WAITS)
			continue;
		if (op->again_ns <= now_ns)
			start(node, op);
		if (op->state == OP_WAITS && op->again_ns < next_ns)
			next_ns = op->again_ns;
	}
	return next_ns;
}

void work_close_peers(struct node *node)
{
	node->closing = false;
	for (uint32_t i = 0; i < node->cluster->scenario.options.peers; i++)
		careful_peer_close(node->c, i);
}

void work_open(struct node *node)
{
	careful_handle(node->c, HANDLER_REQUEST, on_request, node);
	careful_handle_store(node->c, HANDLER_STORE, on_stored, node);
}

/* The process has ended, and all its operations with it. */
void work_close(struct node *node)
{
	struct scenario *s = &node->cluster->scenario;

	for (uint32_t i = 0; i < s->ops_count; i++)
		if (s->ops[i].from == node->port && s->ops[i].state == OP_RUNS) {
			s->ops[i].state = OP_WAITS;
			if (s->ops[i].kind == OP_GET)
				memset(s->ops[i].target, POISON, s->ops[i].bytes);
		}
	node->late_count = 0;
	node->closing = false;
}
