/* SPDX-License-Identifier: BSD-2-Clause */
/* The log: a file, to which one thread writes each line with one write(); or the journal, by its
 * native protocol (systemd documentation: JOURNAL_NATIVE_PROTOCOL). */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/log.h"

static char log_path[4096];
static int log_fd = STDERR_FILENO;
static bool log_has_stderr;
static uint64_t log_bytes;
static int journal_fd = -1;

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
		log_path[0] = 0; /* rotation failed: go on with the old file */
}

/* Returns the length of the UTF-8 character at p, or 1 if there is no valid one (RFC 3629). Rejects
 * Unicode's noncharacters: journalctl does not show a line that has one. */
static size_t character_bytes(const unsigned char *p)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc2 ? 2 : 1;
	uint32_t c = p[0] & (0xffu >> n);

	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 1;
		c = c << 6 | (p[i] & 0x3f);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ||
	    (c >= 0xfdd0 && c < 0xfdf0) || (c & 0xfffe) == 0xfffe)
		return 1;
	return n;
}

/* Replaces control characters: a peer's name may hold any bytes, and an event must stay one line.
 * Terminals also obey C1 controls (U+0080 to U+009F, or single bytes 0x80 to 0x9f). */
static void make_printable(char *line)
{
	unsigned char *p = (unsigned char *)line;

	while (*p) {
		size_t n = character_bytes(p);
		bool is_c1 = n == 2 && p[0] == 0xc2 && p[1] < 0xa0;

		if ((n == 1 && (*p < ' ' || *p >= 0x7f)) || is_c1)
			memset(p, '?', n);
		p += n;
	}
}

static bool is_journal(int fd)
{
	const char *journal = getenv("JOURNAL_STREAM");
	char own[64];
	struct stat st;

	if (!journal || fstat(fd, &st))
		return false;
	snprintf(own, sizeof(own), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	return !strcmp(own, journal);
}

void log_journal(const char *path)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	size_t bytes = strlen(path);

	if (!is_journal(STDERR_FILENO) || bytes >= sizeof(un.sun_path))
		return;
	memcpy(un.sun_path, path, bytes);
	journal_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (journal_fd >= 0 && connect(journal_fd, (struct sockaddr *)&un, sizeof(un))) {
		close(journal_fd);
		journal_fd = -1;
	}
}

/* Appends a field to the n bytes of a datagram if there is room; returns the new length. */
static size_t add_field(char *datagram, size_t size, size_t n, const char *name, const char *value)
{
	int more = snprintf(datagram + n, size - n, "%s=%s", name, value);

	if (more < 0 || n + (size_t)more + 2 > size) {
		datagram[n] = 0;
		return n;
	}
	make_printable(datagram + n);
	n += strlen(datagram + n);
	datagram[n++] = '\n';
	datagram[n] = 0;
	return n;
}

/* Sends a line to the journal. Returns false at once if the journal has no room. */
static bool send_to_journal(const struct log_field *fields, const char *text)
{
	char datagram[8192];
	size_t n = add_field(datagram, sizeof(datagram), 0, "MESSAGE", text);

	n = add_field(datagram, sizeof(datagram), n, "PRIORITY", "6");
	n = add_field(datagram, sizeof(datagram), n, "SYSLOG_IDENTIFIER", "carefuld");
	for (; fields && fields->name; fields++)
		n = add_field(datagram, sizeof(datagram), n, fields->name, fields->value);
	return send(journal_fd, datagram, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

static void write_line(const struct log_field *fields, const char *format, va_list args)
{
	char line[2048]; /* holds the longest line of health.c */
	struct timespec now;
	struct tm tm;
	size_t n;
	ssize_t written;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
	n += (size_t)snprintf(line + n, sizeof(line) - n, ".%03ldZ ", now.tv_nsec / 1000000);
	/* Both callers call va_start(). NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	vsnprintf(line + n, sizeof(line) - n - 1, format, args);
	if (journal_fd >= 0 && send_to_journal(fields, line + n))
		return;
	make_printable(line);
	n = strlen(line);
	line[n++] = '\n';
	written = write(log_fd, line, n);
	log_bytes += written > 0 ? (uint64_t)written : 0;
	if (log_path[0] && log_bytes > LOG_FILE_BYTES)
		rotate();
}

void log_line(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(NULL, format, args);
	va_end(args);
}

void log_event(const struct log_field *fields, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(fields, format, args);
	va_end(args);
}

bool log_allowed(struct log_limit *limit)
{
	const uint32_t interval_s = limit->interval_s ? limit->interval_s : LOG_INTERVAL_S;
	const uint32_t burst = limit->burst ? limit->burst : LOG_BURST;
	const uint64_t second = clock_now_ns() / 1000000000;
	uint64_t earned;

	earned = limit->used ? (second - limit->second) / interval_s : 0;
	if (earned) {
		limit->used = earned >= limit->used ? 0 : limit->used - (uint32_t)earned;
		limit->second += earned * interval_s;
	}
	if (limit->used >= burst) {
		limit->suppressed++;
		return false;
	}
	if (!limit->used)
		limit->second = second;
	limit->used++;
	if (limit->suppressed)
		log_line("(%u lines like the next one were left out)", limit->suppressed);
	limit->suppressed = 0;
	return true;
}
