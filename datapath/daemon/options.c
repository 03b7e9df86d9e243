/* SPDX-License-Identifier: BSD-2-Clause */
/* Parses the command line; careful_open() checks the values against the interface. */
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <careful/abi.h>
#include <careful/ipc.h>
#include <careful/wire.h>

#include "daemon/export_option.h"
#include "daemon/options.h"
#include "base/error.h"

static const char usage[] =
	"Usage: carefuld --ifname IFACE [OPTION]...\n"
	"Own a queue of IFACE, and serve it to local programs and to peers.\n"
	"`carefulctl up` starts carefuld with these options.\n"
	"\n"
	"  --ifname IFACE         the interface\n"
	"  --instance NAME        name of the instance (default: IFACE)\n"
	"  --name NAME            what peers call this host (default: the instance's name)\n"
	"  --peers P              how many peers share the receive buffers (8)\n"
	"  --queue Q              RX and TX queue to use (0)\n"
	"  --queues N             use queues 0 to N-1, a process each, and spread peers over them (1)\n"
	"                         Ports, and CPUs, count on from PORT and --cpu\n"
	"  --port PORT            UDP port (51966)\n"
	"  --rx-buffers N         receive buffers, a power of two (512)\n"
	"  --tx-buffers N         send buffers, a power of two (512)\n"
	"  --reserve N            receive buffers kept out of all windows, to be granted to peers\n"
	"                         for messages larger than their window (0)\n"
	"  --keys DIR             directory of keys (carefulctl key): a peer must prove one to get\n"
	"                         anything (none: whoever asks gets a session)\n"
	"  --seal MODE            off, auth, encrypt: frames prove who sent them, or are secret (off)\n"
	"                         MODE@ADDRESS of one peer; several with commas between. Takes\n"
	"                         --keys, and the same at the other end\n"
	"  --xdp MODE             native, generic, or auto: the better, as measured (auto)\n"
	"  --require-zerocopy     fail if frames would have to be copied\n"
	"  --wait MODE            adaptive, spin or block (adaptive)\n"
	"  --protocol NAME        careful or traditional (careful)\n"
	"  --spin-us N            how long adaptive spins before it blocks, in us (50)\n"
	"  --sync-ms N            ask a peer that has been silent for this long, in ms (200)\n"
	"  --stall-ms N           drop a peer that has been silent for this long, in ms (30000)\n"
	"  --repair MODE          on: send lost frames again; off: begin a new epoch (on)\n"
	"  --file-writes WHO      engine, or workers: the kernel's copy into the page cache (engine)\n"
	"  --cpu N                CPU to run on\n"
	"  --export DIR[:rw]      let peers read DIR, or with :rw write it too; may be repeated.\n"
	"                         With several, paths start with the last component of a DIR.\n"
	"                         :rw,owners lets them set owners and set-user-ID bits as root may;\n"
	"                         :rw,devices or :ro,devices serves block devices below DIR, too;\n"
	"                         :rw,host=ADDRESS or :ro,host=ADDRESS is for that host alone\n"
	"  --insecure             let peers write though there are no --keys: whoever can send to the\n"
	"                         port is one\n"
	"  --group GROUP          who may connect to the socket, besides root\n"
	"  --run-dir DIR          for the socket, pid file and log (/run/careful/INSTANCE)\n"
	"  --state-dir DIR        for what is remembered of --xdp auto\n"
	"                         ($CAREFUL_STATE_DIR, else /var/lib/careful)\n"
	"  --log FILE             log file (DIR/log of --run-dir; with --foreground: stderr)\n"
	"  --ready-fd N           write \"ready\" or \"error: ...\" to this descriptor, then close it\n"
	"  --foreground           do not detach from the terminal\n"
	"  --help                 show this text and exit\n"
	"  --version              show the version and exit\n";

