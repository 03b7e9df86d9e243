/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * AF_XDP from the inside: a port, its queues, and what their files offer each other.
 * Calls go down this list alone:
 *
 *   xsk_queue.c   opens and closes a queue, says what is in effect
 *   xsk_mode.c    another XDP mode under it; xsk_bounds.c, what its frames can hold
 *   xsk_socket.c  UMEM and the socket, bound to the queue
 *   xsk_rings.c   the hot path
 *   xsk_port.c    opens and closes a port; admission
 *   xsk_group.c   frames to a group: who may send them here, how they get here
 *   xsk_check.c   what may stand in the way, thing by thing; xsk_host.c, the machine's part
 *   xsk_ctrl.c    control messages: the kernel's UDP sockets
 *   xsk_bpf.c     program and maps
 *   xsk_spread.c  several queues: the program that hands frames to those of each
 *   xsk_attach.c  the program on the interface, and whose else is there
 *   xsk_pins.c    locks and pins; xsk_cpus.c, the end of softirqs
 *   route.c       destinations; route_news.c, what changes about them
 *   netdev.c      what the interface is like; rtnl.c, netlink
 */
#ifndef CAREFUL_XSK_H
#define CAREFUL_XSK_H

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <xdp/xsk.h>

#include "device/device.h"
#include "device/error.h"
#include "device/rtnl.h"

#define RUN_DIR "/run/careful"
#define BPFFS_DIR "/sys/fs/bpf"

enum {
	XSK_CHUNK_BYTES = 4096,
	XSK_BUFFERS_DEFAULT = 512,
	XSK_BUFFERS_MAX = 1 << 16,
	XSK_PEERS_DEFAULT = 8,
	/* At the end of a page that becomes an skb (struct skb_shared_info). */
	XSK_SKB_TAIL_BYTES = 320,
	XSK_PATH_BYTES = 256,
	XSK_INSTANCE_BYTES = 64,
};

_Static_assert((int)CAREFUL_MTU_MIN == (int)DEVICE_FRAME_BYTES_MIN - (int)ETHERNET_BYTES,
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
	uint16_t hardware; /* ARPHRD_* */
	uint8_t mac[6];
	uint32_t rx_queues;
	uint32_t tx_queues;
	bool combined; /* a queue receives and sends */
	bool deaf; /* with zero-copy no frame would pass, though the driver takes it */
	uint32_t rx_ring; /* of the device, frames; 0: it doesn't say */
	char master[16]; /* whose port it is (a bridge's, a bond's); "": nobody's */
	char master_kind[16];
};

/* Addresses, routes and the interface, followed by netlink. */
struct route {
	struct rtnl ask; /* questions and their answers */
	struct rtnl news; /* what changes */
	uint32_t ifindex;
	uint32_t mtu;
	uint16_t port;
	uint32_t unread; /* events seen, but not yet by the caller of route_events() */
	uint32_t downs,
		downs_before; /* times that the carrier went, ever; and before it was opened */
	bool up; /* the link and its carrier, by the latest news */
	bool gone;
	uint8_t mac[6];
};

/*
 * A thread that waits for what runs on other CPUs (xsk_grace.c).
 *
 * @asked: waits that were asked for, @here: where the engine ran at the last; with the lock
 * @done:  of them over
 * @cpus:  to visit, xsk_cpus_count(); 0: by RCU
 */
struct xsk_grace {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	uint64_t asked;
	int here;
	bool stop;
	bool running; /* the thread was started */
	uint64_t done;
	int cpus;
};

/*
 * What a slot's peer sends to a group (xsk_group.c).
 *
 * @cookie:  0: nothing
 * @from:    its address
 * @open:    XDP admits it; until then the one before may still be ending:
 * @closing: the wait that its end asked for
 */
struct xsk_group {
	uint64_t cookie;
	uint64_t closing;
	union address from;
	bool open;
};

/*
 * @owner:    the process that opened it: what a child of fork() closes is its copy
 * @without:  enum xsk_without
 * @xdp_mode: in effect, enum careful_xdp_mode
 * @ctrl:     UDP sockets: IPv4, IPv6; -1: none
 * @clock_ahead_ns: our monotonic clock minus XDP's, of a time namespace
 * @lock:     of the instance
 * @link:     holds the program on the interface; -1: none
 * @programs: of the queues, by their index (xsk_spread.c); -1: there is one
 * @first:    the instance of the first queue
 * @native_refused: in whose words, where xdp_mode is generic for that reason
 * @closing:  of each slot, the wait that its closing asked for
 * @groups:   of each slot; @groups_count: those with a cookie
 * @member:   sockets that are in the multicast group: IPv4, IPv6; -1: none
 */
