/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One end of a pair, for tests and benchmarks of the bare device. It writes frames that XDP admits
 * (cookie: the receiver's side + 1, slot 0), and releases buffers at once.
 */
#ifndef CAREFUL_TESTS_END_H
#define CAREFUL_TESTS_END_H

#include <arpa/inet.h>
#include <careful/wire.h>
#include <endian.h>
#include <pthread.h>

#include "device/device.h"
#include "pair.h"

enum {
	END_BATCH = 64,
	END_WINDOW = 0x7fffffff,
};

struct end {
	struct queue *queue;
	struct llhdr llhdr;
	int side;
	uint32_t seq;
	uint64_t *free; /* send chunks */
	uint32_t free_count;
};

/* Initializes the end of an open device. */
static inline void end_init(struct end *end, int side, struct queue *queue)
{
	*end = (struct end){ .queue = queue, .side = side };
	end->free = calloc(queue->tx_chunks, sizeof(*end->free));
	CHECK(end->free);
	for (uint32_t i = 0; i < queue->tx_chunks; i++)
		end->free[end->free_count++] =
			(uint64_t)(queue->rx_chunks + i) * queue->chunk_bytes;
	queue->port->ops->admit(queue->port, 0, (uint64_t)side + 1, END_WINDOW, queue->buffer_bytes,
				false);
}

static inline void end_deinit(struct end *end)
{
	device_close(end->queue);
	free(end->free);
}

/* Pins the caller to one CPU. */
static inline void end_pin(unsigned int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	CHECK(!pthread_setaffinity_np(pthread_self(), sizeof(set), &set));
}

/* Resolves the headers of frames to the other side. */
static inline void end_resolve(struct end *end, bool ipv6)
{
	union address to = { 0 };
	int rc = -EAGAIN;

	to.in.sin_family = AF_INET;
	if (ipv6) {
		to.in6 = (struct sockaddr_in6){ .sin6_family = AF_INET6 };
		inet_pton(AF_INET6, end->side ? "fd77::1" : "fd77::2", &to.in6.sin6_addr);
	} else {
		inet_pton(AF_INET, end->side ? "10.77.0.1" : "10.77.0.2", &to.in.sin_addr);
	}
	for (int i = 0; i < 2000 && rc == -EAGAIN; i++) {
		rc = end->queue->port->ops->resolve(end->queue->port, &to, &end->llhdr);
		if (rc)
			usleep(1000);
	}
	CHECK_EQ(rc, 0);
}

static inline uint32_t end_prefix(const struct end *end)
{
	return end->llhdr.bytes + (uint32_t)sizeof(struct careful_hdr);
}

static inline void end_headers(struct end *end, uint8_t *p, uint32_t body_bytes)
{
	struct careful_hdr hdr = {
		.version = CAREFUL_WIRE_VERSION,
		.type = CAREFUL_DATA,
		.cookie = htobe64((uint64_t)!end->side + 1),
		.seq = htobe32(++end->seq),
		.frag_bytes = htobe16((uint16_t)body_bytes),
	};
	const uint32_t udp_bytes = 8 + (uint32_t)sizeof(hdr) + body_bytes;
	const bool ipv4 = end->llhdr.bytes == 42;
	const uint16_t be_udp = htobe16((uint16_t)udp_bytes);
	const uint16_t be_ip = htobe16((uint16_t)(ipv4 ? 20 + udp_bytes : udp_bytes));

	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(p, end->llhdr.data, end->llhdr.bytes);
	/* The IPv4 checksum is not checked between two veth ends. */
	memcpy(p + (ipv4 ? 16 : 18), &be_ip, 2);
	memcpy(p + end->llhdr.bytes - 4, &be_udp, 2);
	memcpy(p + end->llhdr.bytes, &hdr, sizeof(hdr));
}

/* Writes a frame of frame_bytes into free chunks. Returns the number of descriptors. */
static inline uint32_t end_put(struct end *end, uint32_t frame_bytes, struct device_desc *descs)
{
	uint32_t chunk = end->queue->chunk_bytes, rest = frame_bytes, n = 0;

	do {
		uint32_t part = rest < chunk ? rest : chunk;

		rest -= part;
		descs[n++] = (struct device_desc){
			.addr = end->free[--end->free_count],
			.bytes = part,
			.options = rest ? DEVICE_DESC_MORE : 0,
		};
	} while (rest);
	end_headers(end, end->queue->umem + descs[0].addr, frame_bytes - end_prefix(end));
	return n;
}

/* Takes back the chunks of frames that have left. */
static inline void end_take_back(struct end *end)
{
	uint64_t addrs[END_BATCH];
	uint32_t n;

	do {
		n = end->queue->ops->complete(end->queue, addrs, END_BATCH);
		for (uint32_t i = 0; i < n; i++)
			end->free[end->free_count++] = addrs[i] &
						       ~(uint64_t)(end->queue->chunk_bytes - 1);
	} while (n == END_BATCH);
}

/* Takes received frames and releases them. Returns their number. */
static inline uint32_t end_drain(struct end *end, uint64_t *bytes)
{
	struct device_desc descs[END_BATCH];
	uint64_t addrs[END_BATCH];
	uint32_t n = end->queue->ops->rx(end->queue, descs, END_BATCH), frames = 0;

	for (uint32_t i = 0; i < n; i++) {
		addrs[i] = descs[i].addr;
		*bytes += descs[i].bytes;
		frames += !(descs[i].options & DEVICE_DESC_MORE);
	}
	if (n)
		end->queue->ops->fill(end->queue, addrs, n);
	return frames;
}

#endif /* CAREFUL_TESTS_END_H */
