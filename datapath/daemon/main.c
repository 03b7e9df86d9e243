/* SPDX-License-Identifier: BSD-2-Clause */
/* carefuld: owns a NIC queue, shares it with local clients, and serves files to peers. One thread
 * does everything except file system calls that may block. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <careful/careful.h>

#include "base/clock.h"
#include "daemon/process/confine.h"
#include "daemon/health.h"
#include "daemon/ipc/ipc.h"
#include "daemon/log.h"
#include "daemon/process/notify.h"
#include "daemon/options.h"
#include "daemon/process/socket_activation.h"
#include "daemon/process/process.h"
#include "daemon/queues.h"
#include "daemon/reload.h"
#include "daemon/process/rundir.h"
#include "daemon/scratch_file.h"
#include "daemon/process/syscalls.h"
#include "daemon/transfer_log.h"
#include "daemon/xdp/xdp_trial.h"
#include "base/error.h"
#include "files/block.h"
#include "lend/lend.h"
#include "engine/sharing.h"
#include "measure/probe.h"

enum {
	EXIT_USAGE = 2,
	EVENTS = 64,
	BUSY_ROUNDS = 16, /* rounds with frames between two checks of the sockets */
	HEALTH_MS = 1000,
};

struct daemon {
	struct daemon_options options;
	struct rundir dir;
	struct careful *instance;
	struct block_server *block;
	struct lend_server *lend;
	struct ipc *ipc;
	struct health health;
	struct transfer_log transfers;
	struct notify notify;
	struct log_limit keys_limit;
	struct trial trial;
	struct queues queues;
	struct ipc_event signal_event, block_event, lend_event;
	struct ipc_event queue_events[CAREFUL_SPREAD_MAX];
	int signal_fd;
	int epoll_fd;
	struct scratch_file scratch;
	int passed_fd;
	bool stop;
	bool broken; /* the process of another queue died */
	bool closing;
};

static struct daemon carefuld;

static void on_signal(struct ipc_event *event, uint32_t events)
{
	struct signalfd_siginfo info;

	(void)event;
	(void)events;
	if (read(carefuld.signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	log_line("%s: ending", strsignal((int)info.ssi_signo));
	carefuld.stop = true;
}

/* Does nothing: the event only wakes the loop, and each round polls the servers. */
static void on_server(struct ipc_event *event, uint32_t events)
{
	(void)event;
	(void)events;
}

/* Ends this process when the process of another queue ends. */
static void on_queue(struct ipc_event *event, uint32_t events)
{
	uint32_t index = (uint32_t)(event - carefuld.queue_events);
	int rc = queues_receive(&carefuld.queues, index);

	(void)events;
	if (carefuld.stop || rc > 0)
		return;
	if (rc) {
		log_line("the process of queue %u died: ending", index);
		carefuld.broken = true;
	}
	carefuld.stop = true;
}

static void on_peer(struct careful *instance, uint32_t peer, uint32_t state, void *user)
{
	struct daemon *d = user;

	if (d->closing)
		return;
	if (!xdp_trial_is_on(&d->trial, peer) ||
	    (state != CAREFUL_PEER_RENEWING && state != CAREFUL_PEER_UP))
		health_peer_changed(&d->health, instance, peer, state);
	ipc_peer_changed(d->ipc, peer, state);
	block_watch(instance, peer, state, d->block);
	lend_watch(d->lend, peer, state);
	xdp_trial_peer_changed(&d->trial, peer, state);
}

static void on_block_end(const struct block_end *end, void *user)
{
	struct daemon *d = user;

	if (!d->closing)
		transfer_log(&d->transfers, end,
			     end->is_former ? "(gone)" : d->health.names[end->peer]);
}

static int on_reload(const char *words, uint32_t bytes, struct careful_error *error, void *user)
{
	struct daemon *d = user;

	return reload(d->instance, d->block, words, bytes, error);
}

static int watch_fd(struct daemon *d, int fd, struct ipc_event *event,
		    void (*handle)(struct ipc_event *event, uint32_t events))
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = event };

	event->handle = handle;
	return epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

/* Turns signals into events. Ignores signals that clients can cause: the system call then fails. */
static int init_signals(struct daemon *d)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	d->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (d->signal_fd < 0 || d->epoll_fd < 0)
		return -errno;
	return watch_fd(d, d->signal_fd, &d->signal_event, on_signal);
}

