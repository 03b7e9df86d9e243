"""Formats an estimate with as many digits as its interval supports."""

from __future__ import annotations

import math

from careful.measure.statistics.estimate import Estimate


def decimals(half: float) -> int:
    """Returns the digits after the point that give half of an interval two significant ones."""
    if not 0 < half < math.inf:
        return 3
    return min(max(0, 1 - math.floor(math.log10(half))), 6)


def with_half(estimate: Estimate | None) -> str:
    """Returns the value and half of its interval, or a dash."""
    if estimate is None:
        return "-"
    digits = decimals(estimate.half)
    return f"{estimate.value:.{digits}f} ±{estimate.half:.{digits}f}"


def or_most(estimate: Estimate | None, bound: Estimate | None) -> str:
    """Returns with_half(); of a figure that is withheld, its bound if there is one."""
    if estimate or bound is None or not 0 < bound.high < math.inf:
        return with_half(estimate)
    size = 10.0 ** min(decimals(bound.high), 3)
    return f"at most {math.ceil(bound.high * size) / size:g}"


def not_negative(estimate: Estimate | None) -> str:
    """Returns with_half() of a time whose estimate, a difference, may be negative by chance."""
    if estimate and estimate.value <= 0:
        return f"0 to {max(estimate.high, 0.0):.{decimals(estimate.half)}f}"
    return with_half(estimate)