struct xsk_port {
	struct port port; /* first: what the engine sees */
	struct careful_tune_entry *tune;
	struct careful_peer_entry *peers;
	struct careful_live_entry *live;
	struct xsk_bpf *bpf;
	struct xsk_grace grace;
	uint64_t closing[CAREFUL_PEERS_MAX];
	struct route route;
	struct netdev netdev;
	struct xsk_group groups[CAREFUL_PEERS_MAX];
	uint32_t groups_count;
	int member[2];
	int ctrl[2];
	int ctrl_turn; /* the index in ctrl of the socket that is read first next time */
	int lock;
	int link;
	int programs;
	size_t spread_bytes;
	pid_t owner;
	uint64_t clock_ahead_ns;
	bool own_qdisc;
	uint32_t without;
	uint32_t xdp_mode;
	uint32_t peers_count;
	uint16_t udp;
	char instance[XSK_INSTANCE_BYTES];
	char first[XSK_INSTANCE_BYTES];
	char native_refused[sizeof(((struct careful_device_info *)0)->native_refused)];
};

/*
 * @tx_held:     descriptors written, not yet submitted
 * @fill_asleep: the driver could not be woken to take buffers
 * @umem_bytes:  of the mapping
 * @tx_budget:   XDP_MAX_TX_SKB_BUDGET is in effect
 */
struct xsk_queue {
	struct queue queue; /* first: what the engine sees; its fd is the socket's */

	/* Hot path. */
	struct xsk_ring_cons rx;
	struct xsk_ring_prod fill;
	struct xsk_ring_prod tx;
	struct xsk_ring_cons comp;
	uint32_t tx_held;
	bool fill_asleep;
	uint64_t kicks;
	uint64_t kicks_again;
	uint64_t kicks_failed;

