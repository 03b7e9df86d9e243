/* SPDX-License-Identifier: BSD-2-Clause */
/* The protocol of sd_notify(3) is one datagram, so this uses no library. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/process/notify.h"

void notify_init(struct notify *notify)
{
	const char *path = getenv("NOTIFY_SOCKET");
	const char *pid = getenv("WATCHDOG_PID");
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	size_t bytes = path ? strlen(path) : 0;

	memset(notify, 0, sizeof(*notify));
	notify->fd = -1;
	if (bytes < 2 || bytes >= sizeof(un.sun_path) || (*path != '/' && *path != '@'))
		return;
	memcpy(un.sun_path, path, bytes);
	if (*path == '@') /* an abstract name */
		un.sun_path[0] = 0;
	notify->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (notify->fd < 0)
		return;
	bytes += offsetof(struct sockaddr_un, sun_path);
	if (connect(notify->fd, (struct sockaddr *)&un, (socklen_t)bytes)) {
		close(notify->fd);
		notify->fd = -1;
	}
	notify->has_watchdog = getenv("WATCHDOG_USEC") && (!pid || atoi(pid) == getpid());
}

static void send_text(const struct notify *notify, const char *text)
{
	if (notify->fd >= 0 && *text)
		send(notify->fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static uint32_t peers_up(struct careful *instance)
{
	struct careful_peer_info peer;
	struct careful_info info;
	uint32_t up = 0;

	if (careful_info(instance, &info))
		return 0;
	for (uint32_t i = 0; i < info.peers_max; i++)
		up += careful_peer_info(instance, i, &peer) == 0 && peer.state == CAREFUL_PEER_UP;
	return up;
}

static void status_line(struct careful *instance, const struct queues *queues, char *text,
			size_t bytes)
{
	struct careful_info info;
	uint32_t up = 0;

	*text = 0;
	if (careful_info(instance, &info))
		return;
	for (uint32_t i = 0; i < queues->count; i++)
		up += queues->up[i];
	snprintf(text, bytes, "STATUS=%s: XDP %s, %s, window %u, %u of %u peers up\n",
		 info.device.ifname,
		 info.device.xdp_mode == CAREFUL_XDP_NATIVE ? "native" : "generic",
		 info.device.zerocopy ? "zero-copy" : "copy", info.window, up,
		 info.peers_max * queues->count);
}

/* Sends `head`, followed by the status line if the line has changed. */
static void send_status(struct notify *notify, struct careful *instance,
			const struct queues *queues, const char *head)
{
	char text[sizeof(notify->status) + 64], status[sizeof(notify->status)];

	if (notify->fd < 0)
		return;
	status_line(instance, queues, status, sizeof(status));
	snprintf(text, sizeof(text), "%s%s", head, strcmp(status, notify->status) ? status : "");
	memcpy(notify->status, status, sizeof(status));
	send_text(notify, text);
}

void notify_ready(struct notify *notify, struct careful *instance, const struct queues *queues)
{
	send_status(notify, instance, queues, "READY=1\n");
}

void notify_alive(struct notify *notify, struct careful *instance, struct queues *queues)
{
	bool all = queues_report_alive(queues, peers_up(instance));

	send_status(notify, instance, queues, notify->has_watchdog && all ? "WATCHDOG=1\n" : "");
}

void notify_failed(struct notify *notify, int rc, const char *why)
{
	char text[CAREFUL_ERROR_BYTES + 64];

	snprintf(text, sizeof(text), "STATUS=%s\nERRNO=%d\n", why, rc < 0 ? -rc : EIO);
	send_text(notify, text);
}

void notify_stopping(struct notify *notify)
{
	send_text(notify, "STOPPING=1\n");
}
