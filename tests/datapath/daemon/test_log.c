/* SPDX-License-Identifier: BSD-2-Clause */
/* The log: what peers call themselves is printed, and is no command to a terminal. */
#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.c" /* NOLINT(bugprone-suspicious-include) */

/* What a line of this text is, behind its time. */
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
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert(!strcmp(logged(cases[i][0]), cases[i][1]));
	return 0;
}
