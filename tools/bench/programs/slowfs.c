// SPDX-License-Identifier: BSD-2-Clause
/*
 * A FUSE file system in the foreground: a directory behind a slow store. Each write, and with
 * further figures each read, lasts g plus G per KiB, one at a time, like a disk of P1 section 5.5.
 *
 *   slowfs g_us G_us_per_KiB BACKING MOUNTPOINT [READ_g_us READ_G_us_per_KiB]
 *
 * SLOWFS_LOG in the environment names a file for a line of each: r or w, begin and end in ns of
 * CLOCK_MONOTONIC, and bytes.
 */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static int backing;
static double g_ns, G_ns_per_byte, read_g_ns, read_G_ns_per_byte;
static FILE *log_file;

static const char *inside(const char *path)
{
	return path[1] ? path + 1 : ".";
}

static int result(long made)
{
	return made < 0 ? -errno : (int)made;
}

static int slow_getattr(const char *path, struct stat *st, struct fuse_file_info *info)
{
	(void)info;
	return result(fstatat(backing, inside(path), st, AT_SYMLINK_NOFOLLOW));
}

static int slow_open(const char *path, struct fuse_file_info *info)
{
	int fd = openat(backing, inside(path), info->flags & ~(O_DIRECT | O_CREAT));

	if (fd < 0)
		return -errno;
	info->fh = (uint64_t)fd;
	info->direct_io = 1; /* each write here is a write there */
	return 0;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void take(char kind, size_t bytes, double spent_ns)
{
	uint64_t begin_ns = now_ns(), ns = begin_ns + (uint64_t)spent_ns;
	struct timespec until = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
	if (log_file)
		fprintf(log_file, "%c %llu %llu %zu\n", kind, (unsigned long long)begin_ns,
			(unsigned long long)now_ns(), bytes);
}

static int slow_read(const char *path, char *into, size_t bytes, off_t offset,
		     struct fuse_file_info *info)
{
	(void)path;
	if (read_g_ns + read_G_ns_per_byte > 0)
		take('r', bytes, read_g_ns + read_G_ns_per_byte * (double)bytes);
	return result(pread((int)info->fh, into, bytes, offset));
}

static int slow_write(const char *path, const char *from, size_t bytes, off_t offset,
		      struct fuse_file_info *info)
{
	(void)path;
	take('w', bytes, g_ns + G_ns_per_byte * (double)bytes);
	return result(pwrite((int)info->fh, from, bytes, offset));
}

static int slow_release(const char *path, struct fuse_file_info *info)
{
	(void)path;
	return result(close((int)info->fh));
}

static int slow_statfs(const char *path, struct statvfs *st)
{
	(void)path;
	return result(fstatvfs(backing, st));
}

static const struct fuse_operations OPERATIONS = {
	.getattr = slow_getattr,
	.open = slow_open,
	.read = slow_read,
	.write = slow_write,
	.release = slow_release,
	.statfs = slow_statfs,
};

int main(int argc, char **argv)
{
	char *args[] = { argv[0], "-f", "-s", argc > 4 ? argv[4] : NULL, NULL };

	if (argc != 5 && argc != 7) {
		fprintf(stderr, "usage: slowfs g_us G_us_per_KiB BACKING MOUNTPOINT "
				"[READ_g_us READ_G_us_per_KiB]\n");
		return 2;
	}
	g_ns = atof(argv[1]) * 1e3;
	G_ns_per_byte = atof(argv[2]) * 1e3 / 1024;
	if (argc == 7) {
		read_g_ns = atof(argv[5]) * 1e3;
		read_G_ns_per_byte = atof(argv[6]) * 1e3 / 1024;
	}
	if (getenv("SLOWFS_LOG")) {
		log_file = fopen(getenv("SLOWFS_LOG"), "we");
		if (!log_file) {
			perror(getenv("SLOWFS_LOG"));
			return 1;
		}
		setvbuf(log_file, NULL, _IOLBF, 0);
	}
	backing = open(argv[3], O_RDONLY | O_DIRECTORY);
	if (backing < 0) {
		perror(argv[3]);
		return 1;
	}
	return fuse_main(4, args, &OPERATIONS, NULL);
}
