/* SPDX-License-Identifier: BSD-2-Clause */
/* Sessions and open handles survive a reload. Options that need a restart are parsed but ignored;
 * `carefulctl up --reload` reports them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/process/confine.h"
#include "daemon/log.h"
#include "daemon/reload.h"
#include "base/error.h"
#include "engine/sharing.h"

enum { WORDS = 512 };

void reload_log(const struct daemon_options *options)
{
	for (uint32_t i = 0; i < options->exports_count; i++)
		log_line("export %s%s%s%s", options->exports[i].path,
			 options->exports[i].writable ? " (writable)" : "",
			 options->exports[i].owners ? " (owners)" : "",
			 options->exports[i].devices ? " (devices)" : "");
}

static int apply(struct careful *instance, struct block_server *block,
		 const struct daemon_options *options, struct careful_error *error)
{
	int rc = confine_covers(options, error);

	if (!rc)
		rc = block_replace(block, options->exports, options->exports_count, error);
	if (rc)
		return rc;
	engine_set_times(instance, &options->careful);
	log_line("new options, %u exports", options->exports_count);
	reload_log(options);
	return 0;
}

int reload(struct careful *instance, struct block_server *block, const char *words, uint32_t bytes,
	   struct careful_error *error)
{
	struct daemon_options options;
	char *copy = malloc(bytes + 1), *argv[WORDS + 1];
	int argc = 0, rc;

	if (!copy)
		return explain(error, -ENOMEM, "%s", strerror(ENOMEM));
	memcpy(copy, words, bytes);
	copy[bytes] = 0;
	for (char *at = copy; at < copy + bytes && argc < WORDS; at += strlen(at) + 1)
		argv[argc++] = at;
	argv[argc] = NULL;
	rc = options_parse(&options, argc, argv, error);
	if (rc > 0)
		rc = explain(error, -EINVAL, "--help and --version cannot be reloaded");
	if (!rc)
		rc = apply(instance, block, &options, error);
	for (uint32_t i = 0; i < options.exports_count; i++) {
		free((void *)options.exports[i].path);
		free((void *)options.exports[i].hosts);
	}
	free(copy);
	return rc;
}
