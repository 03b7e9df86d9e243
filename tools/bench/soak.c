// SPDX-License-Identifier: BSD-2-Clause
/*
 * Endless traffic of every kind between two instances that own their queues, each
 * byte of it compared at its end: requests and replies, stores, gets.
 *
 *   soak serve IFNAME                 until a client says that it is done
 *   soak send IFNAME HOST FRAMES      until so many frames crossed, both ways counted
 *
 * `send` prints a JSON line a second, and at the end one with all counters; SIGINT and
 * SIGTERM end it as FRAMES does. `serve` prints its counters when it ends, by SIGTERM at
 * the latest. Status 1 if anything was lost, damaged, out of order or failed: the
 * counters come then, too, and standard error says what failed. Calls soak_serve.c,
 * soak_send.c.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "soak.h"

uint8_t pattern[BULK_BYTES + PHASES];

static void make_pattern(void)
{
	uint64_t x = 0x9e3779b97f4a7c15ull;

	for (uint32_t i = 0; i < sizeof(pattern); i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		pattern[i] = (uint8_t)(x >> 32);
	}
}

struct careful *engine;
volatile sig_atomic_t stopped;

static void on_signal(int number)
{
	(void)number;
	stopped = 1;
}

void say_ready(void)
{
	printf("{\"ready\": true}\n");
	fflush(stdout);
}

static const struct {
	const char *name;
	enum careful_counter counter;
} LOSSES[] = {
	{ "lost_frames", CAREFUL_C_LOST_FRAMES },
	{ "bad_credits", CAREFUL_C_BAD_CREDITS },
	{ "epochs_broken", CAREFUL_C_EPOCHS_BROKEN },
	{ "drop_malformed", CAREFUL_C_DROP_MALFORMED },
	{ "drop_check", CAREFUL_C_DROP_CHECK },
	{ "drop_cookie", CAREFUL_C_DROP_COOKIE },
	{ "drop_seq", CAREFUL_C_DROP_SEQ },
	{ "drop_crc", CAREFUL_C_DROP_CRC },
	{ "drop_message", CAREFUL_C_DROP_MESSAGE },
	{ "digest_bad", CAREFUL_C_DIGEST_BAD },
};

int say_counters(void)
{
	struct careful_info info;
	uint64_t lost = 0;

	careful_info(engine, &info);
	printf("{\"end\": true, \"tx_frames\": %llu, \"rx_frames\": %llu, "
	       "\"tx_updates\": %llu, \"tx_bytes\": %llu, \"rx_bytes\": %llu, "
	       "\"xdp_mode\": \"%s\", \"window_buffers\": %u, \"mtu_bytes\": %u",
	       (unsigned long long)info.counters[CAREFUL_C_TX_FRAMES],
	       (unsigned long long)info.counters[CAREFUL_C_RX_FRAMES],
	       (unsigned long long)info.counters[CAREFUL_C_TX_UPDATES],
	       (unsigned long long)info.counters[CAREFUL_C_TX_BYTES],
	       (unsigned long long)info.counters[CAREFUL_C_RX_BYTES],
	       info.device.xdp_mode == CAREFUL_XDP_NATIVE ? "native" : "generic", info.window,
	       info.device.mtu);
	for (size_t i = 0; i < sizeof(LOSSES) / sizeof(*LOSSES); i++) {
		lost += info.counters[LOSSES[i].counter];
		printf(", \"%s\": %llu", LOSSES[i].name,
		       (unsigned long long)info.counters[LOSSES[i].counter]);
	}
	const struct careful_device_statistics *s = &info.statistics;

	lost += s->rx_dropped + s->rx_ring_full + s->rx_fill_ring_empty + s->kicks_failed;
	printf(", \"device_rx_dropped\": %llu, \"device_rx_ring_full\": %llu, "
	       "\"device_rx_fill_ring_empty\": %llu, \"device_kicks_failed\": %llu}\n",
	       (unsigned long long)s->rx_dropped, (unsigned long long)s->rx_ring_full,
	       (unsigned long long)s->rx_fill_ring_empty, (unsigned long long)s->kicks_failed);
	fflush(stdout);
	return lost ? 1 : 0;
}

void fail(const char *what, int rc)
{
	fprintf(stderr, "soak: %s%s%s\n", what, rc ? ": " : "", rc ? strerror(-rc) : "");
	if (engine)
		say_counters();
	exit(1);
}

static int usage(void)
{
	fprintf(stderr, "usage: soak serve IFNAME\n"
			"       soak send IFNAME HOST FRAMES\n");
	return 2;
}

int main(int argc, char **argv)
{
	/* One peer: a window that the sender does not use up, so that fragments do not grow. */
	struct careful_options options = { .peers = 1 };
	struct sockaddr_in to = { .sin_family = AF_INET };
	int sends = argc == 5 && !strcmp(argv[1], "send");
	struct careful_error error;
	int rc, peer;

	if ((!sends && (argc != 3 || strcmp(argv[1], "serve") != 0)) ||
	    (sends && inet_pton(AF_INET, argv[3], &to.sin_addr) != 1))
		return usage();
	signal(SIGINT, sends ? on_signal : SIG_IGN);
	signal(SIGTERM, on_signal);
	make_pattern();
	options.ifname = argv[2];
	options.instance = getenv("CAREFUL_INSTANCE");
	options.xdp_mode = clock_xdp_mode();
	if (careful_open(&options, &engine, &error)) {
		fprintf(stderr, "soak: %s\n", error.text);
		return 1;
	}
	if (!sends) {
		rc = soak_serve();
	} else {
		peer = careful_peer(engine, (struct sockaddr *)&to, sizeof(to));
		if (peer < 0)
			fail("peer", peer);
		rc = soak_send((uint32_t)peer, strtoull(argv[4], NULL, 10));
	}
	careful_close(engine);
	return rc;
}
