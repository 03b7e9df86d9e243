"""The rounds of a black-box measurement: which times are used, and the fit of round trips."""

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

#: A gap below this multiple of our own pace may be our own.
OWN_PACE = 2.0
#: Our pace counts as unhindered up to this multiple of its quickest tenth, the same quantile as in
#: stages.UNHINDERED.
_UNHINDERED, _QUICKEST = 1.1, 0.1


@dataclass
class Round:
    """One pass over all sizes: round trips with their payload bytes; gaps of trains and our pace,
    µs, by payload bytes.

    bunched: sizes whose train was not received frame by frame.
    """

    trip_sizes: list[float] = field(default_factory=list)
    trips: list[Trip] = field(default_factory=list)
    gaps_us: dict[int, float] = field(default_factory=dict)
    own_us: dict[int, float] = field(default_factory=dict)
    bunched: set[int] = field(default_factory=set)

    def pairs(self) -> Iterator[tuple[float, Trip]]:
        return zip(self.trip_sizes, self.trips, strict=True)

    def least_us(self) -> dict[float, float]:
        least: dict[float, float] = {}
        for size, trip in self.pairs():
            least[size] = min(least.get(size, trip.round_us), trip.round_us)
        return least

    def shift_from(self, before: Sequence[Round]) -> float:
        """Returns the relative change against other rounds: the median over all sizes."""
        shifts = [
            _shift(self.least_us(), [one.least_us() for one in before]),
            _shift(self.gaps_us, [one.gaps_us for one in before]),
        ]
        return max(shifts, key=abs)


def trip_lines(rounds: Sequence[Round], resolution_us: float) -> tuple[Line, Line]:
    """Fits a line to the shortest round trips, and one to the shortest one-way times, over sizes.

    One-way times have the drift of the two clocks removed.
    """
    made = [one for one in rounds if one.trips]
    sizes = [size for one in made for size in one.trip_sizes]
    trips = [trip for one in made for trip in one.trips]
    one_way_us = without_drift(sizes, trips, drift(sizes, trips))
    found = []
    for times in ([trip.round_us for trip in trips], one_way_us):
        rest = iter(times)
        fits = [fit_minima(one.trip_sizes, [next(rest) for _ in one.trips]) for one in made]
        line = fit_minima(sizes, times, resolution_us)
        late = Estimate(0.0, slack=lateness(line, sizes, times))
        slope = line.slope_us_per_byte + late
        found.append(widened(replace(line, slope_us_per_byte=slope), fits))
    return found[0], found[1]


def telling(rounds: Sequence[Round]) -> list[dict[int, float]]:
    """Returns the usable gaps of each round: size in bytes to gap in µs.

    Leaves out trains that arrived in a bunch and, if this host may be the bottleneck, trains that
    other work delayed. Returns all if the rest is too little for a slope.
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
        # A bunch has a gap of 0, as does a clock too coarse to separate arrivals.
        if known and (usual_us := statistics.median(known)) > 0:
            found.append(time_us / usual_us - 1)
    return statistics.median(found) if found else 0.0
