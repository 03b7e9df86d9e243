/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A whole instance on a device and a storage that do what
 * the input says. Frames and control messages are built from what the instance itself
 * knows (cookie, sequence, credits, tokens), so that they get past the checks, and then
 * bent by the input. The device counts every buffer; nothing may be lost at the end.
 */
#ifndef FUZZ_NODE_H
#define FUZZ_NODE_H

#include "input.h"
#include "engine/engine.h"

enum {
	NODE_PEERS = 2,
	NODE_RX = 32,
	NODE_TX = 16,
	NODE_CHUNK = 2048,
	NODE_BUFFER = 512, /* bytes of a frame in one buffer */
	NODE_FRAME = 2 * NODE_BUFFER,
	NODE_LL = 42,
	NODE_HOSTS = 4, /* addresses that may speak */
	NODE_TWICE =
		2, /* last byte of the IPv4 address of the host that has the IPv6 address, too */
	NODE_KEPT = 64,
	NODE_REGIONS = 3,
	NODE_BYTES = 4096, /* of a region, and of the memory that gets and stores use */
	NODE_CTRL = 64,
	NODE_IOS = 512,
};

struct node {
	struct queue queue; /* first: its ops find the node by it */
	struct port port;
	struct storage storage;
	struct careful *c;
	uint64_t now_ns;
	uint64_t random;
	uint32_t events;
	bool busy; /* kicks move nothing */
	bool unresolved;
	bool neighbours; /* frames go to the hosts' own Ethernet addresses */

	uint64_t fill_ring[NODE_RX];
	uint32_t fill_count;
	bool in_ring[NODE_RX];
	struct device_desc arrived[NODE_RX];
	uint32_t arrived_count;
	uint64_t flying[NODE_TX]; /* send buffers with the device */
	uint32_t flying_count, left_count; /* the first of them have left */
	struct careful_tune_entry *tune;
	struct careful_live_entry *live;

	struct {
		union address from;
		uint8_t data[sizeof(union link_message)];
		int32_t bytes; /* or -errno */
	} ctrl[NODE_CTRL];
	uint32_t ctrl_first, ctrl_count;
	uint8_t ours; /* the last byte of the address that control messages come to; 0: not said */
	struct careful_ctrl said[8]; /* the last control message of each type that it sent */
	struct careful_ctrl last; /* the very last, */
	struct careful_proved last_proved; /* with its proof, where it has one, */
	uint32_t last_bytes; /* and how long it was */
	uint32_t said_to[8]; /* which host */
	struct careful_keyed asked; /* its last HELLO that proves a key */

	struct storage_io *ios[NODE_IOS];
	uint32_t ios_count;
	uint8_t io_mode; /* what becomes of the next */
	int fd; /* a file for regions and spans */

	struct careful_kept *kept[NODE_KEPT];
	uint32_t kept_count;
	struct careful_reply_to late[NODE_KEPT];
	uint32_t late_count;
	uint32_t keys[NODE_REGIONS];
	uint8_t *memory; /* NODE_BYTES, that gets write and stores read */
	struct ping_seen probed[NODE_PEERS]; /* what XDP would have noted */
	struct train_seen trained[NODE_PEERS]; /* likewise, */
	bool train_still; /* of which no frame comes by itself */
	struct careful_ctrl train; /* the last message about trains that it sent, */
	uint32_t trains_said[3]; /* how many of each type, from TRAIN_ASK on, */
	uint32_t trains_sent; /* and frames of them */
	uint64_t answers; /* to pings */
	uint64_t begun, ended; /* operations */
};

struct node *node_open(void);
/* The same, where the burst that paths take is measured. */
struct node *node_open_measuring(void);
/* The same, where this many receive buffers are kept for grants. */
struct node *node_open_reserving(uint32_t reserve);
/* The same, where peers prove keys, and seal their frames as the rule says; NULL: they do not. */
struct node *node_open_keyed(const char *seal);
/* Ends all sessions, and finds what is lost. */
void node_close(struct node *node);
/* Makes a session with a host, by the handshake; false: there is none. */
bool node_session(struct node *node, uint32_t host);
/* The same with a HELLO of its own, what node_hello() gives or a bent one. */
bool node_ask(struct node *node, uint32_t host, struct careful_ctrl *hello);
struct careful_ctrl node_hello(uint32_t host);
/* A host sends a control message, checked, with keys proved, and the instance sees it. */
void node_tell(struct node *node, uint32_t host, struct careful_ctrl *ctrl);
/* The same, and it is not seen yet. */
void node_hear(struct node *node, uint32_t host, struct careful_ctrl *ctrl);

/* The other way round: the instance asks host 0, and the HELLO is node->last. */
void node_call(struct node *node);
/* Host 0 answers that, the HELLO said last, with a CHALLENGE. answer: what node_hello() gives. */
void node_challenge(struct node *node, struct careful_ctrl *answer, uint64_t token);
/* It answers the HELLO that follows with a WELCOME. */
void node_welcome(struct node *node, struct careful_ctrl *answer);

/* As many steps as the input says. */
void node_steps(struct node *node, struct input *in);
/* One step each, as the input says. */
void node_frame(struct node *node, struct input *in);
void node_bulk(struct node *node, struct input *in);
void node_raw_frame(struct node *node, struct input *in);
void node_ctrl(struct node *node, struct input *in);
void node_raw_ctrl(struct node *node, struct input *in);
void node_time(struct node *node, uint32_t ms);
void node_poll(struct node *node, uint32_t times);
void node_leave(struct node *node, uint32_t n);
void node_operation(struct node *node, struct input *in);
void node_release(struct node *node, struct input *in);
void node_device(struct node *node, struct input *in);
void node_ping(struct node *node, struct input *in);

/* device.c */
void node_device_init(struct node *node);
void node_arrive(struct node *node, const uint8_t *frame, uint32_t bytes);
union address node_host(uint32_t host);

/* keyed.c */
void node_trust(struct node *node);
struct careful_proved node_prove(struct node *node, uint32_t host, const struct careful_ctrl *ctrl);
void node_prove_answer(const struct node *node, uint32_t slot, struct careful_ping_answer *answer);
struct careful_keyed node_key(struct node *node, uint32_t host, const struct careful_ctrl *ctrl);
bool node_seal(struct node *node, uint32_t slot, uint8_t *hdr, uint32_t bytes);
void node_said(struct node *node, const void *message, uint32_t bytes);

#endif /* FUZZ_NODE_H */
