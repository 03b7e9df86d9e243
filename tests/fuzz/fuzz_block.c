// SPDX-License-Identifier: BSD-2-Clause
/*
 * Fuzzes the block server over an instance without a network: requests of two peers to
 * all its handlers. Nothing outside the exports may be opened, changed or created, each
 * request is answered once, and no handle, kept buffer or descriptor is left at the end.
 */
#include <endian.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <careful/block.h>
#include <careful/wire.h>

#include "fake_careful.c" /* NOLINT(bugprone-suspicious-include) */
#include "input.h"
#include "files/private.h"
#include "base/xxh3.h"

enum {
	STEPS = 40,
	FILE_LIMIT = 1 << 20, /* largest size of a file that an input makes */
	WAITS_MAX = 3000,
	SCRATCH_BYTES = 4096, /* for a batch */
	PATH_BYTES = 64,
	ITEM_BYTES = 64, /* of contents */
	SECRET_BYTES = 20,
};

static bool may_be_unanswered[FAKE_TOKENS];
static char base[] = "/tmp/fuzz_block.XXXXXX";
static uint64_t secret; /* its digest, because libFuzzer copies compared bytes into inputs */

static const char *at(const char *path)
{
	static char buf[4][512];
	static int i;

	i = (i + 1) % 4;
	snprintf(buf[i], sizeof(buf[i]), "%s/%s", base, path);
	return buf[i];
}

