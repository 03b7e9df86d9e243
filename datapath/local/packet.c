/* SPDX-License-Identifier: BSD-2-Clause */
#include "local/packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* Room for one descriptor; the kernel closes any others. */
union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int))];
};

int packet_send(int socket, const struct careful_ipc *head, const void *payload, int fd)
{
	union control control = { .header = { .cmsg_len = CMSG_LEN(sizeof(int)),
					      .cmsg_level = SOL_SOCKET,
					      .cmsg_type = SCM_RIGHTS } };
	struct iovec iov[2] = {
		{ (void *)head, sizeof(*head) },
		{ (void *)payload, head->payload_bytes },
	};
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };

	if (fd >= 0) {
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control.bytes);
	}
	while (sendmsg(socket, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

ssize_t packet_receive(int socket, struct careful_ipc *head, void *payload, size_t bytes, int *fd)
{
	union control control;
	struct iovec iov[2] = { { head, sizeof(*head) }, { payload, bytes } };
	struct msghdr msg = {
		.msg_iov = iov,
		.msg_iovlen = 2,
		.msg_control = &control,
		.msg_controllen = CMSG_LEN(sizeof(int)),
	};
	ssize_t n;

	*fd = -1;
	do {
		n = recvmsg(socket, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (msg.msg_controllen >= CMSG_LEN(sizeof(int)) &&
	    control.header.cmsg_level == SOL_SOCKET && control.header.cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(&control.header), sizeof(*fd));
	return n;
}
