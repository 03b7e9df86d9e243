// SPDX-License-Identifier: BSD-2-Clause
/* The part of route netlink that the device needs. The kernel answers before sendto() returns, so
 * nothing here waits for the network. */
#include "device/rtnl.h"

#include <assert.h>
#include <errno.h>
#include <linux/pkt_sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum {
	/* Frames. AF_XDP bypasses the queue itself; but with a qdisc a veth returns EAGAIN when the
	 * other end is full, instead of dropping. */
	QDISC_LIMIT = 4096,
};

int rtnl_open(struct rtnl *rtnl, uint32_t groups)
{
	struct sockaddr_nl address = { .nl_family = AF_NETLINK, .nl_groups = groups };
	const struct timeval patience = { .tv_sec = 1 };

	rtnl->seq = 0;
	rtnl->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (rtnl->fd < 0)
		return -errno;
	if (bind(rtnl->fd, (struct sockaddr *)&address, sizeof(address)) ||
	    setsockopt(rtnl->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience))) {
		int rc = -errno;

		rtnl_close(rtnl);
		return rc;
	}
	return 0;
}

void rtnl_close(struct rtnl *rtnl)
{
	if (rtnl->fd >= 0)
		close(rtnl->fd);
	rtnl->fd = -1;
}

void *rtnl_begin(struct rtnl_message *message, uint16_t type, uint16_t flags, size_t body_bytes)
{
	memset(message, 0, sizeof(*message));
	message->header.nlmsg_type = type;
	message->header.nlmsg_flags = NLM_F_REQUEST | flags;
	message->header.nlmsg_len = NLMSG_LENGTH(body_bytes);
	return NLMSG_DATA(&message->header);
}

struct rtattr *rtnl_put(struct rtnl_message *message, uint16_t type, const void *data, size_t bytes)
{
	size_t at = NLMSG_ALIGN(message->header.nlmsg_len);
	struct rtattr *attr = (struct rtattr *)((uint8_t *)message + at);

	assert(at + RTA_SPACE(bytes) <= sizeof(*message));
	attr->rta_type = type;
	attr->rta_len = RTA_LENGTH(bytes);
	if (bytes)
		memcpy(RTA_DATA(attr), data, bytes);
	message->header.nlmsg_len = at + RTA_SPACE(bytes);
	return attr;
}

const struct rtattr *rtnl_attr(const struct rtattr *attr, size_t bytes, uint16_t type)
{
	while (bytes >= sizeof(*attr) && attr->rta_len >= sizeof(*attr) && attr->rta_len <= bytes) {
		size_t step = RTA_ALIGN(attr->rta_len);

		if ((attr->rta_type & NLA_TYPE_MASK) == type)
			return attr;
		if (step >= bytes)
			break;
		bytes -= step;
		attr = (const struct rtattr *)((const uint8_t *)attr + step);
	}
	return NULL;
}

uint32_t rtnl_attr_u32(const struct rtattr *attr)
{
	uint32_t value = 0;

	if (attr && RTA_PAYLOAD(attr) >= sizeof(value))
		memcpy(&value, RTA_DATA(attr), sizeof(value));
	return value;
}

/* Reads a datagram of answers. 1: more follow; 0: the end; or -errno. */
static int read_answers(struct rtnl *rtnl, rtnl_fn *fn, void *user)
{
	ssize_t bytes = recv(rtnl->fd, rtnl->datagram, sizeof(rtnl->datagram), 0);
	size_t rest = (size_t)bytes;

	if (bytes < 0)
		return errno == EINTR ? 1 : -errno;
	for (struct nlmsghdr *m = (void *)rtnl->datagram; NLMSG_OK(m, rest);
	     m = NLMSG_NEXT(m, rest)) {
		const struct nlmsgerr *error = NLMSG_DATA(m);

		if (m->nlmsg_seq != rtnl->seq)
			continue; /* answer to an abandoned request */
		if (m->nlmsg_type == NLMSG_DONE)
			return 0;
		if (m->nlmsg_type == NLMSG_ERROR)
			return error->error;
		if (fn)
			fn(m, user);
	}
	return 1;
}

