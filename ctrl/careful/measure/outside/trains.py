"""Bottlenecks from trains: one for each range of fragment sizes, and the transitions.

Owns the piecewise regression of gaps over sizes, and the bisection that finds a transition between
two measured sizes (P1 section 5.3.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import Line, fit_line, median, widened
from careful.measure.statistics.piecewise import Piecewise, fit_piecewise

#: Sufficient width of a transition, as a share of its size.
TRANSITION_WIDTH = 0.01
#: A gap that is above both lines by this share belongs to a third stage.
_HIDDEN = 0.01
#: A gap shows which of two lines it is on only if the lines are this many residuals apart.
_APART = 4.0


@dataclass(frozen=True)
class Regime:
    """A range of fragment sizes with one bottleneck.

    low_bytes, high_bytes: the range; g_b_us, G_b_us_per_KiB: of the bottleneck, None if the data do
    not support a slope; line: gaps over sizes, its samples the trains.
    """

    low_bytes: float
    high_bytes: float
    g_b_us: Estimate | None
    G_b_us_per_KiB: Estimate | None
    line: Line


def bottlenecks(rounds: list[dict[int, float]], resolution_us: float) -> list[Regime]:
    """Finds the bottleneck of each range of sizes.

    rounds: for each round, the gap of a train, µs, by size in bytes.
    """
    sizes = sorted({size for gaps in rounds for size in gaps})
    medians = [median(np.array([gaps[size] for gaps in rounds if size in gaps])) for size in sizes]
    pieces: Piecewise = fit_piecewise(sizes, medians, resolution_us)
    edges = [float(sizes[0]), *pieces.transitions_bytes, float(sizes[-1])]
    regimes = []
    for line, low, high in zip(pieces.lines, edges, edges[1:], strict=False):
        inside = [size for size in sizes if line.size_min_bytes <= size <= line.size_max_bytes]
        alone = [
            fit_line(
                [size for size in inside if size in gaps],
                [gaps[size] for size in inside if size in gaps],
            )
            for gaps in rounds
            # few sizes give no useful slope
            if 2 * sum(size in gaps for size in inside) >= len(inside)
        ]
        trains = sum(size in gaps for gaps in rounds for size in inside)
        wide = replace(widened(line, alone), samples_count=trains)
        g, G = (wide.intercept_us, wide.G_us_per_KiB) if wide.supported else (None, None)
        regimes.append(Regime(low, high, g, G, wide))
    return regimes


def without_bunches(regime: Regime, trains: Sequence[int], bunches: Sequence[int]) -> Regime:
    """Withholds the regime's figures if most of its trains arrived all at once.

    trains, bunches: sizes of all trains, and of trains that arrived all at once, bytes. Such a
    train shows when the other end woke up, not the bottleneck's time.
    """
    line = regime.line
    sent, bunched = (
        sum(line.size_min_bytes <= size <= line.size_max_bytes for size in sizes)
        for sizes in (trains, bunches)
    )
    if 2 * bunched < sent:
        return regime
    reason = f"in {bunched} of {sent} trains all frames arrived at once"
    unknown = replace(line.slope_us_per_byte, slack=math.inf)
    withheld = replace(line, reason=reason, slope_us_per_byte=unknown)
    return replace(regime, g_b_us=None, G_b_us_per_KiB=None, line=withheld)


def bisected(regimes: Sequence[Regime], gap_at: Callable[[int], float]) -> list[Regime]:
    """Locates each transition by halving the range between two known sizes.

    gap_at: measures the gap, µs, of a train of a size, bytes. Near a crossing of two lines, a gap
    does not show on which line it is; then the crossing is the transition. If the second line
    begins with a step, gaps show that, and the crossing means nothing.
    """
    located = list(regimes)
    for k, (low, high) in enumerate(pairwise(regimes)):
        edge = _transition(low, high, gap_at)
        located[k] = replace(located[k], high_bytes=edge)
        located[k + 1] = replace(located[k + 1], low_bytes=edge)
    return located


def hidden(regimes: Sequence[Regime], gap_at: Callable[[int], float]) -> list[float]:
    """Returns transitions, bytes, at which a third stage is the bottleneck.

    The gap is the maximum of all stages' times. At a crossing of two lines the gap is on both
    lines, unless a third stage is slower at nearby sizes. gap_at: as for `bisected`.
    """
    transitions = []
    for low, high in pairwise(regimes):
        size_bytes = low.high_bytes
        lines_us = max(low.line.at(size_bytes), high.line.at(size_bytes))
        noise_us = max(low.line.residual_us, high.line.residual_us)
        if gap_at(round(size_bytes)) > lines_us * (1 + _HIDDEN) + _APART * noise_us:
            transitions.append(size_bytes)
    return transitions


def _transition(low: Regime, high: Regime, gap_at: Callable[[int], float]) -> float:
    last, first = low.line.size_max_bytes, high.line.size_min_bytes
    noise_us = max(low.line.residual_us, high.line.residual_us)
    while first - last > max(TRANSITION_WIDTH * first, 2):
        middle = round((last + first) / 2)
        below_us, above_us = low.line.at(middle), high.line.at(middle)
        if abs(below_us - above_us) < _APART * noise_us:
            return low.high_bytes
        gap_us = gap_at(middle)
        if abs(gap_us - below_us) < abs(gap_us - above_us):
            last = middle
        else:
            first = middle
    return low.high_bytes if last <= low.high_bytes <= first else (last + first) / 2
