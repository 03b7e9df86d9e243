"""A quick measurement: a few trains and round trips of three sizes, in about half a second.

Detects a large change of the path; blackbox.py makes the precise measurement. Figures with wide
intervals are not withheld, because the caller draws from the intervals. Three sizes cannot show a
change of the bottleneck, so one stage is assumed to be the bottleneck for all sizes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from careful.errors import InputError
from careful.measure.outside.blackbox import TRAIN_US, Exchange
from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import median, train_gap_us

#: Least error of a train's gap, and of the least round trip, as a share.
FLOOR = 0.02
#: A train with a gap below this share of its sending pace arrived all at once.
_BUNCHED = 0.9
#: A median's standard error, in median absolute deviations over the root of the count.
_OF_MEDIAN = 1.2533 * 1.4826


@dataclass(frozen=True)
class Options:
    """Options of a glance, a quick measurement.

    `min_bytes`: the least size; `seconds`: no round begins later; `rounds_min`, `rounds_max`:
    rounds of a round trip and a train of each size; `train_frames`: least frames of a train, more
    if it is shorter than TRAIN_US; `share`: share of the path's time to use.
    """

    min_bytes: int = 64
    seconds: float = 0.4
    rounds_min: int = 8
    rounds_max: int = 40
    train_frames: int = 4
    share: float = 0.6


class Glance:
    """One glance; `figures` makes it.

    clock, sleep: seconds.
    """

    def __init__(
        self,
        exchange: Exchange,
        options: Options | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._exchange, self._options = exchange, options or Options()
        self._clock, self._sleep = clock, sleep
        low, high = self._options.min_bytes, exchange.payload_max_bytes
        if high < 4 * low:
            raise InputError(f"payloads of {low} to {high} bytes are too similar to fit a line")
        if min(self._options.train_frames, exchange.train_max) < 2:
            raise InputError(f"a window of {exchange.credits} buffers is too small for a train")
        self._sizes = (low, (low + high) // 2, high)
        self._gaps: dict[int, list[float]] = {size: [] for size in self._sizes}
        self._trips: dict[int, list[float]] = {size: [] for size in self._sizes}
        self._trains = self._bunched = self._frames = 0

    def figures(self) -> dict[str, object]:
        """Returns the figures of a black box (blackbox_result.Result.figures) with one range.

        Raises ValueError if most trains of two sizes arrived all at once, and CarefulError.
        """
        began, rounds = self._clock(), 0
        options = self._options
        while rounds < options.rounds_min or (
            rounds < options.rounds_max and self._clock() - began < options.seconds
        ):
            for size in self._sizes:
                self._send_trip(size)
                self._send_train(size)
            rounds += 1
        measured = [size for size, times in self._gaps.items() if 2 * len(times) >= rounds]
        if len(measured) < 2:
            raise InputError(
                f"in {self._bunched} of {self._trains} trains all frames arrived at once, or other "
                "traffic disturbed them"
            )
        if not all(self._trips.values()):
            raise InputError("other traffic disturbed all round trips")
        g_b, G_b = fitted(measured, {size: _middle(self._gaps[size]) for size in measured})
        both, G = fitted(self._sizes, {size: _least(times) for size, times in self._trips.items()})
        return {
            "kind": "blackbox",
            **cost_figures(g_b, G_b, both * 0.5, G, self._sizes[0], self._sizes[-1]),
            "round_trip_minima": [
                {"size_bytes": size, "least_us": round(min(times), 3)}
                for size, times in self._trips.items()
            ],
            "rounds_count": rounds,
            "frames_count": self._frames,
            "elapsed_s": round(self._clock() - began, 3),
            "settled": False,
            "notes": ["a glance: trains and round trips of three sizes"],
        }

    def _send_trip(self, size: int) -> None:
        for trip in self._exchange.round_trips(size, 1):
            self._trips[size].append(trip.round_us)
            self._frames += 2
            self._pause(trip.round_us / 1e6)

    def _send_train(self, size: int) -> None:
        count, known = self._options.train_frames, self._gaps[size]
        if known:
            count = max(count, int(TRAIN_US / max(known[-1], 1e-3)))
        count = min(count, self._exchange.train_max)
        began = self._clock()
        arrivals, own_us = self._exchange.train_us(size, count)
        self._frames += count + 1
        self._trains += 1
        gap_us = train_gap_us(arrivals) if len(arrivals) > 1 else 0.0
        if gap_us < _BUNCHED * own_us:
            self._bunched += 1
        else:
            known.append(gap_us)
        self._pause(self._clock() - began)

    def _pause(self, busy_s: float) -> None:
        self._sleep((1 / self._options.share - 1) * busy_s)


def _middle(values: Sequence[float]) -> Estimate:
    """Returns the median, which is robust against single late messages."""
    samples = np.asarray(values, dtype=np.float64)
    value = median(samples)
    spread = _OF_MEDIAN * median(np.abs(samples - value)) / math.sqrt(len(samples))
    return Estimate(value, math.hypot(spread, FLOOR * value))


def _least(values: Sequence[float]) -> Estimate:
    """Returns the least value, an undisturbed time. The lowest quarter gives its error."""
    ordered = sorted(values)
    far = ordered[len(ordered) // 4] - ordered[0]
    return Estimate(ordered[0], math.hypot(far / 2, FLOOR * ordered[0]))


def fitted(sizes: Sequence[int], times_us: Mapping[int, Estimate]) -> tuple[Estimate, Estimate]:
    """Fits a line: its time at no bytes, µs, and its slope, µs per KiB, weighted by the errors.

    If points are off the line by more than their errors, both intervals are wider.
    """
    x = np.asarray(sizes, dtype=np.float64)
    y = np.array([times_us[size].value for size in sizes])
    weights = np.array([times_us[size].se for size in sizes]) ** -2.0
    middle, height = np.average(x, weights=weights), np.average(y, weights=weights)
    across = float(np.sum(weights * (x - middle) ** 2))
    slope = float(np.sum(weights * (x - middle) * y) / across)
    off = float(np.sum(weights * (y - height - slope * (x - middle)) ** 2))
    wider = max(1.0, math.sqrt(off / max(1, len(x) - 2)))
    slope_se, height_se = wider / math.sqrt(across), wider / math.sqrt(float(weights.sum()))
    at_none = Estimate(
        float(height - slope * middle), math.hypot(height_se, float(middle) * slope_se)
    )
    return at_none, Estimate(slope, slope_se) * 1024


def cost_figures(
    g_b: Estimate, G_b: Estimate, sum_g: Estimate, sum_G: Estimate, low: float, high: float
) -> dict[str, object]:
    """Returns costs for JSON, in µs and µs per KiB, of fragments of `low` to `high` bytes.

    A cost below 0 becomes 0, and a sum below its part becomes that part: both occur by chance.
    """
    others = sum_G - G_b
    g_b, G_b, others = (_cost(cost) for cost in (g_b, G_b, others))
    sum_g = _cost(sum_g, g_b.value)
    sum_G = _cost(sum_G, G_b.value)
    regime = {
        **g_b.figures("g_b", "us"),
        **G_b.figures("G_b", "us_per_KiB"),
        **others.figures("sum_G_others", "us_per_KiB"),
    }
    return {
        **sum_g.figures("sum_g", "us"),
        **sum_G.figures("sum_G", "us_per_KiB"),
        **regime,
        "regimes": [{"low_bytes": float(low), "high_bytes": float(high), **regime}],
    }


def _cost(cost: Estimate, least: float = 0.0) -> Estimate:
    return Estimate(max(cost.value, least), cost.se, cost.dof, cost.slack)