static void put_file(const char *path, const char *text)
{
	int fd = open(at(path), O_CREAT | O_WRONLY | O_TRUNC, 0644);

	MUST(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void remove_base(void)
{
	nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Restores the writable export before each run. */
static void make_writable(void)
{
	nftw(at("w"), remove_one, 16, FTW_DEPTH | FTW_PHYS);
	MUST(!mkdir(at("w"), 0755) && !mkdir(at("w/d"), 0755));
	put_file("w/f", "a file that may be replaced");
	MUST(!symlink("../outside", at("w/out")) && !symlink("f", at("w/in")));
	MUST(!mkfifo(at("w/pipe"), 0644));
}

/* Writes a new secret outside the exports. */
static void put_secret(void)
{
	char text[SECRET_BYTES + 1] = { 0 };

	MUST(getrandom(text, SECRET_BYTES, 0) == SECRET_BYTES);
	for (int i = 0; i < SECRET_BYTES; i++)
		text[i] = (char)(text[i] | 0x80);
	put_file("outside/secret", text);
	secret = xxh3_hash(text, SECRET_BYTES);
}

static bool has_secret(const char *text, ssize_t bytes)
{
	for (ssize_t i = 0; i + SECRET_BYTES <= bytes; i++)
		if (text[i] & 0x80 && xxh3_hash(text + i, SECRET_BYTES) == secret)
			return true;
	return false;
}

static void set_up(void)
{
	const struct rlimit limit = { FILE_LIMIT, FILE_LIMIT };

	MUST(mkdtemp(base));
	atexit(remove_base);
	signal(SIGXFSZ, SIG_IGN);
	MUST(!setrlimit(RLIMIT_FSIZE, &limit));
	MUST(!mkdir(at("outside"), 0755) && !mkdir(at("r"), 0755) && !mkdir(at("r/d"), 0755));
	put_secret();
	put_file("r/f", "a file");
	put_file("r/d/g", "another");
	MUST(!symlink("../outside/secret", at("r/out")) && !symlink("d/g", at("r/in")));
}

static uint32_t take_path(struct input *in, char *path, uint32_t room)
{
	static const char *const parts[] = {
		"r",  "w", "f", "d",   "g",  "out", "in",      "pipe",
		"..", ".", "",	"new", "n2", "/",   "outside", "secret",
	};
	uint32_t n = take8(in), at = 0, got;

	if (n >= 0xf0) {
		const uint8_t *p = take_bytes(in, (n & 15) * 4, &got);

		memcpy(path, p, got);
		return got;
	}
	for (n &= 7; n; n--) {
		uint8_t what = take8(in);
		uint32_t bytes = (uint32_t)strlen(parts[what & 15]);

		if (at + bytes + 1 > room)
			break;
		memcpy(path + at, parts[what & 15], bytes);
		at += bytes;
		if (n > 1)
			path[at++] = '/';
	}
	return at;
}

/* Returns a size near a boundary. */
static uint64_t take_size(struct input *in)
{
	static const uint64_t near[] = { 0,	     1,		 4096,	     FILE_LIMIT,
					 1ull << 31, 1ull << 32, 1ull << 62, UINT64_MAX };
	uint8_t what = take8(in);

	return near[what & 7] + (what >> 6) - 1 + (what & 0x20 ? take16(in) : 0);
}

/* Returns a handle of an earlier answer, or any number. */
static uint32_t take_key(struct input *in, const struct careful *c)
{
	uint8_t what = take8(in);

	return what & 0x80 ? take16(in) : c->keys ? c->keys - 1 - what % 8 : 0;
}

/* Writes an interesting name for a batch, or any name. */
static uint32_t take_name(struct input *in, char *to)
{
	static const char *const names[] = {
		"f",  "d",    "new",	"d/new", "in",	    "pipe",	"out",	     "out/secret",
		"..", "d/..", "../r/f", "out/f", "out/new", "d/../new", "in/../new", "/etc/passwd",
	};
	uint8_t which = take8(in);

	if (which >= 0xc0)
		return take_path(in, to, PATH_BYTES);
	strcpy(to, names[which & 15]); /* NOLINT: shorter than PATH_BYTES */
	return (uint32_t)strlen(to);
}

/* Writes an item of a batch: any operation with any names; the input may corrupt bytes. */
static uint32_t put_item(struct input *in, uint8_t *to)
{
	static const uint32_t types[] = { S_IFREG, S_IFDIR, S_IFLNK, 0 };
	struct careful_block_item item = { 0 };
	uint32_t used = sizeof(item), n;

	item.op = htobe16(take8(in) % (CAREFUL_ITEM_APPEND + 2));
	n = take16(in);
	item.attr.mode = htobe32(types[n >> 14] | (n & 07777));
	item.attr.uid = htobe32(n & 1);
	item.attr.bytes = htobe64(n & 2);
	item.attr.mtime_ns = htobe64(take8(in));
	n = take_name(in, (char *)to + used);
	item.name_bytes = htobe32(n);
	used += n;
	n = take_name(in, (char *)to + used);
	item.text_bytes = htobe32(n);
	used += n;
	n = take8(in) % ITEM_BYTES;
	memset(to + used, 'n', n);
	item.data_bytes = htobe64(n);
	used += n;
	memcpy(to, &item, sizeof(item));
	for (n = take8(in); n > 0xf8; n--)
		to[take8(in) % used] ^= take8(in);
	return (used + 7) & ~7U;
}

/* Stores a batch into memory that the peer may write. */
static uint32_t store_items(struct input *in, struct careful *c, uint32_t key)
{
	uint8_t items[SCRATCH_BYTES] = { 0 };
	const struct careful_region *region = fake_region(c, key);
	uint32_t used = 0;

	if (!region || !(region->access & CAREFUL_REGION_WRITE))
		return 0;
	for (uint32_t n = take8(in) & 7; n; n--)
		used += put_item(in, items + used);
	if (used > region->bytes)
		used = (uint32_t)region->bytes;
	return pwrite(region->span.fd, items, used, 0) == used ? used : 0;
}

/* Returns the newest handle that a peer may store to, or any handle. */
static uint32_t take_scratch(struct input *in, const struct careful *c)
{
	if (in->bytes && in->data[0] < 0xe0) {
		take8(in);
		for (uint32_t key = c->keys; key--;)
			if (c->regions[key].used &&
			    c->regions[key].region.access & CAREFUL_REGION_WRITE)
				return key;
	}
	return take_key(in, c);
}

/* Stores items, then makes the request to run them. */
static uint32_t take_batch(struct input *in, struct careful *c, uint32_t *args, uint8_t *payload)
{
	struct careful_block_batch batch = { .file_bytes_max = htobe32(FILE_LIMIT) };
	uint64_t bytes;

	args[0] = take_scratch(in, c);
	args[1] = take8(in);
	bytes = store_items(in, c, args[0]);
	if (take8(in) > 0xf0)
		bytes = take_size(in);
	batch.bytes = htobe64(bytes);
	batch.umask = htobe32(take8(in));
	memcpy(payload, &batch, sizeof(batch));
	return sizeof(batch);
}

static uint32_t take_payload(struct input *in, struct careful *c, uint16_t handler, uint32_t *args,
			     uint8_t *payload, uint32_t room)
{
	struct careful_block_open open = { 0 };
	struct careful_block_range range = { 0 };
	uint32_t bytes;

	switch (handler) {
	case CAREFUL_BLOCK_BATCH:
		return take_batch(in, c, args, payload);
	case CAREFUL_BLOCK_STAT:
	case CAREFUL_BLOCK_LIST:
		args[0] = take8(in);
		return take_path(in, (char *)payload, room);
	case CAREFUL_BLOCK_DIGEST:
	case CAREFUL_BLOCK_EXTENTS:
		args[0] = take_key(in, c);
		range.offset = htobe64(take_size(in));
		range.bytes = htobe64(take_size(in));
		range.block_bytes = htobe32((uint32_t)take_size(in));
		memcpy(payload, &range, sizeof(range));
		return sizeof(range);
	case CAREFUL_BLOCK_CLOSE:
	case CAREFUL_BLOCK_COMMIT:
		args[0] = take_key(in, c);
		args[1] = take16(in);
		break;
	default:
		open.flags = htobe32(take16(in));
	}
	open.mode = htobe32(take16(in));
	open.bytes = htobe64(take_size(in));
	open.mtime_ns = htobe64(take_size(in));
	open.tag = htobe64(take8(in) & 3);
	open.tail_bytes = htobe32((uint32_t)take_size(in));
	bytes = take_path(in, (char *)payload + sizeof(open), room - (uint32_t)sizeof(open));
	open.path_bytes = htobe32(bytes);
	memcpy(payload, &open, sizeof(open));
	return bytes + (uint32_t)sizeof(open);
}

static uint16_t handler_of(uint8_t what)
{
	switch (what & 0x78) {
	case 0x70:
		return CAREFUL_BLOCK_BATCH;
	default:
		return CAREFUL_BLOCK_OPEN + (what & 7);
	}
}

/* Makes an OPEN of memory for a batch, in one of the exports. */
static uint32_t make_scratch(uint8_t *payload, char export)
{
	const struct careful_block_open open = {
		.flags = htobe32(CAREFUL_BLOCK_SCRATCH),
		.bytes = htobe64(SCRATCH_BYTES),
		.path_bytes = htobe32(1),
	};

	memcpy(payload, &open, sizeof(open));
	payload[sizeof(open)] = (uint8_t) export;
	return sizeof(open) + 1;
}

static void ask(struct careful *c, struct input *in)
{
	uint8_t what = take8(in), how = take8(in);
	uint16_t handler = handler_of(what);
	uint8_t payload[1024] = { 0 };
	uint32_t args[4] = { 0, 0, 0, how & 3 };
	uint32_t bytes = handler == CAREFUL_BLOCK_OPEN && how & 0x10 ?
				 make_scratch(payload, how & 4 ? 'r' : 'w') :
				 take_payload(in, c, handler, args, payload, sizeof(payload));

	/* The path is in memory; COMMIT, CLOSE and ranges have other payloads. */
	if (how & 8 && (handler == CAREFUL_BLOCK_OPEN || handler == CAREFUL_BLOCK_LIST ||
			handler == CAREFUL_BLOCK_STAT || handler == CAREFUL_BLOCK_MKDIR))
		args[1] = take_key(in, c);
	for (uint32_t n = how >> 6; n && bytes; n--) { /* corrupts a byte */
		uint32_t i = take8(in) % bytes;

		payload[i] ^= take8(in);
	}
	if (how & 0x20)
		bytes = take8(in) % (bytes + 1);
	if (!c->handlers[handler].fn)
		return;
	/* If a client repeats a request, only the repetition is answered. */
	may_be_unanswered[c->tokens] = args[3] || handler == CAREFUL_BLOCK_COMMIT ||
				       handler == CAREFUL_BLOCK_CLOSE;
	fake_request(c, what >> 7, handler, args, payload, bytes);
}

/* Reports whether the server has no requests left. */
static bool idle(const struct block_server *server)
{
	for (uint32_t i = 0; i < server->peers_count; i++) {
		if (server->peers[i].jobs.free != server->peers[i].jobs.count ||
		    server->peers[i].parked)
			return false;
		for (const struct block_handle *h = server->peers[i].handles; h; h = h->next)
			if (h->state != BLOCK_OPEN)
				return false;
	}
	return !server->unsent.head && !server->ending.head;
}

/* Checks that every request was answered, except those that wait for handles of their peer. */
static void check_answers(const struct careful *c, const struct block_server *server)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->tokens; i++)
		n += !c->answers[i]->given && !may_be_unanswered[i];
	MUST(n <= server->waiters_count);
}

static bool regions_left(const struct careful *c)
{
	for (uint32_t i = 0; i < FAKE_REGIONS; i++)
		if (c->regions[i].used)
			return true;
	return false;
}

/* Checks that the regions open to peers lie inside an export and do not contain the secret. */
static void check_regions(const struct careful *c)
{
	char link[64], path[512], text[4096];

	for (uint32_t i = 0; i < FAKE_REGIONS; i++) {
		ssize_t n;

		if (!c->regions[i].used)
			continue;
		snprintf(link, sizeof(link), "/proc/self/fd/%d", c->regions[i].region.span.fd);
		n = readlink(link, path, sizeof(path) - 1);
		MUST(n > 0);
		path[n] = 0;
		MUST(strncmp(path, at("outside"), strlen(at("outside"))) != 0);
		n = pread(c->regions[i].region.span.fd, text, sizeof(text), 0);
		MUST(!has_secret(text, n));
	}
}

static void wait_for(struct careful *c, struct block_server *server)
{
	for (int i = 0; !idle(server); i++) {
		struct pollfd pfd = { .fd = block_fd(server), .events = POLLIN };
		int timeout = block_timeout_ms(server);

		MUST(i < WAITS_MAX);
		poll(&pfd, 1, timeout < 0 ? 10 : timeout);
		block_poll(server);
	}
	check_answers(c, server);
}

/* Ends a peer's session: its requests need no answer any more. */
static void peer_gone(struct careful *c, struct block_server *server, uint32_t peer, uint32_t state)
{
	memset(may_be_unanswered, true, c->tokens);
	block_watch(c, peer, state, server);
}

static void check_outside(void)
{
	struct stat st;
	struct stat dir;

	MUST(!stat(at("outside/secret"), &st) && st.st_size == SECRET_BYTES &&
	     (st.st_mode & 0777) == 0644);
	MUST(!stat(at("outside"), &dir) && dir.st_nlink == 2 && !stat(at("r"), &dir) &&
	     dir.st_nlink == 3);
	MUST(access(at("new"), F_OK) && access(at("outside/new"), F_OK) &&
	     access(at("outside/f"), F_OK) && access(at("r/new"), F_OK));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct block_export_options exports[] = { { .name = "r" },
						  { .name = "w", .writable = true } };
	struct block_server *server;
	struct careful_error error;
	struct input in = { data, bytes };
	static bool ready;
	struct careful *c;
	int before;

	if (!ready) {
		set_up();
		ready = true;
	}
	make_writable();
	before = lowest_fd();
	c = fake_create();
	exports[0].path = at("r");
	exports[1].path = at("w");
	MUST(block_serve(c, exports, 2, &server, &error) == 0);
	for (int i = 0; i < STEPS && in.bytes; i++) {
		uint8_t what = take8(&in);

		ask(c, &in);
		if (what & 1)
			wait_for(c, server);
		if ((what & 0xf0) == 0xf0) /* a peer's session ends */
			peer_gone(c, server, what >> 1 & 1, CAREFUL_PEER_FAILED);
		c->busy = what >> 2 & 3;
	}
	c->busy = 0;
	for (uint32_t i = 0; i < 2; i++) {
		check_regions(c);
		peer_gone(c, server, i, CAREFUL_PEER_NONE);
	}
	wait_for(c, server);
	MUST(!regions_left(c));
	while (block_stop(server)) /* on a busy machine the threads need longer to end */
		;
	MUST(!c->kept);
	fake_destroy(c);
	check_outside();
	MUST(lowest_fd() == before);
	return 0;
}
