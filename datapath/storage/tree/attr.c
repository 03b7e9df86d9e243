/* SPDX-License-Identifier: BSD-2-Clause */
/* Owner, mode and time of a file. A new owner clears set-ID bits and capabilities, and a mode
 * changes an ACL's mask. So the order is owner, mode, extended attributes, time. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "storage/tree/attr.h"
#include "storage/tree/xattrs.h"

/* Returns ns since 1970, limited to 64 bits (the years 1678 to 2262). */
static uint64_t ns_of(const struct timespec *time)
{
	int64_t ns;

	if (__builtin_mul_overflow((int64_t)time->tv_sec, (int64_t)1000000000, &ns) ||
	    __builtin_add_overflow(ns, (int64_t)time->tv_nsec, &ns))
		ns = time->tv_sec < 0 ? INT64_MIN : INT64_MAX;
	return (uint64_t)ns;
}

void attr_set(struct careful_block_attr *attr, const struct stat *st)
{
	attr->mode = htobe32(st->st_mode);
	attr->nlink = htobe32((uint32_t)st->st_nlink);
	attr->uid = htobe32(st->st_uid);
	attr->gid = htobe32(st->st_gid);
	attr->bytes = htobe64((uint64_t)st->st_size);
	attr->mtime_ns = htobe64(ns_of(&st->st_mtim));
	attr->ctime_ns = htobe64(ns_of(&st->st_ctim));
	attr->inode = htobe64(st->st_ino);
	attr->device = htobe64(st->st_dev);
	attr->allocated = htobe64((uint64_t)st->st_blocks * 512);
}

/* Makes the argument of futimens() that sets only the modification time. */
static void set_times(int64_t ns, struct timespec times[2])
{
	const int64_t second = 1000000000;

	times[0] = (struct timespec){ .tv_nsec = UTIME_OMIT };
	/* Before 1970 tv_sec rounds down, because tv_nsec is never negative. */
	times[1].tv_sec = ns / second - (ns % second < 0);
	times[1].tv_nsec = ns % second + (ns % second < 0 ? second : 0);
}

/* Reports whether a file has this modification time, within the precision of its file system. The
 * kernel rounds ctime like any other time, so ctime shows the precision. */
static bool has_time(const struct stat *st, int64_t ns)
{
	static const long grains[] = { 1000000000, 10000000, 1000, 100 };
	struct timespec wanted[2];

	set_times(ns, wanted);
	if (st->st_mtim.tv_sec != wanted[1].tv_sec)
		return false;
	if (st->st_mtim.tv_nsec == wanted[1].tv_nsec)
		return true;
	for (size_t i = 0; i < sizeof(grains) / sizeof(*grains); i++) {
		long grain = grains[i];

		if (st->st_ctim.tv_nsec % grain == 0 && st->st_mtim.tv_nsec % grain == 0)
			return wanted[1].tv_nsec / grain * grain == st->st_mtim.tv_nsec;
	}
	return false;
}

int attr_set_time(int fd, int64_t ns)
{
	struct timespec times[2];

	set_times(ns, times);
	return futimens(fd, times) ? -errno : 0;
}

/* Only root can change the owner; others may choose among their own groups. */
static int set_owner(int fd, const struct careful_block_attr *attr)
{
	uid_t uid = geteuid() ? (uid_t)-1 : be32toh(attr->uid);

	if (!fchownat(fd, "", uid, be32toh(attr->gid), AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW))
		return 0;
	return geteuid() && errno == EPERM ? 0 : -errno;
}

static bool is_owner(const struct stat *st, const struct careful_block_attr *attr)
{
	return st->st_gid == be32toh(attr->gid) && (geteuid() || st->st_uid == be32toh(attr->uid));
}

mode_t attr_mode(const struct careful_block_attr *attr, const struct attr_how *how)
{
	mode_t mask = how->flags & CAREFUL_BATCH_MODE ? 07777U : 0777U & ~how->umask;

	if (how->squashed && !S_ISDIR(be32toh(attr->mode)))
		mask &= ~(mode_t)(S_ISUID | S_ISGID);
	return be32toh(attr->mode) & mask;
}

