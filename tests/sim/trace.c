// SPDX-License-Identifier: BSD-2-Clause
/* Traces a failure: the messages that pass the network, and the state of each end. */
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "cluster.h"

/* Adds a message that passes the network, and its time and ports (`what`), to a digest. */
static uint64_t digest(uint64_t sum, const uint64_t what[3], const uint8_t *message, uint32_t bytes)
{
	for (uint32_t i = 0; i < 3; i++)
		sum = careful_mix(sum, what[i]);
	for (uint32_t i = 0; i < bytes; i += 8) {
		uint64_t word = 0;

		memcpy(&word, message + i, bytes - i < 8 ? bytes - i : 8);
		sum = careful_mix(sum, word);
	}
	return sum;
}

/* Prints a line about a frame or control message that enters or leaves the network. */
static void print_pass(const struct cluster *cluster, uint32_t from, uint32_t to, bool control,
		       const void *message, uint32_t bytes, const char *what)
{
	static const char *const names[] = { "HELLO", "CHALLENGE", "WELCOME", "REFUSE",
					     "SYNC",  "SYNC_ACK",  "GONE",    "BYE" };
	struct careful_ctrl ctrl = { 0 };
	struct careful_hdr hdr = { 0 };

	printf("%12.6f %u>%u %s ", (double)sim_now_ns(cluster->world) * 1e-6 - 1000, from, to,
	       what);
	if (control) {
		memcpy(&ctrl, message, bytes < sizeof(ctrl) ? bytes : sizeof(ctrl));
		printf("%s nonce %016llx token %016llx cookie %016llx sent %u rcvd %u gave %u\n",
		       ctrl.type >= CAREFUL_HELLO && ctrl.type <= CAREFUL_BYE ?
			       names[ctrl.type - CAREFUL_HELLO] :
			       "?",
		       (unsigned long long)be64toh(ctrl.nonce),
		       (unsigned long long)be64toh(ctrl.token),
		       (unsigned long long)be64toh(ctrl.cookie), be32toh(ctrl.counts.seq_sent),
		       be32toh(ctrl.counts.seq_rcvd), be32toh(ctrl.counts.returned));
		return;
	}
	memcpy(&hdr, message, bytes < sizeof(hdr) ? bytes : sizeof(hdr));
	printf("%s cookie %016llx seq %u credits %u flags %#x message %u at %u\n",
	       hdr.type == CAREFUL_UPDATE ? "update" :
	       hdr.type == CAREFUL_PING	  ? "ping" :
	       hdr.type == CAREFUL_ACK	  ? hdr.flags ? "question" : "ack" :
					    "data",
	       (unsigned long long)be64toh(hdr.cookie), be32toh(hdr.seq), be32toh(hdr.credits),
	       hdr.flags, be32toh(hdr.msg_id), be32toh(hdr.frag_off));
}

void trace_pass(void *user, uint32_t from, uint32_t to, bool control, const void *message,
		uint32_t bytes, const char *what)
{
	struct cluster *cluster = user;
	const uint64_t whence[3] = {
		sim_now_ns(cluster->world),
		(uint64_t)from << 32 | to << 1 | control,
		(uint64_t)bytes << 8 | (uint8_t)what[0],
	};

	if (cluster->digests)
		cluster->digest = digest(cluster->digest, whence, message, bytes);
	if (cluster->trace)
		print_pass(cluster, from, to, control, message, bytes, what);
}

/* The state of each session, to trace a failure. */
void trace_nodes(const struct cluster *cluster)
{
	for (uint32_t i = 0; i < cluster->scenario.nodes; i++) {
		const struct careful *c = cluster->nodes[i].c;

		if (!c)
			continue;
		printf("node %u: %u send buffers free, %u answers wait, %u requests deferred\n", i,
		       c->link.tx_free_count, cluster->nodes[i].late_count, c->deferred_count);
		for (uint32_t k = 0; k < c->link.peers_max; k++) {
			const struct link_peer *peer = &c->link.peers[k];
			const struct message_peer *mp = &c->messages.peers[k];

			printf("  peer %u: state %u phase %u, sent %u credits %u of %u; received "
			       "%u returned %u announced %u of %u - %u; kept %u + %u; "
			       "%u operations, %u messages\n",
			       k, peer->state, peer->phase, peer->flow.tx.sent,
			       peer->flow.tx.credits, peer->flow.tx.size, peer->flow.rx.received,
			       peer->flow.rx.returned, peer->flow.rx.announced, peer->flow.rx.size,
			       peer->flow.rx.withheld, peer->kept, peer->kept_old, peer->operations,
			       mp->messages);
			for (struct message_out *out = mp->out_first; out; out = out->next)
				printf("    out %u: slot %u, built %u of %u, %s, %s\n", out->id,
				       out->slot, out->built, out->bytes,
				       out->frames ? "frames ready" : "no frame ready",
				       out->host_tx.busy ? "reading" : "");
		}
	}
}
