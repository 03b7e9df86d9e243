// SPDX-License-Identifier: BSD-2-Clause
/* Opens, waits for and closes an instance that owns its queue. */
#include "base/error.h"
#include "engine/sharing.h"
#include "engine/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	WAIT_SLICE_MS = 20, /* longest block while a peer has a timer */
	COPIES = (32 << 20) / MESSAGE_COPY_BYTES, /* buffers for data that waits for slow disks */
	ASIDE_BYTES = 64 << 10, /* least bytes of a write that a worker makes */
};

static const struct engine_limits default_limits = {
	.operations = CAREFUL_OPERATIONS_MAX,
	.regions = CAREFUL_REGIONS_MAX,
	.messages = { .outs = CAREFUL_BULK_MAX, .parked = CAREFUL_SMALL_MAX, .copies = COPIES },
};

static void set_times(struct careful_options *o, const struct careful_options *in)
{
	o->wait_mode = in->wait_mode;
	o->spin_us = in->spin_us ? in->spin_us : 50;
	o->sync_ms = in->sync_ms ? in->sync_ms : 200;
	o->stall_ms = in->stall_ms ? in->stall_ms : 30000;
}

static void set_defaults(struct careful *c, const struct careful_options *in)
{
	struct careful_options *o = &c->options;

	*o = *in;
	o->instance = o->instance ? o->instance : o->ifname;
	snprintf(c->names[0], sizeof(c->names[0]), "%s", o->ifname);
	snprintf(c->names[1], sizeof(c->names[1]), "%s", o->instance);
	if (o->name || strcmp(o->instance, o->ifname) != 0 ||
	    gethostname(c->names[2], sizeof(c->names[2]) - 1) != 0)
		snprintf(c->names[2], sizeof(c->names[2]), "%s", o->name ? o->name : o->instance);
	o->ifname = c->names[0];
	o->instance = c->names[1];
	o->name = c->names[2];
	o->peers = o->peers ? o->peers : 8;
	o->port = o->port ? o->port : CAREFUL_PORT_DEFAULT;
	if (o->queues > 1) {
		o->port += o->queue;
		o->peers = (o->peers + o->queues - 1) / o->queues;
	}
	o->rx_buffers = o->rx_buffers ? o->rx_buffers : 512;
	o->tx_buffers = o->tx_buffers ? o->tx_buffers : 512;
	o->copyout_buffers = o->copyout_buffers ? o->copyout_buffers : o->rx_buffers;
	set_times(o, in);
}

void engine_set_times(struct careful *c, const struct careful_options *options)
{
	set_times(&c->options, options);
	link_set_times(&c->link, c->options.sync_ms, c->options.stall_ms);
}

static int check_options(const struct careful_options *o, struct careful_error *error)
{
	if (o->protocol > CAREFUL_PROTOCOL_TRADITIONAL)
		return refuse(error, -EINVAL, protocol, "must be careful or traditional");
	if (o->protocol == CAREFUL_PROTOCOL_TRADITIONAL && o->reserve)
		return refuse(error, -EINVAL, reserve,
			      "needs credits, which the traditional protocol lacks");
	return 0;
}

static int allocate(struct careful *c)
{
	c->operations = calloc(c->limits.operations, sizeof(*c->operations));
	c->operations_free = calloc(c->limits.operations, sizeof(*c->operations_free));
	c->regions = calloc(c->limits.regions, sizeof(*c->regions));
	c->reported = calloc(c->options.peers, sizeof(*c->reported));
	c->waiting = calloc(c->options.peers, sizeof(*c->waiting));
	c->deferred_pass = 1;
	c->deferred_max = c->options.rx_buffers + c->options.copyout_buffers;
	c->deferred = calloc(c->deferred_max, sizeof(struct link_held *));
	c->pings = calloc(c->options.peers, sizeof(*c->pings));
	c->live = calloc(c->options.peers, sizeof(*c->live));
	c->scratch_fd = -1;
	c->ended_tail = &c->ended;
	if (!c->operations || !c->operations_free || !c->regions || !c->reported || !c->waiting ||
	    !c->deferred || !c->pings || !c->live)
		return -ENOMEM;
	for (uint32_t i = c->limits.operations; i-- > 0;)
		c->operations_free[c->operations_free_count++] = i;
	return 0;
}