static int set_mode(int fd, mode_t mode, const struct attr_how *how)
{
	char path[XATTRS_PROC_BYTES];

	if (!how->is_path)
		return fchmod(fd, mode) ? -errno : 0;
	snprintf(path, sizeof(path), XATTRS_PROC, fd);
	return chmod(path, mode) ? -errno : 0;
}

static int set_time(int fd, int64_t ns, bool is_path)
{
	struct timespec times[2];

	if (!is_path)
		return attr_set_time(fd, ns);
	set_times(ns, times);
	return utimensat(fd, "", times, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

/* Sets a time. -ERANGE: the file system cannot hold it, only another. All hold 1980 to 2038. */
static int set_time_within(int fd, int64_t ns, bool is_path)
{
	const int64_t second = 1000000000, first_s = 315532800;
	int rc = set_time(fd, ns, is_path);
	struct stat st;

	if (rc || (ns / second >= first_s && ns / second < INT32_MAX))
		return rc;
	if (fstat(fd, &st))
		return -errno;
	/* FAT stores even seconds only. */
	return llabs(st.st_mtim.tv_sec - ns / second) <= 2 ? 0 : -ERANGE;
}

/* Raises CAP_FSETID for this thread if it is permitted but not effective, as in carefuld
 * (confine.c). Reports whether it was raised. Without the capability, setting the mode or ACL of
 * another group's file clears the set-group-ID bit. */
static bool raise_fsetid(struct __user_cap_data_struct before[2])
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	const uint32_t bit = CAP_TO_MASK(CAP_FSETID);
	struct __user_cap_data_struct raised[2];

	if (syscall(SYS_capget, &header, before))
		return false;
	if (before[0].effective & bit || !(before[0].permitted & bit))
		return false;
	memcpy(raised, before, sizeof(raised));
	raised[0].effective |= bit;
	return !syscall(SYS_capset, &header, raised);
}

static void restore_capabilities(const struct __user_cap_data_struct before[2])
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };

	if (syscall(SYS_capset, &header, before))
		abort(); /* dropping a capability cannot fail */
}

/* Does not set attributes that the file has already, so that its ctime stays and an idle sync
 * writes nothing. A new owner clears mode bits, so the mode is set again. */
int attr_apply(int fd, const struct careful_block_attr *attr, const char *xattrs,
	       size_t xattrs_bytes, const struct attr_how *how)
{
	bool is_link = S_ISLNK(be32toh(attr->mode));
	bool owner = how->flags & CAREFUL_BATCH_OWNER, time = how->flags & CAREFUL_BATCH_TIME;
	bool mode = !is_link && !how->has_mode && (how->is_new || how->flags & CAREFUL_BATCH_MODE);
	int64_t mtime_ns = (int64_t)be64toh(attr->mtime_ns);
	struct __user_cap_data_struct capabilities[2];
	int rc = 0, unkept = 0;
	struct stat st = { 0 };
	bool raised;

	if (!how->is_new) {
		if (fstat(fd, &st))
			return -errno;
		owner = owner && !is_owner(&st, attr);
		mode = mode && (owner || (st.st_mode & 07777) != attr_mode(attr, how));
		time = time && !has_time(&st, mtime_ns);
	}
	if (owner)
		rc = set_owner(fd, attr);
	raised = (be32toh(attr->mode) | st.st_mode) & S_ISGID && raise_fsetid(capabilities);
	if (!rc && mode)
		rc = set_mode(fd, attr_mode(attr, how), how);
	if (!rc && !is_link && how->flags & CAREFUL_BATCH_XATTRS)
		rc = xattrs_set(fd, xattrs, xattrs_bytes, how->squashed);
	if (raised)
		restore_capabilities(capabilities);
	if (rc == -ENOSYS) {
		unkept = rc;
		rc = 0;
	}
	if (!rc && time)
		rc = set_time_within(fd, mtime_ns, how->is_path);
	return rc ? rc : unkept;
}
