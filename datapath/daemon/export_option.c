/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/export_option.h"

/* Returns the last ":rw" or ":ro" that a comma or the end follows. Without one, returns the end. */
static const char *find_words(const char *arg)
{
	const char *found = arg + strlen(arg);

	for (const char *at = arg; (at = strstr(at, ":r")); at++) {
		if ((at[2] == 'w' || at[2] == 'o') && (!at[3] || at[3] == ','))
			found = at;
	}
	return found;
}

static int add_host(struct block_export_options *export, const char *text)
{
	struct block_host host = { .address = { [10] = 0xff, [11] = 0xff } };
	struct block_host *hosts;

	if (inet_pton(AF_INET, text, host.address + 12) != 1 &&
	    inet_pton(AF_INET6, text, host.address) != 1)
		return -EINVAL;
	hosts = realloc((void *)export->hosts, (export->hosts_count + 1) * sizeof(*hosts));
	if (!hosts)
		return -ENOMEM;
	hosts[export->hosts_count++] = host;
	export->hosts = hosts;
	return 0;
}

static int parse_word(struct block_export_options *export, const char *word, char *why,
		      size_t bytes)
{
	int rc;

	if (!strcmp(word, "owners") && export->writable) {
		export->owners = true;
		return 0;
	}
	if (!strcmp(word, "devices")) {
		export->devices = true;
		return 0;
	}
	if (!strncmp(word, "host=", 5)) {
		rc = add_host(export, word + 5);
		if (rc)
			snprintf(why, bytes, "%s is not the address of a host", word + 5);
		return rc;
	}
	snprintf(why, bytes,
		 "'%s' is not an option of :rw (owners, devices, host=ADDRESS) or :ro (devices, "
		 "host=ADDRESS)",
		 word);
	return -EINVAL;
}

static int parse_words(struct block_export_options *export, const char *words, char *why,
		       size_t bytes)
{
	char *copy = strdup(words), *rest = copy, *word;
	int rc = copy ? 0 : -ENOMEM;

	if (rc)
		snprintf(why, bytes, "out of memory");
	while (!rc && (word = strsep(&rest, ",")))
		rc = parse_word(export, word, why, bytes);
	free(copy);
	return rc;
}

int export_option(struct block_export_options *export, const char *arg, char *why, size_t bytes)
{
	const char *words = find_words(arg);
	size_t n = (size_t)(words - arg);
	char *path;

	if (!n) {
		snprintf(why, bytes, "no directory is given");
		return -EINVAL;
	}
	export->writable = *words && words[2] == 'w';
	while (n > 1 && arg[n - 1] == '/')
		n--;
	path = strndup(arg, n);
	if (!path) {
		snprintf(why, bytes, "out of memory");
		return -ENOMEM;
	}
	export->path = path;
	export->name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	return *words && words[3] ? parse_words(export, words + 4, why, bytes) : 0;
}
