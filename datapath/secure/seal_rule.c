// SPDX-License-Identifier: BSD-2-Clause
#include "secure/seal_rule.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"

static const char *const modes[] = { "off", "auth", "encrypt" };

_Static_assert(CAREFUL_SEAL_AUTH == 1 && CAREFUL_SEAL_ENCRYPT == 2, "modes in their order");

static int xdp_mode_of(const char *text, size_t bytes)
{
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strlen(modes[i]) == bytes && !memcmp(modes[i], text, bytes))
			return (int)i;
	return -EINVAL;
}

static int read_one(struct seal_rules *rules, const char *text, size_t bytes)
{
	const char *at = memchr(text, '@', bytes);
	int mode = xdp_mode_of(text, at ? (size_t)(at - text) : bytes);
	char host[INET6_ADDRSTRLEN];
	size_t host_bytes;

	if (mode < 0)
		return mode;
	if (!at) {
		rules->all = (uint8_t)mode;
		return 0;
	}
	host_bytes = bytes - (size_t)(at + 1 - text);
	if (host_bytes >= sizeof(host))
		return -EINVAL;
	if (rules->count == SEAL_RULES_MAX)
		return -E2BIG;
	memcpy(host, at + 1, host_bytes);
	host[host_bytes] = 0;
	rules->named[rules->count].mode = (uint8_t)mode;
	rules->named[rules->count].family = AF_INET;
	if (inet_pton(AF_INET, host, rules->named[rules->count].host) != 1) {
		rules->named[rules->count].family = AF_INET6;
		if (inet_pton(AF_INET6, host, rules->named[rules->count].host) != 1)
			return -EINVAL;
	}
	rules->count++;
	return 0;
}

int seal_rules_read(struct seal_rules *rules, const char *text, struct careful_error *error)
{
	*rules = (struct seal_rules){ 0 };
	while (text) {
		size_t bytes = strcspn(text, ",");
		int rc = read_one(rules, text, bytes);

		if (rc)
			return refuse(
				error, rc,
				"--seal %.*s: must be off, auth or encrypt, with @ADDRESS for a single peer",
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

uint8_t seal_rules_of(const struct seal_rules *rules, const union address *address)
{
	bool ipv4 = address->sa.sa_family == AF_INET;
	const void *host = ipv4 ? (const void *)&address->in.sin_addr :
				  (const void *)&address->in6.sin6_addr;

	for (uint32_t i = 0; i < rules->count; i++)
		if (rules->named[i].family == address->sa.sa_family &&
		    !memcmp(rules->named[i].host, host, ipv4 ? 4 : 16))
			return rules->named[i].mode;
	return rules->all;
}
