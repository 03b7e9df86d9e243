/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of unfinished files, here and at a peer: .[NAME.]careful-TAG.part (TAG: 16 hex digits). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* @name: a path's last component; needs no NUL */
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
