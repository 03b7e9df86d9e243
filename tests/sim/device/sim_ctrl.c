// SPDX-License-Identifier: BSD-2-Clause
/*
 * Stands for the kernel: control messages through a UDP socket, ICMP if no process listens,
 * addresses and neighbours.
 */
#include "device/sim_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include <careful/wire.h>

void sim_address(const struct sim_world *world, uint32_t port, union address *address)
{
	*address = (union address){ 0 };
	if (world->config.ipv6 ^ (world->config.other_family >> port & 1)) {
		address->in6.sin6_family = AF_INET6;
		address->in6.sin6_port = htons(CAREFUL_PORT_DEFAULT);
		address->in6.sin6_addr.s6_addr[0] = 0xfd;
		address->in6.sin6_addr.s6_addr[15] = (uint8_t)(port + 1);
		return;
	}
	address->in.sin_family = AF_INET;
	address->in.sin_port = htons(CAREFUL_PORT_DEFAULT);
	address->in.sin_addr.s_addr = htonl(0x0a000001 + port);
}

uint32_t sim_port(const struct sim_world *world, const union address *address)
{
	uint32_t port = address->sa.sa_family == AF_INET ?
				ntohl(address->in.sin_addr.s_addr) - 0x0a000001 :
				address->in6.sin6_addr.s6_addr[15] - 1u;

	return port < world->config.ports ? port : SIM_ANY;
}

static void mac(uint8_t *p, uint32_t port)
{
	const uint8_t address[6] = { 2, 0, 0, 0, 0, (uint8_t)port };

	memcpy(p, address, sizeof(address));
}

/* Returns the port whose Ethernet address this port shares. */
static uint32_t port_of_mac(const struct sim_world *world, uint32_t port)
{
	uint32_t one = world->config.one_mac;

	return one >> port & 1 ? (uint32_t)__builtin_ctz(one) : port;
}

