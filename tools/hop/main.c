/* SPDX-License-Identifier: BSD-2-Clause */
/* careful-hop: an emulated link between two interfaces of this network namespace, equal in both
 * directions, or between the cards of two emulated machines ("card:PATH"). Owns the sockets and the
 * clock; way.c owns the link. SIGUSR1 writes the report, SIGUSR2 resets the figures and starts the
 * rates again. */
#include "card.h"
#include "way.h"

#include <errno.h>
#include <getopt.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <careful/wire.h>

enum {
	FRAME_BYTES_MAX = 65536 + ETH_HLEN,
	SOCKET_BYTES = 8 << 20,
	BATCH = 64, /* most frames from one end before the other end's turn */
};

/* Shortly before a frame is due, the clock is read in a loop: a timer alone wakes too late. */
static const uint64_t SPIN_NS = 60000;

struct hop {
	struct hop_config config;
	struct hop_way ways[2]; /* from end 0 to end 1, and back */
	int sockets[2];
	bool by_cards; /* the ends are cards, else sockets */
	struct card cards[2];
	const char *report_path;
	bool logs; /* prints a line for each frame: its way, arrival, end of service, and bytes */
	unsigned long reports;
	uint8_t frame[FRAME_BYTES_MAX];
};

static volatile sig_atomic_t asked_end, asked_report, asked_reset;

static void on_signal(int number)
{
	if (number == SIGUSR1)
		asked_report = 1;
	else if (number == SIGUSR2)
		asked_reset = 1;
	else
		asked_end = 1;
}

static uint64_t clock_now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "careful-hop: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int end_open(const char *ifname)
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	int s, on = 1, bytes = SOCKET_BYTES;

	at.sll_ifindex = (int)if_nametoindex(ifname);
	if (!at.sll_ifindex)
		die(ifname);
	s = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (s < 0)
		die("packet socket");
	/* Otherwise we would receive the frames that we send. */
	if (setsockopt(s, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) ||
	    setsockopt(s, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)) ||
	    setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) ||
	    setsockopt(s, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) ||
	    bind(s, (struct sockaddr *)&at, sizeof(at)))
		die(ifname);
	return s;
}

static void ends_open(struct hop *hop, const char *const names[2])
{
	static const char CARD[] = "card:";

	hop->by_cards = !strncmp(names[0], CARD, strlen(CARD));
	for (int end = 0; end < 2; end++) {
		if (!hop->by_cards)
			hop->sockets[end] = end_open(names[end]);
		else if (card_open(&hop->cards[end], names[end] + strlen(CARD)))
			die(names[end]);
	}
}

/* Returns when the kernel received a message, by the monotonic clock. */
static uint64_t arrival_ns(struct msghdr *msg)
{
	uint64_t now = clock_now(CLOCK_MONOTONIC), wall = clock_now(CLOCK_REALTIME);

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		struct timespec t;
		uint64_t stamp;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS)
			continue;
		memcpy(&t, CMSG_DATA(c), sizeof(t));
		stamp = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
		/* The time is useless if the wall clock was just set. */
		if (stamp <= wall && wall - stamp < 1000000000)
			return now - (wall - stamp);
	}
	return now;
}

/* Takes the frames that arrived at an end. Returns their count. */
static int receive(struct hop *hop, int end)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(struct timespec))];
	} control;
	int count = 0;

	for (; count < BATCH; count++) {
		struct iovec io = { hop->frame, sizeof(hop->frame) };
		struct msghdr msg = { .msg_iov = &io,
				      .msg_iovlen = 1,
				      .msg_control = &control,
				      .msg_controllen = sizeof(control) };
		ssize_t n = recvmsg(hop->sockets[end], &msg, 0);

		if (n < 0) {
			if (errno != EAGAIN && errno != EINTR && errno != ENETDOWN)
				die("receiving");
			break;
		}
		if (hop_arrive(&hop->ways[end], hop->frame, (uint32_t)n, arrival_ns(&msg)) < 0)
			die("a frame");
	}
	return count;
}

/* Takes a card's frame if the link is free, and completes the one that has left. */
static void serve(struct hop *hop, int end)
{
	struct hop_way *way = &hop->ways[end];
	struct card *card = &hop->cards[end];
	uint64_t now = clock_now(CLOCK_MONOTONIC);
	uint32_t bytes;

	if (card->head >= 0 && way->busy_ns <= now)
		card_sent(card);
	bytes = card_take(card, hop->frame, sizeof(hop->frame));
	if (bytes && hop_arrive(way, hop->frame, bytes, now) < 0)
		die("a frame");
}