int rtnl_ask(struct rtnl *rtnl, struct rtnl_message *message, rtnl_fn *fn, void *user)
{
	int rc;

	message->header.nlmsg_seq = ++rtnl->seq;
	if ((message->header.nlmsg_flags & NLM_F_DUMP) != NLM_F_DUMP)
		message->header.nlmsg_flags |= NLM_F_ACK;
	if (send(rtnl->fd, message, message->header.nlmsg_len, 0) < 0)
		return -errno;
	do
		rc = read_answers(rtnl, fn, user);
	while (rc > 0);
	return rc;
}

static struct tcmsg *begin_qdisc(struct rtnl_message *message, uint16_t type, uint16_t flags,
				 uint32_t ifindex)
{
	struct tcmsg *tc = rtnl_begin(message, type, flags, sizeof(*tc));

	tc->tcm_family = AF_UNSPEC;
	tc->tcm_ifindex = (int)ifindex;
	return tc;
}

struct qdisc_root {
	uint32_t ifindex;
	uint32_t handle;
	char kind[16];
};

static void read_qdisc(const struct nlmsghdr *answer, void *user)
{
	const struct tcmsg *tc = NLMSG_DATA(answer);
	const struct rtattr *kind;
	struct qdisc_root *root = user;

	if (answer->nlmsg_type != RTM_NEWQDISC || (uint32_t)tc->tcm_ifindex != root->ifindex ||
	    tc->tcm_parent != TC_H_ROOT)
		return;
	root->handle = tc->tcm_handle;
	kind = rtnl_attr((const void *)(tc + 1), answer->nlmsg_len - NLMSG_LENGTH(sizeof(*tc)),
			 TCA_KIND);
	if (kind)
		strncpy(root->kind, RTA_DATA(kind), sizeof(root->kind) - 1);
}

static int find_root(struct rtnl *rtnl, uint32_t ifindex, struct qdisc_root *root)
{
	struct rtnl_message message;

	*root = (struct qdisc_root){ .ifindex = ifindex };
	begin_qdisc(&message, RTM_GETQDISC, NLM_F_DUMP, ifindex);
	return rtnl_ask(rtnl, &message, read_qdisc, root);
}

int qdisc_add(struct rtnl *rtnl, uint32_t ifindex, bool *own)
{
	const struct tc_fifo_qopt options = { .limit = QDISC_LIMIT };
	struct rtnl_message message;
	struct qdisc_root root;
	struct tcmsg *tc;
	int rc;

	*own = false;
	rc = find_root(rtnl, ifindex, &root);
	if (rc)
		return rc;
	if (root.handle != QDISC_HANDLE && root.kind[0] && strcmp(root.kind, "noqueue") != 0)
		return 0;
	tc = begin_qdisc(&message, RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, ifindex);
	tc->tcm_parent = TC_H_ROOT;
	tc->tcm_handle = QDISC_HANDLE;
	rtnl_put(&message, TCA_KIND, "pfifo", sizeof("pfifo"));
	rtnl_put(&message, TCA_OPTIONS, &options, sizeof(options));
	rc = rtnl_ask(rtnl, &message, NULL, NULL);
	*own = !rc;
	return rc;
}

void qdisc_remove(struct rtnl *rtnl, uint32_t ifindex)
{
	struct rtnl_message message;
	struct qdisc_root root;
	struct tcmsg *tc;

	if (find_root(rtnl, ifindex, &root) || root.handle != QDISC_HANDLE)
		return;
	tc = begin_qdisc(&message, RTM_DELQDISC, 0, ifindex);
	tc->tcm_parent = TC_H_ROOT;
	tc->tcm_handle = QDISC_HANDLE;
	rtnl_ask(rtnl, &message, NULL, NULL);
}
