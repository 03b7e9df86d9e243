/* SPDX-License-Identifier: BSD-2-Clause */
/* The log prints names that peers choose, so that they are no command to a terminal. */
#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/transfer_log.c" /* NOLINT(bugprone-suspicious-include) */

/* Returns the line that the log writes for a text, after the time. */
static const char *logged(const char *text)
{
	static char path[] = "/tmp/test_log.XXXXXX";
	static char line[256];
	ssize_t n;
	int fd;

	strcpy(path + strlen(path) - 6, "XXXXXX"); /* NOLINT */
	fd = mkstemp(path);
	assert(fd >= 0 && log_open(path) == 0);
	log_line("%s", text);
	n = read(fd, line, sizeof(line) - 1);
	assert(n > 25 && line[n - 1] == '\n');
	line[n - 1] = 0;
	close(fd);
	unlink(path);
	return strchr(line, ' ') + 1;
}

/* In the journal a line is a datagram of fields; no value can inject another field. */
static void test_journal__fields(void)
{
	const struct log_field fields[] = {
		{ "CAREFUL_PATH", "a\nPRIORITY=0" },
		{ "CAREFUL_BYTES", "7" },
		{ NULL, NULL },
	};
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	char said[64], got[512];
	struct stat st;
	ssize_t n;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(un.sun_path, sizeof(un.sun_path), "/tmp/test_log.%d", getpid());
	assert(fd >= 0 && bind(fd, (struct sockaddr *)&un, sizeof(un)) == 0);
	/* A stderr that is not the named stream is no journal. */
	setenv("JOURNAL_STREAM", "1:2", 1);
	log_journal(un.sun_path);
	assert(journal_fd < 0);
	assert(fstat(STDERR_FILENO, &st) == 0);
	snprintf(said, sizeof(said), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	setenv("JOURNAL_STREAM", said, 1);
	log_journal(un.sun_path);
	assert(journal_fd >= 0);
	log_event(fields, "line %d", 1);
	n = recv(fd, got, sizeof(got) - 1, MSG_DONTWAIT);
	assert(n > 0);
	got[n] = 0;
	assert(!strcmp(got, "MESSAGE=line 1\nPRIORITY=6\nSYSLOG_IDENTIFIER=carefuld\n"
			    "CAREFUL_PATH=a?PRIORITY=0\nCAREFUL_BYTES=7\n"));
	/* Without the journal the line is still printed, without fields. */
	close(fd);
	unlink(un.sun_path);
	assert(!strcmp(logged("to the file"), "to the file"));
	close(journal_fd);
	journal_fd = -1;
}

/* Regression: a path longer than a line hid the bytes and the result. */
static void test_transfer__of_a_long_path(void)
{
	static struct transfer_log log;
	static char path[4000], line[4096];
	static char file[] = "/tmp/test_log.XXXXXX";
	struct block_end end = { .path = path, .op = CAREFUL_BLOCK_COMMIT, .writable = true };
	int fd = mkstemp(file);
	ssize_t n;

	end.written_bytes = 5;
	memset(path, 'p', sizeof(path) - 1);
	assert(fd >= 0 && log_open(file) == 0);
	transfer_log(&log, &end, "10.0.0.1");
	n = read(fd, line, sizeof(line) - 1);
	assert(n > 0);
	line[n] = 0;
	assert(strstr(line, "ppp...\": 5 bytes written in 0.000 s, complete\n"));
	close(fd);
	unlink(file);
}

static void test_allowed__exactly_its_burst(void)
{
	struct log_limit usual = { 0 }, often = { .burst = 100, .interval_s = 10 };
	int n = 0, m = 0;

	for (int i = 0; i < 200; i++) {
		n += log_allowed(&usual);
		m += log_allowed(&often);
	}
	assert(n == LOG_BURST && m == 100 && often.suppressed == 100);
}

int main(void)
{
	static const char *const cases[][2] = {
		{ "plain", "plain" },
		{ "\x1b[31mred\n\x7f", "?[31mred??" },
		{ "\x9b"
		  "31m",
		  "?31m" }, /* CSI in one byte */
		{ "\xc2\x9b"
		  "31m",
		  "??31m" }, /* and in UTF-8 */
		{ "\xc2\x85", "??" }, /* NEL */
		{ "50 \xc2\xb5s \xe2\x80\xa6 \xf0\x9f\x98\x80",
		  "50 \xc2\xb5s \xe2\x80\xa6 \xf0\x9f\x98\x80" },
		{ "\xe2\x9b", "??" }, /* cut off */
		{ "\xff\xc0\x9b", "???" },
		{ "\xc3", "?" },
		{ "\xe0\x80\x9b", "???" }, /* not in the fewest bytes */
		{ "\xed\xa0\x80", "???" }, /* half of a pair of UTF-16 */
		{ "\xf4\x90\x80\x80", "????" }, /* beyond the last */
		{ "\xf8\x88\x80\x80", "????" },
		{ "\xfb\xb0\x80\x80", "????" },
		{ "\xef\xbf\xbe", "???" }, /* noncharacters */
		{ "\xef\xb7\x90", "???" },
		{ "\xed\x9f\xbf\xef\xbf\xbd", "\xed\x9f\xbf\xef\xbf\xbd" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert(!strcmp(logged(cases[i][0]), cases[i][1]));
	test_journal__fields();
	test_transfer__of_a_long_path();
	test_allowed__exactly_its_burst();
	return 0;
}