static bool pass_on(struct hop *hop, int end, const struct hop_frame *frame)
{
	if (hop->by_cards)
		return card_give(&hop->cards[!end], frame->data, frame->bytes);
	return send(hop->sockets[!end], frame->data, frame->bytes, 0) >= 0;
}

static void deliver(struct hop *hop, int end)
{
	struct hop_way *way = &hop->ways[end];
	const struct hop_frame *head;

	while ((head = hop_peek(way)) && head->due_ns <= clock_now(CLOCK_MONOTONIC)) {
		struct hop_frame *frame = hop_next(way);
		/* A frame that the interface refuses is lost, like on a link that goes down. */
		uint64_t now = clock_now(CLOCK_MONOTONIC);

		if (!pass_on(hop, end, frame))
			way->lost++;
		if (hop->logs)
			printf("%d %llu %llu %u\n", end, (unsigned long long)frame->arrived_ns,
			       (unsigned long long)(frame->due_ns - way->config->delay_ns),
			       frame->charged);
		hop_left(way, frame, now, clock_now(CLOCK_MONOTONIC));
	}
}

static void report(struct hop *hop)
{
	char path[4096];
	FILE *out;

	snprintf(path, sizeof(path), "%s.new", hop->report_path);
	out = fopen(path, "we");
	if (!out)
		die(path);
	fprintf(out, "{\"report\": %lu, \"pid\": %d, \"ways\": [", ++hop->reports, getpid());
	hop_report(&hop->ways[0], "forward", out);
	fprintf(out, ", ");
	hop_report(&hop->ways[1], "back", out);
	fprintf(out, "]}\n");
	if (fclose(out) || rename(path, hop->report_path))
		die(hop->report_path);
}

/* Waits for a frame, for the next frame's time, or for a signal. */
static void wait_for_work(struct hop *hop, const sigset_t *unblocked)
{
	struct pollfd ends[2 * CARD_FDS] = { { .fd = hop->sockets[0], .events = POLLIN },
					     { .fd = hop->sockets[1], .events = POLLIN } };
	nfds_t count = hop->by_cards ? 2 * CARD_FDS : 2;
	uint64_t due = UINT64_MAX, now = clock_now(CLOCK_MONOTONIC);
	struct timespec t = { 0, 0 };

	for (int end = 0; end < 2; end++) {
		const struct hop_frame *head = hop_peek(&hop->ways[end]);

		if (head && head->due_ns < due)
			due = head->due_ns;
		if (!hop->by_cards)
			continue;
		card_wait(&hop->cards[end], &ends[end * CARD_FDS]);
		if (hop->cards[end].head >= 0 && hop->ways[end].busy_ns < due)
			due = hop->ways[end].busy_ns;
	}
	if (due != UINT64_MAX) {
		uint64_t ns = due > now + SPIN_NS ? due - now - SPIN_NS : 0;

		t = (struct timespec){ (time_t)(ns / 1000000000), (long)(ns % 1000000000) };
	}
	if (ppoll(ends, count, due == UINT64_MAX ? NULL : &t, unblocked) < 0) {
		if (errno != EINTR)
			die("waiting");
		return;
	}
	for (int end = 0; end < 2 && hop->by_cards; end++) {
		if (ends[end * CARD_FDS].revents && card_attend(&hop->cards[end]))
			asked_end = 1; /* the machine has ended */
	}
}

static void run(struct hop *hop)
{
	sigset_t blocked, unblocked;

	sigemptyset(&blocked);
	for (const int *number = (const int[]){ SIGTERM, SIGINT, SIGUSR1, SIGUSR2, 0 }; *number;
	     number++) {
		sigaddset(&blocked, *number);
		signal(*number, on_signal);
	}
	sigprocmask(SIG_BLOCK, &blocked, &unblocked);
	report(hop); /* says that we are ready */
	while (!asked_end) {
		if (asked_reset) {
			asked_reset = 0;
			for (int end = 0; end < 2; end++)
				hop_way_reset(&hop->ways[end], clock_now(CLOCK_MONOTONIC));
			report(hop);
		}
		if (asked_report) {
			asked_report = 0;
			report(hop);
		}
		wait_for_work(hop, &unblocked);
		for (int end = 0; end < 2; end++) {
			if (!hop->by_cards)
				receive(hop, end);
			else
				serve(hop, end);
			deliver(hop, end);
		}
	}
}

static double number(const char *text, double least, double most)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= least && value <= most)) {
		fprintf(stderr, "careful-hop: %s: not a number from %g to %g\n", text, least, most);
		exit(2);
	}
	return value;
}

