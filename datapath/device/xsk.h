/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The AF_XDP device from the inside: its state, and what its files offer each other.
 * xsk_port.c opens and closes; xsk_socket.c owns UMEM and socket, xsk_rings.c the hot
 * path, xsk_bpf.c program and maps, xsk_ctrl.c the kernel's UDP sockets, route.c
 * destinations and what changes about them, netdev.c what the interface is like.
 */
#ifndef CAREFUL_XSK_H
#define CAREFUL_XSK_H

#include <stddef.h>
#include <unistd.h>
#include <xdp/xsk.h>

#include "device/device.h"
#include "device/rtnl.h"

enum {
	XSK_CHUNK_BYTES = 4096,
	XSK_BUFFERS_DEFAULT = 512,
	XSK_BUFFERS_MAX = 1 << 20,
	XSK_PEERS_DEFAULT = 8,
	/* Ethernet of a frame: what the MTU does not count. */
	XSK_ETHERNET_BYTES = 14,
	/* At the end of a page that becomes an skb (struct skb_shared_info). */
	XSK_SKB_TAIL_BYTES = 320,
	XSK_PATH_BYTES = 128,
	XSK_INSTANCE_BYTES = 64,
};

_Static_assert((int)CAREFUL_MTU_MIN == (int)DEVICE_FRAME_BYTES_MIN - (int)XSK_ETHERNET_BYTES,
	       "the least MTU holds the least frame");

/* Kernel features that a test may declare absent. */
enum xsk_without {
	XSK_WITHOUT_FRAGS = 1, /* xdp.frags programs (5.18) */
	XSK_WITHOUT_SG = 2, /* XDP_USE_SG (6.6) */
	XSK_WITHOUT_BUDGET = 4, /* XDP_MAX_TX_SKB_BUDGET (6.17) */
	XSK_WITHOUT_HUGEPAGES = 8,
};

struct xsk_bpf;

/* What netdev.c says of an interface. */
struct netdev {
	char name[16];
	char driver[32];
	uint32_t ifindex;
	uint32_t mtu;
	uint32_t flags; /* IFF_* */
	uint8_t mac[6];
	uint32_t rx_queues;
	uint32_t rx_ring; /* of the device, frames; 0: it doesn't say */
};

/* Addresses, routes and the interface, followed by netlink. */
struct route {
	struct rtnl ask; /* questions and their answers */
	struct rtnl news; /* what changes */
	uint32_t ifindex;
	uint32_t mtu;
	uint16_t port;
	uint32_t unread; /* events seen, but not yet by the caller of route_events() */
	bool up; /* the link and its carrier, by the latest news */
	bool gone;
	uint8_t mac[6];
};

struct xsk_device {
	struct device dev; /* first: what the engine sees */

	/* Hot path. */
	struct xsk_ring_cons rx;
	struct xsk_ring_prod fill;
	struct xsk_ring_prod tx;
	struct xsk_ring_cons comp;
	int fd;
	uint32_t tx_held; /* descriptors written, not yet submitted */
	uint64_t kicks;
	uint64_t kicks_again;
	uint64_t kicks_failed;
	struct careful_tune_entry *tune;
	struct careful_peer_entry *peers;

	/* Set-up. */
	struct xsk_umem *umem;
	struct xsk_socket *socket;
	size_t umem_bytes; /* of the mapping */
	uint32_t frame_bytes_max; /* what the socket was bound for, whatever the MTU is now */
	struct xsk_bpf *bpf;
	struct route route;
	struct netdev netdev;
	int ctrl[2]; /* UDP sockets: IPv4, IPv6; -1: none */
	int lock; /* of the instance */
	pid_t owner; /* of all this: what a child of fork() closes is its copy */
	bool own_qdisc;
	bool tx_budget; /* XDP_MAX_TX_SKB_BUDGET is in effect */
	uint32_t without; /* enum xsk_without */
	uint16_t port;
	uint32_t peers_count;
	char instance[XSK_INSTANCE_BYTES];
};