enum option_id {
	OPT_IFNAME = 1,
	OPT_INSTANCE,
	OPT_NAME,
	OPT_PEERS,
	OPT_QUEUE,
	OPT_QUEUES,
	OPT_PORT,
	OPT_RX_BUFFERS,
	OPT_TX_BUFFERS,
	OPT_RESERVE,
	OPT_KEYS,
	OPT_SEAL,
	OPT_XDP,
	OPT_ZEROCOPY,
	OPT_WAIT,
	OPT_PROTOCOL,
	OPT_SPIN_US,
	OPT_SYNC_MS,
	OPT_STALL_MS,
	OPT_REPAIR,
	OPT_FILE_WRITES,
	OPT_CPU,
	OPT_EXPORT,
	OPT_INSECURE,
	OPT_GROUP,
	OPT_RUN_DIR,
	OPT_STATE_DIR,
	OPT_LOG,
	OPT_READY_FD,
	OPT_FOREGROUND,
	OPT_HELP,
	OPT_VERSION,
};

static const struct option long_options[] = {
	{ "ifname", required_argument, NULL, OPT_IFNAME },
	{ "instance", required_argument, NULL, OPT_INSTANCE },
	{ "name", required_argument, NULL, OPT_NAME },
	{ "peers", required_argument, NULL, OPT_PEERS },
	{ "queue", required_argument, NULL, OPT_QUEUE },
	{ "queues", required_argument, NULL, OPT_QUEUES },
	{ "port", required_argument, NULL, OPT_PORT },
	{ "rx-buffers", required_argument, NULL, OPT_RX_BUFFERS },
	{ "tx-buffers", required_argument, NULL, OPT_TX_BUFFERS },
	{ "reserve", required_argument, NULL, OPT_RESERVE },
	{ "keys", required_argument, NULL, OPT_KEYS },
	{ "seal", required_argument, NULL, OPT_SEAL },
	{ "xdp", required_argument, NULL, OPT_XDP },
	{ "require-zerocopy", no_argument, NULL, OPT_ZEROCOPY },
	{ "wait", required_argument, NULL, OPT_WAIT },
	{ "protocol", required_argument, NULL, OPT_PROTOCOL },
	{ "spin-us", required_argument, NULL, OPT_SPIN_US },
	{ "sync-ms", required_argument, NULL, OPT_SYNC_MS },
	{ "stall-ms", required_argument, NULL, OPT_STALL_MS },
	{ "repair", required_argument, NULL, OPT_REPAIR },
	{ "file-writes", required_argument, NULL, OPT_FILE_WRITES },
	{ "cpu", required_argument, NULL, OPT_CPU },
	{ "export", required_argument, NULL, OPT_EXPORT },
	{ "insecure", no_argument, NULL, OPT_INSECURE },
	{ "group", required_argument, NULL, OPT_GROUP },
	{ "run-dir", required_argument, NULL, OPT_RUN_DIR },
	{ "state-dir", required_argument, NULL, OPT_STATE_DIR },
	{ "log", required_argument, NULL, OPT_LOG },
	{ "ready-fd", required_argument, NULL, OPT_READY_FD },
	{ "foreground", no_argument, NULL, OPT_FOREGROUND },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ 0 },
};

static int number(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *value,
		  struct careful_error *error)
{
	unsigned long n;
	char *end;

	errno = 0;
	n = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || n < min || n > max)
		return refuse(error, -EINVAL, "--%s %s: must be a number from %u to %u", option,
			      text, min, max);
	*value = (uint32_t)n;
	return 0;
}

static int choice(const char *option, const char *text, const char *const *names, uint32_t *value,
		  struct careful_error *error)
{
	char all[128] = "";

	for (uint32_t i = 0; names[i]; i++) {
		if (!strcmp(text, names[i])) {
			*value = i;
			return 0;
		}
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? ", " : "",
			 names[i]);
	}
	return refuse(error, -EINVAL, "--%s %s: must be one of %s", option, text, all);
}

/* Finds the group by name only: a number may be a mistake. */
static int find_group(struct daemon_options *options, const char *arg, struct careful_error *error)
{
	const struct group *found = getgrnam(arg);

	if (!found)
		return refuse(error, -EINVAL, "--group %s: there is no such group", arg);
	options->group = found->gr_gid;
	return 0;
}

