/* SPDX-License-Identifier: BSD-2-Clause */
/* Service, queue and random faults of one direction of a link. A frame is received whole, waits
 * while another is served, is served for g + G n, and then propagates. The schedule is ideal: a
 * frame that leaves late delays no other. */
#include "way.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	ETHERNET_BYTES = 14, /* never damaged, so that the frame arrives */
};

static uint64_t random_next(struct hop_way *way)
{
	/* splitmix64 (Steele, Lea, Flood 2014) */
	uint64_t z = way->random += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static bool chance(struct hop_way *way, double probability)
{
	return probability > 0 && (double)(random_next(way) >> 11) * 0x1p-53 < probability;
}

int hop_way_init(struct hop_way *way, const struct hop_config *config, uint64_t salt,
		 uint64_t now_ns)
{
	assert(config->rates_count > 0 && config->queue_frames > 0);
	memset(way, 0, sizeof(*way));
	way->config = config;
	way->random = config->seed ^ (salt << 32);
	way->served = calloc(config->queue_frames, sizeof(*way->served));
	if (!way->served)
		return -ENOMEM;
	hop_way_reset(way, now_ns);
	return 0;
}

void hop_way_deinit(struct hop_way *way)
{
	struct hop_frame *frame;

	while ((frame = hop_next(way)))
		free(frame);
	free(way->served);
}

void hop_way_reset(struct hop_way *way, uint64_t now_ns)
{
	way->began_ns = now_ns;
	memset(&way->fit, 0, sizeof(way->fit));
	memset(&way->fit_punctual, 0, sizeof(way->fit_punctual));
	memset(&way->fit_lone, 0, sizeof(way->fit_lone));
	way->frames = way->bytes = way->queue_dropped = way->lost = 0;
	way->duplicated = way->reordered = way->corrupted = 0;
	memset(way->late_us, 0, sizeof(way->late_us));
	way->late_max_ns = 0;
	way->late_sum_ns = 0;
}

static uint32_t rate_at(const struct hop_way *way, uint64_t at_ns)
{
	const struct hop_config *config = way->config;
	uint64_t since = at_ns > way->began_ns ? at_ns - way->began_ns : 0;
	uint32_t i = config->rates_count - 1;

	while (i > 0 && config->rates[i].at_ns > since)
		i--;
	return i;
}

/* Reports whether the queue has room for a frame at now. Served frames have left it. */
static bool queue_room(struct hop_way *way, uint64_t now_ns)
{
	uint32_t size = way->config->queue_frames;

	while (way->serving_count && way->served[way->serving_first] <= now_ns) {
		way->serving_first = (way->serving_first + 1) % size;
		way->serving_count--;
	}
	return way->serving_count < size;
}

static void insert(struct hop_way *way, struct hop_frame *frame)
{
	struct hop_frame **at = &way->first;

	if (way->last && way->last->due_ns <= frame->due_ns) {
		at = &way->last->next;
	} else {
		while (*at && (*at)->due_ns <= frame->due_ns)
			at = &(*at)->next;
	}
	frame->next = *at;
	*at = frame;
	if (!frame->next)
		way->last = frame;
}

static int take(struct hop_way *way, const void *data, uint32_t bytes, const struct hop_frame *like)
{
	struct hop_frame *frame = malloc(sizeof(*frame) + bytes);

	if (!frame)
		return -ENOMEM;
	*frame = *like;
	memcpy(frame->data, data, bytes);
	if (bytes > ETHERNET_BYTES && chance(way, way->config->corrupt)) {
		uint64_t bit = random_next(way) % ((uint64_t)(bytes - ETHERNET_BYTES) * 8);

		frame->data[ETHERNET_BYTES + bit / 8] ^= (uint8_t)(1u << (bit % 8));
		way->corrupted++;
	}
	if (chance(way, way->config->reorder)) {
		frame->due_ns += way->config->reorder_ns;
		frame->ordered = frame->timed = false;
		way->odd = true;
		way->reordered++;
	}
	insert(way, frame);
	return 1;
}

/* Reports whether a frame joins a transfer that has not started. */
static bool joins(struct hop_way *way, uint64_t arrived_ns)
{
	if (!way->config->eager || arrived_ns >= way->busy_ns)
		return false;
	return arrived_ns < way->taken_ns && way->taken_ns < way->busy_ns;
}

int hop_arrive(struct hop_way *way, const void *data, uint32_t bytes, uint64_t arrived_ns)
{
	const struct hop_config *config = way->config;
	struct hop_frame like = { .arrived_ns = arrived_ns, .bytes = bytes, .ordered = true };
	const struct hop_rate *rate;
	uint64_t start;
	bool joined;
	int rc;

	if (!queue_room(way, arrived_ns)) {
		way->queue_dropped++;
		return 0;
	}
	/* After a frame whose sending is not seen, the start of service is unknown. */
	like.timed = !way->odd || arrived_ns >= way->busy_ns;
	way->odd = false;
	start = arrived_ns > way->busy_ns ? arrived_ns : way->busy_ns;
	like.rate = rate_at(way, start);
	rate = &config->rates[like.rate];
	like.charged = hop_charged(config, data, bytes);
	joined = joins(way, arrived_ns);
	if (!joined && arrived_ns >= way->taken_ns)
		way->taken_ns = start; /* ends before this one's begins */
	way->busy_ns =
		start + (uint64_t)((joined ? 0 : rate->g_ns) + rate->G_ns_per_byte * like.charged);
	if (start == arrived_ns)
		way->taken_ns = way->busy_ns;
	like.timed &= !joined;
	like.due_ns = way->busy_ns + config->delay_ns;
	way->served[(way->serving_first + way->serving_count++) % config->queue_frames] =
		way->busy_ns;
	if (chance(way, config->loss)) {
		way->lost++;
		way->odd = true;
		return 0;
	}
	rc = take(way, data, bytes, &like);
	if (rc > 0 && chance(way, config->duplicate)) {
		like.ordered = like.timed = false;
		way->duplicated++;
		rc = take(way, data, bytes, &like);
	}
	return rc;
}

const struct hop_frame *hop_peek(const struct hop_way *way)
{
	return way->first;
}

struct hop_frame *hop_next(struct hop_way *way)
{
	struct hop_frame *frame = way->first;

	if (frame) {
		way->first = frame->next;
		if (!way->first)
			way->last = NULL;
	}
	return frame;
}

/* A changed rate resets the sums. */
static void fit_add(struct hop_fit *fit, const struct hop_frame *frame, double y)
{
	uint32_t bytes = frame->charged;
	double x = bytes, dx, dy;

	if (fit->rate != frame->rate)
		*fit = (struct hop_fit){ .rate = frame->rate };
	if (!fit->count || bytes < fit->x_min)
		fit->x_min = bytes;
	if (!fit->count || bytes > fit->x_max)
		fit->x_max = bytes;
	fit->count++;
	dx = x - fit->x_mean;
	dy = y - fit->y_mean;
	fit->x_mean += dx / (double)fit->count;
	fit->y_mean += dy / (double)fit->count;
	fit->xx += dx * (x - fit->x_mean);
	fit->xy += dx * (y - fit->y_mean);
	fit->yy += dy * (y - fit->y_mean);
}

void hop_left(struct hop_way *way, struct hop_frame *frame, uint64_t now_ns, uint64_t sent_ns)
{
	uint64_t late = now_ns > frame->due_ns ? now_ns - frame->due_ns : 0;
	uint64_t late_us = late / 1000;
	uint64_t end = sent_ns > way->config->delay_ns ? sent_ns - way->config->delay_ns : 0;

	way->frames++;
	way->bytes += frame->bytes;
	way->late_sum_ns += (double)late;
	if (late > way->late_max_ns)
		way->late_max_ns = late;
	way->late_us[late_us < HOP_LATENESS_MAX_US ? late_us : HOP_LATENESS_MAX_US]++;
	if (frame->timed) { /* the service that the path saw, lateness included */
		bool waited = frame->arrived_ns <= way->left_ns;
		double service =
			(double)(int64_t)(end - (waited ? way->left_ns : frame->arrived_ns));

		fit_add(&way->fit, frame, service);
		if (late <= HOP_PUNCTUAL_NS && (!waited || way->punctual))
			fit_add(&way->fit_punctual, frame, service);
		if (!waited && sent_ns <= frame->due_ns + HOP_PUNCTUAL_NS)
			fit_add(&way->fit_lone, frame, service);
	}
	if (frame->ordered) {
		way->left_ns = end;
		way->punctual = late <= HOP_PUNCTUAL_NS;
	}
	free(frame);
}
