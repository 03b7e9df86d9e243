"""Bulk transfers (P4, `Bulk-transfer microbenchmark`): os, or, g and L by size, T(n), BW(n).

Owns the choice of sizes, and the lines through the figures of all sizes. T(n) is the time from the
call until the reply of one transfer of n bytes. Its line is Hockney's T0 + n / R; the half-power
point T0 R is the size that reaches half of the rate R. One direction carries the data, the other a
small message. So L(n), with the other host's work, is T(n) minus os(n), or(n) and a small message.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from careful.errors import InputError
from careful.measure.endpoints.logp import Layer, LogP, Options, Result
from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import RELATIVE_MAX, Line, fit_line
from careful.measure.statistics.sample import Figure, supported

SIZES_MIN = 4
#: Least messages of a burst; each may be long.
_MESSAGES_MIN = 24


@dataclass(frozen=True)
class Bulk:
    """Transfers of one kind.

    kind: "store" or "get"; sizes_bytes: payload; results: the signature of each size; lines: os,
    or, g, L and T (P4's names) over size, µs, None with too few figures; half_power_bytes: None
    without a usable line of T.
    """

    kind: str
    sizes_bytes: list[int]
    results: list[Result]
    lines: dict[str, Line | None]
    half_power_bytes: Estimate | None

    def bandwidths(self) -> list[Estimate | None]:
        """Returns BW(n) = n / T(n) of each size, MB/s (P4 Figure 7)."""
        return [
            _bandwidth(size, result.rtt.estimate)
            for size, result in zip(self.sizes_bytes, self.results, strict=True)
        ]


def sizes_to(most: int, count: int) -> list[int]:
    """Returns `count` sizes up to `most` bytes, evenly spread: lines need large sizes too."""
    if count < SIZES_MIN:
        raise InputError(f"{count} sizes are too few for a line: give {SIZES_MIN} or more")
    if most < 8 * count:
        raise InputError(f"{most} bytes are too few for {count} sizes: give {8 * count} or more")
    return [8, *(round(most * k / (count - 1)) for k in range(1, count))]


def measure(
    kind: str,
    layer: Callable[[str, int], Layer],
    sizes_bytes: list[int],
    options: Options,
    trip: Figure,
    clock: Callable[[], float] = time.monotonic,
) -> Bulk:
    """Measures the signatures of all sizes; options.seconds is the time for all of them.

    trip: a small message's round trip.
    """
    each = Options(
        precision=options.precision,
        seconds=options.seconds / len(sizes_bytes),
        messages_min=_MESSAGES_MIN,
        messages_max=options.messages_max,
        only="signature",
    )
    results = [LogP(layer(kind, size), each, clock).run() for size in sizes_bytes]
    return read(kind, sizes_bytes, results, trip)


def read(kind: str, sizes_bytes: list[int], results: list[Result], trip: Figure) -> Bulk:
    """Fits lines through the figures of all sizes; trip: a small message's round trip."""
    results = [replace(result, L=_latency(result, trip)) for result in results]
    named = {
        "os": [result.os for result in results],
        "or": [result.or_ for result in results],
        "g": [result.g for result in results],
        "L": [result.L for result in results],
        "T": [result.rtt for result in results],
    }
    lines = {
        name: _line(sizes_bytes, [result.estimate for result in figures])
        for name, figures in named.items()
    }
    return Bulk(kind, sizes_bytes, results, lines, half_power(lines["T"]))


def _latency(result: Result, trip: Figure) -> Figure:
    """Returns L(n): T(n) minus os(n), or(n) and the time of a small message one way."""
    whole, os, or_ = result.rtt.estimate, result.os.estimate, result.or_.estimate
    if not (whole and os and or_ and trip.estimate):
        reasons = (result.rtt.reason, result.os.reason, result.or_.reason, trip.reason)
        return Figure(None, result.rtt.samples_count, reason=next(filter(None, reasons), ""))
    latency = whole - trip.estimate * 0.5 - os - or_
    return supported(latency, result.rtt.samples_count, result.rtt.residual)


def _bandwidth(size_bytes: int, T: Estimate | None) -> Estimate | None:
    """Returns MB/s (bytes per µs), with a first-order estimate of the error."""
    if T is None:
        return None
    rate = size_bytes / T.value
    return Estimate(rate, rate * T.se / T.value, T.dof, rate * T.slack / T.value)


def _line(sizes_bytes: list[int], estimates: list[Estimate | None]) -> Line | None:
    """Fits a line whose intervals are at least those of the figures."""
    known = [
        (size, estimate) for size, estimate in zip(sizes_bytes, estimates, strict=True) if estimate
    ]
    if len(known) < SIZES_MIN:
        return None
    halves = sorted(estimate.half for _, estimate in known)
    values = [estimate.value for _, estimate in known]
    return fit_line([size for size, _ in known], values, halves[len(halves) // 2])


def half_power(line: Line | None) -> Estimate | None:
    """Returns the size at which a line reaches twice its value at 0, bytes; None if unsupported.

    The size is middle / slope - middle_bytes. The errors of middle and slope are independent; their
    effect is computed to first order.
    """
    if line is None or not line.supported:
        return None
    slope, middle = line.slope_us_per_byte, line.middle_us
    ratio = middle.value / slope.value
    se = math.hypot(middle.se, ratio * slope.se) / slope.value
    slack = (middle.slack + ratio * slope.slack) / slope.value
    half_point = Estimate(ratio - line.middle_bytes, se, slope.dof, slack)
    return half_point if half_point.low > 0 and half_point.relative <= RELATIVE_MAX else None
