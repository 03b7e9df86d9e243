"""Bulk transfers (P4, `Bulk-transfer microbenchmark`): os(n), g(n), T(n), half-power point.

Owns the plan over sizes and the lines through what each size's signature says. T(n) is until
the reply of one transfer; its line is Hockney's T0 + n / R, whose half-power point T0 R is the
size at which half of the rate R is reached.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from careful.measure.estimators.logp import Layer, LogP, Options, Result
from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import RELATIVE_MAX, Line, fit_line

SIZES_MIN = 4
#: Messages of a burst, at least: each of them may be long.
_MESSAGES_MIN = 24


@dataclass(frozen=True)
class Bulk:
    """Transfers of one kind.

    kind: "store" or "get"; sizes_bytes: payload; results: the signature of each size; os, g,
    T: lines over size, µs, None with fewer figures than a line needs; half_power_bytes: None
    where T's line does not support one.
    """

    kind: str
    sizes_bytes: list[int]
    results: list[Result]
    os: Line | None
    g: Line | None
    T: Line | None
    half_power_bytes: Estimate | None


def sizes_to(most: int, count: int) -> list[int]:
    """So many sizes up to `most` bytes, evenly spread: lines need the large ones as well."""
    if count < SIZES_MIN or most < 8 * count:
        raise ValueError(f"{count} sizes up to {most} bytes: at least {SIZES_MIN}, 8 bytes apart")
    return [8, *(round(most * k / (count - 1)) for k in range(1, count))]


def measure(
    kind: str,
    layer: Callable[[str, int], Layer],
    sizes_bytes: list[int],
    options: Options,
    clock: Callable[[], float] = time.monotonic,
) -> Bulk:
    """The signatures of all sizes; options.seconds: for all of them together."""
    each = Options(
        precision=options.precision,
        seconds=options.seconds / len(sizes_bytes),
        messages_min=_MESSAGES_MIN,
        messages_max=options.messages_max,
        only="gap",
    )
    results = [LogP(layer(kind, size), each, clock).run() for size in sizes_bytes]
    return read(kind, sizes_bytes, results)


def read(kind: str, sizes_bytes: list[int], results: list[Result]) -> Bulk:
    """Lines through the figures of each size."""
    T = _line(sizes_bytes, [one.rtt.estimate for one in results])
    return Bulk(
        kind,
        sizes_bytes,
        results,
        _line(sizes_bytes, [one.os.estimate for one in results]),
        _line(sizes_bytes, [one.g.estimate for one in results]),
        T,
        half_power(T),
    )


def _line(sizes_bytes: list[int], estimates: list[Estimate | None]) -> Line | None:
    """The line through figures, as uncertain as they are themselves, however well they lie."""
    known = [(size, one) for size, one in zip(sizes_bytes, estimates, strict=True) if one]
    if len(known) < SIZES_MIN:
        return None
    halves = sorted(one.half for _, one in known)
    values = [one.value for _, one in known]
    return fit_line([size for size, _ in known], values, halves[len(halves) // 2])


def half_power(line: Line | None) -> Estimate | None:
    """Where a line reaches twice its value at 0, bytes; None where that is not supported.

    The middle and the slope of a line are independent: first-order errors of
    middle / slope - middle_bytes.
    """
    if line is None or not line.supported:
        return None
    slope, middle = line.slope_us_per_byte, line.middle_us
    ratio = middle.value / slope.value
    se = math.hypot(middle.se, ratio * slope.se) / slope.value
    slack = (middle.slack + ratio * slope.slack) / slope.value
    found = Estimate(ratio - line.middle_bytes, se, slope.dof, slack)
    return found if found.low > 0 and found.relative <= RELATIVE_MAX else None
