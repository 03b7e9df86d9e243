/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two devices joined in memory, to measure the layers above. A kick copies each frame into a
 * receive buffer of the other end; nothing is lost or late. The caller sets the time. Counts the
 * engine's calls of its device.
 */
#ifndef CAREFUL_TESTS_MEMORY_DEVICE_H
#define CAREFUL_TESTS_MEMORY_DEVICE_H

#include <careful/careful.h>

#include "device/device.h"
#include "storage/storage.h"

enum {
	MEMORY_CHUNK = 4096,
	MEMORY_HEADROOM = 256, /* before a received frame, like XDP */
	MEMORY_FRAME = MEMORY_CHUNK - MEMORY_HEADROOM,
	MEMORY_LL = 42, /* Ethernet, IPv4, UDP */
	MEMORY_RX = 512,
	MEMORY_RX_MAX = 16 * 256, /* 16 for each possible peer */
	MEMORY_TX = 512,
	MEMORY_CTRL = 1024,
	MEMORY_CTRL_BYTES = 256,
};

/* Counts calls of the device by kind. */
struct memory_calls {
	uint64_t rx, fill, tx, kick, complete, clock, ctrl_recv, tune, frames;
};

struct memory {
	struct queue queue; /* first */
	struct port port;
	struct storage storage; /* if no file is read */
	struct memory *other;
	struct memory_calls calls;
	uint64_t now_ns;
	uint64_t random;
	uint32_t side;
	struct careful_tune_entry *tune;
	struct careful_live_entry *live;
	/* Rings: head counts entries put in, tail entries taken. */
	struct memory_ring {
		uint32_t head, tail;
	} rx, fill, held, left, ctrl;
	struct device_desc rx_ring[MEMORY_RX_MAX], held_ring[MEMORY_TX];
	uint64_t fill_ring[MEMORY_RX_MAX], left_ring[MEMORY_TX];
	struct memory_ctrl {
		uint32_t bytes, number;
		uint8_t data[MEMORY_CTRL_BYTES];
	} ctrl_ring[MEMORY_CTRL];
};

/* Opens both ends, each with this many receive buffers, a power of two. Engines do not close
 * them. */
void memory_init(struct memory ends[2], uint32_t rx);
void memory_deinit(struct memory ends[2]);
/* Opens an engine on an end. Prints why and ends the process if that fails. */
struct careful *memory_open(struct memory *end, const struct careful_options *options);
/* Returns an end's address. Each end has many addresses, so that two ends can have many sessions. A
 * frame to an address comes from the address of the same number. */
union address memory_address(uint32_t side, uint32_t number);

#endif /* CAREFUL_TESTS_MEMORY_DEVICE_H */
