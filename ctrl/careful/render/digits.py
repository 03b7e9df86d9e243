"""Formats an estimate with as many digits as its interval supports."""

from __future__ import annotations

import math

from careful.measure.statistics.estimate import Estimate, at_most, decimals
from careful.units import time_unit


def estimate_figures(
    estimate: Estimate | None, name: str, unit: str, digits: int = 4
) -> dict[str, float | None]:
    """Returns a figure for JSON, with its interval; None if it is withheld."""
    return dict(estimate.figures(name, unit, digits)) if estimate else {f"{name}_{unit}": None}


def with_half(estimate: Estimate | None) -> str:
    """Returns the value and half of its interval, or a dash."""
    if estimate is None:
        return "-"
    digits = decimals(estimate.half)
    return f"{estimate.value:.{digits}f} ±{estimate.half:.{digits}f}"


def time_with_half(us: Estimate | None, axis_us: float, per: str = "") -> str:
    """Returns with_half() of a time in µs, in the unit of an axis that ends at axis_us.

    The time has its own unit if its digits would be lost; per: such as "/KiB".
    """
    if us is None:
        return "-"
    unit, size = time_unit(axis_us)
    if us.half < 1e-4 * size:
        unit, size = time_unit(us.value)
    return f"{with_half(us * (1 / size))} {unit}{per}"


def or_most(estimate: Estimate | None, bound: Estimate | None) -> str:
    """Returns with_half(), or "at most" the bound if the figure is withheld."""
    if estimate or bound is None or not 0 < bound.high < math.inf:
        return with_half(estimate)
    return at_most(bound.high)


def not_negative(estimate: Estimate | None) -> str:
    """Returns with_half() of a time. A time that is a difference may be negative by chance."""
    if estimate and estimate.value <= 0:
        return f"0 to {max(estimate.high, 0.0):.{decimals(estimate.half)}f}"
    return with_half(estimate)
