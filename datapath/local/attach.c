// SPDX-License-Identifier: BSD-2-Clause
/* Opens and closes an instance that is attached to carefuld; its calls that concern peers. */
#include "local/attach.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

enum { MEMORY_BYTES = 16 << 20 };

static int connect_to(struct attached *a, const char *path, struct careful_error *error)
{
	int rc = attached_connect(a, path);

	if (!rc)
		return 0;
	if (rc == -ENAMETOOLONG)
		return explain(error, rc, "%s: too long for a socket's name", path);
	if (rc == -ETIMEDOUT)
		return explain(error, rc,
			       "%s: carefuld does not answer, and too many clients are waiting: "
			       "try again",
			       path);
	if (rc == -EACCES || rc == -EPERM)
		return explain(error, rc, "%s: only root and carefuld's group may connect", path);
	if (rc == -ENOENT || rc == -ECONNREFUSED)
		return explain(error, rc, "%s: carefuld is not running", path);
	return explain(error, rc, "%s: %s", path, strerror(-rc));
}

static int map_area(struct attached *a, int fd, uint64_t memory_bytes)
{
	const uint64_t before = careful_area_before();
	struct stat st;
	uint8_t *at;

	if (fstat(fd, &st) || (uint64_t)st.st_size < before + memory_bytes)
		return -EPROTO;
	at = mmap(NULL, before + memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	a->area = (struct careful_area *)at;
	a->area_bytes = before + memory_bytes;
	a->asks = (struct careful_ring_entry *)(at + sizeof(struct careful_area));
	a->told = a->asks + CAREFUL_RING_ASKS;
	a->asks_payload = at + careful_area_payloads();
	a->told_payload = a->asks_payload + CAREFUL_RING_ASKS * CAREFUL_RING_PAYLOAD_BYTES;
	a->built = at + careful_area_built();
	a->memory = at + before;
	a->memory_bytes = memory_bytes;
	a->pages_count = (uint32_t)(memory_bytes / ATTACH_PAGE_BYTES);
	a->pages_used = calloc(a->pages_count ? a->pages_count : 1, 1);
	return a->pages_used ? 0 : -ENOMEM;
}

static int begin(struct careful *c, const struct careful_attach_options *o,
		 struct careful_error *error)
{
	const char *name = o->name && o->name[0] ? o->name : "program";
	struct careful_ipc head = {
		.op = CAREFUL_IPC_ATTACH,
		.bytes = o->memory_bytes ? o->memory_bytes : MEMORY_BYTES,
		.payload_bytes = (uint32_t)strlen(name),
	};
	int fd = -1, rc = attached_exchange(c, &head, name, &fd, NULL, 0);

	if (rc == -EPROTO)
		return explain(error, rc, "%s: carefuld is from another release: restart it",
			       o->path);
	if (rc == -EUSERS)
		return explain(error, rc,
			       "%s: carefuld serves as many clients as it can: end one, or try "
			       "again later",
			       o->path);
	if (rc == -EINVAL)
		return explain(error, rc,
			       "the name can have at most 31 bytes, the memory at most 1 GiB");
	if (!rc)
		rc = fd < 0 ? -EPROTO : map_area(c->attached, fd, head.bytes);
	if (fd >= 0)
		close(fd);
	return rc ? explain(error, rc, "%s: %s", o->path, strerror(-rc)) : 0;
}

/* Works in a child of fork(), too. Never unmaps memory that the application has. */
static int attached_close(struct careful *c)
{
	struct attached *a = c->attached;

	if (c->event_hooks)
		c->event_hooks->end(c);
	attached_quiet(c);
	if (a->open_fd >= 0)
		close(a->open_fd);
	if (a->area)
		munmap(a->area, a->lent ? a->area_bytes - a->memory_bytes : a->area_bytes);
	free(a->pages_used);
	free(a);
	free(c);
	return 0;
}

static int attached_info(struct careful *c, struct careful_info *info)
{
	struct careful_ipc head = { .op = CAREFUL_IPC_INFO };
	int rc = attached_ask(c, &head, info, sizeof(*info));

	if (rc)
		return rc;
	info->wait_mode = c->options.wait_mode;
	info->spin_us = c->options.spin_us;
	return 0;
}

static int attached_peer(struct careful *c, const struct sockaddr *address, uint32_t bytes,
			 uint32_t queues)
{
	struct sockaddr_storage sa = { 0 };
	struct careful_ipc head = { .op = CAREFUL_IPC_PEER_BEGIN, .payload_bytes = sizeof(sa) };
	int rc;

	(void)queues;
	if (bytes > sizeof(sa))
		return -EAFNOSUPPORT;
	memcpy(&sa, address, bytes);
	rc = attached_pass(c, &head, &sa, -1, NULL, 0);
	return rc ? rc : (int)head.peer;
}

/* Ends our operations with the peer, but keeps the peer: other programs may need it. */
static int attached_peer_close(struct careful *c, uint32_t peer)
{
	struct careful_ipc head = { .op = CAREFUL_IPC_PEER_LEAVE, .peer = peer };
	struct attached *a = c->attached;
	int rc = attached_ask(c, &head, NULL, 0);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < CAREFUL_RING_OPERATIONS; i++) {
		if (a->ops[i].id && a->ops[i].peer == peer && !a->ops[i].abandoned)
			a->closed = a->ops[i].abandoned = true;
	}
	if (c->watch)
		c->watch(c, peer, CAREFUL_PEER_NONE, c->watch_user);
	return 0;
}

