/* SPDX-License-Identifier: BSD-2-Clause */
/* A virtio network card behind vhost-user (QEMU's docs/interop/vhost-user.rst): the messages that
 * set it up, and its two split virtqueues (virtio 1.2, 2.7). The machine and QEMU are trusted: they
 * are the test's own. */
#include "card.h"

#include <errno.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <linux/virtio_ring.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Requests of QEMU. Others need no answer. */
enum request {
	GET_FEATURES = 1,
	SET_FEATURES = 2,
	SET_MEM_TABLE = 5,
	SET_VRING_NUM = 8,
	SET_VRING_ADDR = 9,
	SET_VRING_BASE = 10,
	GET_VRING_BASE = 11,
	SET_VRING_KICK = 12,
	SET_VRING_CALL = 13,
	GET_PROTOCOL_FEATURES = 15,
};

enum {
	FLAG_VERSION = 1,
	FLAG_REPLY = 4,
	FLAG_ASKS = 8, /* for an answer, even if the request has none */
	PROTOCOL_FEATURES = 30,
	INDEX_MASK = 0xff,
	NO_FD = 0x100,
	HDR_BYTES = sizeof(struct virtio_net_hdr_v1),
};

static const uint64_t FEATURES = 1ull << PROTOCOL_FEATURES | 1ull << VIRTIO_F_VERSION_1 |
				 1ull << VIRTIO_NET_F_MRG_RXBUF | 1ull << VIRTIO_F_ACCESS_PLATFORM |
				 1ull << VIRTIO_F_RING_RESET;

/* QEMU demands these for VIRTIO_F_ACCESS_PLATFORM, which zero-copy needs. It uses the first, an
 * answer to every message that asks for it; the second only with an IOMMU. */
static const uint64_t REQUESTS = 1ull << 3 | 1ull << 5;

struct message {
	uint32_t request, flags, bytes;
	union {
		uint64_t value;
		struct {
			uint32_t index, number;
		} state;
		struct {
			uint32_t index, flags;
			uint64_t desc, used, avail, log;
		} addr;
		struct {
			uint32_t count, pad;
			struct {
				uint64_t guest, bytes, user, offset;
			} regions[CARD_REGIONS];
		} memory;
		uint8_t data[512];
	};
} __attribute__((packed)); /* QEMU's layout: a header of 12 bytes */

int card_open(struct card *card, const char *path)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };

	*card = (struct card){ .connection = -1, .head = -1 };
	for (int i = 0; i < CARD_QUEUES; i++)
		card->queues[i].kick = card->queues[i].call = -1;
	if (strlen(path) >= sizeof(at.sun_path))
		return -ENAMETOOLONG;
	memcpy(at.sun_path, path, strlen(path));
	card->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (card->listener < 0 || bind(card->listener, (struct sockaddr *)&at, sizeof(at)) ||
	    listen(card->listener, 1))
		return -errno;
	return 0;
}

void card_wait(const struct card *card, struct pollfd fds[CARD_FDS])
{
	fds[0] = (struct pollfd){ .fd = card->connection < 0 ? card->listener : card->connection,
				  .events = POLLIN };
	fds[1] = (struct pollfd){ .fd = card->head < 0 ? card->queues[CARD_TX].kick : -1,
				  .events = POLLIN };
}

/* Returns the memory at an address of the guest or, if `user`, of QEMU; NULL: it is in no region. */
static uint8_t *memory_at(const struct card *card, uint64_t address, bool user)
{
	for (uint32_t i = 0; i < card->regions_count; i++) {
		const struct card_region *region = &card->regions[i];
		const uint64_t offset = address - (user ? region->user : region->guest);

		if (offset < region->bytes)
			return region->at + offset;
	}
	return NULL;
}

static int map(struct card *card, const struct message *message, const int *fds, int count)
{
	while (card->regions_count) {
		struct card_region *region = &card->regions[--card->regions_count];

		munmap(region->mapped, region->mapped_bytes);
	}
	for (int i = 0; i < count && i < (int)message->memory.count; i++) {
		struct card_region *region = &card->regions[i];
		uint64_t offset = message->memory.regions[i].offset;

		region->guest = message->memory.regions[i].guest;
		region->bytes = message->memory.regions[i].bytes;
		region->user = message->memory.regions[i].user;
		region->mapped_bytes = region->bytes + offset;
		region->mapped = mmap(NULL, region->mapped_bytes, PROT_READ | PROT_WRITE,
				      MAP_SHARED, fds[i], 0);
		if (region->mapped == MAP_FAILED)
			return -errno;
		region->at = (uint8_t *)region->mapped + offset;
		card->regions_count++;
	}
	return 0;
}