static int add_export(struct daemon_options *options, const char *arg, struct careful_error *error)
{
	char why[128];
	int rc;

	if (options->exports_count == BLOCK_EXPORTS)
		return refuse(error, -EINVAL, "--export %s: there can be at most %u exports", arg,
			      BLOCK_EXPORTS);
	rc = export_option(&options->exports[options->exports_count], arg, why, sizeof(why));
	if (rc)
		return refuse(error, rc, "--export %s: %s", arg, why);
	options->exports_count++;
	return 0;
}

static int take(struct daemon_options *o, int id, const char *name, char *arg,
		struct careful_error *error)
{
	static const char *const xdp[] = { "auto", "native", "generic", NULL };
	static const char *const wait[] = { "adaptive", "spin", "block", NULL };
	static const char *const protocols[] = { "careful", "traditional", NULL };
	static const char *const repairs[] = { "on", "off", NULL };
	static const char *const writers[] = { "engine", "workers", NULL };
	struct careful_options *c = &o->careful;
	uint32_t n = 0;
	int rc;

	switch (id) {
	case OPT_IFNAME:
		c->ifname = arg;
		return 0;
	case OPT_INSTANCE:
		c->instance = arg;
		return 0;
	case OPT_NAME:
		c->name = arg;
		return strlen(arg) < CAREFUL_NAME_BYTES ?
			       0 :
			       refuse(error, -EINVAL, "--name %s: must be at most %d bytes long",
				      arg, CAREFUL_NAME_BYTES - 1);
	case OPT_PEERS:
		return number(name, arg, 1, CAREFUL_PEERS_MAX, &c->peers, error);
	case OPT_QUEUE:
		return number(name, arg, 0, CAREFUL_QUEUES_MAX - 1, &c->queue, error);
	case OPT_QUEUES:
		return number(name, arg, 1, CAREFUL_SPREAD_MAX, &c->queues, error);
	case OPT_PORT:
		return number(name, arg, 1, 65535, &c->port, error);
	case OPT_RX_BUFFERS:
		return number(name, arg, 1, 1 << 20, &c->rx_buffers, error);
	case OPT_TX_BUFFERS:
		return number(name, arg, 1, 1 << 20, &c->tx_buffers, error);
	case OPT_RESERVE:
		return number(name, arg, 0, 65535, &c->reserve, error);
	case OPT_KEYS:
		c->keys = strcmp(arg, "none") ? arg : NULL;
		return 0;
	case OPT_SEAL:
		c->seal = arg;
		return 0;
	case OPT_XDP:
		return choice(name, arg, xdp, &c->xdp_mode, error);
	case OPT_ZEROCOPY:
		c->require_zerocopy = 1;
		return 0;
	case OPT_WAIT:
		return choice(name, arg, wait, &c->wait_mode, error);
	case OPT_PROTOCOL:
		return choice(name, arg, protocols, &c->protocol, error);
	case OPT_SPIN_US:
		return number(name, arg, 1, 1000000, &c->spin_us, error);
	case OPT_SYNC_MS:
		return number(name, arg, 1, 3600000, &c->sync_ms, error);
	case OPT_STALL_MS:
		return number(name, arg, 1, 3600000, &c->stall_ms, error);
	case OPT_REPAIR:
		return choice(name, arg, repairs, &c->repair, error);
	case OPT_FILE_WRITES:
		return choice(name, arg, writers, &c->file_writes, error);
	case OPT_CPU:
		rc = number(name, arg, 0, 4095, &n, error);
		o->cpu = rc ? -1 : (int)n;
		return rc;
	case OPT_EXPORT:
		return add_export(o, arg, error);
	case OPT_INSECURE:
		o->insecure = true;
		return 0;
	case OPT_GROUP:
		return find_group(o, arg, error);
	case OPT_RUN_DIR:
		snprintf(o->run_dir, sizeof(o->run_dir), "%s", arg);
		return strlen(arg) < sizeof(o->run_dir) ?
			       0 :
			       refuse(error, -EINVAL, "--run-dir %s: the path is too long", arg);
	case OPT_STATE_DIR:
		o->state_dir = arg;
		return 0;
	case OPT_LOG:
		o->log = arg;
		return 0;
	case OPT_READY_FD:
		rc = number(name, arg, 0, 1 << 20, &n, error);
		o->ready_fd = rc ? -1 : (int)n;
		return rc;
	case OPT_FOREGROUND:
		o->foreground = true;
		return 0;
	default:
		return refuse(error, -EINVAL, "unknown option --%s", name);
	}
}

