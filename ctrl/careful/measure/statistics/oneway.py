"""Times one way, by the clocks of both ends.

Two clocks without synchronisation still measure differences: their offset is the same in every
time, so it does not change slopes; their drift is measured and removed. A one-way time has half of
a round trip's noise, and does not include the way back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import Array, Line, fit_line, fit_minima, median, minima

#: A smaller drift over the whole measurement counts as none, µs.
_DRIFT_LEAST_US = 2.0
#: The least of n samples keeps a share of about _LEFT / sqrt(n) of the medians' lateness.
_LEFT = 1.5
#: A handler that runs sooner after XDP has not slept (veth: 1 to 2 µs; after a sleep 10 or more).
_AWAKE_US = 5.0


@dataclass(frozen=True)
class Trip:
    """A message and its answer.

    sent_us: by our clock; one_way_us: the handler's time by the other clock minus sent_us;
    round_us: time until the answer, by our clock; host_us: time between the other end's XDP and its
    handler, 0 if unknown.
    """

    sent_us: float
    one_way_us: float
    round_us: float
    host_us: float = 0.0


def step_us(rounds: Sequence[Sequence[Trip]]) -> float:
    """Returns the clock's step, µs: the least difference between two round trips' times."""
    times = np.unique([trip.round_us for trips in rounds for trip in trips])
    return float(np.diff(times).min() if len(times) > 1 else times[0])


def drift(sizes_bytes: Sequence[float], trips: Sequence[Trip]) -> float:
    """Returns how much faster the other clock runs, as a share, by robust regression over time.

    The round trips, which use only one clock, give the effect of the size, unless other traffic on
    the way back disturbs them more than a drift disturbs one-way times.
    """
    sizes, sent, one_way, whole = _columns(sizes_bytes, trips)
    over_sizes = [fit_minima(sizes, times).slope_us_per_byte for times in (whole, one_way)]
    flat = one_way - min(over_sizes, key=lambda slope: slope.half).value * sizes
    line = fit_line(sent, flat)
    rate = line.slope_us_per_byte
    if abs(rate.value) <= rate.half or abs(rate.value) * np.ptp(sent) <= _DRIFT_LEAST_US:
        return 0.0
    return rate.value


def without_drift(sizes_bytes: Sequence[float], trips: Sequence[Trip], rate: float) -> list[float]:
    """Returns times one way until XDP, µs, up to a constant."""
    _, sent, one_way, _ = _columns(sizes_bytes, trips)
    return [float(each) for each in one_way - rate * (sent - sent[0])]


def lateness(line: Line, sizes_bytes: Sequence[float], times_us: Sequence[float]) -> float:
    """Returns how much of the slope of minima may be lateness, µs a byte.

    Schedulers and sleeping processors react later after a longer idle time, so lateness grows with
    size. Minima remove most of it, but not all. The rest is at most about the excess of the
    medians' slope, at the upper end of its interval, over the minima's slope (GAM x 100: 18 and 9
    µs/KiB; truly 0). The rest counts as at least a share of the distance between medians and
    minima, at one end of the range; this share falls with the number of samples.
    """
    sizes = np.asarray(sizes_bytes, dtype=np.float64)
    times = np.asarray(times_us, dtype=np.float64)
    distinct = np.unique(sizes)
    if len(distinct) < 3:
        return 0.0
    by_size = [times[sizes == size] for size in distinct]
    usual = fit_line(distinct, [median(same_size) for same_size in by_size])
    usual_us = median(np.array([median(same_size) - same_size.min() for same_size in by_size]))
    remaining_us = usual_us * min(
        1.0, _LEFT / math.sqrt(min(len(same_size) for same_size in by_size))
    )
    steeper = usual.slope_us_per_byte.high - line.slope_us_per_byte.value
    least = remaining_us / float(np.ptp(distinct))
    return max(steeper, least) if math.isfinite(steeper) else least


def in_host(sizes_bytes: Sequence[float], trips: Sequence[Trip]) -> Estimate:
    """Returns the other end's part of the slope, µs a byte: its stages between XDP and handler.

    If it slept, it wakes up more slowly after a longer sleep, so behind a larger frame. All times
    contain that alike, so neither minima nor medians show it. Then the part is between 0 and the
    slope of the minima.
    """
    known = [k for k, trip in enumerate(trips) if trip.host_us > 0]
    if not known:
        return Estimate(0.0)
    sizes, least_us, _ = minima([sizes_bytes[k] for k in known], [trips[k].host_us for k in known])
    slope = fit_line(sizes, least_us).slope_us_per_byte
    if math.isinf(slope.half):  # no line through them
        slope = Estimate(0.0, slack=float(np.ptp(least_us) / max(np.ptp(sizes), 1)))
    if least_us.max() < _AWAKE_US:
        return slope
    half = max(slope.high, 0.0) / 2
    return Estimate(half, slack=half)


def _columns(
    sizes_bytes: Sequence[float], trips: Sequence[Trip]
) -> tuple[Array, Array, Array, Array]:
    sizes = np.asarray(sizes_bytes, dtype=np.float64)
    sent = np.array([trip.sent_us for trip in trips])
    one_way = np.array([trip.one_way_us - trip.host_us for trip in trips])
    whole = np.array([trip.round_us for trip in trips])
    return sizes, sent - sent[0], one_way - one_way[0], whole
