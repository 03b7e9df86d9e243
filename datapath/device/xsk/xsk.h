/* SPDX-License-Identifier: BSD-2-Clause */
/* Private header of the AF_XDP device: its port, its queues, and the functions that its files
 * share. A file calls only files further down this list:
 *
 *  - xsk_queue.c   opens and closes a queue, reports its settings
 *  - xsk_mode.c    changes the XDP mode; xsk_bounds.c computes R and its bounds
 *  - xsk_socket.c  UMEM, and the socket that is bound to the queue
 *  - xsk_rings.c   the hot path
 *  - xsk_port.c    opens and closes a port; admits peers
 *  - xsk_group.c   frames to a group: admission and multicast; xsk_grace.c waits for XDP
 *  - xsk_check.c   checks the interface before opening; xsk_host.c checks the machine
 *  - xsk_ctrl.c    control messages: the kernel's UDP sockets
 *  - xsk_bpf.c     program and maps
 *  - xsk_dispatcher.c  several queues: the program that distributes frames
 *  - xsk_attach.c  attaches the program, detects others
 *  - xsk_pins.c    locks and pins; xsk_cpus.c waits for softirqs
 *  - route.c       headers for a destination; route_news.c, changes of routes and the link
 *  - netdev.c      properties of the interface; rtnl.c, netlink */
#pragma once

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xdp/xsk.h>

#include "base/pool.h"
#include "device/device.h"
#include "base/error.h"
#include "device/rtnl.h"

#define RUN_DIR "/run/careful"
#define BPFFS_DIR "/sys/fs/bpf"

enum {
	XSK_CHUNK_BYTES = 4096,
	XSK_BUFFERS_DEFAULT = 512,
	XSK_PEERS_DEFAULT = 8,
	XSK_SKB_TAIL_BYTES = 320, /* of a page that becomes an skb (struct skb_shared_info) */
	XSK_PATH_BYTES = 256,
	XSK_INSTANCE_BYTES = 64,
};

_Static_assert((int)CAREFUL_MTU_MIN == (int)DEVICE_FRAME_BYTES_MIN - (int)ETHERNET_BYTES,
	       "the least MTU holds the least frame");

/* Kernel features that a test may declare missing. */
enum xsk_without {
	XSK_WITHOUT_FRAGS = 1, /* xdp.frags programs (5.18) */
	XSK_WITHOUT_SG = 2, /* XDP_USE_SG (6.6) */
	XSK_WITHOUT_BUDGET = 4, /* XDP_MAX_TX_SKB_BUDGET (6.17) */
	XSK_WITHOUT_HUGEPAGES = 8,
};

struct xsk_bpf;

/* Properties of an interface; netdev.c fills them in. */
struct netdev {
	char name[16];
	char driver[32];
	uint32_t ifindex;
	uint32_t mtu;
	uint32_t flags; /* IFF_* */
	uint16_t hardware; /* ARPHRD_* */
	uint8_t mac[6];
	uint32_t rx_queues;
	uint32_t tx_queues;
	bool combined; /* a queue receives and sends */
	bool zerocopy_broken; /* the driver accepts zero-copy, but no frame would pass */
	uint32_t rx_ring; /* the device's receive ring, frames; 0: unknown */
	char master[16]; /* the bridge or bond that it is a port of, or "" */
	char master_kind[16];
};

/* Addresses, routes and the interface, kept current by netlink. */
struct route {
	struct rtnl ask; /* requests and answers */
	struct rtnl news; /* notifications */
	uint32_t ifindex;
	uint32_t mtu;
	uint16_t port;
	uint32_t pending; /* events that route_events() has yet to return */
	uint32_t downs, downs_before; /* carrier losses: in all, and before open */
	bool up; /* link and carrier */
	bool gone;
	uint8_t mac[6];
};

/* A thread that waits until other CPUs have finished their softirqs (xsk_grace.c). */
struct xsk_grace {
	struct pool pool;
	struct pool_group group;
	struct pool_job job;
	uint64_t requested, completed; /* numbers of the last waits */
	int engine_cpu; /* the engine's CPU at request @requested, or at the next one */
	int cpus; /* CPUs to visit, from xsk_cpus_count(); 0: use RCU */
	bool running; /* the thread was started */
};

