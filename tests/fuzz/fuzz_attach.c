// SPDX-License-Identifier: BSD-2-Clause
/*
 * Fuzzes carefuld's end of the memory that it shares with programs (ipc.h), over two engines joined
 * in memory. Hostile programs attach, write any bytes into their rings, change the numbers and
 * published entries, send requests by the socket, and leave. Meanwhile the other host sends
 * requests, stores and gets. The honest program must be served, no frame may be lost, and the
 * hostile programs must leave nothing behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <careful/careful.h>
#include <careful/ipc.h>

#include "control.h"
#include "daemon/ipc/ipc_program.h"
#include "input.h"
#include "memory_device.h"
#include "engine/engine.h"

enum {
	PROGRAMS = 3, /* the first one is honest */
	STEPS = 120,
	TURNS = 4000, /* most turns until all operations have ended */
	ROUNDS_MAX = 400, /* most rounds until the honest program has its answer */
	TURN_NS = 20000,
	ECHO = 1,
	NEVER = 2, /* answers only if the input wants it */
	PROGRAM_HANDLERS = 3, /* the first handler that belongs to a program */
	TABLE_BYTES = 64 << 10,
	MEMORY_BYTES = 64 << 10,
	OPERATIONS = 512,
	HELD = 64,
};

struct program {
	int fd; /* -1: none */
	struct careful_area *area;
	size_t bytes;
	struct careful_ring_entry *asks;
	uint8_t *payloads;
	uint32_t put, taken;
};

static struct {
	struct memory ends[2];
	struct careful *node[2];
	struct ipc *server;
	struct control control;
	int file;
	uint64_t now_ns;
	uint32_t table_key, region_key, peer;
	uint64_t ids;
	struct program programs[PROGRAMS];
	struct careful_reply_to held[HELD];
	uint32_t held_count;
} world;

static uint8_t table[TABLE_BYTES], scrap[TABLE_BYTES];

static void changed(struct careful *instance, uint32_t peer, uint32_t state, void *user)
{
	(void)instance;
	ipc_peer_changed(user, peer, state);
}

static void echo(const struct careful_message *message, void *user)
{
	(void)user;
	careful_reply(message, 0, message->args, message->payload, message->bytes);
}

static void hold(const struct careful_message *message, void *user)
{
	(void)user;
	if (world.held_count < HELD)
		careful_reply_name(message, &world.held[world.held_count++]);
}

static void turn(void)
{
	control_turn(&world.control, world.server, world.server->closer.files);
	world.now_ns += TURN_NS;
	for (int side = 0; side < 2; side++) {
		world.ends[side].now_ns = world.now_ns;
		MUST(careful_poll(world.node[side]) >= 0);
	}
}

static void open_engines(void)
{
	const struct careful_options options = { .ifname = "memory" };
	const struct careful_region region = {
		.span = { .base = table, .fd = -1 },
		.bytes = TABLE_BYTES,
		.access = CAREFUL_REGION_READ | CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
	};
	struct careful_error error;

	memory_init(world.ends, 64);
	for (int side = 0; side < 2; side++) {
		const struct engine_base base = {
			.queue = &world.ends[side].queue,
			.storage = &world.ends[side].storage,
			.limits = { .operations = OPERATIONS,
				    .regions = 64,
				    .messages = { .outs = 32, .parked = 128, .copies = 8 } },
		};

		world.ends[side].now_ns = world.now_ns;
		MUST(!engine_open(&options, &base, &world.node[side], &error));
	}
	MUST(!careful_handle(world.node[1], ECHO, echo, NULL));
	MUST(!careful_handle(world.node[1], NEVER, hold, NULL));
	MUST(!careful_region_add(world.node[1], &region, &world.table_key));
}

static int receive(int fd, struct careful_ipc *head, int *passed)
{
	static uint8_t payload[CAREFUL_IPC_PAYLOAD_BYTES];
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	struct iovec iov[2] = { { head, sizeof(*head) }, { payload, sizeof(payload) } };
	struct msghdr msg = {
		.msg_iov = iov,
		.msg_iovlen = 2,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n <= 0)
		return -1;
	MUST((size_t)n >= sizeof(*head) && head->version == CAREFUL_IPC_VERSION);
	MUST(head->payload_bytes == (size_t)n - sizeof(*head) && head->status <= 0);
	if (CMSG_FIRSTHDR(&msg))
		memcpy(passed, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(*passed));
	return 0;
}

