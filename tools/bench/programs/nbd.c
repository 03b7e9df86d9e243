// SPDX-License-Identifier: BSD-2-Clause
/*
 * Reads 8 KiB over NBD, one read at a time. Prints JSON with P50 and P99, to compare with block
 * fetches.
 *
 *   nbd URI [READS]
 */
#include <libnbd.h>
#include <stdio.h>

#include "clock.h"

enum { BLOCK = 8192, WARMUP = 500 };

int main(int argc, char **argv)
{
	static uint8_t block[BLOCK];
	struct nbd_handle *nbd = nbd_create();
	uint32_t count = argc > 2 ? (uint32_t)atoi(argv[2]) : 10000;
	uint64_t *ns = calloc(count, sizeof(*ns));
	uint64_t blocks;

	if (argc < 2 || !nbd || !ns) {
		fprintf(stderr, "usage: nbd URI [READS]\n");
		return 2;
	}
	if (nbd_connect_uri(nbd, argv[1])) {
		fprintf(stderr, "nbd: %s\n", nbd_get_error());
		return 1;
	}
	blocks = (uint64_t)nbd_get_size(nbd) / BLOCK;
	for (uint32_t i = 0; i < count + WARMUP; i++) {
		uint64_t start = clock_ns();

		if (nbd_pread(nbd, block, BLOCK, i % blocks * BLOCK, 0)) {
			fprintf(stderr, "nbd: %s\n", nbd_get_error());
			return 1;
		}
		if (i >= WARMUP)
			ns[i - WARMUP] = clock_ns() - start;
	}
	printf("{\"schema\": 1, \"read_bytes\": %d, \"count\": %u, \"p50_us\": %.3f, "
	       "\"p99_us\": %.3f}\n",
	       BLOCK, count, clock_quantile(ns, count, 50) / 1e3,
	       clock_quantile(ns, count, 99) / 1e3);
	nbd_shutdown(nbd, 0);
	nbd_close(nbd);
	free(ns);
	return 0;
}
