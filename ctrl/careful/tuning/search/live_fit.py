"""Fits P1's latency of equal fragments to live messages.

A message of B bytes in n fragments takes g·n + H/n plus a constant (P1 equation 10). g is the
bottleneck's overhead for a fragment, µs. H is B times the sum of the other stages' G, µs. The fit
uses only differences of latencies, so the load that all ways meet cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from careful.measure.statistics.estimate import Estimate
from careful.model.stages import Array

#: Error of the model itself, as a share of the latency: the last fragment is shorter.
MODEL_ERROR = 0.01
#: 99 % quantiles of chi-squared with 1, 2, ... degrees of freedom.
_CHI_SQUARED = (6.63, 9.21, 11.34, 13.28, 15.09)


@dataclass(frozen=True)
class Point:
    """A way: messages in `count` fragments take longer_us more than with the values in effect.

    now_us: latency with the values in effect, µs.
    """

    count: int
    longer_us: Estimate
    now_us: float


@dataclass(frozen=True)
class Fit:
    """The fitted model.

    now_count, now_us: fragments and latency (µs) with the values in effect; values: constant, g and
    H, µs; spread: their covariance, µs²; off: sum of squared distances, in errors; fits: it fits.
    """

    now_count: int
    now_us: float
    values: Array
    spread: Array
    off: float
    fits: bool

    def _row(self, count: int) -> Array:
        return np.array([1.0, count - self.now_count, 1 / count - 1 / self.now_count])

    def longer_us(self, count: int) -> Estimate:
        """Predicts the time that `count` fragments add to a message, µs."""
        row = self._row(count)
        return Estimate(float(row @ self.values), math.sqrt(float(row @ self.spread @ row)))

    def best_count(self, least: int, most: int) -> int:
        """Returns the number of fragments with the least latency (P1 theorem 1)."""
        _, g_us, H_us = (float(value) for value in self.values)
        exact = math.sqrt(H_us / g_us) if g_us > 0 else math.inf
        near = {min(max(count, least), most) for count in (least, most)}
        if math.isfinite(exact):
            near |= {min(max(int(exact) + more, least), most) for more in (0, 1)}
        return min(sorted(near), key=lambda count: g_us * count + H_us / count)

    def summary(self) -> str:
        _, g_us, H_us = (float(value) for value in self.values)
        half = 1.96 * math.sqrt(float(self.spread[1, 1]))
        return (
            f"{g_us:.2f} ± {half:.2f} µs a fragment, {H_us:.1f} µs of a message in other stages, "
            f"points {math.sqrt(self.off):.1f} errors off"
        )


def fitted(now_count: int, points: Sequence[Point], shifted: bool) -> Fit | None:
    """Fits the model by weighted least squares with g and H of at least 0.

    now_count: fragments of the messages now; points: the measured differences; shifted: another
    change adds a constant to all points.

    Returns the fit; None: too few points.
    """
    if len(points) < 2 + shifted:
        return None
    rows = np.array(
        [[1.0, point.count - now_count, 1 / point.count - 1 / now_count] for point in points]
    )
    longer = np.array([point.longer_us.value for point in points])
    errors = np.array(
        [math.hypot(point.longer_us.se, MODEL_ERROR * point.now_us) for point in points]
    )
    free = [0, 1, 2] if shifted else [1, 2]
    values, spread = _solved(rows, longer, errors, free)
    while any(values[k] < 0 for k in free if k):  # the constant, 0, may be negative
        free.remove(min((k for k in free if k), key=lambda k: values[k]))
        values, spread = _solved(rows, longer, errors, free)
    off = float(np.sum(((rows @ values - longer) / errors) ** 2))
    freedom = len(points) - len(free)
    fits = not freedom or off <= _CHI_SQUARED[min(freedom, len(_CHI_SQUARED)) - 1]
    now_us = sum(point.now_us for point in points) / len(points)
    return Fit(now_count, now_us, values, spread, off, fits)


def _solved(rows: Array, longer: Array, errors: Array, free: Sequence[int]) -> tuple[Array, Array]:
    """Returns the values and their covariance; values that are not free are 0."""
    values, spread = np.zeros(3), np.zeros((3, 3))
    if free:
        weighted = rows[:, free] / errors[:, None]
        inverse = np.linalg.pinv(weighted.T @ weighted)
        values[free] = inverse @ weighted.T @ (longer / errors)
        spread[np.ix_(free, free)] = inverse
    return values, spread
