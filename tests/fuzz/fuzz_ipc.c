// SPDX-License-Identifier: BSD-2-Clause
/*
 * Fuzzes the daemon's control socket over an instance without a network: clients that
 * connect, send any questions, pass descriptors, stop reading and disconnect, while operations end
 * in any order. Each question gets at most one answer with its id, and nothing is left.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <careful/block.h>
#include <careful/ipc.h>
#include <careful/wire.h>

#include "daemon/ipc/ipc_close.c" /* NOLINT(bugprone-suspicious-include): threads wait by the true clock */

/* The daemon's clock: each reading adds a millisecond. */
static uint64_t clock_ms;

static int fuzz_clock(clockid_t clock, struct timespec *t)
{
	(void)clock;
	clock_ms++;
	*t = (struct timespec){ .tv_sec = (time_t)(clock_ms / 1000),
				.tv_nsec = (long)(clock_ms % 1000 * 1000000) };
	return 0;
}

#define clock_gettime fuzz_clock
#include "daemon/ipc/ipc.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_answer.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_file.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_gets.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_handles.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_measure.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_name.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_news.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_op.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_peer.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_program.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_region.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_request.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_ring.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_signature.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_user.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/log.c" /* NOLINT(bugprone-suspicious-include) */
#include "fake_careful.c" /* NOLINT(bugprone-suspicious-include) */
#include "control.h"
#include "input.h"

enum {
	CLIENTS = 4,
	STEPS = 200,
	OPERATIONS = 512, /* like fake_careful.h */
	TURN_MS = 1000, /* longest turn without questions, daemon time */
	QUESTION_MS = 3 * CAREFUL_BURST_MS, /* and this much longer for each question */
	OP_PING = 14, /* OP_*: opcodes of inputs for questions that random bytes rarely make */
	OP_SIGNATURE = 15,
};

static struct {
	struct careful *c;
	struct ipc *server;
	struct control control;
	int file;
	int fds[CLIENTS];
	uint32_t peer; /* the peer in the last answer to CONNECT */
	uint32_t file_index;
	uint64_t until_ms; /* clock_ms must stay below */
} world;

static void changed(struct careful *instance, uint32_t peer, uint32_t state, void *user)
{
	(void)instance;
	ipc_peer_changed(user, peer, state);
}

static void turn(void)
{
	control_turn(&world.control, world.server, world.server->closer.files);
	world.until_ms += TURN_MS;
	MUST(clock_ms <= world.until_ms);
}

/* Reads the answers; checks that each packet is whole and has a valid type. */
static void read_answers(int fd)
{
	static unsigned char buf[sizeof(struct careful_ipc) + CAREFUL_IPC_PAYLOAD_BYTES];
	struct careful_ipc head;
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0) {
		MUST((size_t)n >= sizeof(head));
		memcpy(&head, buf, sizeof(head));
		MUST(head.version == CAREFUL_IPC_VERSION);
		MUST(head.payload_bytes == (size_t)n - sizeof(head));
		MUST(head.status <= 0);
		if (head.op == CAREFUL_IPC_CONNECT && !head.status)
			world.peer = head.peer;
		if (head.op == CAREFUL_IPC_FILE_ADD && !head.status)
			world.file_index = head.file;
	}
}

static void ask_ping(struct input *in, struct careful_ipc *head)
{
	head->op = CAREFUL_IPC_PING;
	head->args[0] = take8(in);
	head->args[1] = take8(in);
	head->args[2] = take16(in);
}

/* Makes a valid signature question, except for the fields that the input corrupts. */
static void ask_signature(struct input *in, struct careful_ipc *head,
			  struct careful_signature *signature)
{
	static const uint32_t kinds[] = { CAREFUL_IPC_REQUEST, CAREFUL_IPC_GET, CAREFUL_IPC_STORE };
	uint8_t what = take8(in);
	uint32_t mark = 0;

	head->op = CAREFUL_IPC_SIGNATURE;
	head->region = what >> 6;
	*signature = (struct careful_signature){
		.kind = kinds[(what & 3) % 3],
		.bytes = take16(in),
		.bursts = 1 + (what >> 2 & 3),
		.capacity = 1 + take8(in),
		.compute_ns = (uint64_t)take16(in) << (what & 0x20 ? 16 : 0),
		.flags = what >> 4 & 1,
		.peers_count = 1,
		.marks_count = 1 + (take8(in) & 3),
		.peers = { world.peer },
	};
	for (uint32_t i = 0; i < signature->marks_count; i++)
		signature->marks[i] = mark += 1 + take8(in);
	for (uint32_t n = take8(in) & 3; n; n--) {
		uint32_t i = take16(in) % sizeof(*signature);

		((uint8_t *)signature)[i] ^= take8(in);
	}
}

