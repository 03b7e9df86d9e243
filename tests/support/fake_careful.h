/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An instance without a network, for users of careful.h. The test injects requests; answers and
 * operations are recorded. Include fake_careful.c.
 */
#ifndef FAKE_CAREFUL_H
#define FAKE_CAREFUL_H

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>
#include <careful/ping.h>

enum { FAKE_PEERS = 4, FAKE_REGIONS = 4096, FAKE_TOKENS = 8192, FAKE_PAYLOAD = 8192 };

struct fake_answer {
	bool given;
	int status;
	uint32_t args[4];
	uint32_t bytes;
	unsigned char payload[FAKE_PAYLOAD] __attribute__((aligned(8)));
};

/* An operation to a peer that the code under test began. */
struct fake_operation {
	char kind; /* 'r'equest, 'g'et, 's'tore; 0: free */
	uint32_t peer, region, bytes;
	uint16_t handler;
	uint64_t region_off;
	uint32_t args[4];
	struct careful_span span;
	uint32_t payload_bytes;
	unsigned char payload[FAKE_PAYLOAD];
	careful_done_fn *done;
	void *user;
};

/*
 * @busy:         calls of region_remove() that will return -EBUSY
 * @reply_errno:  careful_reply_late() returns this instead of answering...
 * @reply_errors: ...this many times
 * @files_kept:   descriptors registered by engine_keep_file()
 * @denied:       requests denied for their paths
 * @keepable:     careful_keep() works; @kept: messages kept now
 */
struct careful {
	struct {
		careful_handler_fn *fn;
		void *user;
	} handlers[CAREFUL_HANDLERS];
	struct {
		bool used;
		struct careful_region region;
	} regions[FAKE_REGIONS];
	uint32_t keys;
	struct fake_answer *answers[FAKE_TOKENS];
	uint32_t tokens;
	uint32_t answers_late;
	int busy;
	int reply_errno, reply_errors;
	uint32_t files_kept;
	uint32_t denied;
	bool keepable;
	int kept;

	struct fake_operation operations[512];
	uint32_t unanswered; /* one-way requests */
	uint32_t polls;
	int begin_errno; /* status of the next operation */
	uint32_t room; /* operations that begin in spite of begin_errno */
	uint32_t measured[FAKE_PEERS]; /* measurements of each peer's burst */
	struct {
		struct careful_ping_ask ask;
		uint32_t peer;
		careful_ping_fn *done; /* NULL: no ping is under way */
		void *user;
	} ping;
	bool answering; /* true: careful_poll() answers all operations, */
	int poll_status; /* with this status */
	uint32_t peers_state[FAKE_PEERS];
	uint8_t peer_keys[FAKE_PEERS][CAREFUL_SECRET_BYTES]; /* first byte 0: none */
	bool one_host; /* all peers are sessions of one host */
	int payload_bytes; /* most bytes of a request's payload */
	uint32_t among; /* queues of the last careful_peer_among() */
	uint32_t moved[2]; /* the queue and port for careful_peer_moved() */
	struct careful_peer_info peers[FAKE_PEERS];
	int peer_errno;
	careful_peer_fn *watch;
	void *watch_user;
};

struct careful *fake_create(void);
void fake_destroy(struct careful *c);
/* Injects a request. Returns its token. */
uint32_t fake_request(struct careful *c, uint32_t peer, uint16_t handler, const uint32_t *args,
		      const void *payload, uint32_t bytes);
/* Returns the region of a key, or NULL. */
struct careful_region *fake_region(struct careful *c, uint32_t key);

#endif /* FAKE_CAREFUL_H */
