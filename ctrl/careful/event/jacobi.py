"""Jacobi iteration over events (P2 section 6.1): heat on a square plate, on P nodes.

An example: run `python -m careful.event.jacobi eth1 --hosts h1,h2,h3 --rank 0` on each host, with
the host's rank. A node owns some rows of the grid. In each iteration the node sends its first row
to the node above and its last row to the node below, and receives theirs. Each point becomes the
mean of its four neighbours. The result equals that of one node to the last bit.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
import numpy.typing as npt

import careful
from careful.event.group import Events
from careful.event.join import join

Grid = npt.NDArray[np.float64]

#: Temperatures of the edges: above, below, left, right.
EDGES = (100.0, 0.0, 50.0, 75.0)


def plate(rows: int, columns: int) -> Grid:
    """Returns a grid at 0 degrees, with its edges around it."""
    grid = np.zeros((rows + 2, columns + 2))
    grid[0], grid[-1] = EDGES[:2]
    grid[1:-1, 0], grid[1:-1, -1] = EDGES[2:]
    return grid


def relax(grid: Grid, new: Grid) -> None:
    """Computes one iteration: each inner point becomes the mean of its neighbours.

    The order of additions does not depend on how the rows are cut, and neither do the bits.
    """
    new[1:-1, 1:-1] = grid[:-2, 1:-1]
    new[1:-1, 1:-1] += grid[2:, 1:-1]
    new[1:-1, 1:-1] += grid[1:-1, :-2]
    new[1:-1, 1:-1] += grid[1:-1, 2:]
    new[1:-1, 1:-1] *= 0.25


def serial(size: int, iterations: int) -> Grid:
    """Returns the plate after some iterations on one node."""
    grid, new = plate(size, size), plate(size, size)
    for _ in range(iterations):
        relax(grid, new)
        grid, new = new, grid
    return grid


def share(size: int, nodes: int, rank: int) -> range:
    """Returns the rows of the grid that a node owns, from 0."""
    return range(size * rank // nodes, size * (rank + 1) // nodes)


def exchange(events: Events, grid: Grid, event: int) -> None:
    """Exchanges the end rows with the neighbours, in two events."""
    above, below = events.rank - 1, events.rank + 1
    if above >= 0:
        events.send(grid[1], event, above)
    if below < events.nodes:
        events.send(grid[-2], event + 1, below)
        events.receive(event, below, into=grid[-1])
    if above >= 0:
        events.receive(event + 1, above, into=grid[0])


def parallel(events: Events, size: int, iterations: int, event: int) -> Grid:
    """Returns this node's rows after some iterations, with one more row at either end.

    size: rows and columns of the plate. event: number of the first event; each iteration uses two.
    Raises ValueError: some node would have no row. Raises CarefulError: a node failed.
    """
    if size < events.nodes:
        raise ValueError(f"{events.nodes} nodes and {size} rows: each node needs at least one")
    rows = share(size, events.nodes, events.rank)
    grid = plate(size, size)[rows.start : rows.stop + 2].copy()
    new = grid.copy()
    for iteration in range(iterations):
        exchange(events, grid, event + 2 * iteration)
        relax(grid, new)
        grid, new = new, grid
    return grid


def meet(events: Events, event: int) -> None:
    """Waits until all nodes are here: an all-to-all event with empty messages."""
    if events.nodes == 1:
        return
    events.send(b"", event, crowd=True)
    while not events.receive(event).event_done:
        pass


def gather(events: Events, rows: Grid, size: int, event: int) -> Grid | None:
    """Returns the whole plate at rank 0. The other nodes send their rows: an all-to-one event."""
    if events.rank:
        events.send(rows[1:-1], event, 0, crowd=True)
        return None
    whole = plate(size, size)
    whole[1 : len(rows) - 1] = rows[1:-1]
    for rank in range(1, events.nodes):
        rows_of_rank = share(size, events.nodes, rank)
        events.receive(event, rank, into=whole[rows_of_rank.start + 1 : rows_of_rank.stop + 1])
    return whole


def run(events: Events, size: int, iterations: int, event: int = 0) -> tuple[float, Grid | None]:
    """Returns the seconds that the iterations took, and the plate at rank 0. All nodes start
    together. Uses 2 * iterations + 2 events, from `event` on.
    """
    meet(events, event)
    began = time.perf_counter()
    rows = parallel(events, size, iterations, event + 1)
    took_s = time.perf_counter() - began
    return took_s, gather(events, rows, size, event + 2 * iterations + 1)


def arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m careful.event.jacobi",
        description="Jacobi iteration over events (P2 section 6.1); run it on each host.",
    )
    parser.add_argument("iface", help="interface; careful is up on it only with --attached")
    parser.add_argument("--hosts", required=True, help="of all nodes, in order: h1,h2,h3")
    parser.add_argument("--rank", type=int, required=True, help="this node's, from 0")
    parser.add_argument("--attached", action="store_true", help="next to carefuld, on every host")
    parser.add_argument("--size", type=int, default=64, help="rows and columns (%(default)s)")
    parser.add_argument("--iterations", type=int, default=1000, help="how many (%(default)s)")
    parser.add_argument("--check", action="store_true", help="compare with one node's result")
    return parser.parse_args()


def difference(whole: Grid, size: int, iterations: int) -> str:
    """Compares the result with one node's; returns the difference as text, "" if there is none."""
    began = time.perf_counter()
    serial_result = serial(size, iterations)
    took_us = (time.perf_counter() - began) * 1e6
    print(f"one node: {took_us / max(iterations, 1):.1f} µs an iteration")
    differing = int(np.sum(whole.view(np.uint64) != serial_result.view(np.uint64)))
    return f"{differing} of {whole.size} points differ from one node's result" if differing else ""


def main() -> int:
    """Runs the example; returns 1 if the result differs from one node's."""
    options = arguments()
    hosts = options.hosts.split(",")
    if options.attached:
        own = careful.attach(os.environ.get("CAREFUL_INSTANCE", options.iface))
    else:
        own = careful.open(options.iface, peers=max(len(hosts) - 1, 1))
    with own as node, join(node, hosts, options.rank) as events:
        took_s, whole = run(events, options.size, options.iterations)
    if whole is None:
        return 0
    each_us = took_s / max(options.iterations, 1) * 1e6
    print(f"{len(hosts)} nodes, {options.size} x {options.size}: {each_us:.1f} µs an iteration")
    if options.check:
        if text := difference(whole, options.size, options.iterations):
            print(text)
            return 1
        print("the same as one node's result, to the last bit")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
