// SPDX-License-Identifier: BSD-2-Clause
/*
 * Programs that flood carefuld in some seeds. Two ask for more handles and operations than exist,
 * are killed, and start again. A third does one thing at a time.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clients.h"

enum {
	FLOODERS = 2,
	PROGRAMS,
	TASKS = CLIENTS_TASKS_MAX,
	TASKS_BESIDE = 12, /* of the third program, in sequence */
	LIVES = 2, /* of a flooder */
	ID_CONNECT = TASKS + 1, /* ids of questions; other ids are tasks, plus 1 */
	ID_FILE,
	RESETS_MAX =
		2 * TASKS, /* then the program connects again: the other end closed the session */
	REFUSED_NS = 20 * 1000 * 1000, /* longest wait before a refused question is repeated */
	AGAIN_NS = 1000 * 1000, /* likewise after a fault */
	STREAM_LIVES = 0x900,
	STREAM_USERS,
	STREAM_TASKS, /* and between the next tasks of a program */
};

/* The longest time, without faults, of a CLOSE or a task during the flood. */
static const uint64_t calm_ns = 2000 * 1000000ull;

static struct program programs[PROGRAMS];

/* Restarts all tasks: their handles ended with the connection or the session. */
static void begin_again(struct task *task)
{
	task->at = client_step(task) ? 0 : task->at;
	task->asked_ns = task->again_ns = 0;
	task->attempt += 1 << 20;
}

static void disconnect(struct program *p, uint64_t again_ns)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
	p->resets = 0;
	p->ready = false;
	p->next_ns = again_ns;
	for (uint32_t i = 0; i < p->tasks; i++)
		begin_again(&p->task[i]);
}

/* Starts the next life of a program, with other tasks. Most tasks of a flood are writes. */
static void live(const struct scenario *s, struct program *p)
{
	const bool floods = p->index < FLOODERS;
	const uint32_t kinds = floods ? KINDS : KINDS_BESIDE;

	disconnect(p, 0);
	p->life++;
	p->answers = p->done = 0;
	p->tasks = floods ? TASKS : TASKS_BESIDE;
	p->kill_at = UINT32_MAX;
	if (floods && p->life < LIVES)
		p->kill_at = 1 + (uint32_t)cluster_random(s, STREAM_LIVES, p->life * 8 + p->index) %
					 TASKS;
	for (uint32_t i = 0; i < p->tasks; i++) {
		uint64_t random = cluster_random(s, STREAM_TASKS + p->index, p->life * TASKS + i);

		p->task[i] = (struct task){
			.kind = random & 3 ? WRITES : (uint8_t)((random >> 8) % kinds),
			.attempt = (p->index * LIVES + p->life) * TASKS + i,
		};
	}
}

static void wait_again(struct program *p, struct task *task, uint64_t at_ns)
{
	task->asked_ns = 0;
	task->again_ns = at_ns;
	p->next_ns = at_ns < p->next_ns ? at_ns : p->next_ns;
}

/* A handle of the program has ended: a refused question may be repeated now. */
static void hurry(struct program *p)
{
	for (uint32_t i = 0; i < p->tasks; i++)
		if (p->task[i].again_ns && !p->task[i].asked_ns) {
			wait_again(p, &p->task[i], 0);
			return;
		}
}

static void check_wait(struct cluster *cluster, const struct program *p, const struct task *task)
{
	const uint64_t now_ns = sim_now_ns(cluster->world);
	const enum step step = client_step(task);
	const bool beside = p->index >= FLOODERS;
	const bool ends = step >= COMMIT && step <= CLOSE_ANSWER;
	const uint64_t took_ns = now_ns - (beside ? task->began_ns : task->asked_ns);

	if (!ends)
		return;
	if (took_ns > calm_ns && !cluster->scenario.faults_count)
		sim_fail(cluster->world, "program %u: %s takes %llu ms beside the flood", p->index,
			 beside ? "a task" : "the end of a handle",
			 (unsigned long long)took_ns / 1000000);
}

