// SPDX-License-Identifier: BSD-2-Clause
/*
 * careful-p2: a node of P2's experiments, for `carefulctl bench`; one on each host.
 *
 *   careful-p2 IFACE RANK careful|traditional|replicated adaptive|spin|block SEND-BUFFERS HOST…
 *
 * "replicated" is careful, but a broadcast is one frame for each node, like traditional. HOST: IPv4
 * addresses of all nodes, by rank. The node prints a line when the group is open. Then it reads
 * experiments, a line each and the same at every node, and prints their cost:
 *
 *   latency|throughput|flood WORDS COUNT FRAGMENTS PROCESSING LIMIT-MS
 *   jacobi SIZE ITERATIONS 1 0 LIMIT-MS
 *
 * All nodes begin an experiment together. The node ends with its input. Each line of output is
 * JSON; a line with "error" is the last.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "jacobi.h"
#include "p2.h"

enum {
	GIVE_UP_MS = 30000,
	IDLE_MS = 20,
	WORDS_MAX = 1 << 16,
	JACOBI = 3, /* an experiment, after P2_FLOOD */
	LINE_BYTES = 256,
	RX_BUFFERS = 128, /* like P2's adapter (section 5.3) */
	COPYOUT_BUFFERS = 4096, /* all messages of a flood at one node */
};

/* @base: number of the next experiment's first event; @line: @bytes of input so far */
struct node {
	struct careful *c;
	struct careful_events *ev;
	uint32_t rank, nodes;
	bool replicate;
	uint64_t base;
	char line[LINE_BYTES];
	uint32_t bytes;
	uint32_t words[WORDS_MAX];
};

/* Prints an error. Returns the exit status. */
static int fail(const char *what, const char *why)
{
	/* The text contains no quote. */
	printf("{\"error\": \"%s: %s\"}\n", what, why);
	return 1;
}

static int failed(const char *what, int rc)
{
	return fail(what, strerror(-rc));
}

static uint32_t number(const char *text, uint32_t most)
{
	char *end;
	unsigned long value = text ? strtoul(text, &end, 10) : 0;

	if (!text || !*text || *end || value > most)
		exit(fail(text ? text : "a number", strerror(EINVAL)));
	return (uint32_t)value;
}

static uint32_t one_of(const char *text, const char *const *names, uint32_t count)
{
	for (uint32_t i = 0; text && i < count; i++)
		if (!strcmp(text, names[i]))
			return i;
	exit(fail(text ? text : "a word", strerror(EINVAL)));
}

/* Opens the session with a host that may not be up yet. Returns -errno on failure. */
static int connect_to(struct careful *c, const char *host)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	uint64_t end = clock_in_ms(GIVE_UP_MS);
	struct careful_peer_info info = { 0 };
	int peer, rc;

	if (inet_pton(AF_INET, host, &to.sin_addr) != 1)
		return -EINVAL;
	while (clock_now_ns() < end) {
		peer = careful_peer(c, (struct sockaddr *)&to, sizeof(to));
		if (peer < 0)
			return peer;
		rc = careful_wait(c, IDLE_MS, -1);
		if (rc < 0)
			return rc;
		rc = careful_peer_info(c, (uint32_t)peer, &info);
		if (!rc && info.state == CAREFUL_PEER_UP)
			return peer;
		if (!rc && info.state == CAREFUL_PEER_FAILED && info.last_errno == EPROTOTYPE)
			return -EPROTOTYPE;
	}
	return -ETIMEDOUT;
}

/* The cost of an experiment: time, and CPU time of this process and of the kernel for it, which
 * moves frames between veth devices. */
struct cost {
	uint64_t took_ns, user_us, system_us;
};

static uint64_t us_of(const struct timeval *t)
{
	return (uint64_t)t->tv_sec * 1000000 + (uint64_t)t->tv_usec;
}

/* Runs a program and adds its cost. -ETIME: it did not end within the limit. */
static int drive(struct node *n, int (*step)(void *part), void *part, uint32_t limit_ms,
		 struct cost *cost)
{
	uint64_t began_ns = clock_now_ns(), end_ns = clock_in_ms(limit_ms);
	struct rusage before, after;
	int rc;

	getrusage(RUSAGE_SELF, &before);

