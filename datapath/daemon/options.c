/* SPDX-License-Identifier: BSD-2-Clause */
/* Parses the command line; careful_open() checks the values against the interface. */
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <careful/abi.h>
#include <careful/ipc.h>
#include <careful/wire.h>

#include "daemon/export_option.h"
#include "daemon/options.h"
#include "base/error.h"

/* An option: its help, its kind, and the field that gets its value. */
struct rule {
	const char *name, *value, *help;
	enum { CALL, TEXT, NUMBER, BYTES, CHOICE, FLAG, HELP, VERSION } kind;
	/* TEXT, NUMBER, BYTES, CHOICE and FLAG: the field's offset in struct daemon_options */
	size_t at;
	uint64_t min, max;
	const char *names[4]; /* CHOICE: the words; the field gets the index of the word */
	/* CALL: stores the value; returns 0 or -errno. */
	int (*parse)(struct daemon_options *options, const char *arg, struct careful_error *error);
};

/* Reads a group's name. Refuses a number, which may be a mistake. */
static int parse_group(struct daemon_options *options, const char *arg, struct careful_error *error)
{
	const struct group *found = getgrnam(arg);

	if (!found)
		return explain(error, -EINVAL, "--group %s: there is no such group", arg);
	options->group = found->gr_gid;
	return 0;
}

static int parse_export(struct daemon_options *options, const char *arg,
			struct careful_error *error)
{
	struct careful_error why;
	int rc;

	if (options->exports_count == BLOCK_EXPORTS)
		return explain(error, -EINVAL, "--export %s: there can be at most %u exports", arg,
			       BLOCK_EXPORTS);
	rc = export_option(&options->exports[options->exports_count++], arg, &why);
	return rc ? explain(error, rc, "--export %s: %s", arg, why.text) : 0;
}

static int parse_name(struct daemon_options *options, const char *arg, struct careful_error *error)
{
	options->careful.name = arg;
	if (strlen(arg) < CAREFUL_NAME_BYTES)
		return 0;
	return explain(error, -EINVAL, "--name %s: must be at most %d bytes long", arg,
		       CAREFUL_NAME_BYTES - 1);
}

static int parse_keys(struct daemon_options *options, const char *arg, struct careful_error *error)
{
	(void)error;
	options->careful.keys = strcmp(arg, "none") ? arg : NULL;
	return 0;
}

static int parse_run_dir(struct daemon_options *options, const char *arg,
			 struct careful_error *error)
{
	int bytes = snprintf(options->run_dir, sizeof(options->run_dir), "%s", arg);

	if ((size_t)bytes < sizeof(options->run_dir))
		return 0;
	return explain(error, -EINVAL, "--run-dir %s: the path is too long", arg);
}

#define AT(field) .at = offsetof(struct daemon_options, field)
#define TEXT(field) .kind = TEXT, AT(field)
#define NUMBER(field, least, most) .kind = NUMBER, AT(field), .min = (least), .max = (most)
#define BYTES(field, least, most) .kind = BYTES, AT(field), .min = (least), .max = (most)
#define CHOICE(field, ...) .kind = CHOICE, AT(field), .names = { __VA_ARGS__ }
#define FLAG(field) .kind = FLAG, AT(field)
#define NL "\n                         "

