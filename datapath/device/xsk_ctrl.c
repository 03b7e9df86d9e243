// SPDX-License-Identifier: BSD-2-Clause
/*
 * Control messages: ordinary UDP sockets on our port, one for IPv4 and one for IPv6,
 * bound to the interface, and the ICMP errors that come back to them. The kernel owns
 * them; frames of the datapath never get here.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <linux/types.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "device/xsk.h"

enum {
	ERRORS_MAX = 16, /* of the error queue, looked at by one call */
};

static int set(int fd, int level, int option)
{
	const int on = 1;

	return setsockopt(fd, level, option, &on, sizeof(on));
}

static int open_socket(const struct xsk_device *xsk, int family)
{
	union careful_addr any = { .sa.sa_family = (sa_family_t)family };
	bool ipv4 = family == AF_INET;
	int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int rc;

	if (fd < 0)
		return -errno;
	if (ipv4)
		any.in.sin_port = htons(xsk->port);
	else
		any.in6.sin6_port = htons(xsk->port);
	rc = ipv4 ? set(fd, IPPROTO_IP, IP_RECVERR) : set(fd, IPPROTO_IPV6, IPV6_RECVERR);
	if (!rc && !ipv4)
		rc = set(fd, IPPROTO_IPV6, IPV6_V6ONLY);
	if (!rc)
		rc = setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, xsk->netdev.name,
				(socklen_t)strlen(xsk->netdev.name));
	if (!rc)
		rc = bind(fd, &any.sa, ipv4 ? sizeof(any.in) : sizeof(any.in6));
	if (!rc)
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

/* One family is enough: the other may be off. */
int xsk_ctrl_open(struct xsk_device *xsk, struct careful_error *error)
{
	xsk->ctrl[0] = open_socket(xsk, AF_INET);
	xsk->ctrl[1] = open_socket(xsk, AF_INET6);
	for (int i = 0; i < 2; i++)
		if (xsk->ctrl[i] == -EADDRINUSE)
			return xsk_fail(
				error, -EADDRINUSE,
				"UDP port %u on %s is in use; end its owner (`ss -ulpn`) or "
				"choose another port",
				xsk->port, xsk->netdev.name);
	if (xsk->ctrl[0] < 0 && xsk->ctrl[1] < 0)
		return xsk_fail(error, xsk->ctrl[0], "%s: cannot open UDP port %u: %s",
				xsk->netdev.name, xsk->port, strerror(-xsk->ctrl[0]));
	return 0;
}

void xsk_ctrl_close(struct xsk_device *xsk)
{
	for (int i = 0; i < 2; i++) {
		if (xsk->ctrl[i] >= 0)
			close(xsk->ctrl[i]);
		xsk->ctrl[i] = -1;
	}
}

int xsk_ctrl_send(struct careful_device *dev, const union careful_addr *to, const void *buf,
		  uint32_t bytes)
{
	const struct xsk_device *xsk = to_xsk(dev);
	bool ipv4 = to->sa.sa_family == AF_INET;
	int fd = xsk->ctrl[!ipv4];

	if (fd < 0)
		return -EAFNOSUPPORT;
	for (int i = 0; i < 2; i++) {
		ssize_t sent =
			sendto(fd, buf, bytes, 0, &to->sa, ipv4 ? sizeof(to->in) : sizeof(to->in6));

		if (sent >= 0)
			return 0;
		/* The first failure may be an earlier datagram's, to whomever. */
		if (errno == EAGAIN)
			break;
	}
	return -errno;
}

/* The next ICMP error that says "nobody listens": 0, or -EAGAIN if there is none. */
static int read_errors(int fd, union careful_addr *from)
{
	uint8_t data[64];
	union {
		struct cmsghdr align;
		uint8_t space[512];
	} control;

	for (int i = 0; i < ERRORS_MAX; i++) {
		struct iovec iov = { .iov_base = data, .iov_len = sizeof(data) };
		struct msghdr m = {
			.msg_name = from,
			.msg_namelen = sizeof(*from),
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control),
		};

		if (recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
			return -EAGAIN;
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
			struct sock_extended_err error;

			if (!(c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) &&
			    !(c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR))
				continue;
			memcpy(&error, CMSG_DATA(c), sizeof(error));
			if (error.ee_errno == ECONNREFUSED &&
			    (error.ee_origin == SO_EE_ORIGIN_ICMP ||
			     error.ee_origin == SO_EE_ORIGIN_ICMP6))
				return 0;
		}
	}
	return -EAGAIN;
}

static ssize_t read_message(int fd, union careful_addr *from, void *buf, uint32_t bytes)
{
	for (int i = 0; i < 2; i++) {
		socklen_t length = sizeof(*from);
		ssize_t got =
			recvfrom(fd, buf, bytes, MSG_DONTWAIT | MSG_TRUNC, &from->sa, &length);

		/* As much as there was room for; a longer one is no message of ours. */
		if (got >= 0)
			return got < (ssize_t)bytes ? got : (ssize_t)bytes;
		if (errno == EAGAIN)
			break;
		/* An error of the error queue, reported twice: read on. */
	}
	return -EAGAIN;
}

ssize_t xsk_ctrl_recv(struct careful_device *dev, union careful_addr *from, void *buf,
		      uint32_t bytes)
{
	const struct xsk_device *xsk = to_xsk(dev);
	struct pollfd fds[2] = {
		{ .fd = xsk->ctrl[0], .events = POLLIN },
		{ .fd = xsk->ctrl[1], .events = POLLIN },
	};

	if (poll(fds, 2, 0) <= 0)
		return -EAGAIN;
	for (int i = 0; i < 2; i++) {
		ssize_t got;

		if ((fds[i].revents & POLLERR) && !read_errors(fds[i].fd, from))
			return -ECONNREFUSED;
		if (!fds[i].revents)
			continue;
		got = read_message(fds[i].fd, from, buf, bytes);
		if (got != -EAGAIN)
			return got;
	}
	return -EAGAIN;
}