	/* Set-up. */
	struct xsk_umem *umem;
	struct xsk_socket *socket;
	size_t umem_bytes;
	uint32_t rx_buffers; /* as asked for */
	bool tx_budget;
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

/* Reports whether this is the process that opened it, and not a child of fork(). */
static inline bool xsk_ours(const struct xsk_port *port)
{
	return port->owner == getpid();
}

/* As xsk_open(), on a kernel that lacks some features (for tests). */
int xsk_open_without(const struct careful_options *options, uint32_t without, struct queue **queue,
		     struct careful_error *error);

/* xsk_socket.c */
void xsk_umem_unmap(struct xsk_queue *xsk);
int xsk_socket_open(struct xsk_queue *xsk, bool require_zerocopy, struct careful_error *error);
void xsk_socket_close(struct xsk_queue *xsk);
/* -EOPNOTSUPP, and why there is no zero-copy: the mode, or rc, which is the driver's. */
int xsk_say_zerocopy(const struct xsk_port *port, int rc, struct careful_error *error);
/* Words -ENOBUFS from the kernel: the memory of the buffers cannot be locked. */
int xsk_say_memlock(uint64_t bytes, struct careful_error *error);
/* What to change, where a driver refused it with -errno. */
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

/* xsk_bounds.c: R, by the mode in effect */
void xsk_bounds(struct xsk_queue *xsk);

/* xsk_port.c */
int xsk_port_open(const struct careful_options *options, uint32_t without, struct port **port,
		  struct careful_error *error);

/* xsk_check.c: the checks of careful_check() that come before anything is done; *netdev is
 * read. */
int xsk_check_all(const struct careful_options *options, struct netdev *netdev,
		  struct careful_error *error);

/* xsk_host.c: one of the machine's checks; whether this process has a capability. */
int xsk_check_host(uint32_t check, struct careful_error *error);
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
bool xsk_bpf_frags(const struct xsk_port *port); /* the program takes multi-buffer frames */
int xsk_bpf_redirect(struct xsk_port *port, uint16_t queue, int fd, struct careful_error *error);
void xsk_bpf_wait_rcu(struct xsk_port *port); /* returns when no program still runs that did */
int xsk_bpf_program(const struct xsk_port *port);
uint64_t xsk_bpf_refused(const struct xsk_port *port); /* frames that it dropped */
void xsk_bpf_close(struct xsk_port *port);

int xsk_bpf_groups(const struct xsk_port *port); /* of the map */

/* xsk_group.c: port_ops; close: at the port's end. */
int xsk_group(struct port *port, uint32_t slot, uint64_t cookie, const union address *from);
uint32_t xsk_grouped(struct port *port, uint32_t slot);
int xsk_multicast(struct port *port, const union address *like, struct llhdr *llhdr);
void xsk_group_close(struct xsk_port *port);

/* xsk_spread.c: several queues. lead: of the first, which has put `dispatcher` on the interface;
 * join: of another. Both enter `program` for frames that come to it. */
int xsk_spread_lead(struct xsk_port *port, int programs, int entries, int program,
		    struct careful_error *error);
int xsk_spread_join(struct xsk_port *port, int program, struct careful_error *error);
void xsk_spread_close(struct xsk_port *port);
static inline bool xsk_spread_joins(const struct xsk_port *port)
{
	return port->port.spread.index;
}

/* xsk_attach.c: puts the program on the interface. check: -EBUSY, and what to do, where there
 * is another one. */
int xsk_attach(struct xsk_port *port, int program, uint32_t mode, struct careful_error *error);
bool xsk_attached(const struct xsk_port *port); /* unless someone took it off */
uint32_t xsk_attached_mode(const struct xsk_port *port); /* of ours, whoever's; 0: there is none */
int xsk_attach_check(const struct xsk_port *port, struct careful_error *error);
void xsk_take_off(struct xsk_port *port);
void xsk_detach(struct xsk_port *port);

/* xsk_pins.c: the instance's lock, and its directory on bpffs. lock_check: -EBUSY, and its
 * name, where another instance is on the interface. */
int xsk_lock(struct xsk_port *port, struct careful_error *error);
void xsk_unlock(struct xsk_port *port);
int xsk_lock_check(const struct xsk_port *port, struct careful_error *error);
bool xsk_pins_mounted(void);
int xsk_pins_prepare(struct xsk_port *port, struct careful_error *error);
void xsk_pin_path(const char *instance, const char *map, char *path, size_t bytes);
void xsk_pins_remove(struct xsk_port *port);

/* xsk_grace.c: when what XDP admitted before lies in the RX ring. */
int xsk_grace_open(struct xsk_port *port, struct careful_error *error);
void xsk_grace_close(struct xsk_port *port);
uint64_t xsk_grace_ask(struct xsk_port *port);
bool xsk_grace_over(const struct xsk_port *port, uint64_t asked);

/* xsk_cpus.c: the end of every softirq that is at work. */
int xsk_cpus_count(void);
bool xsk_cpus_visit(int cpus, int but);

/* route.c: where frames go. */
int route_resolve(struct route *route, const union address *to, struct llhdr *llhdr);
void route_source(struct route *route, union address *to);
void route_distrust(struct route *route, const union address *to);

/* The multicast group of those who have one event group or more, on a port: of the local scope
 * (RFC 2365), and of the link's (RFC 4291 section 2.7, with a number as RFC 3307 has it). */
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

/* route_news.c: what changes. */
int route_open(struct route *route, const struct netdev *netdev, uint16_t port);
void route_close(struct route *route);
uint32_t route_events(struct route *route);
bool route_up(struct route *route);
uint32_t route_downs(struct route *route);

/* netdev.c: what the interface is like. steered: 1: the NIC brings frames to our port to the
 * queue; 0: no rule of it does; -ENOENT: its rules are off; another -errno: it has none. */
int netdev_read(const char *ifname, struct netdev *netdev, struct careful_error *error);
int netdev_steered(const struct netdev *netdev, uint32_t queue, uint16_t port);
uint32_t netdev_backlog(void);
/* Counts the CPUs over which RPS spreads the frames of a queue; 0: none, or sysfs does not say. */
uint32_t netdev_rps_cpus(const struct netdev *netdev, uint32_t queue);
/* Sets netdev->master and master_kind for netdev->ifindex. A VRF is no master here: addresses stay
 * on the interface itself. */
void netdev_read_master(struct netdev *netdev);

/* Reports whether what leaves by a queue arrives at the other end's of the same number. */
static inline bool netdev_straight(const struct netdev *netdev)
{
	return !strcmp(netdev->driver, "veth");
}

/* Whether a driver with these queues wakes another of them than it is asked to, zero-copy's. */
struct ethtool_channels;
bool netdev_wakes_another(const char *driver, const char *release,
			  const struct ethtool_channels *channels);

#endif /* CAREFUL_XSK_H */
