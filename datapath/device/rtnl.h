/* SPDX-License-Identifier: BSD-2-Clause */
/* Route netlink: requests, answers, and the qdisc that this device owns. */
#pragma once

#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	RTNL_DATAGRAM_BYTES = 16384, /* the kernel's datagrams are at most half as large */
};

struct rtnl {
	int fd;
	uint32_t seq;
	_Alignas(NLMSG_ALIGNTO) uint8_t datagram[RTNL_DATAGRAM_BYTES]; /* the last one read */
};

struct rtnl_message {
	struct nlmsghdr header;
	uint8_t body[256];
};

typedef void rtnl_fn(const struct nlmsghdr *answer, void *user);

/* Opens a socket. groups: RTMGRP_* to subscribe to; 0: requests only. */
int rtnl_open(struct rtnl *rtnl, uint32_t groups);
void rtnl_close(struct rtnl *rtnl);
void *rtnl_begin(struct rtnl_message *message, uint16_t type, uint16_t flags, size_t body_bytes);
struct rtattr *rtnl_put(struct rtnl_message *message, uint16_t type, const void *data,
			size_t bytes);
/* Sends a request, and calls fn for each answer. Returns 0 or the kernel's -errno. */
int rtnl_ask(struct rtnl *rtnl, struct rtnl_message *message, rtnl_fn *fn, void *user);
/* Returns the attribute of this type, or NULL. */
const struct rtattr *rtnl_attr(const struct rtattr *attr, size_t bytes, uint16_t type);
uint32_t rtnl_attr_u32(const struct rtattr *attr); /* the value; 0 for NULL */

enum { QDISC_HANDLE = 0xca000000 }; /* major number 0xca00: our qdisc */

/* Installs our qdisc unless the device has another qdisc. *own: ours is installed now. */
int qdisc_add(struct rtnl *rtnl, uint32_t ifindex, bool *own);
/* Removes the qdisc if it is ours. */
void qdisc_remove(struct rtnl *rtnl, uint32_t ifindex);
