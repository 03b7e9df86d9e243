/* SPDX-License-Identifier: BSD-2-Clause */
/* Limits for the users of this host. A limit for each client is not enough, because a user can
 * start any number of programs. Root has no limit, and the last places are reserved for root. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "daemon/ipc/ipc_private.h"

enum {
	ROOT_CLIENTS = 4, /* connections reserved for root */
	ANSWER_MS = 1000, /* age at which an unanswered handshake yields to the same user's next */
};

uid_t ipc_user(int fd)
{
	struct ucred who = { .uid = (uid_t)-1 };
	socklen_t bytes = sizeof(who);

	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes);
	return who.uid;
}

bool ipc_user_may_take(uid_t uid, uint32_t used, uint32_t free, uint32_t reserved)
{
	if (!uid)
		return free;
	return free > reserved && used < 2 * (free - reserved);
}

bool ipc_user_may_connect(const struct ipc *ipc, uid_t uid, uint32_t *held)
{
	*held = 0;
	for (const struct ipc_client *client = ipc->clients; client; client = client->next)
		*held += client->uid == uid;
	return ipc_user_may_take(uid, *held, IPC_CLIENTS - ipc->clients_count, ROOT_CLIENTS);
}

void ipc_user_began(struct ipc *ipc, uint32_t index, uid_t uid)
{
	struct ipc_handshake *handshake = &ipc->handshakes[index];
	const uint32_t name = ipc_peer_name(ipc, index);

	if (handshake->used && handshake->name == name) {
		handshake->uid = uid ? handshake->uid : 0;
		return;
	}
	*handshake = (struct ipc_handshake){
		.used = true, .name = name, .uid = uid, .at_ns = clock_now_ns()
	};
}

/* Reports whether a slot has an unanswered handshake that a user other than root began. */
static bool is_unanswered(const struct ipc *ipc, uint32_t index)
{
	const struct ipc_handshake *handshake = &ipc->handshakes[index];
	struct careful_peer_info info;

	return handshake->used && handshake->uid && handshake->name == ipc_peer_name(ipc, index) &&
	       !careful_peer_info(ipc->instance, index, &info) &&
	       info.state == CAREFUL_PEER_CONNECTING;
}

static uint32_t unanswered_of(const struct ipc *ipc, uid_t uid)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < ipc->peers_max; i++)
		n += ipc->handshakes[i].uid == uid && is_unanswered(ipc, i);
	return n;
}

/* Returns the slot of the oldest unanswered handshake of the user who has most; -1: none. */
static int most_unanswered(const struct ipc *ipc, uint32_t *most)
{
	int found = -1;

	*most = 0;
	for (uint32_t i = 0; i < ipc->peers_max; i++) {
		uint32_t n = is_unanswered(ipc, i) ? unanswered_of(ipc, ipc->handshakes[i].uid) : 0;

		if (n > *most ||
		    (n && n == *most && ipc->handshakes[i].at_ns < ipc->handshakes[found].at_ns)) {
			*most = n;
			found = (int)i;
		}
	}
	return found;
}

/* Ends a handshake and the CONNECTs that wait for it, so that another peer can have the slot. */
static void end_handshake(struct ipc *ipc, uint32_t index)
{
	const uint32_t name = ipc_peer_name(ipc, index);

	for (struct ipc_op *op = ipc->connects; op; op = op->next)
		if (op->peer == name)
			op->peer = CAREFUL_IPC_PEER_NONE;
	careful_peer_close(ipc->instance, index);
}

/* Reports whether a peer has this address. Port 0 stands for the instance's own port. */
static bool has_address(const struct ipc *ipc, const struct careful_peer_info *info,
			const struct sockaddr *to)
{
	union {
		struct sockaddr_storage any;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} a = { .any = info->address }, b = { 0 };

	if (to->sa_family != a.any.ss_family)
		return false;
	memcpy(&b, to, to->sa_family == AF_INET ? sizeof(b.in) : sizeof(b.in6));
	if (a.in.sin_port != (b.in.sin_port ? b.in.sin_port : htons(ipc->port)))
		return false;
	return to->sa_family == AF_INET ?
		       a.in.sin_addr.s_addr == b.in.sin_addr.s_addr :
		       !memcmp(&a.in6.sin6_addr, &b.in6.sin6_addr, sizeof(a.in6.sin6_addr));
}

int ipc_user_make_room(struct ipc *ipc, uid_t uid, const struct sockaddr *to)
{
	uint32_t free = 0, most, mine = unanswered_of(ipc, uid);
	int found;

	for (uint32_t i = 0; i < ipc->peers_max; i++) {
		struct careful_peer_info info;

		if (careful_peer_info(ipc->instance, i, &info) || info.state == CAREFUL_PEER_FAILED)
			free++;
		else if (has_address(ipc, &info, to))
			return 0; /* the peer has a slot already */
	}
	if (free > (uid ? ipc->peers_max / 2 : 0))
		return 0;
	found = most_unanswered(ipc, &most);
	if (found < 0)
		return 0;
	if (uid && most <= mine &&
	    clock_now_ns() - ipc->handshakes[found].at_ns < ANSWER_MS * 1000000ull)
		return -EAGAIN;
	end_handshake(ipc, (uint32_t)found);
	return 0;
}
