"""Jacobi iteration over events (P2 section 6.1): heat on a square plate, on P nodes.

An example: `python -m careful.event.jacobi eth1 --hosts h1,h2,h3 --rank 0` on each host, with its
own rank. A node owns some rows of the grid; in each iteration it sends its first row to the node
above and its last one to the node below, receives theirs into its own array, and sets each point
to the mean of its four neighbours. The result is that of one node to the last bit.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from careful.event.group import Events
from careful.event.join import join, opened

Grid = npt.NDArray[np.float64]

#: Temperatures of the plate's edges: above, below, on the left, on the right.
EDGES = (100.0, 0.0, 50.0, 75.0)


def plate(rows: int, columns: int) -> Grid:
    """A grid at 0 degrees, with its edges around it."""
    grid = np.zeros((rows + 2, columns + 2))
    grid[0], grid[-1] = EDGES[:2]
    grid[1:-1, 0], grid[1:-1, -1] = EDGES[2:]
    return grid


def relax(grid: Grid, new: Grid) -> None:
    """One iteration: each point inside is the mean of its neighbours before.

    The order of the sums is the same wherever the rows are cut, and so is each bit.
    """
    new[1:-1, 1:-1] = grid[:-2, 1:-1]
    new[1:-1, 1:-1] += grid[2:, 1:-1]
    new[1:-1, 1:-1] += grid[1:-1, :-2]
    new[1:-1, 1:-1] += grid[1:-1, 2:]
    new[1:-1, 1:-1] *= 0.25


def serial(size: int, iterations: int) -> Grid:
    """The plate after so many iterations, on one node."""
    grid, new = plate(size, size), plate(size, size)
    for _ in range(iterations):
        relax(grid, new)
        grid, new = new, grid
    return grid


def share(size: int, nodes: int, rank: int) -> range:
    """The rows of the grid that a node owns, from 0."""
    return range(size * rank // nodes, size * (rank + 1) // nodes)


def exchange(events: Events, grid: Grid, event: int) -> None:
    """The rows at both ends go to the neighbours, theirs come in: two events."""
    above, below = events.rank - 1, events.rank + 1
    if above >= 0:
        events.send(grid[1], event, above)
    if below < events.nodes:
        events.send(grid[-2], event + 1, below)
        events.receive(event, below, into=grid[-1])
    if above >= 0:
        events.receive(event + 1, above, into=grid[0])


def parallel(events: Events, size: int, iterations: int, event: int) -> Grid:
    """This node's rows after so many iterations, with one more at either end.

    Args:
        events: the group.
        size: rows and columns of the plate.
        iterations: how many.
        event: the first of two for each.

    Raises:
        ValueError: some node would have no row.
        CarefulError: a node failed.
    """
    if size < events.nodes:
        raise ValueError(f"{events.nodes} nodes and {size} rows: a node has one at least")
    mine = share(size, events.nodes, events.rank)
    grid = plate(size, size)[mine.start : mine.stop + 2].copy()
    new = grid.copy()
    for iteration in range(iterations):
        exchange(events, grid, event + 2 * iteration)
        relax(grid, new)
        grid, new = new, grid
    return grid


def meet(events: Events, event: int) -> None:
    """Go on when all nodes are here: an all-to-all event without a word."""
    if events.nodes == 1:
        return
    events.send(b"", event, crowd=True)
    while not events.receive(event).event_done:
        pass


def gather(events: Events, rows: Grid, size: int, event: int) -> Grid | None:
    """The whole plate, at rank 0: every other node sends it its rows, an all-to-one event."""
    if events.rank:
        events.send(rows[1:-1], event, 0, crowd=True)
        return None
    whole = plate(size, size)
    whole[1 : len(rows) - 1] = rows[1:-1]
    for rank in range(1, events.nodes):
        theirs = share(size, events.nodes, rank)
        events.receive(event, rank, into=whole[theirs.start + 1 : theirs.stop + 1])
    return whole


def run(events: Events, size: int, iterations: int, event: int = 0) -> tuple[float, Grid | None]:
    """Seconds that the iterations took, and at rank 0 the plate; all nodes begin together.

    It takes 2 * iterations + 2 events, from `event` on.
    """
    meet(events, event)
    began = time.perf_counter()
    rows = parallel(events, size, iterations, event + 1)
    took_s = time.perf_counter() - began
    return took_s, gather(events, rows, size, event + 2 * iterations + 1)


def draw(grid: Grid, path: Path) -> None:
    """The temperature field, as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 5.4), layout="constrained")
    pair = figure.subplots()
    pair.set(
        title=f"temperature, {grid.shape[0] - 2} x {grid.shape[1] - 2} points",
        xlabel="column",
        ylabel="row",
    )
    image = pair.imshow(grid, cmap="inferno", interpolation="nearest")
    figure.colorbar(image, ax=pair, label="temperature (°C)")
    figure.savefig(path)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m careful.event.jacobi",
        description="Jacobi iteration over events (P2 section 6.1); run it on each host.",
    )
    parser.add_argument("iface", help="interface; careful is not up on it, but for --attached")
    parser.add_argument("--hosts", required=True, help="of all nodes, in order: h1,h2,h3")
    parser.add_argument("--rank", type=int, required=True, help="this node's, from 0")
    parser.add_argument("--attached", action="store_true", help="beside carefuld, on every host")
    parser.add_argument("--size", type=int, default=64, help="rows and columns (%(default)s)")
    parser.add_argument("--iterations", type=int, default=1000, help="how many (%(default)s)")
    parser.add_argument("--check", action="store_true", help="compare with one node's result")
    parser.add_argument("--plot", type=Path, help="draw the temperature field (.png or .svg)")
    return parser.parse_args(argv)


def compared(whole: Grid, size: int, iterations: int) -> str:
    """What is to be said of the result beside one node's; "" if they are the same."""
    began = time.perf_counter()
    alone = serial(size, iterations)
    took_us = (time.perf_counter() - began) * 1e6
    print(f"one node: {took_us / max(iterations, 1):.1f} us an iteration")
    differ = int(np.sum(whole.view(np.uint64) != alone.view(np.uint64)))
    return f"{differ} of {whole.size} points differ from one node's result" if differ else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the example; 1: the result is not that of one node."""
    given = arguments(argv)
    hosts = given.hosts.split(",")
    with (
        opened(given.iface, len(hosts), given.attached) as node,
        join(node, hosts, given.rank) as events,
    ):
        took_s, whole = run(events, given.size, given.iterations)
    if whole is None:
        return 0
    each_us = took_s / max(given.iterations, 1) * 1e6
    print(f"{len(hosts)} nodes, {given.size} x {given.size}: {each_us:.1f} us an iteration")
    if given.plot:
        draw(whole, given.plot)
    if given.check:
        if wrong := compared(whole, given.size, given.iterations):
            print(wrong)
            return 1
        print("the same as one node's result, to the last bit")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
