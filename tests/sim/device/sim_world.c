// SPDX-License-Identifier: BSD-2-Clause
/*
 * The world: virtual time, events, the network's contents, and the first violation. Each random
 * number is a hash of the seed and its purpose. Calls sim_wire.c and sim_fault.c for each event.
 */
#include "device/sim_private.h"

#include <assert.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <careful/wire.h>

enum { SIM_BEGIN_NS = 1000000000 };

uint64_t sim_hash(uint64_t seed, uint64_t stream, uint64_t index)
{
	uint64_t h = careful_mix(careful_mix(seed ^ 0x73696d756c617465ull, stream), index);

	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93ull;
	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93ull;
	return h ^ (h >> 32);
}

struct sim_world *sim_create(void)
{
	struct sim_world *world = calloc(1, sizeof(*world));

	if (!world)
		return NULL;
	world->slots = calloc(SIM_SLOTS, sizeof(*world->slots));
	world->slots_free = calloc(SIM_SLOTS, sizeof(*world->slots_free));
	world->tape = calloc(SIM_TAPE, sizeof(*world->tape));
	if (!world->slots || !world->slots_free || !world->tape) {
		sim_destroy(world);
		return NULL;
	}
	return world;
}

void sim_destroy(struct sim_world *world)
{
	free(world->slots);
	free(world->slots_free);
	free(world->tape);
	free(world);
}

void sim_begin(struct sim_world *world, const struct sim_config *config)
{
	assert(config->ports <= SIM_PORTS_MAX);
	world->config = *config;
	world->now_ns = SIM_BEGIN_NS;
	world->order = 0;
	world->events_count = 0;
	world->slots_free_count = 0;
	for (uint32_t i = SIM_SLOTS; i-- > 0;)
		world->slots_free[world->slots_free_count++] = i;
	memset(world->wires, 0, sizeof(world->wires));
	memset(world->devices, 0, sizeof(world->devices));
	memset(world->clock_ns, 0, sizeof(world->clock_ns));
	memset(world->queue_ns, 0, sizeof(world->queue_ns));
	memset(world->gap_out_ns, 0, sizeof(world->gap_out_ns));
	memset(world->gap_in_ns, 0, sizeof(world->gap_in_ns));
	world->ring_free_ns = world->ring_frames = world->queue_lost = 0;
	world->tape_count = 0;
	world->taping = false;
	world->failure[0] = 0;
	sim_fault_begin(world);
}

uint64_t sim_now_ns(const struct sim_world *world)
{
	return world->now_ns;
}

static bool before(const struct sim_event *a, const struct sim_event *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void sim_post(struct sim_world *world, uint64_t at_ns, enum sim_event_kind kind, uint32_t index)
{
	struct sim_event event = {
		.at_ns = at_ns > world->now_ns ? at_ns : world->now_ns,
		.order = world->order++,
		.index = index,
		.kind = (uint8_t)kind,
	};
	uint32_t i = world->events_count++;

	/* Each slot, and each fault's end, has at most one event. */
	assert(i < SIM_EVENTS);
	while (i && before(&event, &world->events[(i - 1) / 2])) {
		world->events[i] = world->events[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	world->events[i] = event;
}

static struct sim_event take_event(struct sim_world *world)
{
	struct sim_event first = world->events[0];
	struct sim_event last = world->events[--world->events_count];
	uint32_t i = 0;

	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child >= world->events_count)
			break;
		if (child + 1 < world->events_count &&
		    before(&world->events[child + 1], &world->events[child]))
			child++;
		if (!before(&world->events[child], &last))
			break;
		world->events[i] = world->events[child];
		i = child;
	}
	world->events[i] = last;
	return first;
}

uint64_t sim_next_ns(const struct sim_world *world)
{
	return world->events_count ? world->events[0].at_ns : UINT64_MAX;
}

void sim_advance(struct sim_world *world, uint64_t at_ns)
{
	assert(at_ns >= world->now_ns && at_ns <= sim_next_ns(world));
	world->now_ns = at_ns;
}

void sim_run(struct sim_world *world)
{
	while (world->events_count && world->events[0].at_ns <= world->now_ns) {
		struct sim_event event = take_event(world);

		switch (event.kind) {
		case SIM_READY:
			sim_wire_ready(world, event.index);
			break;
		case SIM_DEPART:
			sim_wire_depart(world, event.index);
			break;
		case SIM_ARRIVE:
			sim_wire_arrive(world, event.index);
			break;
		case SIM_INJECT:
			sim_fault_inject(world, event.index);
			break;
		default:
			sim_fault_change(world, event.index, event.kind == SIM_BEGIN);
		}
	}
}

struct sim_slot *sim_slot_take(struct sim_world *world, uint32_t *index)
{
	struct sim_slot *slot;

	if (!world->slots_free_count) {
		sim_fail(world, "more than %d frames and messages under way", SIM_SLOTS);
		return NULL;
	}
	*index = world->slots_free[--world->slots_free_count];
	slot = &world->slots[*index];
	memset(slot, 0, offsetof(struct sim_slot, data));
	return slot;
}

void sim_slot_put(struct sim_world *world, uint32_t index)
{
	world->slots_free[world->slots_free_count++] = index;
}

bool sim_crowded(const struct sim_world *world)
{
	return world->slots_free_count < SIM_SLOTS / 2;
}

const char *sim_failure(const struct sim_world *world)
{
	return world->failure[0] ? world->failure : NULL;
}

void sim_fail(struct sim_world *world, const char *format, ...)
{
	va_list args;

	if (world->failure[0])
		return; /* later violations are consequences */
	va_start(args, format);
	vsnprintf(world->failure, sizeof(world->failure), format, args);
	va_end(args);
}
