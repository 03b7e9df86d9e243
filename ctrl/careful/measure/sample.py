"""A figure from repetitions of which some were disturbed: trimmed mean, interval, residual.

Owns the location of a sample that the scheduler's outliers do not bend. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from careful.measure.estimate import Estimate
from careful.measure.line import RELATIVE_MAX, Array

#: Share of a sample that is left out at either end.
TRIM = 0.2
#: Fewer repetitions have no interval to speak of.
SAMPLES_MIN = 5
#: A median absolute deviation as a standard deviation.
_MAD = 1.4826


@dataclass(frozen=True)
class Figure:
    """What a figure is, and what it is worth.

    estimate: None where the sample does not support one, for the `reason`; samples_count:
    repetitions behind it; residual: robust standard deviation of one repetition, in the
    figure's unit; low_messages, high_messages: the range of messages for which it holds.
    """

    estimate: Estimate | None
    samples_count: int = 0
    residual: float = 0.0
    low_messages: int = 1
    high_messages: int = 1
    reason: str = ""

    @property
    def relative(self) -> float:
        """Half of the interval over the figure; infinite where there is none."""
        return self.estimate.relative if self.estimate else math.inf

    def figures(self, name: str, unit: str) -> dict[str, Any]:
        """For JSON: value and interval, sample count, residual, range."""
        found: dict[str, Any] = {f"{name}_{unit}": None}
        if self.estimate:
            found = self.estimate.figures(name, unit)
        return found | {
            f"{name}_samples_count": self.samples_count,
            f"{name}_residual_{unit}": round(self.residual, 4),
            f"{name}_low_messages": self.low_messages,
            f"{name}_high_messages": self.high_messages,
            f"{name}_reason": self.reason,
        }


def locations(samples: Array) -> tuple[Array, Array, int]:
    """Trimmed means and their standard errors, each column a sample.

    samples: shape (n,) or (n, k), n >= 1; returns means and errors of shape (k,) and the
    degrees of freedom (Tukey and McLaughlin 1963: the winsorized variance). With fewer than
    SAMPLES_MIN rows the errors are infinite. Raises ValueError for no rows.
    """
    table = np.sort(samples.reshape(len(samples), -1), axis=0)
    count = len(table)
    if not count:
        raise ValueError("no samples")
    cut = int(TRIM * count)
    means = table[cut : count - cut].mean(axis=0)
    if count < SAMPLES_MIN:
        return means, np.full(means.shape, np.inf), 1
    winsorized = np.clip(table, table[cut], table[count - cut - 1])
    left = count - 2 * cut
    errors = winsorized.std(axis=0, ddof=1) / (left / count * math.sqrt(count))
    return means, errors, left - 1


def figure(samples: Array, low: int = 1, high: int = 1) -> Figure:
    """The figure of a sample of shape (n,), n >= 1.

    low, high: its range, messages. There is no figure where the interval is wider than the
    data can support: fewer than SAMPLES_MIN repetitions, or RELATIVE_MAX of the value to
    either side.
    """
    means, errors, dof = locations(samples)
    residual = _MAD * float(np.median(np.abs(samples - np.median(samples))))
    if len(samples) < SAMPLES_MIN:
        reason = f"{len(samples)} samples: an interval needs {SAMPLES_MIN}"
        return Figure(None, len(samples), residual, low, high, reason)
    one = Estimate(float(means[0]), float(errors[0]), dof)
    return supported(one, len(samples), residual, low, high)


def supported(
    estimate: Estimate, samples: int, residual: float, low: int = 1, high: int = 1
) -> Figure:
    """The figure of a time, µs, or why there is none."""
    reason = ""
    if estimate.high <= 0:
        reason = f"{estimate.value:.3g} µs cannot be: other work came between the bursts"
    elif estimate.relative > RELATIVE_MAX:
        reason = f"the interval is wide: {estimate.low:.3g} to {estimate.high:.3g} µs"
    return Figure(None if reason else estimate, samples, residual, low, high, reason)