static void ip4_header(uint8_t *p, const struct sim_world *world, uint32_t from, uint32_t to)
{
	union address address;
	uint32_t sum = 0;

	p[0] = 0x45;
	p[3] = 20 + 8; /* like one without payload */
	p[6] = 0x40;
	p[8] = 64;
	p[9] = IPPROTO_UDP;
	sim_address(world, from, &address);
	memcpy(p + 12, &address.in.sin_addr, 4);
	sim_address(world, to, &address);
	memcpy(p + 16, &address.in.sin_addr, 4);
	for (uint32_t i = 0; i < 20; i += 2)
		sum += (uint32_t)p[i] << 8 | p[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	p[10] = (uint8_t) ~(sum >> 8);
	p[11] = (uint8_t)~sum;
}

static void ip6_header(uint8_t *p, const struct sim_world *world, uint32_t from, uint32_t to)
{
	union address address;

	p[0] = 0x60;
	p[5] = 8;
	p[6] = IPPROTO_UDP;
	p[7] = 64;
	sim_address(world, from, &address);
	memcpy(p + 8, &address.in6.sin6_addr, 16);
	sim_address(world, to, &address);
	memcpy(p + 24, &address.in6.sin6_addr, 16);
}

int sim_resolve(struct port *nic, const union address *to, struct llhdr *llhdr)
{
	struct sim_device *sim = nic_to_sim(nic);
	struct sim_world *world = sim->world;
	uint32_t port = sim_port(world, to);
	bool ipv6 = to->sa.sa_family == AF_INET6;
	uint8_t *p = llhdr->data;

	if (port == SIM_ANY)
		return -ENETUNREACH;
	if (sim_fault_on(world, SIM_UNRESOLVED, sim->port, NULL))
		return -EAGAIN;
	*llhdr = (struct llhdr){ .bytes = ipv6 ? 62 : 42, .neighbour = true };
	mac(p, port_of_mac(world, port));
	mac(p + 6, port_of_mac(world, sim->port));
	p[12] = ipv6 ? 0x86 : 0x08;
	p[13] = ipv6 ? 0xdd : 0x00;
	if (ipv6)
		ip6_header(p + 14, world, sim->port, port);
	else
		ip4_header(p + 14, world, sim->port, port);
	p += llhdr->bytes - 8;
	p[0] = p[2] = CAREFUL_PORT_DEFAULT >> 8;
	p[1] = p[3] = (uint8_t)CAREFUL_PORT_DEFAULT;
	p[5] = 8;
	return 0;
}

/* Addresses all other ports; the unused IP address is our own. Not on a ring, which sends one frame
 * at a time. */
int sim_multicast(struct port *nic, const union address *like, struct llhdr *llhdr)
{
	struct sim_device *sim = nic_to_sim(nic);
	union address own;
	int rc;

	(void)like;
	if (sim->world->config.token_ns)
		return -EOPNOTSUPP;
	sim_address(sim->world, sim->port, &own);
	rc = sim_resolve(nic, &own, llhdr);
	if (!rc)
		llhdr->data[0] |= SIM_MULTICAST;
	return rc;
}

int sim_ctrl_send(struct port *nic, const union address *to, const void *buf, uint32_t bytes)
{
	struct sim_device *sim = nic_to_sim(nic);
	uint32_t port = sim_port(sim->world, to);
	struct sim_slot *slot;
	uint32_t index;

	if (sim->dead || sim_fault_on(sim->world, SIM_LINK_DOWN, sim->port, NULL))
		return -ENETDOWN;
	if (port == SIM_ANY || bytes > SIM_CTRL_BYTES)
		return -ENETUNREACH;
	slot = sim_slot_take(sim->world, &index);
	if (!slot)
		return -ENOBUFS;
	slot->from = (uint8_t)sim->port;
	slot->to = (uint8_t)port;
	slot->control = true;
	slot->bytes = bytes;
	memcpy(slot->data, buf, bytes);
	sim_wire_send(sim->world, index);
	return 0;
}

/* Sends ICMP to the sender, since no process listens at the port. It quotes the datagram's payload,
 * which begins `at`. */
void sim_ctrl_refuse(struct sim_world *world, const struct sim_slot *slot, uint32_t at)
{
	uint32_t bytes = slot->bytes > at ? slot->bytes - at : 0;
	struct sim_slot *icmp;
	uint32_t index;

	if (slot->refused)
		return;
	icmp = sim_slot_take(world, &index);
	if (!icmp)
		return;
	icmp->from = slot->to;
	icmp->to = slot->from;
	icmp->control = icmp->refused = true;
	icmp->bytes = bytes < SIM_CTRL_BYTES ? bytes : SIM_CTRL_BYTES;
	memcpy(icmp->data, slot->data + at, icmp->bytes);
	sim_wire_send(world, index);
}

/* Puts a datagram into the kernel's socket if it has room. */
static void queue(struct sim_device *sim, const struct sim_slot *slot, uint32_t at, uint32_t bytes)
{
	struct sim_datagram *datagram;

	if (sim->ctrl_count == SIM_CTRL_QUEUE)
		return; /* like the kernel's socket */
	datagram = &sim->ctrl[(sim->ctrl_head + sim->ctrl_count++) % SIM_CTRL_QUEUE];
	sim_address(sim->world, slot->from, &datagram->from);
	datagram->refused = slot->refused;
	datagram->bytes = bytes;
	datagram->at_ns = sim->nic.ops->now_ns(&sim->nic);
	memcpy(datagram->data, slot->data + at, bytes < SIM_CTRL_BYTES ? bytes : SIM_CTRL_BYTES);
}

/* Handles a frame that XDP passes; `at`: offset of its datagram's payload. */
void sim_ctrl_pass(struct sim_device *sim, const struct sim_slot *slot, uint32_t at)
{
	queue(sim, slot, at, slot->bytes - at);
}

void sim_ctrl_arrive(struct sim_world *world, struct sim_slot *slot)
{
	struct sim_device *sim = world->devices[slot->to];

	if (sim_fault_on(world, SIM_LINK_DOWN, slot->to, NULL))
		return;
	if (!sim) {
		sim_ctrl_refuse(world, slot, 0);
		return;
	}
	sim->peers[0].control++;
	queue(sim, slot, 0, slot->bytes);
}

void sim_stamps(struct port *nic, bool on)
{
	(void)nic;
	(void)on;
}

ssize_t sim_ctrl_recv(struct port *nic, union address *from, void *buf, uint32_t bytes,
		      struct arrival *arrival)
{
	struct sim_device *sim = nic_to_sim(nic);
	struct sim_datagram *datagram = &sim->ctrl[sim->ctrl_head];

	if (!sim->ctrl_count)
		return -EAGAIN;
	sim->ctrl_head = (sim->ctrl_head + 1) % SIM_CTRL_QUEUE;
	sim->ctrl_count--;
	*from = datagram->from;
	if (datagram->bytes < bytes)
		bytes = datagram->bytes;
	memcpy(buf, datagram->data, bytes);
	if (datagram->refused)
		return -ECONNREFUSED;
	arrival->at_ns = datagram->at_ns;
	arrival->ip_bytes = 28 + datagram->bytes;
	return (ssize_t)bytes;
}