/* Watches the other queues: the first watches all, the others watch the first. */
static int watch_queues(struct daemon *d)
{
	const struct queues *queues = &d->queues;
	int rc = 0;

	for (uint32_t i = queues->index ? 0 : 1; !rc && i < (queues->index ? 1 : queues->count);
	     i++)
		rc = watch_fd(d, queues->fds[i], &d->queue_events[i], on_queue);
	return rc;
}

static struct probe probe = { .now_ns = clock_now_ns, .cookie_of = engine_cookie };

static int serve_probes(struct daemon *d)
{
	scratch_file_serve(&d->scratch, d->instance, d->options.exports, d->options.exports_count);
	probe.arrivals = engine_arrivals(d->instance);
	return probe_serve(d->instance, &probe);
}

/* Opens the instance on the chosen CPU; the block server's workers run on any CPU. */
static int open_instance(struct daemon *d, struct careful_error *error)
{
	cpu_set_t before, one;
	int rc;

	sched_getaffinity(0, sizeof(before), &before);
	if (d->options.cpu >= 0) {
		CPU_ZERO(&one);
		CPU_SET((size_t)d->options.cpu, &one);
		if (sched_setaffinity(0, sizeof(one), &one))
			return explain(error, -EINVAL, "--cpu %d: %s", d->options.cpu,
				       strerror(errno));
	}
	if (!d->options.careful.keys) /* `carefulctl up` names the host's keys, if there are any */
		d->options.careful.keys = "none";
	rc = confine_programs(error);
	if (!rc)
		rc = careful_open(&d->options.careful, &d->instance, error);
	if (rc == -ENOKEY)
		refuse(error, rc, seal, "needs keys: carefulctl key new, then --keys DIR");
	if (rc)
		return rc;
	sched_setaffinity(0, sizeof(before), &before);
	rc = confine(&d->options, error);
	if (!rc)
		rc = syscalls_confine(error);
	if (!rc)
		rc = block_serve(d->instance, d->options.exports, d->options.exports_count,
				 &d->block, error);
	if (!rc) {
		rc = lend_serve(d->instance, &d->options.lend, &d->lend, error);
		if (rc)
			block_stop(d->block);
	}
	if (d->options.cpu >= 0)
		sched_setaffinity(0, sizeof(one), &one);
	if (rc)
		careful_close(d->instance);
	return rc;
}

static int serve(struct daemon *d, struct careful_error *error)
{
	int rc;

	rc = open_instance(d, error);
	if (rc)
		return rc;
	rc = serve_probes(d);
	if (!rc)
		rc = scratch_serve(d->instance);
	if (!rc)
		rc = rundir_listen(&d->dir, error);
	if (!rc)
		rc = ipc_create(d->instance, d->dir.listen_fd, d->epoll_fd, &d->ipc);
	if (!rc) {
		ipc_set_servers(d->ipc, d->block, d->lend);
		ipc_set_reload(d->ipc, on_reload, d);
		block_on_end(d->block, on_block_end, d);
		rc = health_init(&d->health, d->instance);
		if (!rc)
			rc = watch_fd(d, block_fd(d->block), &d->block_event, on_server);
		if (!rc && d->lend)
			rc = watch_fd(d, lend_fd(d->lend), &d->lend_event, on_server);
		if (!rc)
			rc = xdp_trial_init(&d->trial, d->instance, d->ipc, &d->options);
		if (!rc)
			rc = watch_queues(d);
		if (!rc)
			rc = careful_peer_watch(d->instance, on_peer, d);
		if (!rc && !d->queues.index)
			rc = queues_open(&d->queues, error);
		if (rc)
			ipc_destroy(d->ipc);
	}
	if (rc) {
		careful_close(d->instance);
		block_stop(d->block);
		lend_stop(d->lend);
	}
	return rc;
}

