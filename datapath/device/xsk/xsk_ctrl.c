// SPDX-License-Identifier: BSD-2-Clause
/* Control messages and the ICMP errors about them: UDP sockets on our port, for IPv4 and IPv6,
 * bound to the interface. Datapath frames never get here. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <linux/types.h>
#include <linux/udp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <careful/wire.h>

#include "base/clock.h"
#include "device/xsk/xsk.h"

enum {
	ERRORS_MAX = 16, /* read from the error queue per call */
	QUOTED_MAX = 1024, /* payload that an ICMP error quotes; Linux: 548 bytes */
	HEADERS_BYTES = 28, /* IPv4 and UDP, or IPv4 and ICMP */
	IPV6_MORE_BYTES = 20, /* additional bytes for IPv6 */
	STAMP_OLD_NS = 1000 * 1000 * 1000,
};

static int turn_on(int fd, int level, int option)
{
	const int on = 1;

	return setsockopt(fd, level, option, &on, sizeof(on));
}

static int open_socket(const struct xsk_port *port, int family)
{
	union address any = { .sa.sa_family = (sa_family_t)family };
	bool ipv4 = family == AF_INET;
	const int off = 0;
	int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int rc;

	if (fd < 0)
		return -errno;
	any.in.sin_port = htons(port->udp); /* of either family */
	if (ipv4) /* group frames (xsk_group.c) are no control messages */
		rc = turn_on(fd, IPPROTO_IP, IP_RECVERR) || turn_on(fd, IPPROTO_IP, IP_PKTINFO) ||
		     setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof(off));
	else /* pings have no checksum (route.c) */
		rc = turn_on(fd, IPPROTO_IPV6, IPV6_RECVERR) ||
		     turn_on(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO) ||
		     turn_on(fd, IPPROTO_IPV6, IPV6_V6ONLY) ||
		     turn_on(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX);
	if (!rc)
		rc = setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, port->netdev.name,
				(socklen_t)strlen(port->netdev.name));
	if (!rc)
		rc = bind(fd, &any.sa, ipv4 ? sizeof(any.in) : sizeof(any.in6));
	if (!rc)
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

/* Needs one family only, because the other may be disabled. */
int xsk_ctrl_open(struct xsk_port *port, struct careful_error *error)
{
	port->ctrl[0] = open_socket(port, AF_INET);
	port->ctrl[1] = open_socket(port, AF_INET6);
	for (int i = 0; i < 2; i++) {
		int rc = port->ctrl[i] == -EADDRINUSE ? xsk_lock_check(port, error) : 0;

		if (rc)
			return rc;
		if (port->ctrl[i] == -EADDRINUSE)
			return explain(error, -EADDRINUSE,
				       "UDP port %u on %s is in use; end the program that has it "
				       "(`ss -ulpn`), or choose another port",
				       port->udp, port->netdev.name);
	}
	if (port->ctrl[0] < 0 && port->ctrl[1] < 0)
		return explain(error, port->ctrl[0], "%s: cannot open UDP port %u: %s",
			       port->netdev.name, port->udp, strerror(-port->ctrl[0]));
	return 0;
}

/* A child of fork() may keep the sockets open, so they are bound to lo, where they block no one. */
void xsk_ctrl_close(struct xsk_port *port)
{
	for (int i = 0; i < 2; i++) {
		if (port->ctrl[i] < 0)
			continue;
		if (xsk_is_owner(port))
			setsockopt(port->ctrl[i], SOL_SOCKET, SO_BINDTODEVICE, "lo", 2);
		close(port->ctrl[i]);
		port->ctrl[i] = -1;
	}
}

union control {
	struct cmsghdr align;
	uint8_t space[128];
};

/* Makes the kernel send from the address that the other end reached. */
static void set_source(struct msghdr *m, union control *control, const union address *to)
{
	bool ipv4 = to->sa.sa_family == AF_INET;
	struct in6_pktinfo info6 = { 0 };
	struct in_pktinfo info = { 0 };
	size_t bytes = ipv4 ? sizeof(info) : sizeof(info6);
	struct cmsghdr *c = &control->align;

	memcpy(&info.ipi_spec_dst, to->ours, sizeof(info.ipi_spec_dst));
	memcpy(&info6.ipi6_addr, to->ours, sizeof(info6.ipi6_addr));
	c->cmsg_level = ipv4 ? IPPROTO_IP : IPPROTO_IPV6;
	c->cmsg_type = ipv4 ? IP_PKTINFO : IPV6_PKTINFO;
	c->cmsg_len = CMSG_LEN(bytes);
	memcpy(CMSG_DATA(c), ipv4 ? (const void *)&info : &info6, bytes);
	m->msg_control = control;
	m->msg_controllen = CMSG_SPACE(bytes);
}

