"""A 2-D Fourier transform over mpi.py: rows are divided among P nodes, Alltoall transposes.

An example: `python -m careful.event.fft eth1 --hosts h1,h2,h3 --rank 0` on each host, with its own
rank. The result is numpy.fft.fft2's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from careful.event.join import join, opened
from careful.event.mpi import Comm

Grid = npt.NDArray[np.complex128]


def transposed(comm: Comm, rows: Grid) -> Grid:
    """This rank's rows of the transposed array, from its rows of the array."""
    size, mine = rows.shape[1], rows.shape[0]
    out = np.ascontiguousarray(rows.reshape(mine, comm.size, mine).transpose(1, 2, 0))
    into = np.empty_like(out)
    comm.Alltoall(out, into)
    return np.ascontiguousarray(into.transpose(1, 0, 2)).reshape(mine, size)


def fft2(comm: Comm, rows: Grid) -> Grid:
    """This rank's rows of the transform of a square array, from its rows of that."""
    half = transposed(comm, np.fft.fft(rows, axis=1))
    return transposed(comm, np.fft.fft(half, axis=1))


def picture(size: int) -> Grid:
    """An array that is the same on every node."""
    return np.random.default_rng(1).random((size, size)).astype(np.complex128)


def run(comm: Comm, size: int, rounds: int) -> tuple[float, float | None]:
    """Seconds of a transform, and at rank 0 how far the result is from one node's, at most.

    Raises:
        ValueError: the rows cannot be divided evenly.
        CarefulError: a node failed.
    """
    if size % comm.size:
        raise ValueError(f"{size} rows are no multiple of {comm.size} nodes")
    share, whole = size // comm.size, picture(size)
    rows = whole[comm.rank * share : (comm.rank + 1) * share]
    comm.Barrier()
    began = time.perf_counter()
    for _ in range(rounds):
        mine = fft2(comm, rows)
    took_s = (time.perf_counter() - began) / rounds
    found = np.empty((comm.size, share, size), np.complex128) if comm.rank == 0 else None
    comm.Gather(mine, found)
    if found is None:
        return took_s, None
    alone = np.fft.fft2(whole)
    return took_s, float(np.max(np.abs(found.reshape(size, size) - alone)) / np.max(np.abs(alone)))


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m careful.event.fft",
        description="A 2-D Fourier transform over events; run it on each host.",
    )
    parser.add_argument("iface", help="interface; careful is not up on it, but for --attached")
    parser.add_argument("--hosts", required=True, help="of all nodes, in order: h1,h2,h3")
    parser.add_argument("--rank", type=int, required=True, help="this node's, from 0")
    parser.add_argument("--attached", action="store_true", help="beside carefuld, on every host")
    parser.add_argument("--size", type=int, default=256, help="rows and columns (%(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="how often (%(default)s)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the example; 1: the result is not numpy's."""
    given = arguments(argv)
    hosts = given.hosts.split(",")
    with (
        opened(given.iface, len(hosts), given.attached) as node,
        join(node, hosts, given.rank) as events,
    ):
        took_s, off = run(Comm(events), given.size, max(given.rounds, 1))
    if off is None:
        return 0
    print(f"{len(hosts)} nodes, {given.size} x {given.size}: {took_s * 1e3:.2f} ms a transform")
    print(f"numpy.fft.fft2's result, but for {off:.1g} of the largest value")
    return int(off > 1e-12)


if __name__ == "__main__":
    raise SystemExit(main())