static void step_done(struct cluster *cluster, struct program *p, struct task *task,
		      const struct careful_ipc *head)
{
	const enum step step = client_step(task);

	check_wait(cluster, p, task);
	if (step == CREATE || step == OPEN || step == SCRATCH || step == LIST)
		task->handle = head->args[0];
	if (step == BATCH)
		task->answer = head->args[0];
	if (step == GET && head->bytes != CLIENTS_BYTES)
		sim_fail(cluster->world, "program %u: a get moved %llu bytes", p->index,
			 (unsigned long long)head->bytes);
	cluster->clients_done[step >= COMMIT && step <= CLOSE_ANSWER ? CLIENTS_ENDS :
								       CLIENTS_ASKED]++;
	task->at++;
	wait_again(p, task, 0);
	if (client_step(task) == OVER) {
		p->done++;
		cluster->clients_done[p->index < FLOODERS ? CLIENTS_TASKS : CLIENTS_BESIDE]++;
	}
	if (step >= COMMIT && step <= CLOSE_ANSWER)
		hurry(p);
}

/* Reports whether a fault can cause this error. */
static bool may_fail(const struct scenario *s, int status)
{
	for (uint32_t i = 0; status == -EMSGSIZE && i < s->faults_count; i++)
		if (s->faults[i].kind == SIM_MTU)
			return true;
	return status == -EBADMSG ? s->damage : s->excused && status != -EMSGSIZE;
}

static void answered(struct cluster *cluster, struct program *p, const struct careful_ipc *head)
{
	const uint64_t now_ns = sim_now_ns(cluster->world);
	struct task *task = &p->task[head->id - 1];
	const enum step step = client_step(task);
	const bool ends = step >= COMMIT && step <= CLOSE_ANSWER;

	switch (head->status) {
	case 0:
		p->resets = 0;
		step_done(cluster, p, task, head);
		return;
	case -EMFILE:
		if (ends)
			sim_fail(cluster->world, "program %u: the end of a handle is refused",
				 p->index);
		/* fallthrough */
	case -EAGAIN:
		cluster->clients_done[CLIENTS_REFUSED]++;
		wait_again(p, task, now_ns + REFUSED_NS);
		return;
	case -ECONNRESET:
		if (++p->resets > RESETS_MAX)
			disconnect(p, now_ns + AGAIN_NS);
		else
			wait_again(p, task, now_ns + AGAIN_NS);
		break;
	case -ECANCELED:
	case -ETIMEDOUT:
	case -EBADMSG:
	case -EMSGSIZE:
		wait_again(p, task, now_ns + AGAIN_NS);
		break;
	case -EBADF: /* the handle ended with its session, or its CLOSE was lost */
	case -ENOENT:
		if (step == CLOSE || step == CLOSE_ANSWER) {
			step_done(cluster, p, task, head);
			break;
		}
		begin_again(task);
		wait_again(p, task, now_ns + AGAIN_NS);
		break;
	default:
		disconnect(p, now_ns + AGAIN_NS);
		break;
	}
	if (!may_fail(&cluster->scenario, head->status))
		sim_fail(cluster->world, "program %u: question %u of kind %u ends with %s",
			 p->index, step, task->kind, strerrorname_np(-head->status));
}

static void begin_session(struct cluster *cluster, struct program *p)
{
	struct careful_ipc head = { .op = CAREFUL_IPC_CONNECT, .id = ID_CONNECT, .bytes = 1000 };
	struct sockaddr_storage to = { 0 };
	union address address;

	p->fd = carefuld_connect(p->user);
	if (p->fd < 0) {
		p->next_ns = sim_now_ns(cluster->world) + REFUSED_NS;
		return;
	}
	sim_address(cluster->world, CLIENTS_SERVER, &address);
	memcpy(&to, &address, sizeof(address));
	head.payload_bytes = sizeof(to);
	client_send(p, &head, &to);
	head = (struct careful_ipc){ .op = CAREFUL_IPC_FILE_ADD, .id = ID_FILE };
	client_send(p, &head, NULL);
	p->next_ns = UINT64_MAX;
}