/* A slot's peer as the sender of a group (xsk_group.c). */
struct xsk_group {
	uint64_t cookie; /* 0: no group */
	/* number of the wait that the slot's previous group began when it ended */
	uint64_t closing;
	union address from; /* the peer's address */
	bool open; /* XDP admits the group, because that wait is over */
};

struct xsk_port {
	struct port port; /* first: the engine's part */
	struct careful_tune_entry *tune;
	struct careful_peer_entry *peers;
	struct careful_live_entry *live;
	struct careful_arrivals *arrivals;
	struct xsk_bpf *bpf;
	struct xsk_grace grace;
	/* for each slot, number of the wait that began when it was closed */
	uint64_t closing[CAREFUL_PEERS_MAX];
	struct route route;
	struct netdev netdev;
	/* of each slot; groups_count: those with a cookie */
	struct xsk_group groups[CAREFUL_PEERS_MAX];
	uint32_t groups_count;
	int group_fds[2]; /* sockets in the multicast group: IPv4, IPv6; -1: none */
	int ctrl[2]; /* UDP sockets: IPv4, IPv6; -1: none */
	int ctrl_turn; /* index in ctrl of the socket to read first */
	int lock; /* the instance's lock file */
	int link; /* the BPF link that holds the program on the interface; -1: none */
	/* map of the queues' programs, by index (xsk_dispatcher.c); -1: a single queue */
	int programs;
	pid_t owner; /* the process that opened the port; a child of fork() closes only its copy */
	uint64_t clock_ahead_ns; /* our monotonic clock minus XDP's; nonzero in a time namespace */
	bool own_qdisc;
	uint32_t without; /* enum xsk_without */
	uint32_t xdp_mode; /* in effect, enum careful_xdp_mode */
	uint32_t peers_count;
	uint16_t udp;
	char instance[XSK_INSTANCE_BYTES];
	char first[XSK_INSTANCE_BYTES]; /* name of the first queue's instance */
	/* why the driver refused native mode, or "" */
	char native_refused[sizeof(((struct careful_device_info *)0)->native_refused)];
};

struct xsk_queue {
	struct queue queue; /* first: the engine's part; its fd is the socket's */

	/* Hot path. */
	struct xsk_ring_cons rx;
	struct xsk_ring_prod fill;
	struct xsk_ring_prod tx;
	struct xsk_ring_cons comp;
	uint32_t tx_held; /* descriptors in the TX ring that are not yet submitted */
	/* the driver sleeps for lack of buffers, and the last attempt to wake it failed */
	bool fill_asleep;
	uint64_t kicks;
	uint64_t kicks_again;
	uint64_t kicks_failed;

	/* Set-up. */
	struct xsk_umem *umem;
	struct xsk_socket *socket;
	size_t umem_bytes; /* bytes of the mapping */
	uint32_t rx_buffers; /* as requested */
	bool tx_budget; /* XDP_MAX_TX_SKB_BUDGET is in effect */
};

static inline struct xsk_port *to_xsk_port(struct port *port)
{
	return (struct xsk_port *)(void *)port;
}

static inline struct xsk_queue *to_xsk(struct queue *queue)
{
	return (struct xsk_queue *)(void *)queue;
}

static inline struct xsk_port *xsk_port_of(const struct xsk_queue *xsk)
{
	return to_xsk_port(xsk->queue.port);
}