static void log_start(struct daemon *d)
{
	struct careful_info info;

	if (careful_info(d->instance, &info))
		return;
	log_line("%s: %s, %s, %s%s, %s, port %u, R %u buffers, P %u, W %u, wait %s",
		 info.device.ifname, info.device.driver,
		 info.protocol == CAREFUL_PROTOCOL_TRADITIONAL ? "traditional" : "careful",
		 info.device.xdp_mode == CAREFUL_XDP_NATIVE ? "native" : "generic",
		 info.device.xdp_by == CAREFUL_XDP_BY_REMEMBERED ? " (remembered)" : "",
		 info.device.zerocopy ? "zero-copy" : "copy", info.port,
		 info.device.receive_buffers, info.peers_max, info.window,
		 info.wait_mode == CAREFUL_WAIT_SPIN  ? "spin" :
		 info.wait_mode == CAREFUL_WAIT_BLOCK ? "block" :
							"adaptive");
	if (info.device.native_refused[0])
		log_line("%s: native XDP was refused: %s", info.device.ifname,
			 info.device.native_refused);
	if (info.io_uring_denied)
		log_line("io_uring is denied: %s; threads read and write files",
			 strerror((int)info.io_uring_denied));
	reload_log(&d->options);
}

static void handle_events(struct daemon *d)
{
	struct epoll_event events[EVENTS];
	int n = epoll_wait(d->epoll_fd, events, EVENTS, 0);

	for (int i = 0; i < n; i++) {
		struct ipc_event *event = events[i].data.ptr;

		event->handle(event, events[i].events);
	}
}

static int64_t now_ms(void)
{
	return (int64_t)(clock_now_ns() / 1000000);
}

/* Loads the keys again if carefulctl has changed them. Logs a bad file each time. */
static void refresh_keys(struct daemon *d)
{
	struct careful_error error;
	int rc = careful_keys_refresh(d->instance, &error);

	if (rc > 0)
		log_line("keys: read again");
	else if (rc < 0 && log_allowed(&d->keys_limit))
		log_line("keys: %s; the previous keys stay in effect", error.text);
}

static int run(struct daemon *d)
{
	int64_t checked_ms = now_ms();
	unsigned int busy = 0;
	int timeout = 0, frames, rc;

	while (!d->stop) {
		frames = careful_wait(d->instance, timeout, d->epoll_fd);
		if (frames == -ENODEV) {
			rc = health_check(&d->health, d->instance);
			return rc ? rc : frames;
		}
		if (frames < 0 && frames != -EINTR && frames != -EAGAIN) {
			log_line("the datapath failed: %s", strerror(-frames));
			return frames;
		}
		if (frames <= 0 || ++busy == BUSY_ROUNDS) {
			busy = 0;
			handle_events(d);
			if (now_ms() - checked_ms >= HEALTH_MS) {
				checked_ms = now_ms();
				refresh_keys(d);
				rc = health_check(&d->health, d->instance);
				if (rc)
					return rc;
				notify_alive(&d->notify, d->instance, &d->queues);
			}
		}
		block_poll(d->block);
		lend_poll(d->lend);
		ipc_poll(d->ipc);
		xdp_trial_poll(&d->trial);
		scratch_file_poll(&d->scratch, now_ms());
		timeout = (int)(HEALTH_MS - (now_ms() - checked_ms));
		timeout = timeout < 0 ? 0 : timeout;
		timeout = clock_earlier_ms(timeout, clock_earlier_ms(block_timeout_ms(d->block),
								     ipc_timeout_ms(d->ipc)));
		timeout = clock_earlier_ms(timeout, xdp_trial_timeout_ms(&d->trial));
		timeout = clock_earlier_ms(timeout, scratch_file_timeout_ms(&d->scratch));
		timeout = clock_earlier_ms(timeout, lend_timeout_ms(d->lend));
	}
	return 0;
}

/* Puts the option that the text is about before it: "--rx-buffers: TEXT". */
static void name_option(struct careful_error *error)
{
	const struct careful_error raw = *error;

	if (!raw.option)
		return;
	explain(error, 0, "--%s: %s", raw.option, raw.text);
	for (char *at = error->text; *at != ':'; at++)
		*at = *at == '_' ? '-' : *at;
}

