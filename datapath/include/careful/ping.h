/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pings: questions to the stages of the path to a peer, and what became of them (P1
 * section 6). For measuring; careful.h is the interface for everything else.
 */
#ifndef CAREFUL_PING_H
#define CAREFUL_PING_H

#ifndef CAREFUL_CDEF
#include <careful/careful.h>
#ifdef __cplusplus
extern "C" {
#endif
#endif

/*
 * A question to the stages of the path to a peer (wire.h: enum careful_stage).
 *
 * @stage:       where the probe ends
 * @ttl:         IP's (its hop limit), with CAREFUL_STAGE_NET_RX alone: where it expires a router
 *               answers; 0: the usual one
 * @bytes:       of the IP packet, in one buffer
 * @timeout_ms:  how long to wait for the answer
 */
struct careful_ping_ask {
	uint32_t stage;
	uint32_t ttl;
	uint32_t bytes;
	uint32_t timeout_ms;
};

/*
 * What became of it. Times in ns.
 *
 * @status:         0; -EHOSTUNREACH: an ICMP error, of `by`; -ETIMEDOUT; -ECONNRESET
 * @stage:          where it ended: HOST_RX instead of STORE where there is no scratch file
 * @icmp_type, @icmp_code, @icmp_info: of the error; info is the MTU where it was too big
 * @answer_bytes:   of the answer's IP packet
 * @host_tx_ns:     payload into UMEM, its CRC, the headers
 * @net_tx_ns:      the kick; 0: the device was busy and it had to be repeated
 * @sent_ns:        our monotonic clock when the kick began
 * @round_trip_ns:  from then until the answer arrived, without
 * @turn_ns:        what the answering host took from the last stage to its answer
 * @arrived_ns:     its monotonic clock when XDP saw the probe
 * @host_rx_ns:     from then until its engine had it
 * @store_ns:       from then until it was written
 * @scratch:        enum careful_scratch
 * @store_inline:   1: written within the engine's thread
 * @tx_cpu, @net_cpu, @host_cpu: where our engine, its XDP and its engine ran
 */
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

/* Sends a ping, at once; done runs once.
 * -EAGAIN: one is under way to this peer, data waits for credits (which goes before what
 * goes past NET_RX), or no credit or send buffer is free; -EMSGSIZE;
 * -EINVAL; -ENOTCONN; -ENOTSUP: a stage beyond NET_RX before one of NET_RX was answered in
 * this session: an older peer would take it for a lost frame. */
int careful_ping(struct careful *instance, uint32_t peer, const struct careful_ping_ask *ask,
		 careful_ping_fn *done, void *user);

#ifndef CAREFUL_CDEF
#ifdef __cplusplus
}
#endif
#endif
#endif /* CAREFUL_PING_H */
