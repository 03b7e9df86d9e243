/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests to carefuld and their answers. Owns the socket and the waiting threads' records. */
#include "nbd/client.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct waiter {
	struct waiter *next;
	uint64_t id;
	struct careful_ipc *packet; /* receives the answer's header */
	void *answer;
	size_t size;
	bool is_done;
	pthread_cond_t woken; /* signalled when done, or when this thread must read */
};

struct client {
	int fd;
	pthread_mutex_t lock; /* guards all below except `buffer`, which belongs to the reader */
	struct waiter *waiters;
	uint64_t last_id;
	int failed; /* -errno once the connection has ended */
	bool is_read; /* some thread reads for all */
	struct {
		struct careful_ipc header;
		char payload[CAREFUL_IPC_PAYLOAD_BYTES];
	} buffer;
};

int client_connect(const char *path, struct client **client)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct client *made;
	int rc;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path) + 1);
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (made->fd < 0 || connect(made->fd, (struct sockaddr *)&address, sizeof(address))) {
		rc = -errno;
		if (made->fd >= 0)
			close(made->fd);
		free(made);
		return rc;
	}
	pthread_mutex_init(&made->lock, NULL);
	*client = made;
	return 0;
}

void client_close(struct client *client)
{
	assert(!client->waiters);
	close(client->fd);
	pthread_mutex_destroy(&client->lock);
	free(client);
}

/* Sends a packet, with a descriptor unless fd is -1. 0, or -errno. */
static int send_packet(int socket, const struct careful_ipc *packet, const void *payload, int fd)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { .header = { .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec iov[2] = {
		{ .iov_base = (void *)packet, .iov_len = sizeof(*packet) },
		{ .iov_base = (void *)payload, .iov_len = packet->payload_bytes },
	};
	struct msghdr message = { .msg_iov = iov, .msg_iovlen = 2 };

	if (fd >= 0) {
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control.space);
	}
	while (sendmsg(socket, &message, MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

/* Ends every wait with rc. With the lock. */
static void fail(struct client *client, int rc)
{
	client->failed = rc;
	for (struct waiter *one = client->waiters; one; one = one->next) {
		one->packet->status = rc;
		one->is_done = true;
		pthread_cond_signal(&one->woken);
	}
}

/* Hands the packet in the buffer to the thread that asked. With the lock. */
static void deliver(struct client *client, ssize_t nbytes)
{
	const struct careful_ipc *header = &client->buffer.header;
	struct waiter *one = client->waiters;
	size_t payload;

	if (nbytes < (ssize_t)sizeof(*header)) {
		fail(client, -ENOTCONN);
		return;
	}
	if (header->version != CAREFUL_IPC_VERSION || !header->id) {
		fail(client, header->status < 0 ? header->status : -EPROTO);
		return;
	}
	while (one && one->id != header->id)
		one = one->next;
	if (!one)
		return;
	payload = (size_t)nbytes - sizeof(*header);
	if (payload > header->payload_bytes)
		payload = header->payload_bytes;
	if (payload > one->size)
		payload = one->size;
	if (payload)
		memcpy(one->answer, client->buffer.payload, payload);
	*one->packet = *header;
	one->packet->payload_bytes = (uint32_t)payload;
	one->is_done = true;
	pthread_cond_signal(&one->woken);
}

/* Waits for the answer: reads for all, or sleeps while another thread reads. With the lock. */
static void wait_for(struct client *client, struct waiter *self)
{
	ssize_t nbytes;

	while (!self->is_done) {
		if (client->is_read) {
			pthread_cond_wait(&self->woken, &client->lock);
			continue;
		}
		client->is_read = true;
		pthread_mutex_unlock(&client->lock);
		do {
			nbytes = recv(client->fd, &client->buffer, sizeof(client->buffer), 0);
		} while (nbytes < 0 && errno == EINTR);
		pthread_mutex_lock(&client->lock);
		client->is_read = false;
		deliver(client, nbytes);
	}
}

int client_ask(struct client *client, struct careful_ipc *packet, const void *payload, int fd,
	       void *answer, size_t size)
{
	struct waiter self = { .packet = packet, .answer = answer, .size = size };
	struct waiter **at;
	int rc;

	pthread_cond_init(&self.woken, NULL);
	pthread_mutex_lock(&client->lock);
	packet->version = CAREFUL_IPC_VERSION;
	packet->id = self.id = ++client->last_id;
	rc = client->failed ? client->failed : send_packet(client->fd, packet, payload, fd);
	if (!rc) {
		self.next = client->waiters;
		client->waiters = &self;
		wait_for(client, &self);
		for (at = &client->waiters; *at && *at != &self; at = &(*at)->next)
			;
		assert(*at);
		*at = self.next;
		if (client->waiters && !client->is_read) /* another thread takes over the reading */
			pthread_cond_signal(&client->waiters->woken);
		rc = packet->status;
	}
	pthread_mutex_unlock(&client->lock);
	pthread_cond_destroy(&self.woken);
	return rc;
}
