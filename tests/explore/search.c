// SPDX-License-Identifier: BSD-2-Clause
/*
 * The search. It keeps a 128-bit hash of each state and the first step to it, which gives the
 * shortest way to a violation. It keeps whole states for the frontier only.
 */
#include "search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "loss.h"
#include "state.h"

enum {
	STATES_LIMIT = 1 << 26, /* with more, the setting is too large */
};

struct seen {
	XXH128_hash_t hash;
	uint32_t from; /* index of the previous state */
	struct step step;
};

struct frontier {
	uint8_t *states;
	uint32_t *index;
	uint32_t count, room;
};

struct search {
	struct world *world;
	struct found *found;
	size_t state_bytes;
	struct seen *seen; /* in the order found */
	uint32_t seen_count, seen_room;
	uint32_t *table; /* index + 1; 0: empty */
	uint32_t table_mask;
	struct frontier now, next;
	uint32_t bad; /* index of the state with the violation */
};

static void *grow(void *old, size_t bytes)
{
	void *p = realloc(old, bytes);

	if (!p) {
		fprintf(stderr, "out of memory\n");
		exit(1);
	}
	return p;
}

static void table_grow(struct search *s)
{
	uint32_t size = (s->table_mask + 1) * 2;

	s->table = grow(s->table, size * sizeof(*s->table));
	memset(s->table, 0, size * sizeof(*s->table));
	s->table_mask = size - 1;
	for (uint32_t i = 0; i < s->seen_count; i++) {
		uint32_t at = (uint32_t)s->seen[i].hash.low64 & s->table_mask;

		while (s->table[at])
			at = (at + 1) & s->table_mask;
		s->table[at] = i + 1;
	}
}

static void frontier_add(struct search *s, const struct state *state, uint32_t index)
{
	struct frontier *f = &s->next;

	if (f->count == f->room) {
		f->room = f->room ? f->room * 2 : 1024;
		f->states = grow(f->states, f->room * s->state_bytes);
		f->index = grow(f->index, f->room * sizeof(*f->index));
	}
	memcpy(f->states + f->count * s->state_bytes, state, s->state_bytes);
	f->index[f->count++] = index;
}

/* Records a new state. */
static void note(struct search *s, const struct state *state, uint32_t from, struct step step)
{
	XXH128_hash_t hash = XXH3_128bits(state, s->state_bytes);
	uint32_t at = (uint32_t)hash.low64 & s->table_mask;

	for (; s->table[at]; at = (at + 1) & s->table_mask)
		if (XXH128_isEqual(s->seen[s->table[at] - 1].hash, hash))
			return;
	if (s->seen_count == s->seen_room) {
		s->seen_room *= 2;
		s->seen = grow(s->seen, s->seen_room * sizeof(*s->seen));
	}
	s->table[at] = s->seen_count + 1;
	s->seen[s->seen_count] = (struct seen){ hash, from, step };
	frontier_add(s, state, s->seen_count++);
	if (s->seen_count > s->table_mask / 2)
		table_grow(s);
}

/* Records the step to a violation; the state after it may be known. */
static void note_bad(struct search *s, uint32_t from, struct step step)
{
	s->seen = grow(s->seen, (s->seen_count + 1) * sizeof(*s->seen));
	s->seen[s->seen_count] = (struct seen){ .from = from, .step = step };
	s->bad = s->seen_count++;
}

/* Reports whether a node with more to send withholds credits because it cannot copy out, while no
 * node can send. The event service then tells its program (ENOBUFS, events/out.c). */
static bool hoarder_withholds(struct world *world)
{
	for (int i = 0; i < world->setting.nodes; i++)
		for (int j = 0; j < world->setting.nodes; j++)
			if (world_hoards(world, i) && world_linked(world, i, j) &&
			    world_peer(world, i, j)->withholding)
				return true;
	return false;
}

/* Checks that at rest every frame can be sent: no node waits for ever for another's credits. If
 * each node's largest frame is next and none can be sent, nothing happens again. */
