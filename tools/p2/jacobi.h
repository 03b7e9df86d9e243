/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Jacobi iteration over events (P2 section 6.1, Table 4): a node's part, as
 * steps that never wait. It does what careful/event/jacobi.py does: rows are
 * divided among the nodes, whose ends go to the neighbours in each iteration.
 */
#ifndef BENCH_JACOBI_H
#define BENCH_JACOBI_H

#include <stdbool.h>
#include <stdint.h>

#include <careful/event.h>

enum { JACOBI_SIZE_MAX = 1024 };

/*
 * A node's part.
 *
 * @grid, @next: its rows with their edges, and one more at either end: before
 * and after an iteration
 * @rows:        its own
 * @base:        number of its first event
 * @done:        iterations
 * @turn:        of this iteration: how many of its four messages have gone or
 * come; @at: bytes of the next that have
 * @singly:      a step ends after each of these and each iteration, for who counts time
 */
struct jacobi {
	struct careful_events *ev;
	double *grid, *next;
	uint32_t rank, nodes, size, rows;
	uint32_t iterations, done, turn, at;
	uint64_t base;
	bool singly;
};

/* Begins; -ENOMEM, -EINVAL: some node would have no row, or there are too many.
 */
int jacobi_begin(struct jacobi *j, struct careful_events *ev, uint32_t rank, uint32_t nodes,
		 uint32_t size, uint32_t iterations, uint64_t base);
void jacobi_end(struct jacobi *j);
/* Goes on as far as it can. 0: its part is over; -EAGAIN: poll, then again;
 * else -errno. */
int jacobi_step(struct jacobi *j);
/* Points of its rows that are not what one node computes, to the last bit;
 * -ENOMEM. */
int jacobi_wrong(const struct jacobi *j);
/* The sum of its own points. */
double jacobi_sum(const struct jacobi *j);

#endif /* BENCH_JACOBI_H */
