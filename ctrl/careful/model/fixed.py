"""Fragments of equal size: theorem 1 and the generalised bottleneck (P1 section 3).

Finds the best real k and the best whole number of fragments; `rounding.py` makes whole bytes.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from careful.model.latency import fixed_latency_us
from careful.model.stages import Array, Pipeline, check_message_bytes
from careful.plan import Limits, Plan


def optimal_size_bytes(message_bytes: float, g_b_us: float, G_others_us_per_byte: float) -> float:
    """Returns theorem 1's best fragment size, bytes: sqrt(B g_b / sum(other G)) (P1 eq. 6).

    Infinite when the other stages cost nothing per byte.
    """
    if G_others_us_per_byte <= 0:
        return math.inf
    return math.sqrt(message_bytes * g_b_us / G_others_us_per_byte)


def optimal_count(message_bytes: float, g_b_us: float, G_others_us_per_byte: float) -> float:
    """Returns theorem 1's best fragment count, real: sqrt(B sum(other G) / g_b) (P1 eq. 12).

    Infinite when the bottleneck has no overhead.
    """
    if g_b_us <= 0:
        return math.inf if G_others_us_per_byte > 0 else 1.0
    return math.sqrt(message_bytes * G_others_us_per_byte / g_b_us)


@dataclass(frozen=True)
class Segment:
    """A range of fragment sizes over which one stage is the bottleneck.

    stage: its index; low_bytes, high_bytes: the range, real, high may be infinite.
    """

    stage: int
    low_bytes: float
    high_bytes: float


@functools.lru_cache(maxsize=256)
def segments(pipeline: Pipeline) -> tuple[Segment, ...]:
    """Returns the bottleneck of every fragment size, smallest sizes first (P1 section 3.2).

    The upper envelope of the lines g_j + G_j x for x >= 0. Two segments meet at a transition point.
    Raises ValueError for shared resources that no closed form covers.
    """
    pipeline = pipeline.sequential()
    g, G = pipeline.g_us, pipeline.G_us_per_byte
    stage = int(np.lexsort((G, g))[-1])
    low = 0.0
    ranges: list[Segment] = []
    while True:
        steeper = np.flatnonzero(G[stage] < G)
        if len(steeper) == 0:
            ranges.append(Segment(stage, low, math.inf))
            return tuple(ranges)
        crossing = np.maximum((g[stage] - g[steeper]) / (G[steeper] - G[stage]), low)
        # If several lines cross in one point, the steepest continues.
        order = np.lexsort((-G[steeper], crossing))
        high = float(crossing[order[0]])
        if high > low:
            ranges.append(Segment(stage, low, high))
        stage, low = int(steeper[order[0]]), high


@dataclass(frozen=True)
class Candidate:
    """A point where the latency curve T(k) may have its minimum.

    k: real number of fragments; kind: "minimum" of a signature curve, "transition" or "end"; stage:
    index of the bottleneck at k (the slower stage at a transition); latency_us: T(k), P1 eq. 10.
    """

    k: float
    kind: str
    stage: int
    latency_us: float


def candidates(pipeline: Pipeline, message_bytes: float, k_max: float) -> list[Candidate]:
    """Returns the candidate minima of T(k) for real k in [1, k_max] (P1 3.2, Figure 2).

    The minimum of a signature curve counts only if its stage is the bottleneck there; the others
    are the false minima of Figure 2(b). The ends of the range are candidates too.
    """
    pipeline = pipeline.sequential()
    places = _places(pipeline, message_bytes, k_max)
    latency = fixed_latency_us(pipeline, message_bytes, [place[0] for place in places])
    return [
        Candidate(k, kind, stage, float(T))
        for (k, kind, stage), T in zip(places, latency, strict=True)
    ]


def _places(pipeline: Pipeline, message_bytes: float, k_max: float) -> list[tuple[float, str, int]]:
    total_G = float(pipeline.G_us_per_byte.sum())
    places: list[tuple[float, str, int]] = []
    for segment in segments(pipeline):
        b = segment.stage
        k = optimal_count(
            message_bytes, float(pipeline.g_us[b]), total_G - float(pipeline.G_us_per_byte[b])
        )
        k = min(max(k, 1.0), k_max)
        if segment.low_bytes <= message_bytes / k <= segment.high_bytes:
            places.append((k, "minimum", b))
        if segment.low_bytes > 0:
            k = message_bytes / segment.low_bytes
            if 1 <= k <= k_max:
                places.append((k, "transition", b))
    for k in (1.0, k_max):
        if all(k != place[0] for place in places):
            places.append((k, "end", pipeline.bottleneck(message_bytes / k)))
    return places


def best_counts(pipeline: Pipeline, message_bytes: float, limits: Limits) -> Array:
    """Returns whole fragment counts that contain the best one, ascending, shape (c,).

    Floor and ceiling of every candidate (P1 after equation 12), inside the limits. T(k) is the
    maximum of convex curves, hence convex, so no number between them is better.
    """
    check_message_bytes(message_bytes)
    least, most = limits.counts(message_bytes)
    real = [place[0] for place in _places(pipeline.sequential(), message_bytes, float(most))]
    whole = {min(max(f(k), least), most) for k in real for f in (math.floor, math.ceil)}
    return np.array(sorted(whole), dtype=np.float64)


def best_count(
    pipeline: Pipeline, message_bytes: float, limits: Limits | None = None
) -> tuple[int, float]:
    """Returns the best whole number of equal fragments, and its latency in µs (P1 3.1, 3.2).

    message_bytes: B, real, >= 1. Raises ValueError for a bad size or pipeline.
    """
    counts = best_counts(pipeline, message_bytes, limits or Limits())
    latency = fixed_latency_us(pipeline, message_bytes, counts)
    best = int(np.argmin(latency))
    return int(counts[best]), float(latency[best])


def class_plan(
    message_bytes: int, k: int, limits: Limits, latency_us: Callable[[float, int], float]
) -> Plan:
    """Returns fixed sizes for a class whose largest message is best cut into k fragments.

    The datapath cuts a message into the fewest equal fragments of at most the plan's size. Several
    sizes cut the largest message into k fragments. The returned size also gives a shorter message
    k fragments only if they are faster than k - 1.

    latency_us: latency of a message in this many fragments.
    """
    sizes = range(-(-message_bytes // k), (message_bytes - 1) // max(1, k - 1) + 1)

    def pays(size: int) -> bool:
        whole = size * (k - 1)
        return latency_us(whole, k) < latency_us(whole, k - 1)

    size = sizes[max(0, bisect(sizes, False, key=pays) - 1)] if k > 1 else message_bytes
    return Plan.fixed(min(size, limits.max_bytes or size))
