/* SPDX-License-Identifier: BSD-2-Clause */
/* Builds a batch item by item, and counts the entries of a directory. */
#ifndef SUPPORT_BATCH_H
#define SUPPORT_BATCH_H

#include <careful/block.h>
#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>

static char batch[1 << 20];
static size_t used;

static inline void put(uint16_t op, const char *name, const char *text, uint32_t mode,
		       uint64_t bytes)
{
	struct careful_block_item head = {
		.op = htobe16(op),
		.name_bytes = htobe32((uint32_t)strlen(name)),
		.text_bytes = htobe32((uint32_t)strlen(text)),
	};

	head.attr.mode = htobe32(mode);
	head.attr.bytes = htobe64(bytes);
	memcpy(batch + used, &head, sizeof(head));
	strcpy(batch + used + sizeof(head), name); /* NOLINT */
	strcpy(batch + used + sizeof(head) + strlen(name), text); /* NOLINT */
	used = (used + sizeof(head) + strlen(name) + strlen(text) + 7) & ~(size_t)7;
}

static inline int entries(int dir)
{
	DIR *d = fdopendir(openat(dir, ".", O_RDONLY));
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

#endif /* SUPPORT_BATCH_H */
