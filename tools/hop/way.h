/* SPDX-License-Identifier: BSD-2-Clause */
/* One direction of an emulated store-and-forward link: its queue, when each frame has
 * been served, what happens to it on the way, and the (g, G) that came of it. Pure: time
 * and frames are passed in, chance comes from the seed. Sockets belong to main.c. */
#ifndef HOP_WAY_H
#define HOP_WAY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
	HOP_RATES_MAX = 16,
	HOP_LATENESS_MAX_US = 20000, /* later ones are counted in the last bucket */
	HOP_PUNCTUAL_NS = 50000, /* a frame this late at most is punctual */
};

/*
 * A rate, in effect from a time on.
 *
 * @at_ns:          since the way began (or was reset)
 * @g_ns:           to serve a frame of no bytes
 * @G_ns_per_byte:  for each byte charged
 */
struct hop_rate {
	uint64_t at_ns;
	double g_ns;
	double G_ns_per_byte;
};

/*
 * The settings of a link.
 *
 * @rates:         rates_count of them, at_ns ascending, the first at 0
 * @payload_only:  charge the payload alone, else every byte of the Ethernet frame
 * @careful_port:  the UDP port whose frames carry a careful header
 * @delay_ns:      propagation, occupies nothing
 * @reorder_ns:    by how much a reordered frame is held back
 * @queue_frames:  frames waiting or in service; one more is dropped
 * @eager:         idle, it takes all that waits as one transfer, which costs g once (P3's DMA)
 * @loss, @duplicate, @reorder, @corrupt: probability for each frame, 0 to 1
 * @seed:          of all chance
 */
struct hop_config {
	struct hop_rate rates[HOP_RATES_MAX];
	uint32_t rates_count;
	bool payload_only, eager;
	uint16_t careful_port;
	uint64_t delay_ns;
	uint64_t reorder_ns;
	uint32_t queue_frames;
	double loss, duplicate, reorder, corrupt;
	uint64_t seed;
};

/*
 * A frame that the way holds, until hop_next() has given it out and hop_free() ended it.
 *
 * @due_ns:      when it has to leave
 * @arrived_ns:  when it came
 * @charged:     bytes that G was charged for
 * @rate:        index of the rate that it was served at
 * @ordered:     it leaves in the order of service: not a copy, not held back
 * @timed:       its leaving tells the rate
 */
struct hop_frame {
	struct hop_frame *next;
	uint64_t due_ns;
	uint64_t arrived_ns;
	uint32_t charged;
	uint32_t bytes;
	uint32_t rate;
	bool ordered;
	bool timed;
	uint8_t data[];
};

/* Sums of a regression of time over bytes, updated frame by frame (Welford), under one rate. */
struct hop_fit {
	uint32_t rate;
	uint64_t count;
	double x_mean, y_mean, xx, xy, yy;
	uint32_t x_min, x_max;
};

struct hop_way {
	const struct hop_config *config;
	uint64_t began_ns, busy_ns, left_ns; /* start; end of all service; last frame's leaving */
	uint64_t taken_ns; /* eager: end of the transfer in service; what came since waits */
	bool odd; /* the last frame that came will not be seen leaving in its turn */
	uint64_t random;
	struct hop_frame *first, *last; /* by due_ns */
	uint32_t serving_first, serving_count; /* of served: the frames still in the link */
	uint64_t *served; /* [queue_frames] when each of them has been served */
	bool punctual; /* the last frame that left in its turn was */
	struct hop_fit fit; /* of all frames */
	struct hop_fit fit_punctual; /* of those that no other work on this machine held up */
	uint64_t frames, bytes, queue_dropped, lost, duplicated, reordered, corrupted;
	uint64_t late_us[HOP_LATENESS_MAX_US + 1]; /* frames by how late they left */
	uint64_t late_max_ns;
	double late_sum_ns;
};

int hop_way_init(struct hop_way *way, const struct hop_config *config, uint64_t salt,
		 uint64_t now_ns);
void hop_way_deinit(struct hop_way *way);

/* Forgets the figures and starts the rates again; frames on the way stay. */
void hop_way_reset(struct hop_way *way, uint64_t now_ns);

/* A frame came: 1 taken, 0 dropped (queue full, or lost on the way), -ENOMEM. */
int hop_arrive(struct hop_way *way, const void *data, uint32_t bytes, uint64_t arrived_ns);

/* The next frame to leave, at its due_ns; NULL where there is none. It stays the way's. */
const struct hop_frame *hop_peek(const struct hop_way *way);
/* Takes it out. */
struct hop_frame *hop_next(struct hop_way *way);
/* Its sending began at now_ns and was over at sent_ns, for copying takes time, too: counts
 * it and frees it. */
void hop_left(struct hop_way *way, struct hop_frame *frame, uint64_t now_ns, uint64_t sent_ns);

/* Bytes of an Ethernet frame that G is charged for (charge.c). */
uint32_t hop_charged(const struct hop_config *config, const uint8_t *data, uint32_t bytes);

/* The way's figures as one JSON object (report.c). */
void hop_report(const struct hop_way *way, const char *name, FILE *out);

#endif /* HOP_WAY_H */
