"""A figure from repetitions, some of them disturbed: location, interval, residual."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import RELATIVE_MAX, Array

#: Tukey's constant: 95 % of the mean's efficiency without disturbance.
_TUKEY = 4.685
#: Half-width of a normal sample's middle half, in standard deviations.
_QUARTILE = 0.6745
#: Least repetitions that give an interval.
SAMPLES_MIN = 5
#: Factor from a median absolute deviation to a standard deviation.
_MAD = 1.4826


@dataclass(frozen=True)
class Figure:
    """A figure and its uncertainty.

    estimate: None with a `reason`, if the sample does not support an estimate; samples_count:
    repetitions; residual: robust standard deviation of one repetition, in the figure's unit;
    low_messages, high_messages: range of messages for which it holds.
    most: its bound if the interval is wide, else infinite.
    """

    estimate: Estimate | None
    samples_count: int = 0
    residual: float = 0.0
    low_messages: int = 1
    high_messages: int = 1
    reason: str = ""
    most: float = math.inf

    @property
    def relative(self) -> float:
        """Half of the interval over the figure; infinite without a figure."""
        return self.estimate.relative if self.estimate else math.inf

    def figures(self, name: str, unit: str) -> dict[str, object]:
        value = self.estimate.figures(name, unit) if self.estimate else {f"{name}_{unit}": None}
        return {
            **value,
            f"{name}_samples_count": self.samples_count,
            f"{name}_residual_{unit}": round(self.residual, 4),
            f"{name}_low_messages": self.low_messages,
            f"{name}_high_messages": self.high_messages,
            f"{name}_reason": self.reason,
        }


@dataclass(frozen=True)
class Bursts:
    """Times of n bursts of one kind, µs since the first message was issued.

    `marks`: counts of issued messages, ascending, shape (k,); `elapsed_us`: when each count was
    issued and its computation had ended, shape (n, k); `computed_us`: the computation in
    elapsed_us; `done_us`: when the last reply arrived, shape (n,); `arrived_us`: when the other end
    took the last message by its own clock, useful only if both ends share a clock.
    """

    marks: Array
    elapsed_us: Array
    computed_us: Array
    done_us: Array
    arrived_us: Array

    def __add__(self, other: Bursts) -> Bursts:
        return Bursts(
            self.marks,
            np.concatenate([self.elapsed_us, other.elapsed_us]),
            np.concatenate([self.computed_us, other.computed_us]),
            np.concatenate([self.done_us, other.done_us]),
            np.concatenate([self.arrived_us, other.arrived_us]),
        )


def locations(samples: Array) -> tuple[Array, Array, Array]:
    """Returns the locations of samples with standard errors; each column is a sample.

    samples: shape (n,) or (n, k), n >= 1; returns locations, errors and degrees of freedom of shape
    (k,). Other work makes some times far longer. Tukey's bisquare starts from the middle of the
    shortest half (Rousseeuw), which is robust if less than half of the times are disturbed; the
    errors are Huber's asymptotic errors. With fewer than SAMPLES_MIN rows the errors are infinite.
    Raises ValueError for no rows.
    """
    table = np.sort(samples.reshape(len(samples), -1), axis=0)
    count = len(table)
    if not count:
        raise ValueError("no samples")
    if count < SAMPLES_MIN:
        center: Array = np.median(table, axis=0)
        return center, np.full(center.shape, np.inf), np.ones(center.shape)
    center, scale = _shortest_half(table)
    for _ in range(20):
        u = (table - center) / (_TUKEY * scale)
        weights = np.where(np.abs(u) < 1, (1 - u**2) ** 2, 0.0)
        center = (weights * table).sum(axis=0) / weights.sum(axis=0)
    u = (table - center) / (_TUKEY * scale)
    inside = np.abs(u) < 1
    psi = np.where(inside, u * (1 - u**2) ** 2, 0.0) * _TUKEY * scale
    slope = np.where(inside, (1 - u**2) * (1 - 5 * u**2), 0.0).mean(axis=0)
    errors = np.sqrt((psi**2).sum(axis=0) / count / (count - 1)) / np.maximum(slope, 0.1)
    return center, errors, np.maximum(inside.sum(axis=0) - 1.0, 1.0)


def _shortest_half(table: Array) -> tuple[Array, Array]:
    """Returns the middle of each sorted column's shortest half, and a robust deviation."""
    count, half = len(table), len(table) // 2 + 1
    widths = table[half - 1 :] - table[: count - half + 1]
    start, columns = widths.argmin(axis=0), np.arange(table.shape[1])
    low, high = table[start, columns], table[start + half - 1, columns]
    # The shortest half of a small sample is shorter than that of a large one.
    scale = (high - low) / (2 * _QUARTILE) * (1 + 5 / count)
    return (low + high) / 2, np.maximum(scale, 1e-9 * np.maximum(np.abs(low), 1.0))


def undisturbed(samples: Array) -> Array:
    """Replaces samples far from the middle of the shortest half by that middle.

    samples: shape (n, k); a row is one time in k parts, and columns are independent. Few parts are
    disturbed, but nearly every row has such a part. A deviation that a row's parts share stays.
    """
    if len(samples) < SAMPLES_MIN:
        return samples
    center, scale = _shortest_half(np.sort(samples, axis=0))
    cleaned: Array = np.where(np.abs(samples - center) < _TUKEY * scale, samples, center)
    return cleaned


def figure(samples: Array, low: int = 1, high: int = 1) -> Figure:
    """Returns the figure of a sample of shape (n,), n >= 1.

    low, high: smallest and largest message count of the sample. There is no figure with fewer than
    SAMPLES_MIN repetitions, or if half of the interval exceeds RELATIVE_MAX of the value.
    """
    means, errors, dof = locations(samples)
    residual = _MAD * float(np.median(np.abs(samples - np.median(samples))))
    if len(samples) < SAMPLES_MIN:
        reason = f"{len(samples)} samples: an interval needs {SAMPLES_MIN}"
        return Figure(None, len(samples), residual, low, high, reason)
    location = Estimate(float(means[0]), float(errors[0]), float(dof[0]))
    return supported(location, len(samples), residual, low, high)


def supported(
    estimate: Estimate, samples: int, residual: float, low: int = 1, high: int = 1
) -> Figure:
    """Returns the figure of a time, µs, or the reason against it."""
    reason, most = "", math.inf
    if estimate.high <= 0:
        reason = f"{estimate.value:.3g} µs is impossible: other work disturbed the bursts"
    elif estimate.relative > RELATIVE_MAX:
        reason, most = estimate.wide("µs"), estimate.high
    return Figure(None if reason else estimate, samples, residual, low, high, reason, most)