/* Reads the available answers; returns their count. */
static uint32_t hear(struct cluster *cluster, struct program *p)
{
	static struct {
		struct careful_ipc head;
		unsigned char payload[CAREFUL_IPC_PAYLOAD_BYTES];
	} packet;
	const uint64_t now_ns = sim_now_ns(cluster->world);
	uint32_t n = 0;
	ssize_t bytes;

	while (p->fd >= 0) {
		bytes = recv(p->fd, &packet, sizeof(packet), MSG_DONTWAIT);
		if (bytes < 0 && errno == EAGAIN)
			break;
		n++;
		if (bytes < (ssize_t)sizeof(packet.head) || !packet.head.id) {
			disconnect(p, now_ns + AGAIN_NS);
		} else if (packet.head.id > TASKS) {
			if (packet.head.status)
				disconnect(p, now_ns + AGAIN_NS);
			else if (packet.head.id == ID_CONNECT)
				p->peer = packet.head.peer;
			else
				p->file = packet.head.file;
			p->ready |= packet.head.id == ID_CONNECT && !packet.head.status;
			p->next_ns = p->ready ? 0 : p->next_ns;
		} else {
			answered(cluster, p, &packet.head);
			p->answers++;
		}
		if (p->answers < p->kill_at)
			continue;
		cluster->clients_done[CLIENTS_KILLED]++;
		live(&cluster->scenario, p);
	}
	return n;
}

/* Sends the questions that are due, until the socket is full. */
static void flood(struct cluster *cluster, struct program *p)
{
	const uint64_t now_ns = sim_now_ns(cluster->world);

	p->next_ns = UINT64_MAX;
	for (uint32_t i = 0; i < p->tasks; i++) {
		struct task *task = &p->task[i];

		if (client_step(task) == OVER || task->asked_ns)
			continue;
		if (task->again_ns > now_ns) {
			p->next_ns = task->again_ns < p->next_ns ? task->again_ns : p->next_ns;
		} else if (client_ask(p, task)) {
			task->asked_ns = now_ns;
			task->began_ns = task->began_ns ? task->began_ns : now_ns;
		} else {
			return; /* carefuld reads first */
		}
		if (p->index >= FLOODERS)
			return;
	}
}

uint64_t clients_run(struct node *node)
{
	struct cluster *cluster = node->cluster;
	const uint64_t now_ns = sim_now_ns(cluster->world);
	uint64_t next_ns;

	if (!cluster->scenario.clients || node->port > CLIENTS_SERVER)
		return UINT64_MAX;
	next_ns = carefuld_run(node);
	for (uint32_t i = 0; node->port == CLIENTS_HOST && i < PROGRAMS; i++) {
		struct program *p = &programs[i];
		const bool heard = hear(cluster, p);

		if (p->done == p->tasks) {
			disconnect(p, UINT64_MAX);
			continue;
		}
		if (p->fd < 0 && p->next_ns <= now_ns)
			begin_session(cluster, p);
		else if (p->ready && (heard || next_ns <= now_ns || p->next_ns <= now_ns))
			flood(cluster, p);
		next_ns = heard ? now_ns : p->next_ns < next_ns ? p->next_ns : next_ns;
	}
	return next_ns;
}

bool clients_over(struct cluster *cluster)
{
	if (!cluster->scenario.clients)
		return true;
	for (uint32_t i = 0; i < PROGRAMS; i++)
		if (programs[i].done < programs[i].tasks)
			return false;
	return carefuld_holds_nothing();
}

void clients_stuck(struct cluster *cluster)
{
	for (uint32_t i = 0; i < PROGRAMS; i++)
		if (programs[i].done < programs[i].tasks)
			sim_fail(cluster->world, "program %u: %u of %u tasks are done", i,
				 programs[i].done, programs[i].tasks);
	sim_fail(cluster->world,
		 "all programs have ended, but a client, handle or request is left");
}

void clients_begin(struct cluster *cluster)
{
	struct scenario *s = &cluster->scenario;

	memset(cluster->clients_done, 0, sizeof(cluster->clients_done));
	if (!s->clients)
		return;
	carefuld_begin(cluster);
	for (uint32_t i = 0; i < PROGRAMS; i++) {
		const bool root = cluster_random(s, STREAM_USERS, i) & 1;

		programs[i] = (struct program){
			.index = i,
			.fd = -1,
			.memory = memfd_create("program", MFD_CLOEXEC),
			.user = root && i != 1 ? 0 : 1000 + i / FLOODERS,
		};
		client_put_item(&programs[i], APPENDS);
		client_put_item(&programs[i], RENAMES);
		live(s, &programs[i]);
	}
}

void clients_end(struct cluster *cluster)
{
	if (!cluster->scenario.clients)
		return;
	for (uint32_t i = 0; i < PROGRAMS; i++) {
		disconnect(&programs[i], 0);
		close(programs[i].memory);
	}
	carefuld_end();
}