	while ((rc = step(part)) == -EAGAIN) {
		rc = careful_wait(n->c, IDLE_MS, -1);
		if (rc < 0)
			return rc;
		if (clock_now_ns() > end_ns)
			return -ETIME;
	}
	cost->took_ns += clock_now_ns() - began_ns;
	getrusage(RUSAGE_SELF, &after);
	cost->user_us += us_of(&after.ru_utime) - us_of(&before.ru_utime);
	cost->system_us += us_of(&after.ru_stime) - us_of(&before.ru_stime);
	return rc;
}

static int step_p2(void *part)
{
	return p2_step(part);
}

static int step_jacobi(void *part)
{
	return jacobi_step(part);
}

static int run_program(struct node *n, const struct p2_setup *setup, uint32_t limit_ms,
		       struct cost *cost)
{
	struct p2 p;
	int rc;

	p2_begin(&p, setup, n->ev, n->rank, n->nodes, n->base);
	p.words = n->words;
	rc = drive(n, step_p2, &p, limit_ms, cost);
	n->base += p2_events(setup, n->nodes);
	return rc;
}

/* Waits until all nodes have reached this point. */
static int meet(struct node *n, uint32_t limit_ms, struct cost *cost)
{
	static const struct p2_setup all = { .kind = P2_MEET, .count = 1 };

	return n->nodes > 1 ? run_program(n, &all, limit_ms, cost) : 0;
}

static void print_cost(const struct cost *cost, int frames, double sum)
{
	printf("{\"took_ns\": %llu, \"user_us\": %llu, \"system_us\": %llu, \"frames\": %d, "
	       "\"sum\": %.17g}\n",
	       (unsigned long long)cost->took_ns, (unsigned long long)cost->user_us,
	       (unsigned long long)cost->system_us, frames, sum);
}

/* Prints the reason why the group failed. */
static int group_failed(struct node *n, int rc)
{
	uint32_t rank = n->rank;
	char name[48];

	if (rc == -ETIME)
		return fail("did not end in time", "limit");
	careful_events_failed(n->ev, &rank);
	snprintf(name, sizeof(name), "node %u", rank);
	return failed(name, rc);
}

/* Runs an experiment of Tables 1 to 3. */
static int run_table(struct node *n, const struct p2_setup *setup, uint32_t limit_ms)
{
	struct cost before = { 0 }, cost = { 0 };
	int rc = meet(n, limit_ms, &before);

	if (!rc)
		rc = run_program(n, setup, limit_ms, &cost);
	/* Like in P2, the last node tells the first that all has arrived. */
	if (!rc && setup->kind == P2_THROUGHPUT)
		rc = meet(n, limit_ms, &cost);
	if (rc)
		return group_failed(n, rc);
	print_cost(&cost, p2_frames(n->ev, setup), 0);
	return 0;
}

/* Runs the experiment of Table 4, and compares the result with that of one node. */
static int run_jacobi(struct node *n, uint32_t size, uint32_t iterations, uint32_t limit_ms)
{
	struct cost before = { 0 }, cost = { 0 };
	struct p2_setup setup = { 0 };
	struct jacobi j;
	int rc = jacobi_begin(&j, n->ev, n->rank, n->nodes, size, iterations, n->base);

	if (!rc)
		rc = meet(n, limit_ms, &before);
	j.base = n->base; /* after meet(), which uses an event */
	n->base += 2ull * iterations;
	if (!rc)
		rc = drive(n, step_jacobi, &j, limit_ms, &cost);
	int wrong = rc ? 0 : jacobi_wrong(&j);
	double sum = rc ? 0 : jacobi_sum(&j);

	jacobi_end(&j);
	if (rc)
		return group_failed(n, rc);
	if (wrong)
		return fail("jacobi", "the result is not that of one node");
	setup.words = (size + 2) * sizeof(double) / 4; /* a row */
	print_cost(&cost, n->nodes > 1 ? p2_frames(n->ev, &setup) : 0, sum);
	return 0;
}

