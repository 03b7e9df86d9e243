/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/export_option.h"
#include "base/error.h"

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

static int parse_word(struct block_export_options *export, const char *word,
		      struct careful_error *error)
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
		return rc ? explain(error, rc, "%s is not the address of a host", word + 5) : 0;
	}
	return explain(error, -EINVAL,
		       "'%s' is not an option of :rw (owners, devices, host=ADDRESS) or :ro "
		       "(devices, host=ADDRESS)",
		       word);
}

static int parse_words(struct block_export_options *export, const char *words,
		       struct careful_error *error)
{
	char *copy = strdup(words), *rest = copy, *word;
	int rc = copy ? 0 : explain(error, -ENOMEM, "out of memory");

	while (!rc && (word = strsep(&rest, ",")))
		rc = parse_word(export, word, error);
	free(copy);
	return rc;
}

int export_option(struct block_export_options *export, const char *arg, struct careful_error *error)
{
	const char *words = find_words(arg);
	size_t n = (size_t)(words - arg);
	char *path;

	if (!n)
		return explain(error, -EINVAL, "no directory is given");
	export->writable = *words && words[2] == 'w';
	while (n > 1 && arg[n - 1] == '/')
		n--;
	path = strndup(arg, n);
	if (!path)
		return explain(error, -ENOMEM, "out of memory");
	export->path = path;
	export->name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	return *words && words[3] ? parse_words(export, words + 4, error) : 0;
}