/* Frees an instance. Returns the number of file operations that hang; what they use stays. */
static uint32_t destroy(struct careful *c)
{
	uint32_t left = c->storage ? c->storage->ops->close(c->storage) : 0;

	if (c->event_hooks)
		c->event_hooks->end(c);
	if (left) { /* these operations may still use the messages, frames and copies */
		c->queue->umem_stays = true;
		link_leave_pool(&c->link);
	} else {
		message_deinit(&c->messages);
	}
	link_deinit(&c->link);
	if (c->queue)
		device_close(c->queue);
	free(c->operations);
	free(c->operations_free);
	free(c->regions);
	free(c->reported);
	free(c->waiting);
	free(c->deferred);
	free(c->pings);
	free(c->live);
	free(c);
	return left;
}

/* Sets the plan in effect until a peer has one of its own: a fragment fills one receive buffer over
 * IPv4. message/out.c shortens the fragment if a peer's headers are longer. */
static void set_default_plans(struct careful *c)
{
	uint32_t bytes = queue_single_bytes(c->queue) - LINK_IPV4_BYTES - LINK_HDR_BYTES -
			 MESSAGE_AM_BYTES - CAREFUL_DIGEST_BYTES;

	for (uint32_t i = 0; i <= CAREFUL_TUNE_DEFAULT; i++)
		plan_default(c->port->ops->tune(c->port, i), bytes);
}

static int set_up(struct careful *c, struct careful_error *error)
{
	int rc;

	c->port = c->queue->port;
	rc = link_init(&c->link, c->queue, &c->options, error);
	if (rc)
		return rc;
	storage_memory(c->storage, c->queue->umem,
		       (uint64_t)(c->queue->rx_chunks + c->queue->tx_chunks) *
			       c->queue->chunk_bytes);
	rc = message_init(&c->messages, &c->link, c->storage, &c->limits.messages);
	if (!rc)
		rc = allocate(c);
	if (rc)
		return explain(error, rc, "out of memory");
	c->messages.packed_max = c->options.unpacked ? 1 : CAREFUL_PACKED_MAX;
	set_default_plans(c);
	return 0;
}

static int open_base(struct careful *c, struct careful_error *error)
{
	int rc = xsk_open(&c->options, &c->queue, error);
	uint32_t depth;

	if (rc)
		return rc;
	/* One for each message that may be sent, each receive buffer, and each copy. */
	depth = c->limits.messages.outs + c->queue->rx_chunks + c->limits.messages.copies;
	rc = uring_open(depth < URING_DEPTH_MAX ? depth : URING_DEPTH_MAX, &c->storage);
	if (rc)
		explain(error, rc, "io_uring: %s%s", strerror(-rc),
			rc == -ENOMEM ? "; locked memory is limited (ulimit -l): raise the limit, "
					"or run with CAP_IPC_LOCK" :
					"");
	else if (c->options.file_writes == CAREFUL_FILE_WRITES_WORKERS)
		c->storage->aside_bytes = ASIDE_BYTES;
	return rc;
}

static int own_close(struct careful *c)
{
	bool ours = c->owner == getpid();

	if (ours)
		round_send(c); /* messages of the application leave before the BYE */
	for (uint32_t i = 0; ours && i < c->link.peers_max; i++)
		if (c->link.peers[i].state != CAREFUL_PEER_NONE)
			link_close(&c->link.peers[i], 0);
	return (int)destroy(c);
}

static int own_wait_fds(struct careful *c, int *fds, uint32_t n, int *timeout_ms)
{
	const int own[2] = { c->queue->fd, c->storage->ops->wait_fd(c->storage) };
	uint32_t count = 0;

	for (uint32_t i = 0; i < 2 && count < n; i++)
		if (own[i] >= 0)
			fds[count++] = own[i];
	if (!c->link.crowded)
		count += c->port->ops->wait_fds(c->port, fds + count, n - count);
	*timeout_ms = engine_has_news(c) ? 0 : (int)link_timeout_ms(&c->link, WAIT_SLICE_MS);
	/* Time passes in the wait, so the next round must read the clock. */
	c->polls = ENGINE_POLLS_PER_CLOCK - 1;
	return (int)count;
}

