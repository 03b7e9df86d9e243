/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What files are called that are no files yet, here and at a peer, temporary or partial:
 * .[NAME.]careful-TAG.part with 16 hexadecimal digits.
 */
#ifndef STORAGE_PARTIAL_H
#define STORAGE_PARTIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* @name: the last component of a path, of so many bytes, which need not end with a NUL */
static inline bool partial_is_named(const char *name, size_t bytes)
{
	enum { MARK = 9, TAG = 16, END = 5 };
	const char *mark;

	if (bytes < MARK + TAG + END || *name != '.')
		return false;
	mark = name + bytes - MARK - TAG - END;
	if (memcmp(mark, ".careful-", MARK) != 0 || memcmp(mark + MARK + TAG, ".part", END) != 0)
		return false;
	for (const char *c = mark + MARK; c < mark + MARK + TAG; c++) {
		if ((*c < '0' || *c > '9') && (*c < 'a' || *c > 'f'))
			return false;
	}
	return true;
}

#endif /* STORAGE_PARTIAL_H */
