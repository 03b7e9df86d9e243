"""A line through times over sizes, robust against the scheduler's outliers.

Owns minimum filtering and a robust regression: Theil and Sen's slope as a start, Tukey's bisquare
weights, Huber's covariance. Reports data that do not support a slope.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from careful.errors import InputError
from careful.measure.statistics.estimate import Estimate

Array = npt.NDArray[np.float64]

#: Tukey's constant: 95 % of least squares' efficiency without outliers.
_TUKEY = 4.685
#: Factor from a median absolute deviation to a standard deviation.
_MAD = 1.4826
#: With more points, Theil and Sen's slope uses only pairs half of the data apart.
_PAIRS_POINTS_MAX = 300
#: With at least this many arrivals, the first quarter of a train is left out.
_LONG_TRAIN = 32
#: With fewer arrivals only neighbours' gaps count: a late frame would change a third of all slopes.
_SHORT_TRAIN = 6
#: A slope is unsupported if half of its interval exceeds this share of the slope.
RELATIVE_MAX = 0.5
#: Other work delayed a frame if it took longer than _UNDELAYED times the quantile _QUICKEST of all.
_UNDELAYED, _QUICKEST = 1.1, 0.1


@dataclass(frozen=True)
class Line:
    """Time over size.

    `middle_us`, `middle_bytes`: the line's time at the mean size, most precise there and
    independent of the slope; `residual_us`: robust standard deviation of the points about the line;
    `points_count`: fitted points; `samples_count`: measurements behind them; `size_min_bytes`,
    `size_max_bytes`: range of the line; `reason`: why the data do not support a slope, or "".
    """

    middle_us: Estimate
    middle_bytes: float
    slope_us_per_byte: Estimate
    residual_us: float
    points_count: int
    samples_count: int
    size_min_bytes: float
    size_max_bytes: float
    reason: str = ""

    @property
    def supported(self) -> bool:
        return not self.reason

    def at(self, size_bytes: float) -> float:
        away_bytes = size_bytes - self.middle_bytes
        return self.middle_us.value + away_bytes * self.slope_us_per_byte.value

    def estimate_at(self, size_bytes: float) -> Estimate:
        time_us = self.middle_us + self.slope_us_per_byte * (size_bytes - self.middle_bytes)
        # Middle and slope have the same residuals, so their sum has no more freedom than either.
        return replace(time_us, dof=min(self.middle_us.dof, self.slope_us_per_byte.dof))

    @property
    def intercept_us(self) -> Estimate:
        return self.estimate_at(0)

    @property
    def G_us_per_KiB(self) -> Estimate:
        return self.slope_us_per_byte * 1024


def median(values: Array) -> float:
    """Returns the median like np.median, ten times faster for the few values here."""
    if not len(values):
        return math.nan
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def train_gap_us(arrivals_us: list[float]) -> float:
    """Returns the gap between the frames of a train.

    The gap is the median slope of all pairs of arrivals (Theil and Sen); in a short train, of
    neighbours. Raises ValueError for fewer than two arrivals.
    """
    times = np.sort(np.asarray(arrivals_us, dtype=np.float64))
    if len(times) < 2:
        raise InputError(f"a train needs two arrivals or more, not {len(times)}")
    if len(times) >= _LONG_TRAIN:
        times = times[len(times) // 4 :]  # the first frames waited until the other end awoke
    if len(times) < _SHORT_TRAIN:
        return median(np.diff(times))
    i, j = np.triu_indices(len(times), 1)
    return median((times[j] - times[i]) / (j - i))


def undelayed_most_us(times_us: Sequence[float] | Array) -> float:
    """Returns the longest of these times, µs, that other work did not delay."""
    return _UNDELAYED * float(np.quantile(times_us, _QUICKEST))


def minima(
    sizes_bytes: Sequence[float] | Array, times_us: Sequence[float] | Array
) -> tuple[Array, Array, npt.NDArray[np.int64]]:
    """Returns the least time of each size, without the delays of queues and schedulers (pathchar).

    Returns distinct sizes, ascending, their least times, and the number of times of each.
    """
    sizes, times = _data(sizes_bytes, times_us)
    distinct, inverse, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    least = np.full(distinct.shape, np.inf)
    np.minimum.at(least, inverse, times)
    return distinct, least, counts.astype(np.int64)


def fit_minima(
    sizes_bytes: Sequence[float] | Array,
    times_us: Sequence[float] | Array,
    resolution_us: float = 0.0,
) -> Line:
    """Fits a line through the minima; arguments and errors as in `fit_line`."""
    distinct, least, counts = minima(sizes_bytes, times_us)
    line = fit_line(distinct, least, resolution_us)
    return replace(line, samples_count=int(counts.sum()))


def widened(line: Line, repeated: Sequence[Line]) -> Line:
    """Widens a line's intervals to match its repetitions.

    A disturbance during a repetition moves all its points together, which residuals do not show.
    repeated: the same fit to each repetition. If their spread is wider than the error from the
    residuals, it replaces that error (a cluster-robust error).
    """
    known = [each for each in repeated if math.isfinite(each.slope_us_per_byte.se)]
    if len(known) < 2 or not math.isfinite(line.slope_us_per_byte.se):
        return line
    middle_us = _wider(line.middle_us, [each.at(line.middle_bytes) for each in known])
    slope = _wider(line.slope_us_per_byte, [each.slope_us_per_byte.value for each in known])
    wide = replace(line, middle_us=middle_us, slope_us_per_byte=slope)
    return replace(wide, reason=line.reason or _unsupported(slope))


def _wider(estimate: Estimate, repeated: Sequence[float]) -> Estimate:
    """Uses the standard error of the repetitions' mean if the interval becomes wider."""
    error = float(np.std(repeated, ddof=1)) / math.sqrt(len(repeated))
    other = replace(estimate, se=error, dof=len(repeated) - 1)
    return other if other.half > estimate.half else estimate


