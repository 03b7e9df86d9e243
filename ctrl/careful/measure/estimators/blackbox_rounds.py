"""A round of a black-box measurement: one pass over all sizes, how it differs, what counts of it.

Owns which of many rounds' times are fitted, and the fit of their round trips. Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import Line, fit_minima, widened
from careful.measure.statistics.oneway import Trip, drift, lateness, without_drift
from careful.measure.statistics.piecewise import POINTS_MIN

#: A gap below so many times our own pace may be ours.
OWN_PACE = 2.0
#: Our pace is unhindered up to so many times the quickest tenth's, which is what stages inside are
#: judged by, too (stages.UNHINDERED).
_UNHINDERED, _QUICKEST = 1.1, 0.1


@dataclass
class Round:
    """Payload bytes of each round trip; gaps of trains and our pace, µs, by payload bytes.

    bunched: sizes whose train was not taken one frame after the other.
    """

    trip_sizes: list[float] = field(default_factory=list)
    trips: list[Trip] = field(default_factory=list)
    gaps_us: dict[int, float] = field(default_factory=dict)
    own_us: dict[int, float] = field(default_factory=dict)
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


def all_stages(rounds: Sequence[Round], resolution_us: float) -> tuple[Line, Line]:
    """The lines through the least round trips, and through the least times one way."""
    made = [one for one in rounds if one.trips]
    sizes = [size for one in made for size in one.trip_sizes]
    trips = [trip for one in made for trip in one.trips]
    there = without_drift(sizes, trips, drift(sizes, trips))
    found = []
    for times in ([trip.round_us for trip in trips], there):
        left = iter(times)
        alone = [fit_minima(one.trip_sizes, [next(left) for _ in one.trips]) for one in made]
        line = fit_minima(sizes, times, resolution_us)
        late = Estimate(0.0, slack=lateness(line, sizes, times))
        slope = line.slope_us_per_byte + late
        found.append(widened(replace(line, slope_us_per_byte=slope), alone))
    return found[0], found[1]


def telling(rounds: Sequence[Round]) -> list[dict[int, float]]:
    """Of each round, the gaps of the trains that tell of the bottleneck, by size, bytes, µs.

    Not those that arrived in a bunch; and where the bottleneck may be ourselves, not those that
    other work made leave late. All, where those are not enough for a slope.
    """
    paces: dict[int, list[float]] = {}
    for one in rounds:
        for size, own_us in one.own_us.items():
            paces.setdefault(size, []).append(own_us)
    most = {size: _UNHINDERED * float(np.quantile(some, _QUICKEST)) for size, some in paces.items()}
    found = [
        {
            size: gap_us
            for size, gap_us in one.gaps_us.items()
            if size not in one.bunched
            and (gap_us > OWN_PACE * one.own_us[size] or one.own_us[size] <= most[size])
        }
        for one in rounds
    ]
    enough = len({size for gaps in found for size in gaps}) >= POINTS_MIN
    return found if enough else [one.gaps_us for one in rounds]


_Size = TypeVar("_Size", int, float)


def _shift(now: Mapping[_Size, float], before: Sequence[Mapping[_Size, float]]) -> float:
    found = []
    for size, time_us in now.items():
        known = [one[size] for one in before if size in one]
        # A gap of 0 is what a bunch has, or who says that all came at the same time.
        if known and (usual_us := statistics.median(known)) > 0:
            found.append(time_us / usual_us - 1)
    return statistics.median(found) if found else 0.0