static inline struct xsk_device *to_xsk(struct device *dev)
{
	return (struct xsk_device *)(void *)dev;
}

/* Whether this is the process that opened it, and not a child of fork(). */
static inline bool xsk_ours(const struct xsk_device *xsk)
{
	return xsk->owner == getpid();
}

/* Fills *error; returns rc. */
__attribute__((format(printf, 3, 4))) int xsk_fail(struct careful_error *error, int rc,
						   const char *format, ...);

/* As xsk_open(), on a kernel that lacks some features (for tests). */
int xsk_open_without(const struct careful_options *options, uint32_t without, struct device **dev,
		     struct careful_error *error);

/* xsk_socket.c: UMEM and the socket, bound to the queue. */
int xsk_umem_map(struct xsk_device *xsk, struct careful_error *error);
void xsk_umem_unmap(struct xsk_device *xsk);
int xsk_socket_open(struct xsk_device *xsk, const struct careful_options *options,
		    struct careful_error *error);
void xsk_socket_close(struct xsk_device *xsk);
void xsk_take_mtu(struct xsk_device *xsk, uint32_t mtu);

/* xsk_rings.c: the operations of the hot path. */
uint32_t xsk_rx(struct device *dev, struct device_desc *descs, uint32_t n);
void xsk_fill(struct device *dev, const uint64_t *addrs, uint32_t n);
uint32_t xsk_tx(struct device *dev, const struct device_desc *descs, uint32_t n);
int xsk_kick(struct device *dev);
uint32_t xsk_complete(struct device *dev, uint64_t *addrs, uint32_t n);
void xsk_statistics(struct device *dev, struct careful_device_statistics *out);

/* xsk_bpf.c: loads and attaches the program, pins the maps; sets info.xdp_mode. */
int xsk_bpf_open(struct xsk_device *xsk, const struct careful_options *options,
		 struct careful_error *error);
bool xsk_bpf_frags(const struct xsk_device *xsk); /* the program takes multi-buffer frames */
int xsk_bpf_redirect(struct xsk_device *xsk, struct careful_error *error);
void xsk_bpf_grace(struct xsk_device *xsk); /* returns when no program still runs that did */
void xsk_bpf_close(struct xsk_device *xsk);

/* xsk_cpus.c: the end of every softirq that is at work. */
int xsk_cpus_count(void);
bool xsk_cpus_visit(int cpus);

/* xsk_pins.c: the instance's lock, and its directory on bpffs. */
int xsk_lock(struct xsk_device *xsk, struct careful_error *error);
void xsk_unlock(struct xsk_device *xsk);
int xsk_pins_prepare(struct xsk_device *xsk, struct careful_error *error);
void xsk_pin_path(const struct xsk_device *xsk, const char *map, char *path, size_t bytes);
void xsk_pins_remove(struct xsk_device *xsk);

/* xsk_ctrl.c: control messages. */
int xsk_ctrl_open(struct xsk_device *xsk, struct careful_error *error);
void xsk_ctrl_close(struct xsk_device *xsk);
int xsk_ctrl_send(struct device *dev, const union address *to, const void *buf, uint32_t bytes);
ssize_t xsk_ctrl_recv(struct device *dev, union address *from, void *buf, uint32_t bytes,
		      struct arrival *arrival);
void xsk_stamps(struct device *dev, bool on);

/* route.c: where frames go. */
int route_open(struct route *route, const struct netdev *netdev, uint16_t port);
void route_close(struct route *route);
int route_resolve(struct route *route, const union address *to, struct llhdr *llhdr);
void route_distrust(struct route *route, const union address *to);
uint32_t route_events(struct route *route);
bool route_up(struct route *route);

/* netdev.c: what the interface is like, and whether frames to our port come to the queue. */
int netdev_read(const char *ifname, struct netdev *netdev, struct careful_error *error);
int netdev_check(const struct netdev *netdev, uint32_t queue, uint16_t port,
		 struct careful_error *error);
uint32_t netdev_backlog(void);

#endif /* CAREFUL_XSK_H */
