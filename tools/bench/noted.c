// SPDX-License-Identifier: BSD-2-Clause
/* The calls of a queue, with what is noted of them. */
#include "noted.h"

struct noted noted[2];
static const struct queue_ops *device[2];
static struct queue_ops watched[2];

static inline uint32_t note_rx(int side, struct queue *queue, struct device_desc *descs, uint32_t n)
{
	struct noted *end = &noted[side];
	uint32_t got;

	if (!end->looks++)
		end->began = noted_ticks();
	got = device[side]->rx(queue, descs, n);
	if (!got)
		return 0;
	if (side) /* the answer to what came before is on its way */
		atomic_store_explicit(&end->sent, 0, memory_order_relaxed);
	atomic_store_explicit(&end->came, noted_ticks(), memory_order_relaxed);
	return got;
}

static inline uint32_t note_tx(int side, struct queue *queue, const struct device_desc *descs,
			       uint32_t n)
{
	uint32_t taken = device[side]->tx(queue, descs, n);

	noted[side].queued += taken;
	return taken;
}

static inline int note_kick(int side, struct queue *queue)
{
	struct noted *end = &noted[side];

	if (end->queued && !atomic_load_explicit(&end->sent, memory_order_relaxed))
		atomic_store_explicit(&end->sent, noted_ticks(), memory_order_relaxed);
	end->queued = 0;
	end->looks = 0;
	return device[side]->kick(queue);
}

#define CALLS(side)                                                                             \
	static uint32_t rx_##side(struct queue *queue, struct device_desc *descs, uint32_t n)   \
	{                                                                                       \
		return note_rx(side, queue, descs, n);                                          \
	}                                                                                       \
	static uint32_t tx_##side(struct queue *queue, const struct device_desc *d, uint32_t n) \
	{                                                                                       \
		return note_tx(side, queue, d, n);                                              \
	}                                                                                       \
	static int kick_##side(struct queue *queue)                                             \
	{                                                                                       \
		return note_kick(side, queue);                                                  \
	}

CALLS(0)
CALLS(1)

void noted_watch(int side, struct queue *queue)
{
	device[side] = queue->ops;
	watched[side] = *queue->ops;
	watched[side].rx = side ? rx_1 : rx_0;
	watched[side].tx = side ? tx_1 : tx_0;
	watched[side].kick = side ? kick_1 : kick_0;
	queue->ops = &watched[side];
}
