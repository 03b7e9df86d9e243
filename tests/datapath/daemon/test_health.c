// SPDX-License-Identifier: BSD-2-Clause
/* Tests the log lines about peers and refusals: they are complete, and few. */
#include <stdlib.h>

#include "check.h"
#include "fake_careful.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/health.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/log.c" /* NOLINT(bugprone-suspicious-include) */

enum { STORM = 10000, READ = 1 << 16 };

static char path[] = "/tmp/test_health.XXXXXX";
static char said[READ];

/* Returns the number of lines with a text. */
static uint32_t lines(const char *text)
{
	ssize_t n;
	uint32_t found = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	n = read(fd, said, sizeof(said) - 1);
	CHECK(n >= 0 && n < READ - 1); /* a storm makes a small log */
	said[n] = 0;
	close(fd);
	for (const char *at = said; (at = strstr(at, text)); at++)
		found++;
	return found;
}

static void begin(void)
{
	CHECK_EQ(truncate(path, 0), 0);
	CHECK_EQ(log_open(path), 0);
}

/* A peer comes and goes without end; the log still reports another peer. */
static void test_peer__that_flaps_hides_no_other(void)
{
	static struct health health;
	struct careful *c = fake_create();

	begin();
	c->peers_state[0] = c->peers_state[1] = 1;
	for (uint32_t i = 0; i < STORM; i++)
		health_peer_changed(&health, c, 0, i % 2 ? CAREFUL_PEER_FAILED : CAREFUL_PEER_UP);
	health_peer_changed(&health, c, 1, CAREFUL_PEER_STALLED);
	CHECK(lines("peer 0 ") <= LOG_BURST + 2);
	CHECK_EQ(lines("peer 1 "), 1);
	fake_destroy(c);
}

/* The log names the address to use. */
static void test_peer__that_answers_from_elsewhere(void)
{
	static struct health health;
	struct careful *c = fake_create();

	begin();
	c->peers[0].state = CAREFUL_PEER_FAILED;
	c->peers[0].address.ss_family = AF_INET;
	c->peers[0].last_errno = EADDRNOTAVAIL;
	health_peer_changed(&health, c, 0, CAREFUL_PEER_FAILED);
	CHECK_EQ(lines("failed: it answers as 10.77.0.2: use that address\n"), 1);
	fake_destroy(c);
}

/* However often peers misbehave, the log has few lines, whose counts are complete. */
static void test_counters__a_storm_of_faults_makes_few_lines(void)
{
	static struct health health;
	struct careful_info info = { 0 };
	uint64_t all = 0;
	uint32_t count;

	begin();
	for (uint32_t i = 0; i < STORM; i++) {
		info.counters[CAREFUL_C_CTRL_KEY] += 7;
		info.counters[CAREFUL_C_PATHS_DENIED]++;
		check_counters(&health, &info);
	}
	count = lines("paths denied to peers");
	CHECK(count >= LOG_BURST && count <= LOG_BURST + 2);
	/* The next line contains the rest of the counts. */
	health.counters_limit = (struct log_limit){ 0 };
	info.counters[CAREFUL_C_PATHS_DENIED]++;
	check_counters(&health, &info);
	CHECK_EQ(lines("paths denied to peers"), count + 1);
	for (const char *at = said; (at = strstr(at, " paths denied")); at++) {
		const char *number = at;

		while (number > said && number[-1] != ' ')
			number--;
		all += strtoull(number, NULL, 10);
	}
	CHECK_EQ(all, STORM + 1);
}

/* All counters fit one line. */
static void test_counters__all_in_one_line(void)
{
	static struct health health;
	struct careful_info info = { 0 };

	begin();
	memset(info.counters, 0x7f, sizeof(info.counters));
	memset(&info.statistics, 0x7f, sizeof(info.statistics));
	check_counters(&health, &info);
	CHECK_EQ(lines("kicks that failed"), 1);
}

int main(void)
{
	int fd = mkstemp(path);

	CHECK(fd >= 0 && !close(fd));
	RUN(test_peer__that_flaps_hides_no_other);
	RUN(test_peer__that_answers_from_elsewhere);
	RUN(test_counters__a_storm_of_faults_makes_few_lines);
	RUN(test_counters__all_in_one_line);
	unlink(path);
	return 0;
}
