// SPDX-License-Identifier: BSD-2-Clause
/*
 * Sends requests and block fetches from its own instance to a carefuld. Prints JSON with the P50
 * and P99 of 8 KiB fetches, and the rate of a whole file.
 *
 *   fetch IFNAME HOST PATH LOCAL FETCHES
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "clock.h"
#include "block_client.h"

enum { BLOCK = 8192, CHUNK = 1 << 20, DEPTH = 8 };

static int fetches(struct careful *c, const struct remote_file *file, uint32_t n, uint64_t *ns)
{
	static uint8_t block[BLOCK];
	struct careful_span span = { .base = block, .fd = -1 };
	uint64_t blocks = file->bytes / BLOCK;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t start = clock_now_ns();
		int rc = remote_file_get(c, file, i % blocks * BLOCK, &span, BLOCK, 0);

		if (rc)
			return rc;
		ns[i] = clock_now_ns() - start;
	}
	return 0;
}

static uint32_t under_way;
static int failed;

static void on_chunk(const struct careful_result *result, void *user)
{
	(void)user;
	under_way--;
	if (result->status)
		failed = result->status;
}

static int whole(struct careful *c, const struct remote_file *file, int fd)
{
	for (uint64_t at = 0; (at < file->bytes || under_way) && !failed;) {
		while (at < file->bytes && under_way < DEPTH) {
			uint64_t rest = file->bytes - at;
			uint32_t bytes = rest < CHUNK ? (uint32_t)rest : CHUNK;
			struct careful_span span = { .fd = fd, .offset = at };
			int rc = careful_get(c, file->peer, file->handle, at, &span, bytes, 0,
					     on_chunk, NULL);

			if (rc)
				return rc;
			under_way++;
			at += bytes;
		}
		careful_wait(c, 100, -1);
	}
	return failed;
}

static int run(struct careful *c, int peer, char **argv, uint32_t n)
{
	struct remote_file file;
	uint64_t *ns = calloc(n, sizeof(*ns));
	uint64_t start, spent;
	int fd, rc;

	rc = remote_file_open(c, (uint32_t)peer, argv[3], &file);
	if (rc)
		return rc;
	rc = fetches(c, &file, n, ns);
	if (rc)
		return rc;
	fd = open(argv[4], O_CREAT | O_TRUNC | O_WRONLY, 0644);
	if (fd < 0)
		return -errno;
	start = clock_now_ns();
	rc = whole(c, &file, fd);
	spent = clock_now_ns() - start;
	close(fd);
	if (!rc) {
		printf("{\"schema\": 1, \"fetch_8KiB_p50_us\": %.2f, \"fetch_8KiB_p99_us\": %.2f, "
		       "\"file_bytes\": %llu, \"file_s\": %.4f, \"file_Gbit_per_s\": %.3f",
		       clock_quantile(ns, n, 50) / 1e3, clock_quantile(ns, n, 99) / 1e3,
		       (unsigned long long)file.bytes, (double)spent / 1e9,
		       (double)file.bytes * 8 / (double)spent);
		clock_print_xdp(c);
		printf("}\n");
	}
	free(ns);
	return rc ? rc : remote_file_close(c, &file, NULL);
}

int main(int argc, char **argv)
{
	struct careful_options options = { .wait_mode = CAREFUL_WAIT_SPIN };
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct careful_error error;
	struct careful *c;
	int rc, peer;

	if (argc != 6 || inet_pton(AF_INET, argv[2], &to.sin_addr) != 1) {
		fprintf(stderr, "usage: fetch IFNAME HOST PATH LOCAL FETCHES\n");
		return 2;
	}
	options.ifname = argv[1];
	options.instance = getenv("CAREFUL_INSTANCE");
	options.xdp_mode = clock_xdp_mode();
	rc = careful_open(&options, &c, &error);
	if (rc) {
		fprintf(stderr, "fetch: %s\n", error.text);
		return 1;
	}
	peer = careful_peer(c, (struct sockaddr *)&to, sizeof(to));
	rc = peer < 0 ? peer : run(c, peer, argv, (uint32_t)atoi(argv[5]));
	if (rc)
		fprintf(stderr, "fetch: %s\n", strerror(-rc));
	careful_close(c);
	return rc ? 1 : 0;
}
