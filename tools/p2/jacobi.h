/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Jacobi iteration over events (P2 section 6.1, Table 4): a node's program, as steps that never
 * wait. It works like careful/event/jacobi.py: each node has some rows and sends the outer ones to
 * its neighbours in each iteration.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/event.h>

enum { JACOBI_SIZE_MAX = 1024 };

/*
 * A node's program.
 *
 * @grid, @next: its rows with their edges and a neighbour row at each end, before and after an
 *   iteration
 * @rows:        its own
 * @base:        number of its first event
 * @done:        iterations
 * @turn: finished messages of this iteration's four; @at: bytes done of the next
 * @singly: a step ends after each message and iteration, so that a caller can count time
 */
struct jacobi {
	struct careful_events *ev;
	double *grid, *next;
	uint32_t rank, nodes, size, rows;
	uint32_t iterations, done, turn, at;
	uint64_t base;
	bool singly;
};

/* Begins. -ENOMEM; -EINVAL: a node would have no row, or there are too many rows.
 */
int jacobi_begin(struct jacobi *j, struct careful_events *ev, uint32_t rank, uint32_t nodes,
		 uint32_t size, uint32_t iterations, uint64_t base);
void jacobi_end(struct jacobi *j);
/* Continues as far as possible. 0: it has ended; -EAGAIN: poll, call again; else -errno. */
int jacobi_step(struct jacobi *j);
/* Counts the points that differ from one node's result in any bit, or returns -ENOMEM. */
int jacobi_wrong(const struct jacobi *j);
/* Returns the sum of its points. */
double jacobi_sum(const struct jacobi *j);