/* Finds our address that a message was sent to. Returns false for a broadcast or multicast address:
 * every host would answer such a message. */
static bool find_ours(union address *from, struct msghdr *m)
{
	struct in6_pktinfo info6;
	struct in_pktinfo info;
	bool unicast = true;

	memset(from->ours, 0, sizeof(from->ours));
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			memcpy(&info, CMSG_DATA(c), sizeof(info));
			memcpy(from->ours, &info.ipi_spec_dst, sizeof(info.ipi_spec_dst));
			unicast = info.ipi_addr.s_addr == info.ipi_spec_dst.s_addr;
		} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			memcpy(&info6, CMSG_DATA(c), sizeof(info6));
			unicast = !IN6_IS_ADDR_MULTICAST(&info6.ipi6_addr);
			if (unicast)
				memcpy(from->ours, &info6.ipi6_addr, sizeof(info6.ipi6_addr));
		}
	}
	return unicast;
}

int xsk_ctrl_send(struct port *port, const union address *to, const void *buf, uint32_t bytes)
{
	const struct xsk_port *xsk = to_xsk_port(port);
	bool ipv4 = to->sa.sa_family == AF_INET;
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = bytes };
	struct msghdr m = {
		.msg_name = (void *)(uintptr_t)to,
		.msg_namelen = ipv4 ? sizeof(to->in) : sizeof(to->in6),
		.msg_iov = &iov,
		.msg_iovlen = 1,
	};
	union control control = { 0 };
	int fd = xsk->ctrl[!ipv4];

	if (fd < 0)
		return -EAFNOSUPPORT;
	if (address_has_ours(to))
		set_source(&m, &control, to);
	for (int i = 0; i < 3; i++) {
		if (sendmsg(fd, &m, 0) >= 0)
			return 0;
		if (errno == EAGAIN)
			break;
		/* The error may belong to an earlier datagram; or our address is gone, and the
		 * kernel must choose. */
		if (errno == EINVAL || errno == ENETUNREACH || errno == EADDRNOTAVAIL)
			m.msg_controllen = 0;
	}
	return -errno;
}

/* Returns a message's arrival by the monotonic clock: from the kernel's stamp (CLOCK_REALTIME), or
 * now if there is no stamp, or the clock was set since. */
static uint64_t arrived_ns(struct msghdr *m)
{
	uint64_t now_ns = clock_now_ns(), ago_ns;
	struct timespec stamp, now;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS)
			continue;
		memcpy(&stamp, CMSG_DATA(c), sizeof(stamp));
		clock_gettime(CLOCK_REALTIME, &now);
		ago_ns = (uint64_t)(now.tv_sec - stamp.tv_sec) * 1000000000 +
			 (uint64_t)now.tv_nsec - (uint64_t)stamp.tv_nsec;
		if (ago_ns < STAMP_OLD_NS)
			return now_ns - ago_ns;
	}
	return now_ns;
}

void xsk_stamps(struct port *port, bool on)
{
	const struct xsk_port *xsk = to_xsk_port(port);
	const int value = on;

	for (int i = 0; i < 2; i++)
		if (xsk->ctrl[i] >= 0)
			setsockopt(xsk->ctrl[i], SOL_SOCKET, SO_TIMESTAMPNS, &value, sizeof(value));
}

static uint32_t headers_bytes(const union address *address)
{
	return HEADERS_BYTES + (address->sa.sa_family == AF_INET6 ? IPV6_MORE_BYTES : 0);
}

/* Reports whether an ICMP error is about a ping: the quote starts like a ping, or is empty.
 * *arrival gets the error's fields. */
