/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * careful-tcp: requests and replies over TCP or UDP, for LogP signatures next to careful's.
 *
 *   careful-tcp serve PORT              answers requests over both
 *   careful-tcp ask ADDRESS PORT [udp]  makes signatures
 *
 * Over TCP a message's first word asks for the answer's size. `ask` reads each struct
 * careful_signature and writes its bursts, after an int with their bytes or -errno.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "measure/signature.h"

enum {
	MESSAGE_BYTES = 64,
	REPLY_MAX = 1 << 20,
	SPIN_NS = 50000, /* like carefuld's spin before it blocks */
	CONNECTIONS = 32,
	CLIENTS = 2, /* the first client, after the listening sockets */
	DATAGRAMS = 64, /* taken at once */
	FIRST_MS = 500, /* wait for the reply to a first datagram */
	FIRSTS = 6, /* first datagrams, since UDP does not show whether a server listens */
};

struct sockets {
	struct signature_layer layer;
	int fd;
	uint32_t part; /* received bytes of an incomplete reply */
	uint32_t reply_bytes;
	union {
		uint32_t asked; /* bytes of the reply; 0: like the message */
		uint8_t bytes[MESSAGE_BYTES];
	} message;
};

/* A client over TCP, and the received bytes of its incomplete message. */
struct client {
	uint8_t message[MESSAGE_BYTES];
	uint32_t part;
};

static int fail(const char *what)
{
	fprintf(stderr, "careful-tcp: %s: %s\n", what, strerror(errno));
	return 1;
}

/* Sends all bytes on a non-blocking socket. -errno: the other end has gone. */
static int send_all(int fd, const uint8_t *data, size_t bytes)
{
	while (bytes) {
		ssize_t n = send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n > 0) {
			data += n;
			bytes -= (size_t)n;
		}
	}
	return 0;
}

static int tcp_issue(struct signature_layer *layer)
{
	struct sockets *s = (struct sockets *)layer;
	const uint8_t *message = s->message.bytes;
	ssize_t n = send(s->fd, message, MESSAGE_BYTES, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	return send_all(s->fd, message + n, MESSAGE_BYTES - (size_t)n);
}

static int tcp_poll(struct signature_layer *layer)
{
	static uint8_t replies[1 << 16];
	struct sockets *s = (struct sockets *)layer;
	ssize_t n = recv(s->fd, replies, sizeof(replies), MSG_DONTWAIT);

	if (n == 0)
		return -ECONNRESET;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	s->part += (uint32_t)n;
	layer->outstanding -= s->part / s->reply_bytes;
	s->part %= s->reply_bytes;
	return 1;
}

static int udp_issue(struct signature_layer *layer)
{
	static const uint8_t message[MESSAGE_BYTES];
	struct sockets *s = (struct sockets *)layer;

	if (send(s->fd, message, sizeof(message), MSG_DONTWAIT) < 0)
		return errno == EINTR || errno == ENOBUFS ? -EAGAIN : -errno;
	return 0;
}

static int udp_poll(struct signature_layer *layer)
{
	static uint8_t reply[MESSAGE_BYTES];
	struct sockets *s = (struct sockets *)layer;
	int taken = 0;

	while (taken < DATAGRAMS && layer->outstanding) {
		if (recv(s->fd, reply, sizeof(reply), MSG_DONTWAIT) < 0) {
			if (errno != EAGAIN && errno != EINTR)
				return -errno;
			break;
		}
		layer->outstanding--;
		taken++;
	}
	return taken;
}

/* Reports whether a server answers; otherwise datagrams would vanish silently. */
static bool server_answers(int fd)
{
	static const uint8_t message[MESSAGE_BYTES];
	uint8_t reply[MESSAGE_BYTES];
	struct pollfd poller = { .fd = fd, .events = POLLIN };

	for (int i = 0; i < FIRSTS; i++) {
		if (send(fd, message, sizeof(message), 0) < 0)
			return false;
		if (poll(&poller, 1, FIRST_MS) <= 0)
			continue;
		if (recv(fd, reply, sizeof(reply), 0) < 0)
			return false;
		/* Receives late replies to earlier attempts. */
		while (i && poll(&poller, 1, FIRST_MS) > 0)
			recv(fd, reply, sizeof(reply), 0);
		return true;
	}
	errno = ETIMEDOUT;
	return false;
}

static struct addrinfo *resolve(const char *address, const char *port, int type)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICSERV | (address ? 0 : AI_PASSIVE),
					.ai_family = address ? AF_UNSPEC : AF_INET6,
					.ai_socktype = type };
	struct addrinfo *found;
	int rc = getaddrinfo(address, port, &hints, &found);

	if (rc)
		fprintf(stderr, "careful-tcp: %s\n", gai_strerror(rc));
	return rc ? NULL : found;
}

