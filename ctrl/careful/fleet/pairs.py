"""All pairs of hosts, in turns in which no host has a part twice.

Owns the order of pairs. Calls nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")


def turns(hosts: Sequence[_T]) -> list[list[tuple[_T, _T]]]:
    """Every ordered pair of hosts once, in as few turns of disjoint pairs as there can be.

    The circle method of tournaments: one stands still, the others go round; then the same with
    the sides changed. 2 (N - 1) turns of N / 2 pairs with an even number of hosts N, else 2 N.
    """
    ring: list[int | None] = list(range(len(hosts)))
    if len(ring) % 2:
        ring.append(None)
    found = []
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        found.append([(a, b) for a, b in pairs if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    both = [*found, *([(b, a) for a, b in turn] for turn in found)]
    return [[(hosts[a], hosts[b]) for a, b in turn] for turn in both if turn]