static bool is_about_ping(const struct sock_extended_err *error, const union address *to,
			  const uint8_t *data, size_t bytes, struct arrival *arrival)
{
	const void *by = SO_EE_OFFENDER(error);
	bool ipv6 = error->ee_origin == SO_EE_ORIGIN_ICMP6;

	if ((!ipv6 && error->ee_origin != SO_EE_ORIGIN_ICMP) ||
	    (bytes > 1 && data[1] != CAREFUL_PING))
		return false;
	memcpy(&arrival->by, by, ipv6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
	arrival->icmp_type = error->ee_type;
	arrival->icmp_code = error->ee_code;
	arrival->icmp_info = error->ee_info;
	arrival->ip_bytes = 2 * headers_bytes(to) + (uint32_t)bytes;
	return true;
}

/* Returns the next ICMP error, with its quote in buf: port unreachable (-ECONNREFUSED), packet too
 * big (-EMSGSIZE), or another error about a ping (-EHOSTUNREACH). -EAGAIN: none. */
static int read_errors(int fd, union address *from, void *buf, uint32_t bytes,
		       struct arrival *arrival)
{
	uint8_t data[QUOTED_MAX];
	union {
		struct cmsghdr align;
		uint8_t space[512];
	} control;

	for (int i = 0; i < ERRORS_MAX; i++) {
		struct iovec iov = { .iov_base = data, .iov_len = sizeof(data) };
		ssize_t n;
		struct msghdr m = {
			.msg_name = from,
			.msg_namelen = sizeof(*from),
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control),
		};

		n = recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT);
		if (n < 0)
			return -EAGAIN;
		memset(from->ours, 0, sizeof(from->ours));
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
			union {
				struct sock_extended_err error;
				uint8_t space[sizeof(struct sock_extended_err) +
					      sizeof(struct sockaddr_in6)];
			} e = { 0 };
			size_t bytes_here = c->cmsg_len - CMSG_LEN(0);

			if (!(c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) &&
			    !(c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR))
				continue;
			memcpy(&e, CMSG_DATA(c), bytes_here < sizeof(e) ? bytes_here : sizeof(e));
			memcpy(buf, data, (size_t)n < bytes ? (size_t)n : bytes);
			if (e.error.ee_errno == ECONNREFUSED &&
			    (e.error.ee_origin == SO_EE_ORIGIN_ICMP ||
			     e.error.ee_origin == SO_EE_ORIGIN_ICMP6))
				return -ECONNREFUSED;
			if (e.error.ee_errno == EMSGSIZE && n > 1 && data[1] != CAREFUL_PING)
				return -EMSGSIZE;
			if (!is_about_ping(&e.error, from, data, (size_t)n, arrival))
				continue;
			arrival->at_ns = arrived_ns(&m);
			return -EHOSTUNREACH;
		}
	}
	return -EAGAIN;
}

static ssize_t read_message(int fd, union address *from, void *buf, uint32_t bytes,
			    struct arrival *arrival)
{
	union control control;

	for (int i = 0; i < 2; i++) {
		struct iovec iov = { .iov_base = buf, .iov_len = bytes };
		struct msghdr m = {
			.msg_name = from,
			.msg_namelen = sizeof(*from),
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control),
		};
		ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_TRUNC);

		if (n >= 0) {
			if (!find_ours(from, &m))
				return 0;
			arrival->at_ns = arrived_ns(&m);
			arrival->ip_bytes = headers_bytes(from) + (uint32_t)n;
			return n < (ssize_t)bytes ? n : (ssize_t)bytes;
		}
		if (errno == EAGAIN)
			break;
		/* The kernel repeats an error of the error queue here; the next read succeeds. */
	}
	return -EAGAIN;
}

ssize_t xsk_ctrl_recv(struct port *port, union address *from, void *buf, uint32_t bytes,
		      struct arrival *arrival)
{
	struct xsk_port *xsk = to_xsk_port(port);
	struct pollfd fds[2] = {
		{ .fd = xsk->ctrl[xsk->ctrl_turn], .events = POLLIN },
		{ .fd = xsk->ctrl[!xsk->ctrl_turn], .events = POLLIN },
	};

	if (poll(fds, 2, 0) <= 0)
		return -EAGAIN;
	/* A flood over one family must not delay messages of the other. */
	xsk->ctrl_turn = !xsk->ctrl_turn;
	for (int i = 0; i < 2; i++) {
		ssize_t n = -EAGAIN;

		if (fds[i].revents & POLLERR)
			n = read_errors(fds[i].fd, from, buf, bytes, arrival);
		if (n == -EAGAIN && fds[i].revents)
			n = read_message(fds[i].fd, from, buf, bytes, arrival);
		if (n != -EAGAIN)
			return n;
	}
	return -EAGAIN;
}