/* Checks the instance's name, which becomes part of paths. */
static int check_instance(const char *name, struct careful_error *error)
{
	if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, "..") ||
	    strlen(name) > 64)
		return refuse(error, -EINVAL,
			      "--instance %s: must be a name of 1 to 64 characters without /",
			      name);
	return 0;
}

/* Refuses writable exports without keys, since anyone who can send to the port is then a peer. */
static int check_exports(const struct daemon_options *options, struct careful_error *error)
{
	for (uint32_t i = 0; i < options->exports_count; i++)
		if (options->exports[i].writable && !options->careful.keys && !options->insecure)
			return refuse(
				error, -EPERM,
				"--export %s:rw: anyone who can send to the port could write: make keys (carefulctl key new), or add --insecure",
				options->exports[i].path);
	return 0;
}

/* Explains the '?' or ':' that getopt_long() returned; word is the argument where it stopped. */
static int misused(int returned, const char *word, struct careful_error *error)
{
	if (returned == ':')
		return refuse(error, -EINVAL, "%s needs a value (see carefuld --help)", word);
	if (optopt > 0 && optopt <= OPT_VERSION)
		return refuse(error, -EINVAL, "%.*s takes no value (see carefuld --help)",
			      (int)strcspn(word, "="), word);
	if (optopt)
		return refuse(error, -EINVAL, "unknown option -%c (see carefuld --help)", optopt);
	return refuse(error, -EINVAL, "unknown option %s (see carefuld --help)", word);
}

int options_parse(struct daemon_options *options, int argc, char **argv,
		  struct careful_error *error)
{
	int id, index, rc;

	memset(options, 0, sizeof(*options));
	options->careful.measure_burst = 1;
	options->cpu = -1;
	options->group = -1;
	options->ready_fd = -1;
	options->state_dir = getenv("CAREFUL_STATE_DIR");
	if (!options->state_dir || !options->state_dir[0])
		options->state_dir = "/var/lib/careful";
	opterr = 0;
	optind = 1;
	while ((id = getopt_long(argc, argv, ":", long_options, &index)) != -1) {
		if (id == OPT_HELP) {
			fputs(usage, stdout);
			return 1;
		}
		if (id == OPT_VERSION) {
			printf("carefuld %s (wire %d.%d, socket %d, ABI %d)\n", careful_version(),
			       CAREFUL_WIRE_VERSION, CAREFUL_WIRE_MINOR, CAREFUL_IPC_VERSION,
			       CAREFUL_ABI_VERSION);
			return 1;
		}
		if (id == '?' || id == ':')
			return misused(id, argv[optind - 1], error);
		rc = take(options, id, long_options[index].name, optarg, error);
		if (rc)
			return rc;
	}
	if (optind < argc)
		return refuse(error, -EINVAL, "unexpected argument %s (see carefuld --help)",
			      argv[optind]);
	if (!options->careful.ifname)
		return refuse(error, -EINVAL, "--ifname is missing (see carefuld --help)");
	if (!options->careful.instance)
		options->careful.instance = options->careful.ifname;
	if (options->careful.queues > 1 && options->careful.queue)
		return refuse(
			error, -EINVAL,
			"--queue selects one queue, --queues counts several: use one of them");
	rc = check_instance(options->careful.instance, error);
	if (!rc)
		rc = check_exports(options, error);
	if (!rc && !options->run_dir[0])
		snprintf(options->run_dir, sizeof(options->run_dir), "/run/careful/%s",
			 options->careful.instance);
	return rc;
}
