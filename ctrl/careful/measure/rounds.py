"""A round of a black-box measurement: one pass over all sizes, and how it differs from others."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from careful.measure.oneway import Trip


@dataclass
class Round:
    """Payload bytes of each round trip; gaps of trains, µs, by payload bytes.

    bunched: sizes whose train was not taken one frame after the other.
    """

    trip_sizes: list[float] = field(default_factory=list)
    trips: list[Trip] = field(default_factory=list)
    gaps_us: dict[int, float] = field(default_factory=dict)
    bunched: set[int] = field(default_factory=set)

    def pairs(self) -> Iterator[tuple[float, Trip]]:
        """Sizes with their round trips."""
        return zip(self.trip_sizes, self.trips, strict=True)

    def least_us(self) -> dict[float, float]:
        """The least round trip of each size."""
        least: dict[float, float] = {}
        for size, trip in self.pairs():
            least[size] = min(least.get(size, trip.round_us), trip.round_us)
        return least

    def shift_from(self, before: Sequence[Round]) -> float:
        """By which share its times differ from those of other rounds: the median of all sizes."""
        shifts = [
            _shift(self.least_us(), [one.least_us() for one in before]),
            _shift(self.gaps_us, [one.gaps_us for one in before]),
        ]
        return max(shifts, key=abs)


def _shift(now: Mapping[Any, float], before: Sequence[Mapping[Any, float]]) -> float:
    found = []
    for size, time_us in now.items():
        known = [one[size] for one in before if size in one]
        if known:
            found.append(time_us / statistics.median(known) - 1)
    return statistics.median(found) if found else 0.0