/* Runs the experiment that a line names. */
static int experiment(struct node *n, char *line)
{
	static const char *const kinds[] = { "latency", "throughput", "flood", "jacobi" };
	char *rest = NULL;
	uint32_t kind = one_of(strtok_r(line, " ", &rest), kinds, 4);
	struct p2_setup setup = { .kind = (enum p2_kind)kind };
	uint32_t limit_ms;

	setup.words = number(strtok_r(NULL, " ", &rest), WORDS_MAX);
	setup.count = number(strtok_r(NULL, " ", &rest), UINT32_MAX);
	setup.fragments = number(strtok_r(NULL, " ", &rest), UINT16_MAX);
	setup.processing = number(strtok_r(NULL, " ", &rest), 1);
	limit_ms = number(strtok_r(NULL, " ", &rest), UINT32_MAX);
	if (kind == JACOBI)
		return run_jacobi(n, setup.words, setup.count, limit_ms);
	return run_table(n, &setup, limit_ms);
}

/* Returns the next line, and polls meanwhile. NULL: *rc is -errno, or 0 at the end of the input. */
static char *next_line(struct node *n, int *rc)
{
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
	static char line[LINE_BYTES];
	char *end;
	ssize_t got;

	while (!(end = memchr(n->line, '\n', n->bytes))) {
		*rc = careful_wait(n->c, 1000, STDIN_FILENO);
		if (*rc >= 0)
			*rc = careful_events_failed(n->ev, NULL);
		if (*rc < 0)
			return NULL;
		if (poll(&input, 1, 0) <= 0)
			continue;
		got = read(STDIN_FILENO, n->line + n->bytes, LINE_BYTES - n->bytes);
		*rc = got < 0 ? -errno : 0;
		if (got <= 0)
			return NULL;
		n->bytes += (uint32_t)got;
	}
	*end++ = 0;
	memcpy(line, n->line, (size_t)(end - n->line));
	n->bytes -= (uint32_t)(end - n->line);
	memmove(n->line, end, n->bytes);
	return line;
}

static int serve(struct node *n)
{
	struct cost cost = { 0 };
	int rc = meet(n, GIVE_UP_MS, &cost);
	char *line;

	if (rc)
		return group_failed(n, rc);
	printf("{\"ready\": true, \"fragment_bytes\": %d}\n", careful_event_bytes(n->ev));
	while ((line = next_line(n, &rc)))
		if (experiment(n, line))
			return 1;
	return rc ? group_failed(n, rc) : 0;
}

static int join(struct node *n, char **hosts)
{
	uint32_t peers[CAREFUL_EVENT_NODES_MAX] = { 0 };
	struct careful_events_options group = {
		.nodes = n->nodes,
		.rank = n->rank,
		.replicate = n->replicate,
		.peers = peers,
	};

	for (uint32_t i = 0; i < n->nodes; i++) {
		int peer = i == n->rank ? 0 : connect_to(n->c, hosts[i]);

		if (peer < 0)
			return failed(hosts[i], peer);
		peers[i] = (uint32_t)peer;
	}
	int rc = careful_events_open(n->c, &group, &n->ev);

	return rc ? failed("the group", rc) : 0;
}

int main(int argc, char **argv)
{
	static const char *const protocols[] = { "careful", "traditional", "replicated" };
	static const char *const waits[] = { "adaptive", "spin", "block" };
	static struct node n;
	struct careful_options options = {
		.rx_buffers = RX_BUFFERS,
		.copyout_buffers = COPYOUT_BUFFERS,
		.repair = CAREFUL_REPAIR_OFF, /* P2's protocol keeps nothing of what it sent */
		.instance = getenv("CAREFUL_INSTANCE"), // NOLINT(concurrency-mt-unsafe)
	};
	struct careful_error error = { 0 };
	int status;

	if (argc < 7 || argc - 6 > (int)CAREFUL_EVENT_NODES_MAX) {
		fprintf(stderr, "careful-p2: `carefulctl bench` starts it\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	n.nodes = (uint32_t)argc - 6;
	n.rank = number(argv[2], n.nodes - 1);
	options.ifname = argv[1];
	options.peers = n.nodes > 1 ? n.nodes - 1 : 1;
	options.protocol = one_of(argv[3], protocols, 3);
	n.replicate = options.protocol == 2;
	options.protocol %= 2;
	options.wait_mode = one_of(argv[4], waits, 3);
	options.tx_buffers = number(argv[5], 1 << 16);
	if (careful_open(&options, &n.c, &error))
		return fail(argv[1], error.text);
	status = join(&n, argv + 6);
	if (!status)
		status = serve(&n);
	if (n.ev)
		careful_events_close(n.ev, status ? -ECANCELED : 0, status ? 0 : GIVE_UP_MS);
	careful_close(n.c);
	return status;
}