static int start(struct daemon *d, struct careful_error *error)
{
	static char log[sizeof(d->dir.path) + 8];
	int rc;

	if (geteuid())
		return explain(error, -EPERM, "must be run as root (sudo)");
	process_raise_limits();
	umask(022);
	rc = rundir_open(&d->dir, d->options.run_dir, d->options.group, d->passed_fd, error);
	if (rc)
		return rc;
	snprintf(log, sizeof(log), "%s/log", d->options.run_dir);
	if (!d->options.log && !d->options.foreground)
		d->options.log = log;
	rc = d->options.log ? log_open(d->options.log) : 0;
	if (!d->options.log)
		log_journal("/run/systemd/journal/socket");
	if (rc) {
		explain(error, rc, "%s: %s", d->options.log, strerror(-rc));
		d->options.log = NULL;
	} else {
		if (d->options.log) /* a service manager logs the start itself */
			log_line("carefuld %s begins, process %d", careful_version(),
				 (int)getpid());
		*error = (struct careful_error){ 0 };
		rc = init_signals(d);
	}
	if (!rc)
		rc = serve(d, error);
	if (rc) {
		if (!error->text[0])
			explain(error, rc, "cannot start: %s", strerror(-rc));
		name_option(error);
		if (d->options.log)
			log_line("error: %s", error->text);
		rundir_remove(&d->dir);
	}
	return rc;
}

static void stop(struct daemon *d)
{
	uint32_t operations_left, clients_left;

	notify_stopping(&d->notify);
	d->closing = true;
	queues_end(&d->queues);
	/* The engine ends first: after careful_close() nothing uses a file. */
	operations_left = (uint32_t)careful_close(d->instance);
	clients_left = ipc_destroy(d->ipc);
	operations_left += block_stop(d->block);
	lend_stop(d->lend);
	health_deinit(&d->health);
	if (d->options.foreground) /* no `down` follows */
		rundir_remove(&d->dir);
	else
		rundir_close(&d->dir);
	if (operations_left)
		log_line(
			"%u file operations hang in a file system: their files stay as they are, and "
			"this process stays until the operations end",
			operations_left);
	if (clients_left)
		log_line("files of %u local clients do not close, because their file system hangs",
			 clients_left);
	log_line("ended");
}

int main(int argc, char **argv)
{
	struct daemon *d = &carefuld;
	struct careful_error error = { 0 };
	int parent_fd = -1;
	int rc = options_parse(&d->options, argc, argv, &error);

	if (rc) {
		if (rc < 0)
			fprintf(stderr, "carefuld: %s\n", error.text);
		return rc < 0 ? EXIT_USAGE : EXIT_SUCCESS;
	}
	if (d->options.ready_fd >= 0)
		fcntl(d->options.ready_fd, F_SETFD, FD_CLOEXEC);
	d->notify.fd = d->passed_fd = -1;
	if (d->options.foreground)
		rc = activation_socket(&d->passed_fd, &error);
	else
		parent_fd = process_detach(d->options.ready_fd);
	if (!rc)
		rc = queues_fork(&d->queues, &d->options, &error);
	if (d->queues.index) {
		close(parent_fd);
		close(d->passed_fd); /* the first queue's; the others make their own */
		parent_fd = d->passed_fd = -1;
		if (!queues_wait(&d->queues))
			return EXIT_FAILURE;
	} else if (d->options.foreground) {
		notify_init(&d->notify);
	}
	if (!rc)
		rc = start(d, &error);
	if (d->queues.index)
		queues_report_start(&d->queues, rc ? error.text : NULL);
	if (rc) {
		process_report(d->options.ready_fd, "error: ", error.text);
		process_report(parent_fd, "error: ", error.text);
		notify_failed(&d->notify, rc, error.text);
		if (parent_fd < 0 && !d->queues.index)
			fprintf(stderr, "carefuld: %s\n", error.text);
		return EXIT_FAILURE;
	}
	log_start(d);
	process_leave_terminal();
	process_report(d->options.ready_fd, "ready", "");
	process_report(parent_fd, "ready", "");
	notify_ready(&d->notify, d->instance, &d->queues);
	close(d->options.ready_fd);
	close(parent_fd);
	rc = run(d);
	stop(d);
	return rc || d->broken ? EXIT_FAILURE : EXIT_SUCCESS;
}
