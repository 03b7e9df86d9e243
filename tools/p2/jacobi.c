// SPDX-License-Identifier: BSD-2-Clause
/* Jacobi iteration over events (P2 section 6.1). */
#include "jacobi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Temperatures of the plate's edges, like in jacobi.py. */
static const double ABOVE = 100, BELOW = 0, LEFT = 50, RIGHT = 75;

enum { TURNS = 4 };

static uint32_t first_row(uint32_t size, uint32_t nodes, uint32_t rank)
{
	return size * rank / nodes;
}

static double *row_of(const struct jacobi *j, double *grid, uint32_t row)
{
	return grid + (size_t)row * (j->size + 2);
}

/* Fills the plate with 0 degrees; the rows above and below are edges or a neighbour's. */
static void fill(const struct jacobi *j, double *grid)
{
	uint32_t wide = j->size + 2;

	for (uint32_t i = 0; i < j->rows + 2; i++) {
		row_of(j, grid, i)[0] = LEFT;
		row_of(j, grid, i)[wide - 1] = RIGHT;
	}
	for (uint32_t i = 0; i < wide; i++) {
		if (!j->rank)
			row_of(j, grid, 0)[i] = ABOVE;
		if (j->rank + 1 == j->nodes)
			row_of(j, grid, j->rows + 1)[i] = BELOW;
	}
}

int jacobi_begin(struct jacobi *j, struct careful_events *ev, uint32_t rank, uint32_t nodes,
		 uint32_t size, uint32_t iterations, uint64_t base)
{
	uint32_t rows = first_row(size, nodes, rank + 1) - first_row(size, nodes, rank);
	size_t points = (size_t)(rows + 2) * (size + 2);

	*j = (struct jacobi){
		.ev = ev,
		.rank = rank,
		.nodes = nodes,
		.size = size,
		.rows = rows,
		.iterations = iterations,
		.base = base,
	};
	if (size < nodes || size > JACOBI_SIZE_MAX)
		return -EINVAL;
	j->grid = calloc(points, sizeof(*j->grid));
	j->next = calloc(points, sizeof(*j->next));
	if (!j->grid || !j->next) {
		jacobi_end(j);
		return -ENOMEM;
	}
	fill(j, j->grid);
	fill(j, j->next);
	return 0;
}

void jacobi_end(struct jacobi *j)
{
	free(j->grid);
	free(j->next);
	j->grid = j->next = NULL;
}

/* Each point becomes the mean of its old neighbours, summed in jacobi.py's order. */
static void relax(struct jacobi *j)
{
	double *old = j->grid;

	for (uint32_t i = 1; i <= j->rows; i++) {
		const double *above = row_of(j, old, i - 1), *here = row_of(j, old, i);
		const double *below = row_of(j, old, i + 1);
		double *to = row_of(j, j->next, i);

		for (uint32_t k = 1; k <= j->size; k++)
			to[k] = (above[k] + below[k] + here[k - 1] + here[k + 1]) * 0.25;
	}
	j->grid = j->next;
	j->next = old;
}

static uint32_t row_bytes(const struct jacobi *j)
{
	return (j->size + 2) * (uint32_t)sizeof(double);
}

static int send_row(struct jacobi *j, uint64_t event, uint32_t to, uint32_t row)
{
	const uint8_t *from = (const uint8_t *)row_of(j, j->grid, row);
	uint32_t whole = row_bytes(j);
	int most = careful_event_bytes(j->ev);

	if (most < 0)
		return most;
	while (j->at < whole) {
		uint32_t rest = whole - j->at;
		uint32_t bytes = rest < (uint32_t)most ? rest : (uint32_t)most;
		int rc = careful_event_send(j->ev, to, event, from + j->at, bytes,
					    (bytes < whole ? CAREFUL_EVENT_F_LARGE : 0) |
						    (bytes == rest ? CAREFUL_EVENT_F_LAST : 0),
					    0);

		if (rc)
			return rc;
		j->at += bytes;
	}
	j->at = 0;
	return 0;
}

static int receive_row(struct jacobi *j, uint64_t event, uint32_t from, uint32_t row)
{
	uint8_t *to = (uint8_t *)row_of(j, j->grid, row);
	struct careful_event_fragment fragment;

	do {
		int rc = careful_event_receive(j->ev, from, event, &fragment, 0);

		if (rc)
			return rc;
		if (fragment.offset != j->at || fragment.bytes > row_bytes(j) - j->at)
			return -EPROTO;
		memcpy(to + j->at, fragment.data, fragment.bytes);
		j->at += fragment.bytes;
	} while (fragment.status == CAREFUL_EVENT_MORE);
	if (j->at != row_bytes(j))
		return -EPROTO;
	j->at = 0;
	return 0;
}

/* Sends or receives the next of an iteration's messages, in jacobi.py's order, in two events. */
static int exchange(struct jacobi *j)
{
	uint64_t event = j->base + 2ull * j->done;
	bool above = j->rank > 0, below = j->rank + 1 < j->nodes;

	switch (j->turn) {
	case 0:
		return above ? send_row(j, event, j->rank - 1, 1) : 0;
	case 1:
		return below ? send_row(j, event + 1, j->rank + 1, j->rows) : 0;
	case 2:
		return below ? receive_row(j, event, j->rank + 1, j->rows + 1) : 0;
	default:
		return above ? receive_row(j, event + 1, j->rank - 1, 0) : 0;
	}
}

int jacobi_step(struct jacobi *j)
{
	while (j->done < j->iterations) {
		for (; j->turn < TURNS; j->turn++) {
			int rc = exchange(j);

			if (rc)
				return rc;
			if (j->singly) {
				j->turn++;
				return -EAGAIN;
			}
		}
		relax(j);
		j->turn = 0;
		j->done++;
		if (j->singly && j->done < j->iterations)
			return -EAGAIN;
	}
	return 0;
}

int jacobi_wrong(const struct jacobi *j)
{
	struct jacobi one;
	int wrong = 0;
	int rc = jacobi_begin(&one, NULL, 0, 1, j->size, j->iterations, 0);

	if (rc)
		return rc;
	jacobi_step(&one);
	for (uint32_t i = 1; i <= j->rows; i++) {
		const double *here = row_of(j, j->grid, i);
		const double *there =
			row_of(&one, one.grid, first_row(j->size, j->nodes, j->rank) + i);

		for (uint32_t k = 1; k <= j->size; k++)
			wrong += here[k] != there[k];
	}
	jacobi_end(&one);
	return wrong;
}

double jacobi_sum(const struct jacobi *j)
{
	double sum = 0;

	for (uint32_t i = 1; i <= j->rows; i++)
		for (uint32_t k = 1; k <= j->size; k++)
			sum += row_of(j, j->grid, i)[k];
	return sum;
}
