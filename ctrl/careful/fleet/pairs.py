"""All pairs of hosts, in turns in which each host occurs once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")


def turns(hosts: Sequence[_T]) -> list[list[tuple[_T, _T]]]:
    """Returns every ordered pair of hosts once, in the fewest turns of disjoint pairs.

    The circle method of tournaments: one host stays, the others rotate; then the sides are
    swapped. For N hosts this needs 2 (N - 1) turns of N / 2 pairs if N is even, else 2 N turns.
    """
    ring: list[int | None] = list(range(len(hosts)))
    if len(ring) % 2:
        ring.append(None)
    forward = []
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        forward.append([(a, b) for a, b in pairs if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    turns_ = [*forward, *([(b, a) for a, b in turn] for turn in forward)]
    return [[(hosts[a], hosts[b]) for a, b in turn] for turn in turns_ if turn]
