"""Piecewise lines: a change of regime is found by looking ahead.

Netgauge's rule (Hoefler et al., "LogGP in theory and practice"): a line ends where a fixed number
of points in a row leave it, so a single anomaly does not end a line. A line with almost no residual
would end at any noise; a least residual and a final test (do two lines fit better?) prevent that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from careful.measure.statistics.line import Array, Line, fit_line, median
from careful.measure.statistics.quantiles import f_quantile

#: Points that must leave a line before it ends, and least points of a line.
LOOK_AHEAD = 3
POINTS_MIN = 4
#: A point leaves the line if it is this many residuals away.
_LEAVES = 4.0
#: An anomaly counts as at most this many deviations of the noise.
_MOST = 6.0
#: Least residual, as a share of the data's times.
_FLOOR_RELATIVE = 1e-3
#: Probability of a false change of regime.
_CHANCE = 1e-4


@dataclass(frozen=True)
class Piecewise:
    """Lines over consecutive ranges of sizes, and the sizes at which the next line begins."""

    lines: tuple[Line, ...]
    transitions_bytes: tuple[float, ...]


def fit_piecewise(
    sizes_bytes: Sequence[float] | Array,
    times_us: Sequence[float] | Array,
    resolution_us: float = 0.0,
    look_ahead: int = LOOK_AHEAD,
) -> Piecewise:
    """Fits as few lines as needed through points of distinct sizes.

    sizes_bytes, times_us: shape (n,), n >= 1 (take minima or medians of a size first);
    resolution_us: as in `fit_line`, also the least residual. Raises ValueError like `fit_line`.
    """
    order = np.argsort(np.asarray(sizes_bytes, dtype=np.float64), kind="stable")
    sizes = np.asarray(sizes_bytes, dtype=np.float64)[order]
    times = np.asarray(times_us, dtype=np.float64)[order]
    floor_us = max(resolution_us, _FLOOR_RELATIVE * median(np.abs(times)))
    most_us = _MOST * max(noise_us(sizes, times), floor_us)
    edges = [0]
    while (edge := _end_of_line(sizes, times, edges[-1], most_us / _MOST, look_ahead)) is not None:
        edges.append(edge)
    edges = _refined(sizes, times, [*edges, len(sizes)], most_us)
    edges = _needed(sizes, times, edges, most_us)
    lines = tuple(
        fit_line(sizes[a:b], times[a:b], resolution_us, most_us / _MOST) for a, b in pairwise(edges)
    )
    transitions = tuple(
        _transition(before, after, float(sizes[edge - 1]), float(sizes[edge]))
        for before, after, edge in zip(lines, lines[1:], edges[1:-1], strict=False)
    )
    return Piecewise(lines, transitions)


def _end_of_line(
    sizes: Array, times: Array, start: int, noise: float, look_ahead: int
) -> int | None:
    """Returns the index of the first point that leaves the line from `start`, or None."""
    for end in range(start + POINTS_MIN, len(sizes) - POINTS_MIN + 1):
        line = fit_line(sizes[start:end], times[start:end], noise_us=noise)
        if line.points_count < 3:
            continue
        ahead = slice(end, min(end + look_ahead, len(sizes)))
        off = times[ahead] - np.array([line.at(size) for size in sizes[ahead]])
        # Adds the line's own error to the points' deviation.
        deviation = max(line.residual_us, noise)
        x = sizes[start:end]
        sway = (sizes[ahead] - x.mean()) / (x.std() * math.sqrt(len(x)))
        least = _LEAVES * deviation * np.sqrt(1 + sway**2)
        if len(off) == look_ahead and ((off > least).all() or (off < -least).all()):
            return end
    return None


def _deviations(sizes: Array, times: Array, most: float) -> Array:
    line = fit_line(sizes, times, noise_us=most / _MOST)
    return times - line.intercept_us.value - sizes * line.slope_us_per_byte.value


def noise_us(sizes: Array, times: Array) -> float:
    """Returns a robust deviation from the line through both neighbours; needs no regimes."""
    if len(sizes) < 3:
        return 0.0
    share = (sizes[1:-1] - sizes[:-2]) / (sizes[2:] - sizes[:-2])
    off = times[1:-1] - times[:-2] * (1 - share) - times[2:] * share
    off /= np.sqrt(1 + share**2 + (1 - share) ** 2)
    return 1.4826 * median(np.abs(off))


def _deviations_of_two(sizes: Array, times: Array, at: int, most: float) -> Array:
    left, right = (
        _deviations(sizes[:at], times[:at], most),
        _deviations(sizes[at:], times[at:], most),
    )
    return np.concatenate([left, right])


def _squares(off: Array, most: float) -> float:
    """Returns the sum of squares; each deviation counts at most `most`."""
    return float((np.minimum(np.abs(off), most) ** 2).sum())


def _refined(sizes: Array, times: Array, edges: list[int], most: float) -> list[int]:
    """Moves each inner edge to the best fit of its two lines, because looking ahead is late."""
    edges = list(edges)
    for k in range(1, len(edges) - 1):
        first, last = edges[k - 1], edges[k + 1]
        low = max(first + POINTS_MIN, edges[k] - 2 * POINTS_MIN)
        high = min(last - POINTS_MIN, edges[k] + 2 * POINTS_MIN)
        x, y = sizes[first:last], times[first:last]
        costs = {
            at: _squares(_deviations_of_two(x, y, at - first, most), most)
            for at in range(low, high + 1)
        }
        if costs:
            edges[k] = min(costs, key=costs.__getitem__)
    return edges


def _gain(sizes: Array, times: Array, at: int, most: float) -> float:
    """Returns the gain of two lines over one, relative to a chance gain of probability _CHANCE."""
    off = _deviations_of_two(sizes, times, at, most)
    one_line, two_lines = _squares(_deviations(sizes, times, most), most), _squares(off, most)
    freedom = max(len(sizes) - 5, 1)
    # An anomaly that neither fit explains must not favour one.
    usual = 1.4826 * median(np.abs(off)) * math.sqrt(len(off) / freedom)
    # Below the noise no fit is better than another.
    least = max(min(two_lines / freedom, usual**2), (most / _MOST) ** 2)
    ratio = (one_line - two_lines) / 3 / least
    return ratio / f_quantile(3, freedom, _CHANCE)


def _needed(sizes: Array, times: Array, edges: list[int], most: float) -> list[int]:
    """Keeps the edges that the data need (an F test); removes the least needed first."""
    edges = list(edges)
    while len(edges) > 2:
        gains = {
            k: _gain(
                sizes[edges[k - 1] : edges[k + 1]],
                times[edges[k - 1] : edges[k + 1]],
                edges[k] - edges[k - 1],
                most,
            )
            for k in range(1, len(edges) - 1)
        }
        least = min(gains, key=gains.__getitem__)
        if gains[least] > 1:
            break
        del edges[least]
        edges = _refined(sizes, times, edges, most)
    return edges


def _transition(before: Line, after: Line, last: float, first: float) -> float:
    """Returns the size at which `after` begins: a near crossing, else between the points."""
    bend = before.slope_us_per_byte.value - after.slope_us_per_byte.value
    middle = (last + first) / 2
    if not bend:
        return middle
    crossing = (after.intercept_us.value - before.intercept_us.value) / bend
    width = first - last
    return crossing if last - width <= crossing <= first + width else middle