static void set_no_delay(int fd)
{
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static int connect_to(const char *address, const char *port, bool udp)
{
	int type = udp ? SOCK_DGRAM : SOCK_STREAM;
	struct addrinfo *to = resolve(address, port, type);
	int fd;

	if (!to)
		return -1;
	fd = socket(to->ai_family, type | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, to->ai_addr, to->ai_addrlen) || (udp && !server_answers(fd))) {
		fail(address);
		fd = -1;
	}
	freeaddrinfo(to);
	if (fd >= 0 && !udp)
		set_no_delay(fd);
	return fd;
}

/* Writes an answer, or the error. */
static int answer(int bytes, const void *data)
{
	if (fwrite(&bytes, sizeof(bytes), 1, stdout) != 1)
		return -EPIPE;
	if (bytes > 0 && fwrite(data, (size_t)bytes, 1, stdout) != 1)
		return -EPIPE;
	return fflush(stdout) ? -EPIPE : 0;
}

static int ask(const char *address, const char *port, bool udp)
{
	static uint64_t answers[CAREFUL_IPC_PAYLOAD_BYTES / sizeof(uint64_t)];
	struct sockets sockets = { .layer = { .issue = udp ? udp_issue : tcp_issue,
					      .poll = udp ? udp_poll : tcp_poll,
					      .now_ns = clock_now_ns } };
	struct careful_signature s;

	sockets.fd = connect_to(address, port, udp);
	if (sockets.fd < 0)
		return 1;
	if (answer(0, NULL))
		return 1;
	while (fread(&s, sizeof(s), 1, stdin) == 1) {
		int rc = signature_check(&s);

		sockets.layer.capacity = s.capacity;
		sockets.reply_bytes = s.bytes ? s.bytes : MESSAGE_BYTES;
		sockets.message.asked = htonl(s.bytes);
		if (!rc)
			rc = signature_run(&sockets.layer, &s, answers, sizeof(answers));
		if (rc > 0)
			rc *= (int)signature_burst_bytes(&s);
		if (answer(rc, answers) || rc < 0)
			return 1;
	}
	return 0;
}

/* Returns the bytes that a whole message asks for. */
static size_t reply_bytes(const struct client *client)
{
	uint32_t bytes;

	memcpy(&bytes, client->message, sizeof(bytes));
	bytes = ntohl(bytes);
	return !bytes ? MESSAGE_BYTES : bytes < REPLY_MAX ? bytes : REPLY_MAX;
}

/* Answers complete messages. Returns 1 if bytes arrived, or -errno if the client has gone. */
static int echo(int fd, struct client *client)
{
	static uint8_t data[1 << 16], reply[REPLY_MAX];
	ssize_t n = recv(fd, data, sizeof(data), MSG_DONTWAIT);
	size_t owed = 0;
	int rc = 0;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	for (ssize_t at = 0, take; at < n; at += take) {
		take = MESSAGE_BYTES - client->part < n - at ? MESSAGE_BYTES - client->part :
							       n - at;
		memcpy(client->message + client->part, data + at, (size_t)take);
		client->part = (client->part + (uint32_t)take) % MESSAGE_BYTES;
		owed += client->part ? 0 : reply_bytes(client);
	}
	while (owed && !rc) {
		size_t some = owed < sizeof(reply) ? owed : sizeof(reply);

		rc = send_all(fd, reply, some);
		owed -= some;
	}
	return n && !rc ? 1 : -ECONNRESET;
}

