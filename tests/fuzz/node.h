/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A whole instance on a device and a storage that the input controls. Frames and control messages
 * are made with the instance's own cookie, sequence numbers, credits and tokens, so that they pass
 * the checks; then the input corrupts them. The device counts every buffer: none may be lost.
 */
#ifndef FUZZ_NODE_H
#define FUZZ_NODE_H

#include "input.h"
#include "engine/engine.h"
#include "link/link_private.h"

enum {
	NODE_PEERS = 2,
	NODE_RX = 32,
	NODE_TX = 16,
	NODE_CHUNK = 2048,
	NODE_BUFFER = 512, /* bytes of a frame in one buffer */
	NODE_FRAME = 2 * NODE_BUFFER,
	NODE_LL = 42,
	NODE_HOSTS = 4, /* addresses of hosts */
	NODE_TWICE = 2, /* this host also has the IPv6 address; last byte of its IPv4 address */
	NODE_KEPT = 64,
	NODE_REGIONS = 3,
	NODE_BYTES = 4096, /* of a region, and of the memory of gets and stores */
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
	bool neighbours; /* hosts have their own Ethernet addresses */

	uint64_t fill_ring[NODE_RX];
	uint32_t fill_count;
	bool in_ring[NODE_RX];
	struct device_desc arrived[NODE_RX];
	uint32_t arrived_count;
	uint64_t sending[NODE_TX]; /* send buffers that the device has */
	uint32_t sending_count, sent_count; /* the first sent_count of sending have left */
	struct careful_tune_entry *tune;
	struct careful_live_entry *live;
	struct careful_arrivals arrivals;

	struct {
		union address from;
		uint8_t data[sizeof(union link_message)];
		int32_t bytes; /* or -errno */
	} ctrl[NODE_CTRL];
	uint32_t ctrl_first, ctrl_count;
	uint8_t ours; /* last byte of the destination address of control messages; 0: unknown */
	/* control messages that the instance sent */
	struct careful_ctrl sent[8]; /* the last one of each type */
	uint32_t sent_to[8]; /* the host that each of them was sent to */
	struct careful_ctrl last; /* the last one of any type */
	struct careful_proved last_proved; /* the last one with its proof, if it has one */
	uint32_t last_bytes; /* its length */
	struct careful_keyed last_keyed_hello; /* the last HELLO that proves a key */

	struct storage_io *ios[NODE_IOS];
	uint8_t io_mode; /* result of the next operation */
	int fd; /* a file for regions and spans */

	struct careful_kept *kept[NODE_KEPT];
	uint32_t kept_count;
	struct careful_reply_to late[NODE_KEPT];
	uint32_t late_count;
	uint32_t keys[NODE_REGIONS];
	uint8_t *memory; /* NODE_BYTES of memory for gets and stores */
	struct ping_seen probed[NODE_PEERS]; /* pings that XDP noted */
	struct train_seen trained[NODE_PEERS]; /* train frames that XDP noted */
	bool is_train_manual; /* trained changes only by the test */
	struct careful_ctrl train; /* the instance's last message about trains */
	uint32_t train_messages[3]; /* number sent of each type, from TRAIN_ASK on */
	uint32_t trains_sent; /* train frames that the instance sent */
	uint64_t answers; /* pings that the instance answered */
	uint64_t begun, ended; /* operations of the application */
};

struct node *node_open(void);
/* Opens a node that measures bursts. */
struct node *node_open_measuring(void);
/* Opens a node with this many receive buffers for grants. */
struct node *node_open_reserving(uint32_t reserve);
/* Opens a node whose peers prove keys, and seal their frames by this rule; NULL: unsealed. */
struct node *node_open_keyed(const char *seal);
/* Ends all sessions, and checks for leaks. */
void node_close(struct node *node);
/* Makes a session with a host by the handshake. Returns false if that fails. */
bool node_session(struct node *node, uint32_t host);
/* Makes a session by this HELLO. */
bool node_ask(struct node *node, uint32_t host, struct careful_ctrl *hello);
struct careful_ctrl node_hello(uint32_t host);
/* Delivers a host's control message, completed by check and proof; the instance reads it. */
void node_tell(struct node *node, uint32_t host, struct careful_ctrl *ctrl);
/* Delivers a host's control message; the instance has not read it yet. */
void node_hear(struct node *node, uint32_t host, struct careful_ctrl *ctrl);

/* Lets the instance send a HELLO to host 0: node->last. */
void node_call(struct node *node);
/* Answers the last HELLO with host 0's CHALLENGE. answer: made by node_hello(). */
void node_challenge(struct node *node, struct careful_ctrl *answer, uint64_t token);
/* Answers the next HELLO with host 0's WELCOME. */
void node_welcome(struct node *node, struct careful_ctrl *answer);

/* Runs a step for each part of the input. */
void node_steps(struct node *node, struct input *in);
/* Each runs one step, as the input says. */
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
void node_check_sent(struct node *node, const void *message, uint32_t bytes);

#endif /* FUZZ_NODE_H */
