// SPDX-License-Identifier: BSD-2-Clause
/* Prints totals over seeds, the command that replays a seed, and its scenario. */
#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

void totals_add(struct totals *totals, const struct cluster *cluster)
{
	const struct scenario *s = &cluster->scenario;

	totals->seeds++;
	totals->polls += cluster->polls;
	for (uint32_t i = 0; i < s->faults_count; i++) {
		enum special special = scenario_special(&s->faults[i]);

		totals->with_fault[s->faults[i].kind]++;
		totals->hits[s->faults[i].kind] += s->faults[i].hits;
		totals->with_special[special]++;
		totals->special_hits[special] += s->faults[i].hits;
	}
	for (uint32_t i = 0; i < s->ops_count; i++)
		totals->attempts += s->ops[i].attempt;
	totals->ops += s->ops_count;
	for (uint32_t i = 0; i < CAREFUL_COUNTERS; i++)
		totals->counters[i] += cluster->counters[i];
	totals->lies += cluster->lies;
	for (uint32_t i = 0; i < LIES_PROVED; i++)
		totals->lies_proved += cluster->lies_proved[i];
	for (uint32_t i = 0; i < MISDEEDS; i++)
		totals->misdeeds[i] += cluster->misdeeds[i];
	totals->with_clients += s->clients != 0;
	for (uint32_t i = 0; i < CLIENTS_COUNTS; i++)
		totals->clients[i] += cluster->clients_done[i];
}

void totals_sum(struct totals *all, const struct totals *one)
{
	uint64_t *to = (uint64_t *)all;
	const uint64_t *from = (const uint64_t *)one;

	for (size_t i = 0; i < offsetof(struct totals, took_s) / sizeof(*to); i++)
		to[i] += from[i];
	all->took_s += one->took_s;
}

static void row(FILE *out, const char *name, uint64_t seeds, uint64_t hits)
{
	if (seeds)
		fprintf(out, "%-34s %10llu %14llu\n", name, (unsigned long long)seeds,
			(unsigned long long)hits);
}

void totals_report(FILE *out, const struct totals *totals)
{
	const uint64_t *n = totals->counters;

	fprintf(out, "%-34s %10s %14s\n", "fault", "seeds", "times it hit");
	for (uint32_t i = 0; i < FAULT_KINDS; i++)
		row(out, scenario_fault_name(i), totals->with_fault[i], totals->hits[i]);
	fprintf(out, "among the losses and duplications\n");
	for (uint32_t i = SPECIAL_NONE + 1; i < SPECIALS; i++)
		row(out, scenario_special_name(i), totals->with_special[i],
		    totals->special_hits[i]);
	fprintf(out,
		"%llu seeds, none failed: %llu operations in %llu attempts, %llu frames, %llu "
		"rounds; %llu frames found lost, %llu epochs broken, %llu stalls\n",
		(unsigned long long)totals->seeds, (unsigned long long)totals->ops,
		(unsigned long long)totals->attempts, (unsigned long long)n[CAREFUL_C_TX_FRAMES],
		(unsigned long long)totals->polls, (unsigned long long)n[CAREFUL_C_LOST_FRAMES],
		(unsigned long long)n[CAREFUL_C_EPOCHS_BROKEN],
		(unsigned long long)n[CAREFUL_C_STALLS]);
	if (n[CAREFUL_C_GRANTED])
		fprintf(out, "%llu buffers granted, %llu epochs ended for a grant that lay idle\n",
			(unsigned long long)n[CAREFUL_C_GRANTED],
			(unsigned long long)n[CAREFUL_C_GRANTS_ENDED]);
	if (n[CAREFUL_C_ACKS_SENT])
		fprintf(out,
			"%llu frames sent again, %llu came twice, %llu dropped for want of room, "
			"%llu acknowledgements, %llu times out\n",
			(unsigned long long)n[CAREFUL_C_SENT_AGAIN],
			(unsigned long long)n[CAREFUL_C_DROP_TWICE],
			(unsigned long long)n[CAREFUL_C_DROP_SHARE],
			(unsigned long long)n[CAREFUL_C_ACKS_SENT],
			(unsigned long long)n[CAREFUL_C_TIMED_OUT]);
	if (totals->with_clients)
		fprintf(out,
			"%llu seeds with programs that flood: %llu questions, %llu ends of handles, "
			"%llu tasks, %llu beside them, %llu refused; %llu programs killed\n",
			(unsigned long long)totals->with_clients,
			(unsigned long long)totals->clients[CLIENTS_ASKED],
			(unsigned long long)totals->clients[CLIENTS_ENDS],
			(unsigned long long)totals->clients[CLIENTS_TASKS],
			(unsigned long long)totals->clients[CLIENTS_BESIDE],
			(unsigned long long)totals->clients[CLIENTS_REFUSED],
			(unsigned long long)totals->clients[CLIENTS_KILLED]);
	if (totals->lies)
		fprintf(out, "%llu lies, %llu of them proved by keys\n",
			(unsigned long long)totals->lies, (unsigned long long)totals->lies_proved);
	for (uint32_t i = 0; totals->lies && i < MISDEEDS; i++)
		fprintf(out, "%s%llu %s", i ? ", " : "", (unsigned long long)totals->misdeeds[i],
			misdeeds_name(i));
	if (totals->lies)
		fprintf(out, "\n");
	fprintf(out, "%.1f s of processor time, %.0f seeds a second and core\n", totals->took_s,
		(double)totals->seeds / totals->took_s);
}