static int receive(struct card *card, struct message *message, int *fds, int *count)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int) * CARD_REGIONS)];
	} control;
	struct iovec io = { message, offsetof(struct message, value) };
	struct msghdr msg = { .msg_iov = &io,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(card->connection, &msg, MSG_CMSG_CLOEXEC | MSG_WAITALL);
	struct cmsghdr *found;

	*count = 0;
	if (n != (ssize_t)io.iov_len || message->bytes > sizeof(message->data))
		return -ECONNRESET;
	found = CMSG_FIRSTHDR(&msg);
	if (found && found->cmsg_type == SCM_RIGHTS) {
		*count = (int)((found->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(found), (size_t)*count * sizeof(int));
	}
	if (message->bytes && recv(card->connection, message->data, message->bytes, MSG_WAITALL) !=
				      (ssize_t)message->bytes)
		return -ECONNRESET;
	return 0;
}

static int answer(const struct card *card, struct message *message, uint32_t bytes)
{
	message->flags = FLAG_VERSION | FLAG_REPLY;
	message->bytes = bytes;
	return send(card->connection, message, offsetof(struct message, value) + bytes,
		    MSG_NOSIGNAL) < 0 ?
		       -errno :
		       0;
}

static void hold(int *at, int *fd)
{
	if (*at >= 0)
		close(*at);
	*at = *fd;
	*fd = -1;
}

/* Obeys a message; takes what it keeps of the file descriptors. */
static int obey(struct card *card, struct message *message, int *fds, int count)
{
	struct card_queue *queue = &card->queues[message->state.index % CARD_QUEUES];
	int none = -1, *fd = count && !(message->value & NO_FD) ? &fds[0] : &none;

	switch (message->request) {
	case GET_FEATURES:
		message->value = FEATURES;
		return answer(card, message, sizeof(message->value));
	case GET_PROTOCOL_FEATURES:
		message->value = REQUESTS;
		return answer(card, message, sizeof(message->value));
	case SET_FEATURES:
		card->features = message->value;
		return 0;
	case SET_MEM_TABLE:
		return map(card, message, fds, count);
	case SET_VRING_NUM:
		queue->count = (uint16_t)message->state.number;
		return 0;
	case SET_VRING_ADDR:
		queue->desc = (void *)memory_at(card, message->addr.desc, true);
		queue->avail = (void *)memory_at(card, message->addr.avail, true);
		queue->used_ring = (void *)memory_at(card, message->addr.used, true);
		return 0;
	case SET_VRING_BASE:
		queue->seen = (uint16_t)message->state.number;
		queue->used = queue->used_ring ? queue->used_ring->idx : queue->seen;
		return 0;
	case GET_VRING_BASE: /* stops the queue */
		if (queue == &card->queues[CARD_TX])
			card_sent(card);
		hold(&queue->kick, &none);
		hold(&queue->call, &none);
		message->state.number = queue->seen;
		return answer(card, message, sizeof(message->state));
	case SET_VRING_KICK:
		queue = &card->queues[(message->value & INDEX_MASK) % CARD_QUEUES];
		if (queue->used_ring)
			queue->used = queue->used_ring->idx;
		hold(&queue->kick, fd);
		return 0;
	case SET_VRING_CALL:
		hold(&card->queues[(message->value & INDEX_MASK) % CARD_QUEUES].call, fd);
		return 0;
	default:
		return 0;
	}
}

int card_attend(struct card *card)
{
	struct message message;
	int fds[CARD_REGIONS], count, rc;

	if (card->connection < 0) {
		card->connection = accept4(card->listener, NULL, NULL, SOCK_CLOEXEC);
		return card->connection < 0 ? -errno : 0;
	}
	rc = receive(card, &message, fds, &count);
	if (!rc)
		rc = obey(card, &message, fds, count);
	if (!rc && message.flags & FLAG_ASKS) {
		message.value = 0;
		rc = answer(card, &message, sizeof(message.value));
	}
	for (int i = 0; i < count; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
	}
	return rc;
}

/* Returns the head of the next available descriptor chain, or -1. */
static int next(struct card_queue *queue)
{
	if (queue->kick < 0 || !queue->avail || !queue->count ||
	    __atomic_load_n(&queue->avail->idx, __ATOMIC_ACQUIRE) == queue->seen)
		return -1;
	return queue->avail->ring[queue->seen++ % queue->count];
}

/* Returns a chain to the machine. */
static void use(struct card_queue *queue, int head, uint32_t bytes)
{
	queue->used_ring->ring[queue->used % queue->count] =
		(struct vring_used_elem){ .id = (uint32_t)head, .len = bytes };
	queue->used++;
}

/* Publishes the returned chains, and interrupts the machine if it wants that. */
static void tell(struct card_queue *queue)
{
	uint64_t one = 1;

	__atomic_store_n(&queue->used_ring->idx, queue->used, __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (queue->call >= 0 && !(queue->avail->flags & VRING_AVAIL_F_NO_INTERRUPT) &&
	    write(queue->call, &one, sizeof(one)) < 0)
		return;
}

/* Copies between a chain, from `skip` bytes on, and data. Returns the bytes copied. */
static uint32_t copy(const struct card *card, const struct card_queue *queue, int head,
		     uint32_t skip, uint8_t *data, uint32_t bytes, bool to_machine)
{
	const struct vring_desc *desc = &queue->desc[head];
	uint32_t done = 0;

	for (;;) {
		uint32_t from = skip < desc->len ? skip : desc->len;
		uint32_t part = desc->len - from < bytes - done ? desc->len - from : bytes - done;
		uint8_t *memory = memory_at(card, desc->addr, false);

		if (memory && to_machine)
			memcpy(memory + from, data + done, part);
		else if (memory)
			memcpy(data + done, memory + from, part);
		done += part;
		skip -= from;
		if (done == bytes || !(desc->flags & VRING_DESC_F_NEXT))
			return done;
		desc = &queue->desc[desc->next];
	}
}

uint32_t card_take(struct card *card, uint8_t *data, uint32_t bytes_max)
{
	struct card_queue *queue = &card->queues[CARD_TX];
	uint64_t kicks;

	if (card->head >= 0)
		return 0;
	if (poll(&(struct pollfd){ .fd = queue->kick, .events = POLLIN }, 1, 0) > 0 &&
	    read(queue->kick, &kicks, sizeof(kicks)) < 0)
		return 0;
	card->head = next(queue);
	if (card->head < 0)
		return 0;
	return copy(card, queue, card->head, HDR_BYTES, data, bytes_max, false);
}

void card_sent(struct card *card)
{
	struct card_queue *queue = &card->queues[CARD_TX];

	if (card->head < 0)
		return;
	use(queue, card->head, 0);
	tell(queue);
	card->head = -1;
}

static uint32_t room(const struct card_queue *queue, int head)
{
	const struct vring_desc *desc = &queue->desc[head];
	uint32_t bytes = desc->len;

	while (desc->flags & VRING_DESC_F_NEXT) {
		desc = &queue->desc[desc->next];
		bytes += desc->len;
	}
	return bytes;
}

bool card_give(struct card *card, const uint8_t *data, uint32_t bytes)
{
	struct card_queue *queue = &card->queues[CARD_RX];
	struct virtio_net_hdr_v1 hdr = { .num_buffers = 0 };
	uint16_t before = queue->seen, used = queue->used;
	int head, first = -1;
	uint32_t done = 0;

	while (done < bytes || first < 0) {
		uint32_t skip = first < 0 ? HDR_BYTES : 0, part;

		head = next(queue);
		if (head < 0) { /* the buffers so far stay available */
			queue->seen = before;
			queue->used = used;
			return false;
		}
		if (first < 0)
			first = head;
		part = room(queue, head) - skip;
		part = part < bytes - done ? part : bytes - done;
		copy(card, queue, head, skip, (uint8_t *)data + done, part, true);
		use(queue, head, part + skip);
		done += part;
		hdr.num_buffers++;
	}
	copy(card, queue, first, 0, (uint8_t *)&hdr, HDR_BYTES, true);
	tell(queue);
	return true;
}