/* "AT_NS,G_NS,G_NS_PER_BYTE" */
static void add_rate(struct hop_config *config, char *text)
{
	double found[3] = { 0, 0, 0 };
	char *rest = text;

	if (config->rates_count == HOP_RATES_MAX) {
		fprintf(stderr, "careful-hop: more than %d rates\n", HOP_RATES_MAX);
		exit(2);
	}
	for (int i = 0; i < 3; i++) {
		char *word = strsep(&rest, ",");

		found[i] = number(word ? word : "", 0, 1e15);
	}
	config->rates[config->rates_count++] =
		(struct hop_rate){ (uint64_t)found[0], found[1], found[2] };
}

enum option_id {
	OPT_ENDS = 1,
	OPT_REPORT,
	OPT_RATE,
	OPT_CHARGE,
	OPT_DELAY,
	OPT_QUEUE,
	OPT_EAGER,
	OPT_LOSS,
	OPT_DUPLICATE,
	OPT_REORDER,
	OPT_REORDER_BY,
	OPT_CORRUPT,
	OPT_SEED,
	OPT_LOG,
};

static const struct option OPTIONS[] = {
	{ "ends", required_argument, NULL, OPT_ENDS },
	{ "report", required_argument, NULL, OPT_REPORT },
	{ "rate", required_argument, NULL, OPT_RATE },
	{ "charge", required_argument, NULL, OPT_CHARGE },
	{ "delay-ns", required_argument, NULL, OPT_DELAY },
	{ "queue-frames", required_argument, NULL, OPT_QUEUE },
	{ "eager", required_argument, NULL, OPT_EAGER },
	{ "loss", required_argument, NULL, OPT_LOSS },
	{ "duplicate", required_argument, NULL, OPT_DUPLICATE },
	{ "reorder", required_argument, NULL, OPT_REORDER },
	{ "reorder-ns", required_argument, NULL, OPT_REORDER_BY },
	{ "corrupt", required_argument, NULL, OPT_CORRUPT },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "log", no_argument, NULL, OPT_LOG },
	{ NULL, 0, NULL, 0 },
};

static void set_option(struct hop_config *config, int option, char *text)
{
	switch (option) {
	case OPT_RATE:
		add_rate(config, text);
		break;
	case OPT_CHARGE:
		config->payload_only = !strcmp(text, "payload");
		break;
	case OPT_DELAY:
		config->delay_ns = (uint64_t)number(text, 0, 1e15);
		break;
	case OPT_QUEUE:
		config->queue_frames = (uint32_t)number(text, 1, 1e6);
		break;
	case OPT_EAGER:
		config->eager = number(text, 0, 1) > 0;
		break;
	case OPT_LOSS:
		config->loss = number(text, 0, 1);
		break;
	case OPT_DUPLICATE:
		config->duplicate = number(text, 0, 1);
		break;
	case OPT_REORDER:
		config->reorder = number(text, 0, 1);
		break;
	case OPT_REORDER_BY:
		config->reorder_ns = (uint64_t)number(text, 0, 1e15);
		break;
	case OPT_CORRUPT:
		config->corrupt = number(text, 0, 1);
		break;
	case OPT_SEED:
		config->seed = (uint64_t)number(text, 0, 1e15);
		break;
	default:
		exit(2);
	}
}

int main(int argc, char **argv)
{
	static struct hop hop = { .config = { .queue_frames = 1000,
					      .careful_port = CAREFUL_PORT_DEFAULT } };
	const struct sched_param realtime = { .sched_priority = 10 };
	char *ends = NULL, *first;
	int option;

	while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
		if (option == OPT_ENDS)
			ends = optarg;
		else if (option == OPT_REPORT)
			hop.report_path = optarg;
		else if (option == OPT_LOG)
			hop.logs = true;
		else
			set_option(&hop.config, option, optarg);
	}
	if (!ends || !hop.report_path || !hop.config.rates_count) {
		fprintf(stderr,
			"usage: careful-hop --ends A,B --report FILE --rate 0,G_NS,G_NS_PER_BYTE"
			" …\n");
		return 2;
	}
	first = strsep(&ends, ",");
	ends_open(&hop, (const char *[2]){ first, ends ? ends : "" });
	for (uint64_t end = 0; end < 2; end++) {
		if (hop_way_init(&hop.ways[end], &hop.config, end, clock_now(CLOCK_MONOTONIC)))
			die("queue");
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* Real-time priority keeps frames on time; without the right to it, the report shows
	 * lateness. */
	prctl(PR_SET_TIMERSLACK, 1);
	sched_setscheduler(0, SCHED_FIFO, &realtime);
	run(&hop);
	report(&hop);
	for (int end = 0; end < 2; end++) {
		hop_way_deinit(&hop.ways[end]);
		if (!hop.by_cards)
			close(hop.sockets[end]);
	}
	return 0;
}
