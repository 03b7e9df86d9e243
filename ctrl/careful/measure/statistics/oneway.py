"""Times one way, by the clocks of both ends.

Two unsynchronised clocks still measure differences. Their offset is the same in every time and does
not affect slopes; their drift is measured and removed. Such a time has half of a round trip's
noise, and no part of the way back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from careful.measure.statistics.line import Array, Line, fit_line, fit_minima, median

#: A smaller drift over the whole measurement counts as none, µs.
_DRIFT_LEAST_US = 2.0
#: The least of n samples keeps about this over sqrt(n) of the medians' lateness.
_LEFT = 1.5


@dataclass(frozen=True)
class Trip:
    """A message and its answer.

    sent_us: by our clock; there_us: arrival by the other clock less sending by ours; round_us:
    until the answer, by ours.
    """

    sent_us: float
    there_us: float
    round_us: float


def step_us(rounds: Sequence[Sequence[Trip]]) -> float:
    """Returns the clock's step, µs: the least difference between two round trips' times."""
    times = np.unique([one.round_us for trips in rounds for one in trips])
    return float(np.diff(times).min() if len(times) > 1 else times[0])


def drift(sizes_bytes: Sequence[float], trips: Sequence[Trip]) -> float:
    """Returns how much faster the other clock runs, as a share, by robust regression over time.

    The effect of the size is taken from the round trips, which use one clock only.
    """
    sizes, sent, there, whole = _columns(sizes_bytes, trips)
    over_sizes = fit_minima(sizes, whole)
    flat = there - over_sizes.slope_us_per_byte.value * sizes
    line = fit_line(sent, flat)
    rate = line.slope_us_per_byte
    seen = abs(rate.value) > rate.half
    return rate.value if seen and abs(rate.value) * np.ptp(sent) > _DRIFT_LEAST_US else 0.0


def without_drift(sizes_bytes: Sequence[float], trips: Sequence[Trip], rate: float) -> list[float]:
    """Returns times one way, µs, up to a constant."""
    _, sent, there, _ = _columns(sizes_bytes, trips)
    return [float(one) for one in there - rate * (sent - sent[0])]


def lateness(line: Line, sizes_bytes: Sequence[float], times_us: Sequence[float]) -> float:
    """Returns how much of the slope of minima may be lateness, µs a byte.

    Schedulers and sleeping processors are later after a longer idle time. Lateness therefore grows
    with size; minima remove most of it, not all. The rest is at most about the excess of the
    medians' slope over theirs (GAM x 100: 18 and 9 µs/KiB, truth 0). Both come from few samples, so
    the rest is at least a share of the medians' distance that falls with their number, at one end
    of the range only.
    """
    sizes = np.asarray(sizes_bytes, dtype=np.float64)
    times = np.asarray(times_us, dtype=np.float64)
    distinct = np.unique(sizes)
    if len(distinct) < 3:
        return 0.0
    alike = [times[sizes == size] for size in distinct]
    usual = fit_line(distinct, [median(some) for some in alike])
    usual_us = median(np.array([median(some) - some.min() for some in alike]))
    left_us = usual_us * min(1.0, _LEFT / math.sqrt(min(len(some) for some in alike)))
    steeper = usual.slope_us_per_byte.value - line.slope_us_per_byte.value
    return max(steeper, left_us / float(np.ptp(distinct)))


def _columns(
    sizes_bytes: Sequence[float], trips: Sequence[Trip]
) -> tuple[Array, Array, Array, Array]:
    sizes = np.asarray(sizes_bytes, dtype=np.float64)
    sent = np.array([one.sent_us for one in trips])
    there = np.array([one.there_us for one in trips])
    whole = np.array([one.round_us for one in trips])
    return sizes, sent - sent[0], there - there[0], whole
