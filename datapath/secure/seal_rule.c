// SPDX-License-Identifier: BSD-2-Clause
#include "secure/seal_rule.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "secure/keys.h"

static const char *const modes[] = { "off", "auth", "encrypt" };

_Static_assert(CAREFUL_SEAL_AUTH == 1 && CAREFUL_SEAL_ENCRYPT == 2, "indices of modes[]");

static int read_mode(const char *text, size_t bytes)
{
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strlen(modes[i]) == bytes && !memcmp(modes[i], text, bytes))
			return (int)i;
	return -EINVAL;
}

static int read_rule(struct seal_rules *rules, const char *text, size_t bytes)
{
	const char *at = memchr(text, '@', bytes);
	int mode = read_mode(text, at ? (size_t)(at - text) : bytes);

	if (mode < 0)
		return mode;
	if (!at) {
		rules->all = (uint8_t)mode;
		return 0;
	}
	if (rules->count == SEAL_RULES_MAX)
		return -E2BIG;
	rules->named[rules->count].mode = (uint8_t)mode;
	if (!keys_read_address(at + 1, bytes - (size_t)(at + 1 - text),
			       &rules->named[rules->count].address))
		return -EINVAL;
	rules->count++;
	return 0;
}

int seal_rules_read(struct seal_rules *rules, const char *text, struct careful_error *error)
{
	*rules = (struct seal_rules){ 0 };
	while (text) {
		size_t bytes = strcspn(text, ",");
		int rc = read_rule(rules, text, bytes);

		if (rc == -E2BIG)
			return refuse(error, rc, seal, "%.*s: there can be at most %u hosts",
				      (int)bytes, text, SEAL_RULES_MAX);
		if (rc)
			return refuse(
				error, rc, seal,
				"%.*s: must be off, auth or encrypt, with @ADDRESS for a single peer",
				(int)bytes, text);
		text = text[bytes] ? text + bytes + 1 : NULL;
	}
	return 0;
}

bool seal_rules_any(const struct seal_rules *rules)
{
	bool any = rules->all;

	for (uint32_t i = 0; i < rules->count; i++)
		any |= rules->named[i].mode != CAREFUL_SEAL_OFF;
	return any;
}

uint8_t seal_rules_mode(const struct seal_rules *rules, const union address *address)
{
	for (uint32_t i = 0; i < rules->count; i++)
		if (address_same_host(&rules->named[i].address, address))
			return rules->named[i].mode;
	return rules->all;
}