void report_command(const struct range *range, uint64_t seed, const struct cut *cut)
{
	FILE *out = range->out;

	fprintf(out, "  %s --seed %llu%s%s", range->program, (unsigned long long)seed,
		range->faults ? "" : " --no-faults",
		range->protocol ? " --protocol traditional" : "");
	fprintf(out, "%s%s", range->hostile ? " --hostile" : "",
		range->unpacked ? " --unpacked" : "");
	for (uint32_t i = 0; i < OPS_MAX; i++)
		if (cut->ops_left_out >> i & 1)
			fprintf(out, " --without-op %u", i);
	for (uint32_t i = 0; i < FAULTS_MAX; i++) {
		if (cut->faults_left_out >> i & 1)
			fprintf(out, " --without-fault %u", i);
		if (!cut->only_hits[i] || (cut->faults_left_out >> i & 1))
			continue;
		fprintf(out, " --hits %u:", i);
		for (uint32_t k = 0; k < cut->hits_count[i]; k++)
			fprintf(out, "%s%u", k ? "," : "", cut->hits[i][k]);
	}
	fprintf(out, "\n");
}

/* Reads a number without a sign or leading blank. */
static bool parse_number(const char **text, uint32_t *value)
{
	char *end;

	if (!isdigit((unsigned char)**text))
		return false;
	*value = (uint32_t)strtoul(*text, &end, 10);
	*text = end;
	return true;
}

bool parse_hits(struct cut *cut, const char *text)
{
	uint32_t fault;

	if (!parse_number(&text, &fault) || fault >= FAULTS_MAX || *text++ != ':')
		return false;
	cut->only_hits[fault] = true;
	cut->hits_count[fault] = 0;
	if (!*text)
		return true;
	for (;;) {
		uint32_t n = cut->hits_count[fault]++;

		if (n == HITS_MAX || !parse_number(&text, &cut->hits[fault][n]))
			return false;
		if (!*text)
			return true;
		if (*text++ != ',')
			return false;
	}
}

static const char *port_name(uint8_t port)
{
	static char names[4][8];
	static uint32_t next;
	char *name = names[next++ % 4];

	if (port == SIM_ANY)
		return "any";
	snprintf(name, sizeof(names[0]), "%u", port);
	return name;
}

void report_scenario(FILE *out, const struct scenario *s)
{
	static const char *const kinds[OP_KINDS] = { "request", "store", "get" };

	fprintf(out, "  %u nodes, windows of %u buffers of %u bytes, frames up to %u bytes\n",
		s->nodes, s->options.rx_buffers / s->options.peers, s->shape.buffer_bytes,
		s->shape.frame_bytes);
	if (s->clients)
		fprintf(out, "  programs at node 0 flood it with questions to node 1\n");
	if (s->group)
		fprintf(out, "  a group of events among all nodes\n");
	for (uint32_t i = 0; i < s->ops_count; i++)
		if (!(s->ops_left_out >> i & 1))
			fprintf(out,
				"  operation %u: %s of %u bytes from node %u at node %u, at %.3f ms\n",
				i, kinds[s->ops[i].kind], s->ops[i].bytes, s->ops[i].from,
				s->ops[i].to, (double)s->ops[i].at_ns * 1e-6 - 1000);
	for (uint32_t i = 0; i < s->faults_count; i++) {
		const struct sim_fault *f = &s->faults[i];

		fprintf(out,
			"  fault %u: %s, %s to %s, of kinds %#x, one in %u, amount %llu, %.3f to "
			"%.3f ms, %u hits\n",
			f->id, scenario_fault_name(f->kind), port_name(f->from), port_name(f->to),
			f->what, f->one_in, (unsigned long long)f->amount,
			(double)f->at_ns * 1e-6 - 1000, (double)f->until_ns * 1e-6 - 1000, f->hits);
	}
}
