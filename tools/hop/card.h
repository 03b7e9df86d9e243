/* SPDX-License-Identifier: BSD-2-Clause */
/* The device side of an emulated machine's virtio network card, by QEMU's vhost-user protocol. A
 * frame that the machine sends is complete only when card_sent() says so: the link serves it
 * first, as a real card does. */
#ifndef HOP_CARD_H
#define HOP_CARD_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	CARD_REGIONS = 8,
	CARD_RX = 0, /* queues, by the machine's view */
	CARD_TX = 1,
	CARD_QUEUES,
	CARD_FDS = 2,
};

/* A part of the machine's memory. @at: our mapping; @user: its address in QEMU. */
struct card_region {
	uint64_t guest, bytes, user;
	uint8_t *at;
	void *mapped;
	uint64_t mapped_bytes;
};

/* A split virtqueue. @seen, @used: free-running indexes of the next available and used entries;
 * @kick, @call: eventfds, -1 if none */
struct card_queue {
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used_ring;
	uint16_t count, seen, used;
	int kick, call;
};

/* @listener, @connection: of QEMU, which connects once; @head: descriptor of the frame in service,
 * -1: none */
struct card {
	int listener, connection;
	uint64_t features;
	struct card_region regions[CARD_REGIONS];
	uint32_t regions_count;
	struct card_queue queues[CARD_QUEUES];
	int head;
};

/* Listens for QEMU at a path. Returns 0 or -errno. */
int card_open(struct card *card, const char *path);

/* Fills in what to wait for: QEMU, and, if no frame is in service, the machine's next one. */
void card_wait(const struct card *card, struct pollfd fds[CARD_FDS]);

/* Answers QEMU, if it has a message. Returns 0 or -errno. */
int card_attend(struct card *card);

/* Takes the machine's next frame, which is then in service. Returns its bytes; 0: there is none, or
 * one is in service. */
uint32_t card_take(struct card *card, uint8_t *data, uint32_t bytes_max);

/* Completes the frame in service: the machine may use its memory again. */
void card_sent(struct card *card);

/* Gives the machine a frame. Returns false if it has no room. */
bool card_give(struct card *card, const uint8_t *data, uint32_t bytes);

#endif /* HOP_CARD_H */