static const struct rule rules[] = {
	{ "ifname", "IFACE", "the interface", TEXT(careful.ifname) },
	{ "instance", "NAME", "name of the instance (default: IFACE)", TEXT(careful.instance) },
	{ "name", "NAME", "what peers call this host (default: --instance, else the hostname)",
	  .parse = parse_name },
	{ "peers", "P", "how many peers share the receive buffers (8)",
	  NUMBER(careful.peers, 1, CAREFUL_PEERS_MAX) },
	{ "queue", "Q", "RX and TX queue to use (0)",
	  NUMBER(careful.queue, 0, CAREFUL_QUEUES_MAX - 1) },
	{ "queues", "N",
	  "use queues 0 to N-1, a process each, and spread peers over them (1)" NL
	  "Queue K uses UDP port PORT+K and, with --cpu C, CPU C+K",
	  NUMBER(careful.queues, 1, CAREFUL_SPREAD_MAX) },
	{ "port", "PORT", "UDP port (51966)", NUMBER(careful.port, 1, 65535) },
	{ "rx-buffers", "N", "receive buffers, a power of two (512)",
	  NUMBER(careful.rx_buffers, 1, CAREFUL_BUFFERS_MAX) },
	{ "tx-buffers", "N", "send buffers, a power of two (512)",
	  NUMBER(careful.tx_buffers, 1, CAREFUL_BUFFERS_MAX) },
	{ "reserve", "N",
	  "receive buffers outside all windows, granted to peers for messages" NL
	  "larger than their window (0)",
	  NUMBER(careful.reserve, 0, 65535) },
	{ "keys", "DIR",
	  "directory of keys (carefulctl key): a peer must prove a trusted key" NL
	  "to get a session (none: every peer gets a session)",
	  .parse = parse_keys },
	{ "seal", "MODE",
	  "off, auth (authenticates frames), or encrypt, which does both (off)" NL
	  "MODE@ADDRESS is for one peer; separate several with commas. Needs" NL
	  "--keys. Both ends must use the same setting",
	  TEXT(careful.seal) },
	{ "xdp", "MODE", "native, generic, or auto: carefuld measures which is better (auto)",
	  CHOICE(careful.xdp_mode, "auto", "native", "generic") },
	{ "require-zerocopy", NULL, "fail if the driver copies frames",
	  FLAG(careful.require_zerocopy) },
	{ "wait", "MODE", "adaptive, spin or block (adaptive)",
	  CHOICE(careful.wait_mode, "adaptive", "spin", "block") },
	{ "protocol", "NAME", "careful or traditional (careful)",
	  CHOICE(careful.protocol, "careful", "traditional") },
	{ "spin-us", "N", "how long adaptive spins before it blocks, in us (50)",
	  NUMBER(careful.spin_us, 1, 1000000) },
	{ "sync-ms", "N", "probe a peer that has been silent for this long, in ms (200)",
	  NUMBER(careful.sync_ms, 1, 3600000) },
	{ "stall-ms", "N", "drop a peer that has been silent for this long, in ms (30000)",
	  NUMBER(careful.stall_ms, 1, 3600000) },
	{ "repair", "MODE", "on: send lost frames again; off: begin a new epoch (on)",
	  CHOICE(careful.repair, "on", "off") },
	{ "file-writes", "WHO",
	  "engine or workers: who copies received data to the page cache (engine)",
	  CHOICE(careful.file_writes, "engine", "workers") },
	{ "cpu", "N", "CPU to run on", NUMBER(cpu, 0, 4095) },
	{ "export", "DIR[:rw]",
	  "let peers read DIR, or with :rw write it too; may be repeated." NL
	  "With several, paths start with the last component of a DIR." NL
	  ":rw,owners lets them set owners and set-user-ID bits as root may;" NL
	  ":rw,devices or :ro,devices serves block devices below DIR, too;" NL
	  ":rw,host=ADDRESS or :ro,host=ADDRESS serves only that host",
	  .parse = parse_export },
	{ "insecure", NULL,
	  "let peers write without --keys: everyone who can send to the port" NL "is a peer",
	  FLAG(insecure) },
	{ "lend-bytes", "N", "how much memory to lend to peers", BYTES(lend.bytes, 1, 1ull << 50) },
	{ "lend-host-bytes", "N", "most memory that one host may borrow (half of --lend-bytes)",
	  BYTES(lend.host_bytes, 1, 1ull << 50) },
	{ "lend-keep-ms", "N",
	  "how long a peer's memory stays after its session ended, in ms (60000)",
	  NUMBER(lend.keep_ms, 1, 86400000) },
	{ "group", "GROUP", "group that may connect to the socket, besides root",
	  .parse = parse_group },
	{ "run-dir", "DIR", "directory of socket, pid file and log (/run/careful/INSTANCE)",
	  .parse = parse_run_dir },
	{ "state-dir", "DIR",
	  "directory of remembered results, such as those of --xdp auto" NL
	  "($CAREFUL_STATE_DIR, else /var/lib/careful)",
	  TEXT(state_dir) },
	{ "log", "FILE", "log file (DIR/log of --run-dir; with --foreground: stderr)", TEXT(log) },
	{ "ready-fd", "N", "write \"ready\" or \"error: ...\" to this descriptor, then close it",
	  NUMBER(ready_fd, 0, 1 << 20) },
	{ "foreground", NULL, "do not detach from the terminal", FLAG(foreground) },
	{ "help", NULL, "show this text and exit", .kind = HELP },
	{ "version", NULL, "show the version and exit", .kind = VERSION },
};

enum { RULES = sizeof(rules) / sizeof(rules[0]) };

static void show_help(void)
{
	puts("Usage: carefuld --ifname IFACE [OPTION]...\n"
	     "Own a queue of IFACE, and serve it to local programs and to peers.\n"
	     "`carefulctl up` starts carefuld with these options.\n");
	for (const struct rule *one = rules; one < rules + RULES; one++) {
		int n = printf("  --%s %s", one->name, one->value ? one->value : "");

		printf("%*s%s\n", 25 - n, "", one->help);
	}
}

static int parse_number(const struct rule *rule, const char *text, uint64_t *value,
			struct careful_error *error)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || n < rule->min || n > rule->max)
		return explain(error, -EINVAL, "--%s %s: must be a number from %llu to %llu",
			       rule->name, text, (unsigned long long)rule->min,
			       (unsigned long long)rule->max);
	*value = n;
	return 0;
}