/* Serves all clients once. Reports whether any sent bytes. */
static int echo_round(struct pollfd *fds, struct client *clients, nfds_t *count)
{
	int asked = 0;

	for (nfds_t i = *count; i-- > CLIENTS;) {
		int rc = echo(fds[i].fd, &clients[i]);

		asked |= rc > 0;
		if (rc < 0) {
			close(fds[i].fd);
			fds[i] = fds[--*count];
			clients[i] = clients[*count];
		}
	}
	return asked;
}

/* Echoes datagrams. Returns their number. */
static int echo_datagrams(int fd)
{
	static uint8_t data[1 << 16];
	struct sockaddr_storage from;
	int asked = 0;

	while (asked < DATAGRAMS) {
		socklen_t bytes = sizeof(from);
		ssize_t n = recvfrom(fd, data, sizeof(data), MSG_DONTWAIT, (struct sockaddr *)&from,
				     &bytes);

		if (n < 0)
			break;
		sendto(fd, data, (size_t)n, MSG_DONTWAIT, (struct sockaddr *)&from, bytes);
		asked++;
	}
	return asked;
}

/* Opens a socket on the port for IPv4 and IPv6. */
static int open_server(const char *port, int type)
{
	struct addrinfo *at = resolve(NULL, port, type);
	int on = 1, off = 0, fd;

	if (!at)
		return -1;
	fd = socket(at->ai_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (fd < 0 || bind(fd, at->ai_addr, at->ai_addrlen) ||
	    (type == SOCK_STREAM && listen(fd, CONNECTIONS))) {
		fprintf(stderr, "carefulctl: port %s: %m; choose another at both ends\n", port);
		fd = -1;
	}
	freeaddrinfo(at);
	return fd;
}

static int serve(const char *port)
{
	struct pollfd fds[CLIENTS + CONNECTIONS] = { { .events = POLLIN }, { .events = POLLIN } };
	static struct client clients[CLIENTS + CONNECTIONS];
	uint64_t spun_ns = clock_now_ns();
	nfds_t count = CLIENTS;

	fds[0].fd = open_server(port, SOCK_STREAM);
	fds[1].fd = fds[0].fd < 0 ? -1 : open_server(port, SOCK_DGRAM);
	if (fds[1].fd < 0)
		return 1;
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		int any = echo_round(fds, clients, &count);

		if (echo_datagrams(fds[1].fd) || any)
			spun_ns = clock_now_ns();
		if (clock_now_ns() - spun_ns < SPIN_NS)
			continue;
		if (poll(fds, count, -1) < 0 && errno != EINTR)
			return fail("poll");
		if (count < CLIENTS + CONNECTIONS && (fds[0].revents & POLLIN)) {
			int fd = accept4(fds[0].fd, NULL, NULL, SOCK_CLOEXEC);

			if (fd >= 0) {
				set_no_delay(fd);
				clients[count].part = 0;
				fds[count++] = (struct pollfd){ .fd = fd, .events = POLLIN };
			}
		}
	}
}

int main(int argc, char **argv)
{
	bool udp = argc == 5 && !strcmp(argv[4], "udp");

	signal(SIGPIPE, SIG_IGN);
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2]);
	if ((argc == 4 || udp) && !strcmp(argv[1], "ask"))
		return ask(argv[2], argv[3], udp);
	fprintf(stderr, "usage: careful-tcp serve PORT\n"
			"       careful-tcp ask ADDRESS PORT [udp]\n");
	return 2;
}
