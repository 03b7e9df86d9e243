/* SPDX-License-Identifier: BSD-2-Clause */
/* Pings: probes of the stages of the path to a peer (P1 section 6). For measuring; careful.h is the
 * interface for everything else. */
#ifndef CAREFUL_PING_H
#define CAREFUL_PING_H

#ifndef CAREFUL_CDEF
#include <careful/careful.h>
#ifdef __cplusplus
extern "C" {
#endif
#endif

/* A ping to send (stages: enum careful_stage of wire.h).
 *
 * @stage:       the stage at which the probe ends
 * @ttl:         IP TTL or hop limit, only with CAREFUL_STAGE_NET_RX: the router at which it expires
 *               answers; 0: the default
 * @bytes:       length of the IP packet, in one buffer
 * @timeout_ms:  how long to wait for the answer */
struct careful_ping_ask {
	uint32_t stage;
	uint32_t ttl;
	uint32_t bytes;
	uint32_t timeout_ms;
};

/* The result of a ping. Times in ns.
 *
 * @status:         0; -EHOSTUNREACH: an ICMP error from `by`; -ETIMEDOUT; -ECONNRESET
 * @stage:          stage at which it ended: HOST_RX instead of STORE if there is no scratch file
 * @icmp_type, @icmp_code, @icmp_info: the ICMP error; info is the MTU if the packet was too big
 * @answer_bytes:   length of the answer's IP packet
 * @host_tx_ns:     payload into UMEM, its CRC, the headers
 * @net_tx_ns:      the kick; 0: the device was busy and the kick was repeated
 * @sent_ns:        our monotonic clock when the kick began
 * @round_trip_ns:  from sent_ns until the answer arrived, without turn_ns
 * @turn_ns:        on the answering host, from the last stage until the answer left
 * @arrived_ns:     the answering host's monotonic clock when its XDP saw the probe
 * @host_rx_ns:     from arrived_ns until its engine had the probe
 * @store_ns:       from arrived_ns until the probe was written
 * @scratch:        enum careful_scratch
 * @store_inline:   1: written within the engine's thread
 * @tx_cpu, @net_cpu, @host_cpu: CPU of our engine, of the peer's XDP and of the peer's engine */
struct careful_ping_result {
	int status;
	uint32_t stage;
	struct sockaddr_storage by;
	uint32_t icmp_type, icmp_code, icmp_info;
	uint32_t answer_bytes;
	uint64_t host_tx_ns, net_tx_ns, sent_ns;
	uint64_t round_trip_ns, turn_ns;
	uint64_t arrived_ns, host_rx_ns, store_ns;
	uint32_t scratch;
	uint32_t store_inline;
	uint32_t tx_cpu, net_cpu, host_cpu;
	uint32_t pad;
};

typedef void careful_ping_fn(const struct careful_ping_result *result, void *user);

/* Sends a ping at once; done runs once.
 * -EAGAIN: a ping to this peer is under way, data waits for credits (data goes before pings beyond
 * NET_RX), or no credit or send buffer is free.
 * -EMSGSIZE, -EINVAL, -ENOTCONN.
 * -ENOTSUP: no ping to NET_RX was answered in this session yet; an older peer would take a ping to
 * a later stage for a lost frame. */
int careful_ping(struct careful *instance, uint32_t peer, const struct careful_ping_ask *ask,
		 careful_ping_fn *done, void *user);

#ifndef CAREFUL_CDEF
#ifdef __cplusplus
}
#endif
#endif
#endif /* CAREFUL_PING_H */
