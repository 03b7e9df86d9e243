"""Fragments that grow, shrink, or both: theorems 3, 4 and 5 (P1 sections 4.1, 4.2).

A ramp is the recurrence x_{i+1} = a x_i + b that keeps two stages free of bubbles. A ramp is
optimal for two stages and for fast-slow-fast. With more stages each pair (a stage, the bottleneck)
gives a ramp, and the exact latency decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from careful.model.latency import latency_us
from careful.model.stages import Array, Pipeline


@dataclass(frozen=True)
class Recurrence:
    """x_{i+1} = ratio x_i + step_bytes (P1 equations 14 to 16: a and b)."""

    ratio: float
    step_bytes: float


def no_stall(pipeline: Pipeline, feeder: int, slow: int) -> Recurrence | None:
    """Returns sizes with which `slow` never waits for `feeder`, an earlier stage (P1 theorem 3).

    For neighbours t_{i+1,feeder} = t_{i,slow} gives a = G1/G0, b = (g1 - g0)/G0 (P1 equation 14).
    Stages between the two delay a fragment of x bytes by S x, where S is the sum of their G. So
    successive arrivals are g0 + (G0 + S) x_{i+1} - S x_i apart, which adds S to both G. None if
    neither the feeder nor a stage between them costs anything per byte.
    """
    between = float(pipeline.G_us_per_byte[feeder + 1 : slow].sum())
    G_0 = float(pipeline.G_us_per_byte[feeder]) + between
    G_1 = float(pipeline.G_us_per_byte[slow]) + between
    if G_0 <= 0:
        return None
    return Recurrence(G_1 / G_0, float(pipeline.g_us[slow] - pipeline.g_us[feeder]) / G_0)


class _Sums:
    """f and h (P1 equations 17, 18) as linear functions of x0, for all lengths.

    Running sums replace the closed forms: they need no case for a = 1 and lose no digits near it.
    size[i] = x0 power[i] + growth[i]; total[k] = x0 power_sum[k] + growth_sum[k].
    """

    def __init__(self, rule: Recurrence, count: int) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            self.power: Array = np.power(rule.ratio, np.arange(count, dtype=np.float64))
            self.power_sum: Array = np.concatenate(([0.0], np.cumsum(self.power)))
            self.growth: Array = rule.step_bytes * self.power_sum[:-1]
            self.growth_sum: Array = np.concatenate(([0.0], np.cumsum(self.growth)))


def ramps(rule: Recurrence, message_bytes: float, counts: Array, min_bytes: float) -> Array:
    """Returns the bubble-free ramp of each length k (P1 theorem 4): x0 from h(x0, k, a, b) = B.

    counts: lengths, whole, shape (c,). Returns the plans with all sizes at least `min_bytes`,
    bytes, zero-padded, shape (p, max k), p <= c. P1 does not cover sizes below one byte: such
    lengths are left out, and one fragment always remains.
    """
    lengths = counts.astype(np.int64)
    sums = _Sums(rule, int(lengths.max()))
    with np.errstate(all="ignore"):
        first = (message_bytes - sums.growth_sum[lengths]) / sums.power_sum[lengths]
        sizes = first[:, None] * sums.power + sums.growth
    return _kept(_cut(sizes, lengths), lengths, message_bytes, min_bytes)


def ramps_up_and_down(
    up: Recurrence, down: Recurrence, message_bytes: float, k1: Array, k2: Array, min_bytes: float
) -> Array:
    """Returns theorem 5's plans for pairs (k1, k2): k1 rising sizes, k2 falling, x_c in both.

    up: recurrence towards the peak; down: the same in the reversed pipeline. k1, k2: whole, >= 1,
    shape (c,). Solves P1 equations 19 to 22 for the peak x_c; B1 and B2 are linear functions of
    x_c. Returns plans of k1 + k2 - 1 sizes, zero-padded, shape (p, max), all sizes at least
    `min_bytes`.
    """
    rise, fall = k1.astype(np.int64), k2.astype(np.int64)
    up_sums, down_sums = _Sums(up, int(rise.max())), _Sums(down, int(fall.max()))
    with np.errstate(all="ignore"):
        # x0 = (x_c - growth) / power at each end, so B1 = slope x_c + offset, and B2 likewise.
        slope1, offset1 = _bytes_of_peak(up_sums, rise)
        slope2, offset2 = _bytes_of_peak(down_sums, fall)
        peak = (message_bytes - offset1 - offset2) / (slope1 + slope2 - 1)
        first = (peak - up_sums.growth[rise - 1]) / up_sums.power[rise - 1]
        last = (peak - down_sums.growth[fall - 1]) / down_sums.power[fall - 1]
        rising = first[:, None] * up_sums.power + up_sums.growth
        falling = last[:, None] * down_sums.power + down_sums.growth
    total = rise + fall - 1
    place = np.arange(int(total.max()))
    from_end = total[:, None] - 1 - place
    sizes = np.where(
        place < rise[:, None],
        np.take_along_axis(rising, np.minimum(place, rising.shape[1] - 1)[None, :], axis=1),
        np.take_along_axis(falling, np.clip(from_end, 0, falling.shape[1] - 1), axis=1),
    )
    return _kept(_cut(sizes, total), total, message_bytes, min_bytes)


def _bytes_of_peak(sums: _Sums, lengths: npt.NDArray[np.int64]) -> tuple[Array, Array]:
    """Returns slope and offset of a ramp's bytes as a function of its last size x_c."""
    slope = sums.power_sum[lengths] / sums.power[lengths - 1]
    return slope, sums.growth_sum[lengths] - slope * sums.growth[lengths - 1]


def _cut(sizes: Array, lengths: npt.NDArray[np.int64]) -> Array:
    cut: Array = np.where(np.arange(sizes.shape[1]) < lengths[:, None], sizes, 0.0)
    return cut


def _kept(
    sizes: Array, lengths: npt.NDArray[np.int64], message_bytes: float, min_bytes: float
) -> Array:
    """Keeps the plans whose sizes are all finite and at least `min_bytes` (padding aside).

    Long ramps near the recurrence's fixed point are differences of huge numbers. Ramps whose sum no
    longer equals the message are dropped too.
    """
    inside = np.arange(sizes.shape[1]) < lengths[:, None]
    good = np.all(np.isfinite(sizes) & ((sizes >= min_bytes) | ~inside), axis=1)
    kept: Array = sizes[good]
    exact = np.abs(kept.sum(axis=1) - message_bytes) <= 1e-3 + 1e-9 * message_bytes
    good_sums: Array = kept[exact]
    return good_sums


def count_grid(most: int, points: int) -> Array:
    """Returns lengths 1 to `most`: all, or `points` in even ratios when there are more."""
    if most <= points:
        return np.arange(1, most + 1, dtype=np.float64)
    return distinct(np.round(np.geomspace(1, most, points)))


def distinct(values: Array) -> Array:
    """Returns the values, ascending, each once; np.unique would import numpy's masked arrays."""
    return np.array(sorted(set(values.tolist())))


def least(pipeline: Pipeline, plans: Array) -> tuple[Array, float]:
    """Returns the plan of least latency, without padding, and that latency in µs."""
    latency = latency_us(pipeline, plans)
    best = int(np.argmin(latency))
    sizes = plans[best]
    return sizes[sizes > 0], float(latency[best])
