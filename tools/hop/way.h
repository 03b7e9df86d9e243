/* SPDX-License-Identifier: BSD-2-Clause */
/* One direction of an emulated store-and-forward link: its queue, service times, random faults, and
 * the resulting (g, G). The caller passes time and frames; randomness comes from the seed. Sockets
 * belong to main.c. */
#ifndef HOP_WAY_H
#define HOP_WAY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
	HOP_RATES_MAX = 16,
	HOP_LATENESS_MAX_US = 20000, /* later ones are counted in the last bucket */
	HOP_PUNCTUAL_NS = 50000, /* a punctual frame is at most this late */
};

/*
 * A rate, valid from a time on.
 *
 * @at_ns: since the start or the last reset
 * @g_ns: to serve an empty frame
 * @G_ns_per_byte: for each charged byte
 */
struct hop_rate {
	uint64_t at_ns;
	double g_ns;
	double G_ns_per_byte;
};

/*
 * The settings of a link.
 *
 * @rates: rates_count entries, at_ns ascending, the first at 0
 * @payload_only: charge only the payload, else every byte of the Ethernet frame
 * @careful_port:  the UDP port whose frames carry a careful header
 * @delay_ns: propagation; occupies nothing
 * @reorder_ns: delay of a reordered frame
 * @queue_frames: frames waiting or in service; further frames are dropped
 * @eager: an idle link takes all waiting frames as one transfer, which costs g once (P3's DMA)
 * @loss, @duplicate, @reorder, @corrupt: probability for each frame, 0 to 1
 * @seed: of all random decisions
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
 * A frame in the link, until hop_next() returns it and hop_free() ends it.
 *
 * @due_ns: when it must leave
 * @arrived_ns: when it arrived
 * @charged: bytes charged with G
 * @rate: index of its rate
 * @ordered: it leaves in the order of service: neither a copy nor delayed
 * @timed: its sending time counts for the report
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

/* Running sums of a regression of time over bytes (Welford), for one rate. */
struct hop_fit {
	uint32_t rate;
	uint64_t count;
	double x_mean, y_mean, xx, xy, yy;
	uint32_t x_min, x_max;
};

struct hop_way {
	const struct hop_config *config;
	uint64_t began_ns, busy_ns, left_ns; /* start; end of all service; last sending */
	uint64_t taken_ns; /* eager: end of the transfer in service; later frames wait */
	bool odd; /* the last frame's sending will not be seen in order */
	uint64_t random;
	struct hop_frame *first, *last; /* by due_ns */
	uint32_t serving_first, serving_count; /* in served: frames still in the link */
	uint64_t *served; /* [queue_frames] when each of them has been served */
	bool punctual; /* sending time of the last frame in order */
	struct hop_fit fit; /* of all frames */
	struct hop_fit fit_punctual; /* over punctual frames */
	struct hop_fit fit_lone; /* over those that met an idle link, and left at once */
	uint64_t frames, bytes, queue_dropped, lost, duplicated, reordered, corrupted;
	uint64_t late_us[HOP_LATENESS_MAX_US + 1]; /* frames by lateness */
	uint64_t late_max_ns;
	double late_sum_ns;
};

int hop_way_init(struct hop_way *way, const struct hop_config *config, uint64_t salt,
		 uint64_t now_ns);
void hop_way_deinit(struct hop_way *way);

/* Resets the figures and the rates; frames in the link stay. */
void hop_way_reset(struct hop_way *way, uint64_t now_ns);

/* Adds a frame. 1: taken; 0: dropped (queue full, or lost); -ENOMEM. */
int hop_arrive(struct hop_way *way, const void *data, uint32_t bytes, uint64_t arrived_ns);

/* Returns the next frame to leave, at its due_ns, or NULL. The link still owns it. */
const struct hop_frame *hop_peek(const struct hop_way *way);
/* Takes it out. */
struct hop_frame *hop_next(struct hop_way *way);
/* Counts and frees a frame whose sending began at now_ns and ended at sent_ns. */
void hop_left(struct hop_way *way, struct hop_frame *frame, uint64_t now_ns, uint64_t sent_ns);

/* Returns the bytes of an Ethernet frame that are charged with G (charge.c). */
uint32_t hop_charged(const struct hop_config *config, const uint8_t *data, uint32_t bytes);

/* Writes the figures as one JSON object (report.c). */
void hop_report(const struct hop_way *way, const char *name, FILE *out);

#endif /* HOP_WAY_H */
