/* SPDX-License-Identifier: BSD-2-Clause */
/* The log file: written by one thread, one write() a line. Calls nobody. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/log.h"

static char log_path[4096];
static int log_fd = STDERR_FILENO;
static bool log_has_stderr;
static uint64_t log_bytes;

static int open_file(void)
{
	int fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
	struct stat st;

	if (fd < 0)
		return -errno;
	log_bytes = fstat(fd, &st) ? 0 : (uint64_t)st.st_size;
	if (log_fd != STDERR_FILENO)
		close(log_fd);
	log_fd = fd;
	if (log_has_stderr)
		dup2(log_fd, STDERR_FILENO);
	return 0;
}

int log_open(const char *path)
{
	if (strlen(path) >= sizeof(log_path))
		return -ENAMETOOLONG;
	memcpy(log_path, path, strlen(path) + 1);
	return open_file();
}

void log_take_stderr(void)
{
	log_has_stderr = log_fd != STDERR_FILENO;
	if (log_has_stderr)
		dup2(log_fd, STDERR_FILENO);
}

static void rotate(void)
{
	char old[sizeof(log_path) + 8];

	snprintf(old, sizeof(old), "%s.old", log_path);
	rename(log_path, old);
	if (open_file())
		log_path[0] = 0; /* the old file stays open, and is the last */
}

/* The bytes of the character at p, in UTF-8; 1 where it is none. */
static size_t character(const unsigned char *p)
{
	size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc2 ? 2 : 1;

	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 1;
	}
	return n;
}

/* One line an event: a peer's name may hold anything. Terminals take control characters, C1
 * (U+0080 to U+009F, or one byte 0x80 to 0x9f) among them, for commands. */
static void make_printable(char *line)
{
	unsigned char *p = (unsigned char *)line;

	while (*p) {
		size_t n = character(p);
		bool is_c1 = n == 2 && p[0] == 0xc2 && p[1] < 0xa0;

		if ((n == 1 && (*p < ' ' || *p >= 0x7f)) || is_c1)
			memset(p, '?', n);
		p += n;
	}
}

void log_line(const char *format, ...)
{
	char line[1024];
	struct timespec now;
	struct tm tm;
	va_list args;
	size_t n;
	ssize_t written;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
	n += (size_t)snprintf(line + n, sizeof(line) - n, ".%03ldZ ", now.tv_nsec / 1000000);
	va_start(args, format);
	vsnprintf(line + n, sizeof(line) - n - 1, format, args);
	va_end(args);
	make_printable(line);
	n = strlen(line);
	line[n++] = '\n';
	written = write(log_fd, line, n);
	log_bytes += written > 0 ? (uint64_t)written : 0;
	if (log_path[0] && log_bytes > LOG_FILE_BYTES)
		rotate();
}

bool log_allowed(struct log_limit *limit)
{
	struct timespec now;
	uint64_t second, earned;

	clock_gettime(CLOCK_MONOTONIC, &now);
	second = (uint64_t)now.tv_sec;
	earned = limit->used ? (second - limit->second) / LOG_INTERVAL_S : 0;
	if (earned) {
		limit->used = earned >= limit->used ? 0 : limit->used - (uint32_t)earned;
		limit->second += earned * LOG_INTERVAL_S;
	}
	if (limit->used >= LOG_BURST) {
		limit->suppressed++;
		return false;
	}
	if (!limit->used)
		limit->second = second;
	limit->used++;
	if (limit->suppressed)
		log_line("(%u lines like the next were left out)", limit->suppressed);
	limit->suppressed = 0;
	return true;
}