static int own_info(struct careful *c, struct careful_info *info)
{
	*info = (struct careful_info){
		.device = c->queue->info,
		.rx_buffers = c->options.rx_buffers,
		.tx_buffers = c->options.tx_buffers,
		.wait_mode = c->options.wait_mode,
		.spin_us = c->options.spin_us,
		.port = c->options.port,
		.repair = c->options.repair,
	};
	info->io_uring_denied = (uint32_t)c->storage->denied;
	info->device.mtu = c->port->mtu;
	info->device.frame_bytes = queue_frame_bytes(c->queue);
	link_info(&c->link, info);
	info->counters[CAREFUL_C_FILE_OPS] = c->storage->ops_count;
	info->counters[CAREFUL_C_FILE_CALLS] = c->storage->calls;
	info->counters[CAREFUL_C_FILE_REGISTERED] = c->storage->registered;
	c->queue->ops->statistics(c->queue, &info->statistics);
	return 0;
}

static int own_keys_refresh(struct careful *c, struct careful_error *error)
{
	const char *directory = c->options.keys;
	int rc;

	if (!directory || !keys_changed(&c->link.keys, directory))
		return 0;
	rc = keys_load(&c->link.keys, directory, error);
	if (rc)
		return rc;
	link_keys_changed(&c->link);
	return 1;
}

static uint64_t own_now_ns(const struct careful *c)
{
	return c->port->ops->now_ns(c->port);
}

static uint64_t own_random(struct careful *c)
{
	return link_random(&c->link);
}

static int own_memory(struct careful *c, uint64_t bytes, void **base)
{
	(void)c;
	*base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return *base == MAP_FAILED ? -errno : 0;
}

static const struct engine_ops own_ops = {
	.close = own_close,
	.poll = own_poll,
	.wait_fds = own_wait_fds,
	.now_ns = own_now_ns,
	.random = own_random,
	.info = own_info,
	.keys_refresh = own_keys_refresh,
	.memory = own_memory,
	.peer = own_peer,
	.peer_close = own_peer_close,
	.peer_info = own_peer_info,
	.peer_measure = own_peer_measure,
	.peer_whereabouts = own_peer_whereabouts,
	.payload_bytes = own_payload_bytes,
	.request = own_request,
	.may_ask = own_may_ask,
	.may_begin = own_may_begin,
	.alloc = own_alloc,
	.free = own_free,
	.send = own_send,
	.reply = own_reply,
	.keep = own_keep,
	.release = own_release,
	.store = own_store,
	.get = own_get,
	.region_add = own_region_add,
	.region_remove = own_region_remove,
	.ping = own_ping,
};

int engine_open(const struct careful_options *options, const struct engine_base *base,
		struct careful **instance, struct careful_error *error)
{
	struct careful *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return -ENOMEM;
	c->ops = &own_ops;
	c->owner = getpid();
	set_defaults(c, options);
	rc = check_options(&c->options, error);
	if (base) {
		c->queue = base->queue;
		c->storage = base->storage;
		c->limits = base->limits;
	} else {
		c->limits = default_limits;
		/* Each peer has an outgoing message of its own; as many are shared. */
		if (c->limits.messages.outs < 2 * c->options.peers)
			c->limits.messages.outs = 2 * c->options.peers;
		if (!rc)
			rc = open_base(c, error);
	}
	if (!rc)
		rc = set_up(c, error);
	if (rc) {
		destroy(c);
		return rc;
	}
	*instance = c;
	return 0;
}

int careful_open(const struct careful_options *options, struct careful **instance,
		 struct careful_error *error)
{
	struct careful_options whole = *options;
	struct careful_error unused;

	error = error ? error : &unused;
	*error = (struct careful_error){ 0 };
	if (!options->ifname)
		return explain(error, -EINVAL, "ifname is missing: name an interface");
	whole.keys = keys_directory(options->keys, KEYS_DIRECTORY);
	if (options->seal && !whole.keys && strcmp(options->seal, "off") != 0)
		return refuse(error, -ENOKEY, seal, "needs keys, and none are named or found");
	return engine_open(&whole, NULL, instance, error);
}