static int parse_choice(const struct rule *rule, const char *text, uint32_t *value,
			struct careful_error *error)
{
	char all[128] = "";

	for (uint32_t i = 0; rule->names[i]; i++) {
		if (!strcmp(text, rule->names[i])) {
			*value = i;
			return 0;
		}
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? ", " : "",
			 rule->names[i]);
	}
	return explain(error, -EINVAL, "--%s %s: must be one of %s", rule->name, text, all);
}

static int apply(struct daemon_options *options, const struct rule *rule, const char *arg,
		 struct careful_error *error)
{
	void *field = (char *)options + rule->at;
	uint64_t value = 0;
	int rc;

	switch (rule->kind) {
	case TEXT:
		*(const char **)field = arg;
		return 0;
	case NUMBER:
		rc = parse_number(rule, arg, &value, error);
		*(uint32_t *)field = (uint32_t)value;
		return rc;
	case BYTES:
		return parse_number(rule, arg, field, error);
	case CHOICE:
		return parse_choice(rule, arg, field, error);
	case FLAG:
		*(uint32_t *)field = 1;
		return 0;
	case HELP:
		show_help();
		return 1;
	case VERSION:
		printf("carefuld %s (wire %d.%d, socket %d, ABI %d)\n", careful_version(),
		       CAREFUL_WIRE_VERSION, CAREFUL_WIRE_MINOR, CAREFUL_IPC_VERSION,
		       CAREFUL_ABI_VERSION);
		return 1;
	default:
		return rule->parse(options, arg, error);
	}
}

static int check_instance(const char *name, struct careful_error *error)
{
	if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, "..") ||
	    strlen(name) > 64)
		return explain(error, -EINVAL,
			       "--instance %s: must be a name of 1 to 64 characters without /",
			       name);
	return 0;
}

static int check_exports(const struct daemon_options *options, struct careful_error *error)
{
	for (uint32_t i = 0; i < options->exports_count; i++)
		if (options->exports[i].writable && !options->careful.keys && !options->insecure)
			return explain(
				error, -EPERM,
				"--export %s:rw: anyone who can send to the port could write: make keys (carefulctl key new), or add --insecure",
				options->exports[i].path);
	return 0;
}

/* Explains the '?' or ':' that getopt_long() returned for this argument. */
static int usage_error(int returned, const char *word, struct careful_error *error)
{
	if (returned == ':')
		return explain(error, -EINVAL, "%s needs a value (see carefuld --help)", word);
	if (optopt > 0 && optopt <= RULES)
		return explain(error, -EINVAL, "%.*s takes no value (see carefuld --help)",
			       (int)strcspn(word, "="), word);
	if (optopt)
		return explain(error, -EINVAL, "unknown option -%c (see carefuld --help)", optopt);
	return explain(error, -EINVAL, "unknown option %s (see carefuld --help)", word);
}

int options_parse(struct daemon_options *options, int argc, char **argv,
		  struct careful_error *error)
{
	struct option known[RULES + 1] = { 0 };
	int id, rc;

	memset(options, 0, sizeof(*options));
	options->careful.measure_burst = 1;
	options->cpu = -1;
	options->lend.keep_ms = 60000;
	options->group = -1;
	options->ready_fd = -1;
	options->state_dir = getenv("CAREFUL_STATE_DIR");
	if (!options->state_dir || !options->state_dir[0])
		options->state_dir = "/var/lib/careful";
	opterr = 0;
	optind = 1;
	for (uint32_t i = 0; i < RULES; i++)
		known[i] =
			(struct option){ rules[i].name, rules[i].value ? 1 : 0, NULL, (int)i + 1 };
	while ((id = getopt_long(argc, argv, ":", known, NULL)) != -1) {
		if (id == '?' || id == ':')
			return usage_error(id, argv[optind - 1], error);
		rc = apply(options, &rules[id - 1], optarg, error);
		if (rc)
			return rc;
	}
	if (optind < argc)
		return explain(error, -EINVAL, "unexpected argument %s (see carefuld --help)",
			       argv[optind]);
	if (!options->careful.ifname)
		return explain(error, -EINVAL, "--ifname is missing (see carefuld --help)");
	if (!options->careful.instance)
		options->careful.instance = options->careful.ifname;
	if (options->careful.queues > 1 && options->careful.queue)
		return explain(
			error, -EINVAL,
			"--queue selects one queue, --queues counts several: use only one option");
	if (options->careful.queues > 1 && options->lend.bytes)
		return explain(error, -EINVAL, "--lend needs a single queue: remove --queues %u",
			       options->careful.queues);
	rc = check_instance(options->careful.instance, error);
	if (!rc)
		rc = check_exports(options, error);
	if (!rc && !options->run_dir[0])
		snprintf(options->run_dir, sizeof(options->run_dir), "/run/careful/%s",
			 options->careful.instance);
	return rc;
}
