"""The rounds of a black-box measurement: selects usable times, and fits lines to round trips."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import Line, fit_minima, undelayed_most_us, widened
from careful.measure.statistics.oneway import Trip, drift, in_host, lateness, without_drift
from careful.measure.statistics.piecewise import POINTS_MIN

#: A gap below this multiple of our own sending pace may be caused by this host.
OWN_PACE = 2.0


@dataclass
class Round:
    """One pass over all sizes, in payload bytes.

    gaps_us, own_us: gap and our pace of each size's train; bunched: sizes whose train arrived all
    at once.
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
            _shift(self.least_us(), [other.least_us() for other in before]),
            _shift(self.gaps_us, [other.gaps_us for other in before]),
        ]
        return max(shifts, key=abs)


def trip_lines(rounds: Sequence[Round], resolution_us: float) -> tuple[Line, Line]:
    """Fits lines to the shortest round trips and the shortest one-way times, over sizes.

    Removes the drift of the two clocks from one-way times. If answers have waited behind messages
    on the way back, the line of round trips has the slope of the one-way times.
    """
    with_trips = [a_round for a_round in rounds if a_round.trips]
    sizes = [size for a_round in with_trips for size in a_round.trip_sizes]
    trips = [trip for a_round in with_trips for trip in a_round.trips]
    if 2 * sum(trip.host_us > 0 for trip in trips) < len(trips):  # the record ended early
        trips = [replace(trip, host_us=0.0) for trip in trips]
    one_way_us = without_drift(sizes, trips, drift(sizes, trips))
    lines = []
    for times, host in (
        ([trip.round_us for trip in trips], Estimate(0.0)),
        (one_way_us, in_host(sizes, trips)),
    ):
        remaining = iter(times)
        fits = [
            fit_minima(a_round.trip_sizes, [next(remaining) for _ in a_round.trips])
            for a_round in with_trips
        ]
        line = fit_minima(sizes, times, resolution_us)
        late = Estimate(0.0, slack=lateness(line, sizes, times))
        slope = line.slope_us_per_byte + late + host
        lines.append(widened(replace(line, slope_us_per_byte=slope), fits))
    round_trips, one_way = lines
    if round_trips.reason and one_way.supported:
        round_trips = _with_slope(round_trips, one_way, sizes, [trip.round_us for trip in trips])
    return round_trips, one_way


def _with_slope(line: Line, other: Line, sizes: Sequence[float], times_us: Sequence[float]) -> Line:
    """Returns a line below all times, with `other`'s slope. The lowest quarter gives its error."""
    slope = other.slope_us_per_byte
    levels = sorted(
        time_us - slope.value * (size - line.middle_bytes)
        for size, time_us in zip(sizes, times_us, strict=True)
    )
    middle_us = Estimate(levels[0], (levels[len(levels) // 4] - levels[0]) / 2)
    return replace(line, middle_us=middle_us, slope_us_per_byte=slope, reason="")


def usable_gaps(rounds: Sequence[Round]) -> list[dict[int, float]]:
    """Returns the usable gaps of each round: size in bytes to gap in µs.

    Leaves out trains that arrived all at once and, if this host may be the bottleneck, trains that
    other work delayed. Returns all gaps if the usable ones do not give a slope.
    """
    paces: dict[int, list[float]] = {}
    for a_round in rounds:
        for size, own_us in a_round.own_us.items():
            paces.setdefault(size, []).append(own_us)
    most = {size: undelayed_most_us(times_us) for size, times_us in paces.items()}
    usable = [
        {
            size: gap_us
            for size, gap_us in a_round.gaps_us.items()
            if size not in a_round.bunched
            and (gap_us > OWN_PACE * a_round.own_us[size] or a_round.own_us[size] <= most[size])
        }
        for a_round in rounds
    ]
    enough = len({size for gaps in usable for size in gaps}) >= POINTS_MIN
    return usable if enough else [a_round.gaps_us for a_round in rounds]


_Size = TypeVar("_Size", int, float)


def _shift(now: Mapping[_Size, float], before: Sequence[Mapping[_Size, float]]) -> float:
    shifts = []
    for size, time_us in now.items():
        known = [other[size] for other in before if size in other]
        # The gap is 0 if a train arrived at once, or if the clock is too coarse.
        if known and (usual_us := statistics.median(known)) > 0:
            shifts.append(time_us / usual_us - 1)
    return statistics.median(shifts) if shifts else 0.0
