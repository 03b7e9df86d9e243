"""An estimate in words: as many digits as its interval supports. Calls nobody."""

from __future__ import annotations

import math

from careful.measure.statistics.estimate import Estimate


def decimals(half: float) -> int:
    """Digits after the point, so that half of an interval has two significant ones."""
    if not 0 < half < math.inf:
        return 3
    return min(max(0, 1 - math.floor(math.log10(half))), 6)


def with_half(estimate: Estimate | None) -> str:
    """The value and half of its interval, or a dash."""
    if estimate is None:
        return "-"
    digits = decimals(estimate.half)
    return f"{estimate.value:.{digits}f} ±{estimate.half:.{digits}f}"


def not_negative(estimate: Estimate | None) -> str:
    """The same of a time that may come out below 0 by chance, as a difference."""
    if estimate and estimate.value <= 0:
        return f"0 to {max(estimate.high, 0.0):.{decimals(estimate.half)}f}"
    return with_half(estimate)