/* Reads the answers, and stores their last region and peer. */
static void read_answers(struct program *p)
{
	struct careful_ipc head;
	int passed = -1;

	while (p->fd >= 0 && !receive(p->fd, &head, &passed)) {
		if (head.op == CAREFUL_IPC_REGION_ADD && !head.status)
			world.region_key = head.region;
		if (head.op == CAREFUL_IPC_PEER_BEGIN && !head.status)
			world.peer = head.peer;
		if (head.op != CAREFUL_IPC_ATTACH || head.status)
			continue;
		MUST(passed >= 0 && !p->area);
		p->bytes = careful_area_before() + head.bytes;
		p->area = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, passed, 0);
		MUST(p->area != MAP_FAILED);
		close(passed);
		p->asks = (struct careful_ring_entry *)(p->area + 1);
		p->payloads = (uint8_t *)p->area + careful_area_payloads();
	}
}

static void ask(const struct program *p, struct careful_ipc *head, const void *payload, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = { 0 };
	struct iovec iov[2] = { { head, sizeof(*head) }, { (void *)payload, head->payload_bytes } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = head->payload_bytes ? 2 : 1 };
	struct cmsghdr *cmsg;

	head->version = CAREFUL_IPC_VERSION;
	head->id = ++world.ids;
	if (fd >= 0) {
		msg.msg_control = control;
		msg.msg_controllen = sizeof(control);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	}
	sendmsg(p->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void leave(struct program *p)
{
	if (p->fd >= 0)
		close(p->fd);
	if (p->area)
		munmap(p->area, p->bytes);
	*p = (struct program){ .fd = -1 };
}

static void attach(struct program *p)
{
	const union address there = memory_address(1, 0);
	struct careful_ipc attach = { .op = CAREFUL_IPC_ATTACH,
				      .bytes = MEMORY_BYTES,
				      .payload_bytes = 1 };
	struct careful_ipc peer = { .op = CAREFUL_IPC_PEER_BEGIN,
				    .payload_bytes = sizeof(there.in) };

	leave(p);
	p->fd = control_connect(&world.control);
	if (p->fd < 0)
		return;
	ask(p, &attach, "p", -1);
	ask(p, &peer, &there.in, -1);
	for (int i = 0; i < 4 && !p->area; i++) {
		turn();
		read_answers(p);
	}
	turn();
	read_answers(p);
}

static void publish(struct program *p, uint32_t n)
{
	p->put += n;
	__atomic_store_n(&p->area->asks_put.value, p->put, __ATOMIC_RELEASE);
}

/* Returns a message that is correct except for the fields that the input corrupts. */
static struct careful_ring_entry make_entry(struct input *in)
{
	static const uint32_t bytes[] = { 0, 1, 16, 300, 2000, 4096, MEMORY_BYTES, 1 << 24 };
	uint8_t what = take8(in), how = take8(in);
	struct careful_ring_entry e = {
		.kind = 1 + what % 4,
		.id = what & 4 ? take8(in) : how & 3,
		.peer = what & 8 ? take16(in) : world.peer,
		.handler = what & 0x10 ? take16(in) : how & 3,
		.region = world.table_key,
		.bytes = bytes[how >> 2 & 7],
		.flags = how >> 5,
		.memory_off = what & 0x20 ? take32(in) : how & 0x1f,
		.region_off = what & 0x40 ? take32(in) : 0,
		.status = (int32_t)(how >> 6),
	};

	if (what & 0x80 && !(how & 7)) {
		e.kind = CAREFUL_RING_PING;
		e.args[0] = take8(in);
		e.args[1] = how >> 6;
		e.args[2] = take8(in);
		e.args[3] = take16(in);
	} else if (what & 0x80) {
		((uint8_t *)&e)[how % sizeof(e)] ^= take8(in);
	}
	return e;
}

/* Sets a number of an area to any value. */
static void change_ring_number(struct input *in, struct program *p)
{
	struct careful_ring_number *numbers = &p->area->asks_put;
	uint8_t what = take8(in);
	uint32_t by = take8(in) - 128u;
	uint32_t *number = &numbers[what % 6].value;

	__atomic_store_n(number, what & 0x80 ? take32(in) : *number + by, __ATOMIC_RELAXED);
	if (what & 0x40 && what % 6 == 0)
		p->put = *number;
}

/* Writes bytes to any place in the area, mostly before the payloads. */
static void scribble(struct input *in, struct program *p)
{
	uint8_t what = take8(in);
	uint64_t at = take32(in) % (what & 1 ? p->bytes : careful_area_payloads());

	for (uint32_t n = what >> 3; n && at < p->bytes; n--)
		((uint8_t *)p->area)[at++] = take8(in);
}

static void ask_by_socket(struct input *in, struct program *p)
{
	static const uint32_t ops[] = {
		CAREFUL_IPC_BELL,	   CAREFUL_IPC_HANDLE,	   CAREFUL_IPC_REGION_ADD,
		CAREFUL_IPC_REGION_REMOVE, CAREFUL_IPC_PEER_LEAVE, CAREFUL_IPC_PEER_INFO,
		CAREFUL_IPC_PROGRAMS,	   CAREFUL_IPC_FILE_ADD,   CAREFUL_IPC_FILE_REMOVE,
		CAREFUL_IPC_REQUEST,	   CAREFUL_IPC_GET,	   CAREFUL_IPC_ATTACH,
		CAREFUL_IPC_STORE,	   CAREFUL_IPC_USE,
	};
	uint8_t what = take8(in), how = take8(in);
	struct careful_ipc head = {
		.op = what == 0xff ? CAREFUL_IPC_QUIET : ops[what % 14],
		.handler = how & 8 ? take16(in) : PROGRAM_HANDLERS + (how & 1),
		.flags = how & 0x10 ? take8(in) : 1 + (how & 2) / 2,
		.bytes = how & 4 ? take16(in) : 1,
		.peer = how & 0x20 ? CAREFUL_ANY_PEER : world.peer,
		.region = how & 0x40 ? world.region_key : world.table_key,
		.region_off = how & 0x80 ? take32(in) : 0,
	};

	ask(p, &head, NULL, (what & 0x10) && head.op != CAREFUL_IPC_BELL ? world.file : -1);
}

static void ignore_result(const struct careful_result *result, void *user)
{
	(void)result;
	(void)user;
}

/* The other host sends requests to programs, and moves bytes of their regions. */
static void move_from_other_host(struct input *in)
{
	static const uint32_t bytes[] = { 0, 100, 3000, 5000, 40000 };
	const struct careful_span span = { .base = scrap, .fd = -1 };
	struct careful *c = world.node[1];
	uint8_t what = take8(in);
	uint32_t n = bytes[(what >> 2) % 5];
	careful_done_fn *done = what & 0x80 ? NULL : ignore_result;

	switch (what & 3) {
	case 0:
		careful_request(c, 0, PROGRAM_HANDLERS + (what >> 6 & 1), NULL, scrap, n, done,
				NULL);
		break;
	case 1:
		careful_store(c, 0, world.region_key, take8(in), &span, n,
			      what & 0x40 ? PROGRAM_HANDLERS : CAREFUL_HANDLERS, NULL, 0,
			      ignore_result, NULL);
		break;
	case 2:
		careful_get(c, 0, world.region_key, take8(in), &span, n, 0, ignore_result, NULL);
		break;
	default:
		if (world.held_count)
			careful_reply_late(c, &world.held[--world.held_count], what & 4, NULL,
					   scrap, n < 3000 ? n : 0);
	}
}

/* Checks that the honest program's request is answered. */
static void check_honest_program(void)
{
	struct program *p = &world.programs[0];
	const uint32_t at = p->put % CAREFUL_RING_ASKS;
	const struct careful_ring_entry *told;
	uint32_t place = 0;
	bool answered = false;

	p->asks[at] = (struct careful_ring_entry){ .kind = CAREFUL_RING_REQUEST,
						   .id = ++world.ids,
						   .peer = world.peer,
						   .handler = ECHO,
						   .bytes = 5 };
	memcpy(p->payloads + (size_t)at * CAREFUL_RING_PAYLOAD_BYTES, "hello", 5);
	publish(p, 1);
	for (int i = 0; i < ROUNDS_MAX && !answered; i++) {
		turn();
		while (p->taken != p->area->notes_put.value && !answered) {
			place = p->taken++ % CAREFUL_RING_NOTES;
			told = p->asks + CAREFUL_RING_ASKS + place;
			answered = told->kind == CAREFUL_RING_DONE && told->id == world.ids;
		}
		p->area->notes_taken.value = p->taken;
	}
	MUST(answered);
	told = p->asks + CAREFUL_RING_ASKS + place;
	MUST(!told->status && told->bytes == 5);
	MUST(!memcmp(p->payloads + (CAREFUL_RING_ASKS + place) * (size_t)CAREFUL_RING_PAYLOAD_BYTES,
		     "hello", 5));
	read_answers(p);
}

static void step(struct input *in)
{
	uint8_t what = take8(in);
	struct program *p = &world.programs[1 + (what >> 4 & 1)];

	if (what >> 5 == 7)
		attach(p);
	if (p->fd >= 0 && p->area) {
		switch (what & 7) {
		case 0:
		case 1:
			for (uint32_t n = 1 + (what >> 5); n; n--) {
				p->asks[p->put % CAREFUL_RING_ASKS] = make_entry(in);
				publish(p, 1);
			}
			break;
		case 2:
			change_ring_number(in, p);
			break;
		case 3:
			scribble(in, p);
			break;
		case 4: /* the entry may already be published */
			p->asks[(p->put - take8(in) % 8) % CAREFUL_RING_ASKS] = make_entry(in);
			break;
		case 5:
			ask_by_socket(in, p);
			break;
		case 6:
			move_from_other_host(in);
			break;
		default:
			if (what & 0x20)
				p->area->notes_taken.value = p->area->notes_put.value;
			read_answers(p);
		}
	}
	if (what & 8)
		turn();
	else if (what >> 5 == 6)
		check_honest_program();
}

static void set_up(void)
{
	struct careful_peer_info info = { 0 };

	memset(&world, 0, sizeof(world));
	control_listen(&world.control, "fuzz_attach");
	world.now_ns = 1000000000;
	open_engines();
	world.file = memfd_create("fuzz_attach", MFD_CLOEXEC);
	MUST(!ftruncate(world.file, MEMORY_BYTES));
	MUST(!ipc_create(world.node[0], world.control.listen_fd, world.control.epoll_fd,
			 &world.server));
	MUST(!careful_peer_watch(world.node[0], changed, world.server));
	for (int i = 0; i < PROGRAMS; i++)
		world.programs[i].fd = -1;
	attach(&world.programs[0]);
	for (int i = 0; i < TURNS && info.state != CAREFUL_PEER_UP; i++) {
		turn();
		careful_peer_info(world.node[0], 0, &info);
	}
	MUST(info.state == CAREFUL_PEER_UP);
	attach(&world.programs[1]);
	check_honest_program();
}

/* Ends all programs; checks that they leave nothing, and that no frame was lost. */
static void tear_down(void)
{
	leave(&world.programs[1]);
	leave(&world.programs[2]);
	check_honest_program();
	leave(&world.programs[0]);
	for (int i = 0; i < TURNS && world.server->clients; i++)
		turn();
	MUST(!world.server->clients && !world.server->clients_count && !world.server->poll_reasons);
	MUST(world.node[0]->operations_free_count == OPERATIONS);
	for (uint32_t i = 0; i < world.node[0]->limits.regions; i++)
		MUST(!world.node[0]->regions[i].key);
	for (int side = 0; side < 2; side++)
		MUST(!world.node[side]->link.counters[CAREFUL_C_EPOCHS_BROKEN] &&
		     !world.node[side]->link.counters[CAREFUL_C_DROP_CRC]);
	careful_close(world.node[0]);
	ipc_destroy(world.server);
	careful_close(world.node[1]);
	memory_deinit(world.ends);
	control_close(&world.control);
	close(world.file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct input in = { data, bytes };
	int before = lowest_fd();

	set_up();
	for (int i = 0; i < STEPS && in.bytes; i++)
		step(&in);
	tear_down();
	MUST(lowest_fd() == before);
	return 0;
}