static void check_rest(struct search *s, const struct state *state)
{
	struct world *world = s->world;
	struct step steps[STEPS_MAX];
	bool largest_can = false, all_can = true, any = false;
	uint32_t n = steps_list(world, steps);

	for (uint32_t i = 0; i < n; i++) {
		if (!steps_sends(&steps[i]))
			continue;
		any = true;
		state_put(world, state);
		if (!steps_leaves(world, &steps[i]))
			all_can = false;
		else if ((steps[i].arg & 0x3f) == world->setting.cost_max)
			largest_can = true;
	}
	s->found->rests++;
	state_put(world, state);
	if (world_loses(world) && loss_all(world, loss_gone))
		violation(world, FOUND_MISSING);
	else if (any && !largest_can)
		violation(world, hoarder_withholds(world) ? FOUND_NAMED : FOUND_DEADLOCK);
	else if (!all_can && !world->setting.standstill && !world->setting.hoard)
		violation(world, FOUND_STUCK);
}

/* Tries every step from a state. */
static void expand(struct search *s, const struct state *state, uint32_t index)
{
	struct world *world = s->world;
	struct step steps[STEPS_MAX];
	struct state after;
	bool rest = true;
	uint32_t n, rank;

	state_put(world, state);
	rank = steps_rank(world);
	n = steps_list(world, steps);
	for (uint32_t i = 0; i < n; i++) {
		bool needless;

		if (i)
			state_put(world, state);
		needless = loss_needless(world, &steps[i]);
		if (!steps_do(world, &steps[i]) && !world->violated)
			continue;
		state_get(world, &after);
		if (!world->violated && !memcmp(&after, state, s->state_bytes))
			continue;
		s->found->steps++;
		if (!world->violated)
			steps_check(world);
		if (!world->violated && !steps_optional(&steps[i])) {
			rest = false;
			if (!needless && !world->refused && steps_rank(world) >= rank)
				violation(world, FOUND_ENDLESS);
		}
		if (world->violated) {
			note_bad(s, index, steps[i]);
			return;
		}
		note(s, &after, index, steps[i]);
	}
	if (rest)
		check_rest(s, state);
	s->bad = index;
}

/* Counts the steps to the violation, and prints them if `show`. */
static void way_there(const struct search *s, bool show)
{
	uint32_t length = 0;
	uint32_t *way;

	for (uint32_t i = s->bad; i; i = s->seen[i].from)
		length++;
	s->found->way = length;
	way = grow(NULL, (length + 1) * sizeof(*way));
	for (uint32_t i = s->bad, k = length; i; i = s->seen[i].from)
		way[--k] = i;
	for (uint32_t k = 0; show && k < length; k++) {
		printf("    %2u. ", k + 1);
		steps_print(&s->seen[way[k]].step);
	}
	free(way);
	if (show)
		printf("    %s\n", s->world->violated);
}

static void run(struct search *s)
{
	struct state state;

	memset(&state, 0, sizeof(state));
	note(s, &state, 0, (struct step){ 0 });
	while (s->next.count && !s->world->violated) {
		struct frontier empty = s->now;

		s->now = s->next;
		s->next = empty;
		s->next.count = 0;
		s->found->depth++;
		for (uint32_t i = 0; i < s->now.count && !s->world->violated; i++) {
			memcpy(&state, s->now.states + i * s->state_bytes, s->state_bytes);
			expand(s, &state, s->now.index[i]);
			if (s->seen_count > STATES_LIMIT)
				violation(s->world, "too many states to explore");
		}
	}
}

void search(const struct setting *setting, bool show, struct found *found)
{
	struct world *world = grow(NULL, sizeof(*world));
	uint8_t ends[FLOWS_MAX][2];
	struct search s = {
		.world = world,
		.found = found,
		.seen_room = 1 << 16,
		.table_mask = (1 << 16) - 1,
	};

	*found = (struct found){ 0 };
	world_init(world, setting);
	s.state_bytes = state_flows(world, ends) * sizeof(struct direction);
	s.seen = grow(NULL, s.seen_room * sizeof(*s.seen));
	s.table = calloc(s.table_mask + 1, sizeof(*s.table));
	run(&s);
	found->states = s.seen_count;
	found->violated = world->violated;
	if (world->violated)
		way_there(&s, show);
	free(s.seen);
	free(s.table);
	free(s.now.states);
	free(s.now.index);
	free(s.next.states);
	free(s.next.index);
	world_deinit(world);
	free(world);
}
