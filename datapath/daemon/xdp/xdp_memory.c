/* SPDX-License-Identifier: BSD-2-Clause */
/* Remembers the mode measured for a driver and a kernel, in xdp.DRIVER.json of the state directory
 * (careful/state.h). Ignores a file with any byte that this code would not write. */
#include <careful/state.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "daemon/xdp/xdp_choice.h"

enum { TEXT_BYTES = 256, NAME_BYTES = 64 };

/* Writes the file's name, or "" if the driver's name cannot be part of a file name. */
static void file_name(const char *driver, char *name)
{
	snprintf(name, NAME_BYTES, "xdp.%s.json", driver);
	if (!driver[0] || strchr(driver, '/'))
		name[0] = 0;
}

static size_t file_text(uint32_t mode, char *text)
{
	struct utsname kernel;

	uname(&kernel);
	return (size_t)snprintf(text, TEXT_BYTES,
				"{\"schema\": 1, \"kernel\": \"%.128s\", \"mode\": \"%s\"}\n",
				kernel.release, mode == CAREFUL_XDP_GENERIC ? "generic" : "native");
}

static int xdp_mode_in(const char *text, size_t bytes, uint32_t *mode)
{
	char expected[TEXT_BYTES];

	for (uint32_t i = CAREFUL_XDP_NATIVE; i <= CAREFUL_XDP_GENERIC; i++) {
		if (file_text(i, expected) != bytes || memcmp(expected, text, bytes) != 0)
			continue;
		*mode = i;
		return 0;
	}
	return -ENOENT;
}

int xdp_recall(const char *dir, const char *driver, uint32_t *mode, struct careful_error *error)
{
	char name[NAME_BYTES], text[TEXT_BYTES];
	int rc;

	file_name(driver, name);
	rc = name[0] ? careful_state_read(dir, name, text, sizeof(text), error) : -ENOENT;
	if (rc >= 0)
		return xdp_mode_in(text, (size_t)rc, mode);
	return rc == -EFBIG ? -ENOENT : rc; /* too large to be a file of ours */
}

int xdp_remember(const char *dir, const char *driver, uint32_t mode, struct careful_error *error)
{
	char name[NAME_BYTES], text[TEXT_BYTES];
	uint32_t bytes = (uint32_t)file_text(mode, text);

	file_name(driver, name);
	return careful_state_write(dir, name, text, bytes, error);
}
