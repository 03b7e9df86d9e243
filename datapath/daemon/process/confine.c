/* SPDX-License-Identifier: BSD-2-Clause */
#include <cap-ng.h>
#include <errno.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>

#include "daemon/process/confine.h"
#include "base/error.h"

enum needed_by {
	NEEDED_ALWAYS,
	NEEDED_BY_EXPORTS,
	NEEDED_BY_WRITABLE,
	NEEDED_BY_OWNERS,
	NEEDED_BY_LEND,
};

static const struct {
	unsigned int capability;
	enum needed_by by;
} needed[] = {
	{ CAP_NET_ADMIN, NEEDED_ALWAYS }, /* asks for neighbours, removes the pfifo */
	{ CAP_DAC_READ_SEARCH, NEEDED_BY_EXPORTS }, /* files of all users */
	{ CAP_DAC_OVERRIDE, NEEDED_BY_WRITABLE },
	/* modes and times of others' files, sticky directories */
	{ CAP_FOWNER, NEEDED_BY_WRITABLE },
	{ CAP_CHOWN, NEEDED_BY_OWNERS },
	{ CAP_FSETID, NEEDED_BY_OWNERS }, /* set-group-ID bits of files of other groups */
	{ CAP_SETFCAP, NEEDED_BY_OWNERS }, /* security.capability */
	{ CAP_SYS_ADMIN, NEEDED_BY_OWNERS }, /* trusted.* */
	{ CAP_IPC_LOCK, NEEDED_BY_LEND }, /* locked memory beyond RLIMIT_MEMLOCK */
};

static bool kept[sizeof(needed) / sizeof(needed[0])];

static bool is_needed(const struct daemon_options *options, enum needed_by by)
{
	bool found = by == NEEDED_ALWAYS || (by == NEEDED_BY_LEND && options->lend.bytes);

	for (uint32_t i = 0; i < options->exports_count; i++)
		found |= by == NEEDED_BY_EXPORTS ||
			 (by == NEEDED_BY_WRITABLE && options->exports[i].writable) ||
			 (by == NEEDED_BY_OWNERS && options->exports[i].owners);
	return found;
}

/* CAP_FSETID is permitted but not in effect, because a write would then keep the set-ID bits of a
 * file. attr_apply() raises the capability while it sets a mode. */
static capng_type_t capability_sets(unsigned int capability)
{
	return capability == CAP_FSETID ? CAPNG_PERMITTED : CAPNG_EFFECTIVE | CAPNG_PERMITTED;
}

int confine_programs(struct careful_error *error)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return explain(error, -errno, "no_new_privs: %s", strerror(errno));
	return 0;
}

int confine(const struct daemon_options *options, struct careful_error *error)
{
	bool had[sizeof(needed) / sizeof(needed[0])];
	bool may_bound;

	if (capng_get_caps_process())
		return explain(error, -EPERM, "the capabilities of this process cannot be read");
	may_bound = capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP);
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		had[i] = capng_have_capability(CAPNG_PERMITTED, needed[i].capability);
		kept[i] = is_needed(options, needed[i].by);
	}
	capng_clear(CAPNG_SELECT_BOTH);
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (had[i] && kept[i])
			capng_update(CAPNG_ADD, capability_sets(needed[i].capability),
				     needed[i].capability);
	if (capng_apply(may_bound ? CAPNG_SELECT_BOTH : CAPNG_SELECT_CAPS))
		return explain(error, -EPERM, "capabilities cannot be dropped");
	return 0;
}

int confine_covers(const struct daemon_options *options, struct careful_error *error)
{
	static const struct {
		const char *option, *what;
	} texts[] = {
		[NEEDED_BY_EXPORTS] = { "any --export", "exports" },
		[NEEDED_BY_WRITABLE] = { "--export with :rw", "writable exports" },
		[NEEDED_BY_OWNERS] = { "--export with :rw,owners", "exports with owners" },
		[NEEDED_BY_LEND] = { "--lend-bytes", "memory loans" },
	};

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (!kept[i] && is_needed(options, needed[i].by))
			return explain(
				error, -EPERM,
				"%s: carefuld was started without %s and gave up the capabilities for them: restart carefuld",
				texts[needed[i].by].option, texts[needed[i].by].what);
	return 0;
}
