/* SPDX-License-Identifier: BSD-2-Clause */
/* Extended attributes, through /proc, which accepts O_PATH descriptors. */
#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <careful/block.h>

#include "storage/tree/xattrs.h"

enum { NAMES_MAX = 64 << 10 };

static bool begins(const char *name, const char *prefix)
{
	return !strncmp(name, prefix, strlen(prefix));
}

/* Reports whether an attribute belongs to the file, not to its file system or a security module. */
static bool is_carried(const char *name)
{
	return begins(name, "user.") || begins(name, "system.posix_acl_") ||
	       !strcmp(name, "security.capability") ||
	       (begins(name, "trusted.") && !begins(name, "trusted.overlay.") && !geteuid());
}

/* Reports whether a peer may set or remove the attribute; a squashed peer may not act as root. */
static bool is_settable(const char *name, bool squashed)
{
	return is_carried(name) &&
	       !(squashed && (begins(name, "security.") || begins(name, "trusted.")));
}

static bool is_absent(int error)
{
	return error == ENOTSUP || error == ENODATA || error == ENOSYS;
}

/* Lists the names in a malloc'ed buffer. Returns their bytes, or -errno. */
static ssize_t list(const char *path, char **names)
{
	ssize_t n;

	*names = malloc(NAMES_MAX);
	if (!*names)
		return -ENOMEM;
	n = listxattr(path, *names, NAMES_MAX);
	if (n < 0 && errno == ERANGE)
		return -E2BIG;
	return n >= 0 ? n : is_absent(errno) ? 0 : -errno;
}

/* Appends one record. Returns its bytes, 0 if the attribute has gone, or -errno. */
static ssize_t append_record(const char *path, const char *name, char *buf, size_t room)
{
	struct careful_block_xattr head;
	size_t name_bytes = strlen(name);
	ssize_t n;

	if (room < sizeof(head) + name_bytes + 1)
		return -E2BIG;
	n = getxattr(path, name, buf + sizeof(head) + name_bytes, room - sizeof(head) - name_bytes);
	if (n < 0)
		return is_absent(errno) ? 0 : errno == ERANGE ? -E2BIG : -errno;
	head = (struct careful_block_xattr){
		.name_bytes = htobe32((uint32_t)name_bytes),
		.value_bytes = htobe32((uint32_t)n),
	};
	memcpy(buf, &head, sizeof(head));
	/* NOLINTNEXTLINE(bugprone-not-null-terminated-result): a counted string */
	memcpy(buf + sizeof(head), name, name_bytes);
	return (ssize_t)(sizeof(head) + name_bytes) + n;
}

ssize_t xattrs_get(int fd, char *buf, size_t room)
{
	char path[XATTRS_PROC_BYTES];
	char *names = NULL;
	ssize_t n, bytes, used = 0;

	snprintf(path, sizeof(path), XATTRS_PROC, fd);
	n = list(path, &names);
	for (ssize_t at = 0; at < n; at += (ssize_t)strlen(names + at) + 1) {
		if (!is_carried(names + at))
			continue;
		bytes = append_record(path, names + at, buf + used, room - (size_t)used);
		if (bytes < 0) {
			used = bytes;
			break;
		}
		used += bytes;
	}
	free(names);
	return n < 0 ? n : used;
}

/* Reads the record at *at, and moves *at behind it. */
static int next_record(const char *records, size_t bytes, size_t *at, char name[XATTR_NAME_MAX + 1],
		       const char **value, size_t *value_bytes)
{
	struct careful_block_xattr head;
	size_t name_bytes;

	if (bytes - *at < sizeof(head))
		return -EPROTO;
	memcpy(&head, records + *at, sizeof(head));
	*at += sizeof(head);
	name_bytes = be32toh(head.name_bytes);
	*value_bytes = be32toh(head.value_bytes);
	if (name_bytes > XATTR_NAME_MAX || name_bytes > bytes - *at ||
	    *value_bytes > bytes - *at - name_bytes)
		return -EPROTO;
	memcpy(name, records + *at, name_bytes);
	name[name_bytes] = 0;
	*value = records + *at + name_bytes;
	*at += name_bytes + *value_bytes;
	return 0;
}

static bool is_named(const char *records, size_t bytes, const char *wanted)
{
	char name[XATTR_NAME_MAX + 1];
	const char *value;
	size_t at = 0, value_bytes;

	while (at < bytes && !next_record(records, bytes, &at, name, &value, &value_bytes)) {
		if (!strcmp(name, wanted))
			return true;
	}
	return false;
}

/* Removes attributes not in the records: a directory's or an earlier file's. */
static int remove_others(const char *path, const char *records, size_t bytes, bool squashed)
{
	char *names = NULL;
	ssize_t n = list(path, &names);
	int rc = n < 0 ? (int)n : 0;

	for (ssize_t at = 0; !rc && at < n; at += (ssize_t)strlen(names + at) + 1) {
		const char *name = names + at;

		if (is_settable(name, squashed) && !is_named(records, bytes, name) &&
		    removexattr(path, name) && !is_absent(errno))
			rc = -errno;
	}
	free(names);
	return rc;
}

static bool has_value(const char *path, const char *name, const char *value, size_t bytes)
{
	char *present = malloc(bytes + 1);
	bool is_same = present && getxattr(path, name, present, bytes + 1) == (ssize_t)bytes &&
		       !memcmp(present, value, bytes);

	free(present);
	return is_same;
}

/* Reports whether a file system cannot hold an attribute: at all, by name, or by size. */
static bool is_unfit(int error)
{
	return is_absent(error) || error == ENOSPC || error == E2BIG || error == ERANGE;
}

int xattrs_set(int fd, const char *records, size_t bytes, bool squashed)
{
	char name[XATTR_NAME_MAX + 1];
	char path[XATTRS_PROC_BYTES];
	const char *value;
	size_t at = 0, value_bytes;
	bool unkept = false;
	int rc;

	snprintf(path, sizeof(path), XATTRS_PROC, fd);
	rc = remove_others(path, records, bytes, squashed);
	while (!rc && at < bytes) {
		rc = next_record(records, bytes, &at, name, &value, &value_bytes);
		if (rc || !is_settable(name, squashed) ||
		    has_value(path, name, value, value_bytes) ||
		    !setxattr(path, name, value, value_bytes, 0) || (errno == EPERM && geteuid()))
			continue;
		if (is_unfit(errno))
			unkept = true;
		else
			rc = -errno;
	}
	return rc || !unkept ? rc : -ENOSYS;
}