static void send_packet_of(struct input *in, int fd)
{
	uint8_t what = take8(in), how = take8(in);
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(0x0a000001 + (how & 3)) };
	char control[CMSG_SPACE(sizeof(int) * 3)] __attribute__((aligned(8))) = { 0 };
	struct careful_ipc head = {
		.version = CAREFUL_IPC_VERSION,
		.op = (what & 0x0f) | (how & 8) << 1,
		.id = take8(in),
		.peer = how & 0x10 ? take16(in) : world.peer,
		.file = how & 0x20 ? take16(in) : world.file_index,
		.handler = CAREFUL_BLOCK_OPEN + (how & 7),
		.bytes = take16(in),
	};
	struct careful_signature signature;
	unsigned char buf[sizeof(head) + 512];
	struct iovec iov = { buf, sizeof(head) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	uint32_t got = take8(in);
	const uint8_t *payload = take_bytes(in, what & 0x80 ? got : 0, &got);

	if (head.op == CAREFUL_IPC_CONNECT && !got) {
		payload = (const uint8_t *)&to;
		got = sizeof(to);
	} else if (head.op == OP_PING) {
		ask_ping(in, &head);
	} else if (head.op == OP_SIGNATURE) {
		ask_signature(in, &head, &signature);
		payload = (const uint8_t *)&signature;
		got = sizeof(signature);
	}
	head.payload_bytes = got;
	if (got)
		memcpy(buf + sizeof(head), payload, got);
	memcpy(buf, &head, sizeof(head));
	iov.iov_len = sizeof(head) + got;
	for (uint32_t n = how >> 6; n; n--) { /* corrupts a byte */
		uint32_t i = take8(in) % sizeof(head);

		buf[i] ^= take8(in);
	}
	if (what & 0x40)
		iov.iov_len = take8(in) % (iov.iov_len + 1);
	if (what & 0x30) {
		struct cmsghdr *cmsg = (struct cmsghdr *)control;
		uint32_t n = what >> 4 & 3;

		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * n);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int) * n);
		for (uint32_t i = 0; i < n; i++)
			memcpy(CMSG_DATA(cmsg) + i * sizeof(int),
			       i ? &world.control.epoll_fd : &world.file, sizeof(int));
	}
	world.until_ms += QUESTION_MS;
	sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Ends an operation like the engine. */
static void end_operation(struct fake_operation *op, uint8_t how)
{
	static unsigned char payload[FAKE_PAYLOAD];
	struct fake_operation ended = *op;
	struct careful_result result = {
		.status = how & 1 ? -(int)(how >> 1) : 0,
		.args = { how },
		.payload = op->kind == 'r' && how & 2 ? payload : NULL,
		.bytes = op->kind == 'r' ? how * 16u : op->bytes,
	};

	op->kind = 0;
	ended.done(&result, ended.user);
}

static void end_ping(uint8_t how)
{
	const struct careful_ping_result result = { .status = -(int)(how >> 1), .stage = how & 7 };
	careful_ping_fn *done = world.c->ping.done;

	world.c->ping.done = NULL;
	if (done)
		done(&result, world.c->ping.user);
}

static void end_some(struct input *in)
{
	uint32_t skip = take8(in) & 15;
	uint8_t how = take8(in);

	for (uint32_t i = 0; i < OPERATIONS; i++)
		if (world.c->operations[i].kind && !skip--) {
			end_operation(&world.c->operations[i], how);
			return;
		}
	end_ping(how);
}

static void change_peer(struct input *in)
{
	uint8_t what = take8(in);
	struct careful_peer_info *info = &world.c->peers[what & (FAKE_PEERS - 1)];

	world.c->begin_errno = what & 0x40 ? -EAGAIN : what & 0x20 ? -ENOTCONN : 0;
	world.c->answering = what & 0x80;
	world.c->poll_status = what & 8 ? -ECONNRESET : 0;
	if (info->state == CAREFUL_PEER_NONE)
		return;
	info->state = what & 0x10 ? CAREFUL_PEER_FAILED : CAREFUL_PEER_UP;
	info->last_errno = what & 0x10 ? ETIMEDOUT : 0;
	ipc_peer_changed(world.server, what & (FAKE_PEERS - 1), info->state);
}

static void step(struct input *in)
{
	uint8_t what = take8(in);
	int *fd = &world.fds[what >> 4 & (CLIENTS - 1)];

	switch (what & 7) {
	case 0:
		if (*fd < 0)
			*fd = control_connect(&world.control);
		break;
	case 1:
		if (*fd >= 0 && what & 0x40)
			shutdown(*fd, what & 0x80 ? SHUT_RD : SHUT_WR);
		else if (*fd >= 0) {
			close(*fd);
			*fd = -1;
		}
		break;
	case 2:
		end_some(in);
		break;
	case 3:
		change_peer(in);
		break;
	case 4:
		if (*fd >= 0)
			read_answers(*fd);
		break;
	default:
		if (*fd >= 0)
			send_packet_of(in, *fd);
	}
	if (what & 8)
		turn();
}

static void set_up(void)
{
	control_listen(&world.control, "fuzz_ipc");
	world.c = fake_create();
	world.file = memfd_create("fuzz_ipc", MFD_CLOEXEC);
	MUST(!ipc_create(world.c, world.control.listen_fd, world.control.epoll_fd, &world.server));
	careful_peer_watch(world.c, changed, world.server);
	world.peer = world.file_index = 0;
	world.until_ms = clock_ms;
	for (int i = 0; i < CLIENTS; i++)
		world.fds[i] = -1;
	world.fds[0] = control_connect(&world.control);
	turn();
}

/* Disconnects all clients, ends their operations, and checks for leaks. */
static void tear_down(void)
{
	for (int i = 0; i < CLIENTS; i++)
		if (world.fds[i] >= 0)
			close(world.fds[i]);
	world.c->begin_errno = 0;
	world.c->answering = false;
	for (int round = 0; round < 200 && (round < 2 || world.server->clients); round++) {
		turn();
		for (int i = 0; i < FAKE_PEERS; i++)
			if (world.c->peers[i].state != CAREFUL_PEER_NONE)
				world.c->peers[i].state = CAREFUL_PEER_UP;
		for (uint32_t i = 0; i < OPERATIONS; i++)
			if (world.c->operations[i].kind)
				end_operation(&world.c->operations[i], 0);
		end_ping(0);
	}
	MUST(!world.server->clients && !world.server->clients_count && !world.server->poll_reasons);
	MUST(!world.server->connects);
	ipc_destroy(world.server);
	fake_destroy(world.c);
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