def fit_line(
    sizes_bytes: Sequence[float] | Array,
    times_us: Sequence[float] | Array,
    resolution_us: float = 0.0,
    noise_us: float = 0.0,
) -> Line:
    """Fits a robust line with 95 % intervals.

    sizes_bytes, times_us: shape (n,), n >= 1, finite.
    resolution_us: error of each time in one direction (a clock's step); widens the intervals.
    noise_us: a point with a smaller deviation is no outlier. (A few points may be on a line by
    chance, which would make the others look like outliers.)
    Raises ValueError for other data.
    """
    sizes, times = _data(sizes_bytes, times_us)
    count, distinct = len(sizes), np.unique(sizes)
    flat = Line(
        Estimate(median(times), 0.0, math.inf, math.inf),
        float(sizes.mean()),
        Estimate(0.0, 0.0, math.inf, math.inf),
        0.0,
        count,
        count,
        float(distinct[0]),
        float(distinct[-1]),
    )
    if len(distinct) < 3:
        return replace(flat, reason=f"{len(distinct)} sizes: a slope with an interval needs 3")
    beta, weights, scale = _reweighted(sizes, times, noise_us)
    residuals = times - beta[0] - beta[1] * sizes
    variance = _variance(residuals, scale)
    total_weight = float(weights.sum())
    if variance is None or total_weight < max(3.0, count / 2):
        return replace(flat, reason="most points are far from any line")
    dof = max(total_weight - 2, 1e-3)
    middle, width = float(sizes.mean()), float(sizes.std())
    slope_slack = 2 * resolution_us / float(distinct[-1] - distinct[0])
    line = replace(
        flat,
        middle_us=Estimate(
            float(beta[0] + beta[1] * middle), math.sqrt(variance / count), dof, resolution_us
        ),
        slope_us_per_byte=Estimate(
            float(beta[1]), math.sqrt(variance / count) / width, dof, slope_slack
        ),
        residual_us=_scale(residuals, times) if noise_us else scale,
    )
    return replace(line, reason=_unsupported(line.slope_us_per_byte))


def _unsupported(slope: Estimate) -> str:
    """Returns why the data do not support a slope, or ""."""
    G = slope * 1024
    if slope.high < 0:
        return f"time falls with size ({G.value:.3g} µs/KiB): the path changed"
    if slope.relative > RELATIVE_MAX:
        return G.wide("µs/KiB")
    return ""