/* Maps a BPF map's values; NULL with errno. */
static inline void *xsk_map_memory(int map, size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* Reports whether this process opened the port; false in a child by fork(). */
static inline bool xsk_is_owner(const struct xsk_port *port)
{
	return port->owner == getpid();
}

/* Like xsk_open(), as if the kernel lacked some features (for tests). */
int xsk_open_without(const struct careful_options *options, uint32_t without, struct queue **queue,
		     struct careful_error *error);

/* xsk_socket.c */
void xsk_umem_unmap(struct xsk_queue *xsk);
int xsk_socket_open(struct xsk_queue *xsk, bool require_zerocopy, struct careful_error *error);
void xsk_socket_close(struct xsk_queue *xsk);
/* Returns -EOPNOTSUPP; the message has the reason: the XDP mode, or the driver's error rc. */
int xsk_refuse_zerocopy(const struct xsk_port *port, int rc, struct careful_error *error);
/* Returns -ENOBUFS: the buffers' memory exceeds the limit of locked memory. */
int xsk_refuse_memlock(uint64_t bytes, struct careful_error *error);
/* Returns advice for a driver that refused zero-copy with rc. */
const char *xsk_zerocopy_advice(const char *driver, int rc);

/* xsk_rings.c: queue_ops */
uint32_t xsk_rx(struct queue *queue, struct device_desc *descs, uint32_t n);
void xsk_fill(struct queue *queue, const uint64_t *addrs, uint32_t n);
uint32_t xsk_tx(struct queue *queue, const struct device_desc *descs, uint32_t n);
int xsk_kick(struct queue *queue);
uint32_t xsk_complete(struct queue *queue, uint64_t *addrs, uint32_t n);
void xsk_statistics(struct queue *queue, struct careful_device_statistics *out);

/* xsk_mode.c: queue_ops */
int xsk_mode(struct queue *queue, uint32_t mode, struct careful_error *error);

/* xsk_bounds.c: computes R for the mode in effect */
void xsk_bounds(struct xsk_queue *xsk);

/* xsk_port.c */
int xsk_port_open(const struct careful_options *options, uint32_t without, struct port **port,
		  struct careful_error *error);

/* xsk_check.c: runs the checks of careful_check() that precede opening; fills *netdev. */
int xsk_check_all(const struct careful_options *options, struct netdev *netdev,
		  struct careful_error *error);

/* xsk_host.c: runs a check of the machine. */
int xsk_check_host(uint32_t check, struct careful_error *error);
/* Reports whether this process has a capability. */
bool xsk_can(unsigned int capability);

/* xsk_ctrl.c: control messages. */
int xsk_ctrl_open(struct xsk_port *port, struct careful_error *error);
void xsk_ctrl_close(struct xsk_port *port);
int xsk_ctrl_send(struct port *port, const union address *to, const void *buf, uint32_t bytes);
ssize_t xsk_ctrl_recv(struct port *port, union address *from, void *buf, uint32_t bytes,
		      struct arrival *arrival);
void xsk_stamps(struct port *port, bool on);

/* xsk_bpf.c: loads and attaches the program, pins the maps; sets port->xdp_mode. */
int xsk_bpf_open(struct xsk_port *port, uint16_t queue, uint32_t mode, struct careful_error *error);
bool xsk_bpf_frags(const struct xsk_port *port); /* the program accepts multi-buffer frames */
int xsk_bpf_redirect(struct xsk_port *port, uint16_t queue, int fd, struct careful_error *error);
void xsk_bpf_wait_rcu(struct xsk_port *port); /* waits until every running program has ended */
int xsk_bpf_program(const struct xsk_port *port);
uint64_t xsk_bpf_refused(const struct xsk_port *port); /* frames that the program dropped */
void xsk_bpf_close(struct xsk_port *port);
int xsk_bpf_groups(const struct xsk_port *port); /* the groups map */

/* xsk_group.c: port_ops; xsk_group_close() at the port's end. */
int xsk_group(struct port *port, uint32_t slot, uint64_t cookie, const union address *from);
uint32_t xsk_grouped(struct port *port, uint32_t slot);
int xsk_multicast(struct port *port, const union address *like, struct llhdr *llhdr);
void xsk_group_close(struct xsk_port *port);

/* xsk_dispatcher.c: several queues. The first queue leads: it attached the dispatcher; other queues
 * join. Each sets the program for frames of its queue. */
int xsk_dispatcher_lead(struct xsk_port *port, int programs, int entries, int program,
			struct careful_error *error);
int xsk_dispatcher_join(struct xsk_port *port, int program, struct careful_error *error);
void xsk_dispatcher_close(struct xsk_port *port);
static inline bool xsk_dispatcher_joins(const struct xsk_port *port)
{
	return port->port.spread.index;
}

/* xsk_attach.c: attaches the program. */
int xsk_attach(struct xsk_port *port, int program, uint32_t mode, struct careful_error *error);
bool xsk_attached(const struct xsk_port *port); /* false: somebody removed the program */
/* Returns the mode of careful's program on the interface; 0: there is none. */
uint32_t xsk_attached_mode(const struct xsk_port *port);
/* Returns -EBUSY with advice if the interface has a program. */
int xsk_attach_check(const struct xsk_port *port, struct careful_error *error);
/* Removes the program, even if a child of fork() also holds the link. */
void xsk_detach(struct xsk_port *port);
void xsk_link_close(struct xsk_port *port);

/* xsk_pins.c: the instance's lock, and its directory on bpffs. xsk_lock_check() returns -EBUSY if
 * another instance has the interface; the message names it. */
int xsk_lock(struct xsk_port *port, struct careful_error *error);
void xsk_unlock(struct xsk_port *port);
int xsk_lock_check(const struct xsk_port *port, struct careful_error *error);
bool xsk_pins_mounted(void);
int xsk_pins_prepare(struct xsk_port *port, struct careful_error *error);
void xsk_pin_path(const char *instance, const char *map, char *path, size_t bytes);
void xsk_pins_remove(struct xsk_port *port);

/* xsk_grace.c: waits until all frames that XDP admitted are in the RX ring. */
int xsk_grace_open(struct xsk_port *port, struct careful_error *error);
void xsk_grace_close(struct xsk_port *port);
/* Starts a wait; returns its number. */
uint64_t xsk_grace_start(struct xsk_port *port);
bool xsk_grace_over(const struct xsk_port *port, uint64_t number);

/* xsk_cpus.c: waits for the end of all running softirqs. */
int xsk_cpus_count(void);
bool xsk_cpus_visit(int cpus, int skip);

/* route.c: destinations of frames. */
int route_resolve(struct route *route, const union address *to, struct llhdr *llhdr);
void route_source(struct route *route, union address *to);
void route_distrust(struct route *route, const union address *to);

/* Return the multicast group of a port, which hosts with an event group join: local scope for IPv4
 * (RFC 2365), link scope for IPv6 (RFC 4291 section 2.7, numbered by RFC 3307). */
static inline struct in_addr route_group(uint16_t port)
{
	return (struct in_addr){ .s_addr = htonl(0xefff0000 | port) }; /* 239.255.0.0/16 */
}

static inline struct in6_addr route_group6(uint16_t port)
{
	return (struct in6_addr){ .s6_addr = { 0xff, 0x12, [12] = 0x80, [14] = (uint8_t)(port >> 8),
					       (uint8_t)port } };
}

int route_multicast(struct route *route, const union address *to, struct llhdr *llhdr);

/* route_news.c: changes. */
int route_open(struct route *route, const struct netdev *netdev, uint16_t port);
void route_close(struct route *route);
uint32_t route_events(struct route *route);
bool route_up(struct route *route);
uint32_t route_downs(struct route *route);

/* netdev.c: properties of the interface. */
int netdev_read(const char *ifname, struct netdev *netdev, struct careful_error *error);
/* Returns 1 if the NIC steers our port to the queue, 0 if no rule does so, -ENOENT if rules are
 * turned off, or another -errno if the NIC has no rules. */
int netdev_steered(const struct netdev *netdev, uint32_t queue, uint16_t port);
uint32_t netdev_backlog(void);
/* Counts the CPUs over which RPS spreads a queue's frames; 0: none or unknown. */
uint32_t netdev_rps_cpus(const struct netdev *netdev, uint32_t queue);
/* Sets netdev->master and master_kind for netdev->ifindex. A VRF is not reported, because it leaves
 * the addresses on the interface. */
void netdev_read_master(struct netdev *netdev);

/* Reports whether frames from a queue arrive at the other end's queue of the same number. */
static inline bool netdev_straight(const struct netdev *netdev)
{
	return !strcmp(netdev->driver, "veth");
}

/* Reports whether a zero-copy driver with these queues wakes the wrong interrupt. */
struct ethtool_channels;
bool netdev_wakes_another(const char *driver, const char *release,
			  const struct ethtool_channels *channels);