static int ask_peer(struct careful *c, uint32_t peer, struct careful_ipc_peer *answer)
{
	struct careful_ipc head = { .op = CAREFUL_IPC_PEER_INFO, .peer = peer };

	return attached_ask(c, &head, answer, sizeof(*answer));
}

static int attached_peer_info(struct careful *c, uint32_t peer, struct careful_peer_info *info)
{
	struct careful_ipc_peer answer = { 0 };
	int rc = ask_peer(c, peer, &answer);

	*info = answer.info;
	return rc;
}

static int attached_peer_whereabouts(struct careful *c, uint32_t peer,
				     struct careful_peer_whereabouts *where)
{
	struct careful_ipc_peer answer = { 0 };
	int rc = ask_peer(c, peer, &answer);

	*where = answer.where;
	return rc;
}

static int attached_payload_bytes(struct careful *c, uint32_t peer)
{
	struct careful_ipc_peer answer;
	int rc = ask_peer(c, peer, &answer);

	return rc ? rc : answer.payload_bytes;
}

static int attached_peer_measure(struct careful *c, uint32_t peer)
{
	struct careful_ipc head = { .op = CAREFUL_IPC_BURST, .peer = peer };

	return attached_ask(c, &head, NULL, 0);
}

static int attached_handle(struct careful *c, uint16_t handler, bool stores, bool on)
{
	struct careful_ipc head = {
		.op = CAREFUL_IPC_HANDLE,
		.handler = handler,
		.flags = stores ? CAREFUL_IPC_OF_STORES : CAREFUL_IPC_OF_REQUESTS,
		.bytes = on,
	};

	return attached_ask(c, &head, NULL, 0);
}

static uint64_t attached_random(struct careful *c)
{
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), 0) < 0)
		random = attached_now_ns(c);
	return random;
}

static int attached_keys_refresh(struct careful *c, struct careful_error *error)
{
	(void)c;
	(void)error;
	return -EOPNOTSUPP; /* the keys belong to carefuld */
}

static const struct engine_ops attached_ops = {
	.close = attached_close,
	.poll = attached_poll,
	.wait_fds = attached_wait_fds,
	.now_ns = attached_now_ns,
	.random = attached_random,
	.info = attached_info,
	.keys_refresh = attached_keys_refresh,
	.memory = attached_memory,
	.peer = attached_peer,
	.peer_close = attached_peer_close,
	.peer_info = attached_peer_info,
	.peer_measure = attached_peer_measure,
	.peer_whereabouts = attached_peer_whereabouts,
	.payload_bytes = attached_payload_bytes,
	.handle = attached_handle,
	.request = attached_request,
	.may_begin = attached_may_begin,
	.handed_over = attached_handed_over,
	.alloc = attached_alloc,
	.free = attached_free,
	.send = attached_send,
	.reply = attached_reply,
	.keep = attached_keep,
	.release = attached_release,
	.store = attached_store,
	.get = attached_get,
	.region_add = attached_region_add,
	.region_remove = attached_region_remove,
	.ping = attached_ping,
};

int careful_attach(const struct careful_attach_options *options, struct careful **instance,
		   struct careful_error *error)
{
	struct careful *c = calloc(1, sizeof(*c));
	struct attached *a = calloc(1, sizeof(*a));
	struct careful_error unused;
	int rc;

	error = error ? error : &unused;
	*error = (struct careful_error){ 0 };
	if (!c || !a || !options->path) {
		rc = c && a ? -EINVAL : -ENOMEM;
		free(c);
		free(a);
		return explain(error, rc, "%s",
			       rc == -EINVAL ? "no socket named" : "out of memory");
	}
	c->ops = &attached_ops;
	c->attached = a;
	c->owner = getpid();
	c->options.wait_mode = options->wait_mode;
	c->options.spin_us = options->spin_us ? options->spin_us : 50;
	a->open_fd = a->socket_fd = -1;
	for (uint32_t i = CAREFUL_RING_OPERATIONS; i-- > 0;)
		a->free[a->free_count++] = (uint8_t)i;
	rc = connect_to(a, options->path, error);
	if (!rc)
		rc = begin(c, options, error);
	if (rc) {
		attached_close(c);
		return rc;
	}
	*instance = c;
	return 0;
}