def _data(
    sizes_bytes: Sequence[float] | Array, times_us: Sequence[float] | Array
) -> tuple[Array, Array]:
    sizes = np.asarray(sizes_bytes, dtype=np.float64)
    times = np.asarray(times_us, dtype=np.float64)
    if sizes.ndim != 1 or sizes.shape != times.shape:
        raise ValueError(f"sizes of shape {sizes.shape} and times of shape {times.shape}")
    if not len(sizes):
        raise ValueError("no measurements")
    if not (np.isfinite(sizes).all() and np.isfinite(times).all()):
        raise ValueError("sizes and times must be finite")
    return sizes, times


def _theil_sen(sizes: Array, times: Array) -> Array:
    """Returns the median slope of pairs, and the median intercept for it: shape (2,)."""
    if len(sizes) > _PAIRS_POINTS_MAX:
        order = np.argsort(sizes, kind="stable")
        half = len(order) // 2
        i, j = order[:half], order[-half:]
    else:
        i, j = np.triu_indices(len(sizes), 1)
    apart = sizes[j] != sizes[i]
    i, j = i[apart], j[apart]
    slope = median((times[j] - times[i]) / (sizes[j] - sizes[i]))
    return np.array([median(times - slope * sizes), slope])


def _scale(residuals: Array, times: Array) -> float:
    """Returns a robust standard deviation; never 0, so that exact data have weights."""
    tiny = 1e-12 * (float(np.abs(times).max()) or 1.0)
    # The fit has two parameters: the line passes through two points, whose residuals are 0, and is
    # closer to the others than the true line.
    spread = _MAD * median(np.sort(np.abs(residuals))[2:])
    return max(spread * math.sqrt(len(residuals) / max(len(residuals) - 2, 1)), tiny)


def _weighted(sizes: Array, times: Array, weights: Array) -> Array:
    """Returns intercept and slope by least squares; centred, to lose no digits."""
    total = float(weights.sum())
    x_mean, y_mean = float(weights @ sizes) / total, float(weights @ times) / total
    x = sizes - x_mean
    slope = float(weights @ (x * (times - y_mean))) / float(weights @ (x * x))
    return np.array([y_mean - slope * x_mean, slope])


def _reweighted(sizes: Array, times: Array, noise_us: float) -> tuple[Array, Array, float]:
    """Returns parameters, weights and scale of a bisquare regression from Theil and Sen's line."""
    beta = _theil_sen(sizes, times)
    scale = max(_scale(times - beta[0] - beta[1] * sizes, times), noise_us)
    weights = np.ones(len(times))
    for _ in range(30):
        u = (times - beta[0] - beta[1] * sizes) / (_TUKEY * scale)
        weights = np.where(np.abs(u) < 1, (1 - np.minimum(np.abs(u), 1) ** 2) ** 2, 0.0)
        weighted_sizes = sizes[weights > 0]
        if not weighted_sizes.size or weighted_sizes.min() == weighted_sizes.max():
            break  # no slope: the caller rejects so few weights
        refined = _weighted(sizes, times, weights)
        done = float(np.abs(refined - beta) @ np.array([1.0, sizes[-1]])) < 1e-6 * scale
        beta = refined
        if done:
            break
    return beta, weights, scale


def _variance(residuals: Array, scale: float) -> float | None:
    """Returns the variance of a point about a bisquare fit by Huber's asymptotics, or None."""
    count = len(residuals)
    u = residuals / (_TUKEY * scale)
    inside = np.abs(u) < 1
    psi = np.where(inside, u * (1 - u**2) ** 2, 0.0) * _TUKEY * scale
    slope = np.where(inside, (1 - u**2) * (1 - 5 * u**2), 0.0)
    mean = float(slope.mean())
    if mean <= 0.1:
        return None
    correction = 1 + 2 / count * float(slope.var()) / mean**2
    return correction**2 * float((psi**2).sum()) / max(count - 2, 1) / mean**2
