"""The linear program of P1 section 2: optimal among plans without reassembly.

For a given number of fragments the program is exact. Bounds on both sides leave a finite range of
numbers to search. scipy (the extra `plan`) is imported on first use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from careful.errors import InputError
from careful.extras import need
from careful.model.latency import fragments_bound, latency_us
from careful.model.stages import Array, Pipeline, check_message_bytes
from careful.plan import Limits

#: Ranges of up to this many lengths are searched one by one; longer ranges by narrowing.
EXHAUSTIVE_MAX = 48
#: Largest number of fragments that is searched. Beyond it, a solution takes seconds and gains less
#: than 1 % over ramps.
SEARCH_COUNT_MAX = 256


def lp_sizes(
    pipeline: Pipeline, message_bytes: float, k: int, limits: Limits | None = None
) -> Array:
    """Returns optimal sizes of exactly k fragments, bytes, shape (k,), real (P1 eq. 1 to 3).

    Minimises tau_{k-1,n-1}. Ignores the lower limit if k sizes at that limit exceed the message.
    Raises ValueError if k sizes at the upper limit do not hold the message, MissingExtraError
    without scipy.
    """
    need("scipy", "strategy lp")
    from scipy.optimize import linprog  # type: ignore[import-untyped,unused-ignore]
    from scipy.sparse import coo_array  # type: ignore[import-untyped,unused-ignore]

    pipeline = pipeline.sequential()
    limits = limits or Limits()
    check_message_bytes(message_bytes)
    if k < 1:
        raise InputError(f"{k} fragments: at least one is needed")
    n = len(pipeline)
    high = message_bytes if limits.max_bytes is None else limits.max_bytes
    low = min(float(limits.min_bytes), message_bytes / k)
    if k * high < message_bytes:
        raise InputError(f"{k} fragments of at most {high} bytes do not hold {message_bytes}")
    # HiGHS works best near 1: sizes are parts of the message, times parts of its latency.
    scale_us = float(latency_us(pipeline, np.full(k, message_bytes / k))) or 1.0
    g, G = pipeline.g_us / scale_us, pipeline.G_us_per_byte * message_bytes / scale_us
    # Unknowns: x_0..x_{k-1}, then tau_ij row by row. For each predecessor a constraint reads
    # predecessor + g_j + x_i G_j - tau_ij <= 0.
    fragment, stage = (index.ravel() for index in np.indices((k, n)))
    tau = k + np.arange(k * n)
    along, behind = np.flatnonzero(stage > 0), np.flatnonzero(fragment > 0)
    after = np.concatenate(([0], along, behind))
    before = np.concatenate((tau[along] - 1, tau[behind] - n))
    row = np.arange(len(after))
    matrix = coo_array(
        (
            np.concatenate((G[stage[after]], -np.ones(len(after)), np.ones(len(before)))),
            (
                np.concatenate((row, row, row[1:])),
                np.concatenate((fragment[after], tau[after], before)),
            ),
        ),
        shape=(len(after), k + k * n),
    ).tocsr()
    width = k + k * n
    cost = np.zeros(width)
    cost[-1] = 1.0
    total = coo_array((np.ones(k), (np.zeros(k, dtype=int), np.arange(k))), shape=(1, width))
    bounds = np.zeros((width, 2))
    bounds[:k] = (low / message_bytes, high / message_bytes)
    bounds[k:, 1] = np.inf
    message = ""
    solve: Any = linprog
    for method in ("highs", "highs-ds", "highs-ipm"):
        result = solve(
            cost,
            A_ub=matrix,
            b_ub=-g[stage[after]],
            A_eq=total.tocsr(),
            b_eq=[1.0],
            bounds=bounds,
            method=method,
        )
        if result.status == 0:
            sizes: Array = np.clip(result.x[:k] * message_bytes, low, high)
            sizes *= message_bytes / sizes.sum()
            return sizes
        message = str(result.message)
    raise InputError(f"the linear program for {k} fragments was not solved: {message}")


def best_lp_sizes(
    pipeline: Pipeline, message_bytes: float, start: Array, limits: Limits | None = None
) -> Array:
    """Returns optimal sizes for the best number of fragments, bytes, shape (k,).

    start: any feasible plan. Its latency bounds k from above (`fragments_bound`) and from below:
    the largest fragment has at least B/k bytes and crosses all stages, so T >= sum g + (B/k) sum G.
    Ranges over EXHAUSTIVE_MAX lengths are narrowed around the minimum of a coarse grid, because T
    over k had one valley in every case tried. A start of more than SEARCH_COUNT_MAX fragments is
    returned unchanged.
    """
    pipeline = pipeline.sequential()
    limits = limits or Limits()
    best = np.asarray(start, dtype=np.float64)
    best_us = float(latency_us(pipeline, best))
    tried: dict[int, float] = {}

    def attempt(k: int) -> None:
        nonlocal best, best_us
        if k in tried:
            return
        sizes = lp_sizes(pipeline, message_bytes, k, limits)
        tried[k] = float(latency_us(pipeline, sizes))
        if tried[k] < best_us:
            best, best_us = sizes, tried[k]

    low, high = _range(pipeline, message_bytes, best_us, limits)
    if low > SEARCH_COUNT_MAX or len(best) > SEARCH_COUNT_MAX:
        return best
    attempt(len(best))
    low, high = _range(pipeline, message_bytes, best_us, limits)
    if high - low < EXHAUSTIVE_MAX:
        # Outwards from the start, because every success tightens the range.
        for k in sorted(range(low, high + 1), key=lambda k: abs(k - len(start))):
            low, high = _range(pipeline, message_bytes, best_us, limits)
            if low <= k <= high:
                attempt(k)
        return best
    for k in np.unique(np.round(np.geomspace(low, high, 9)).astype(int)):
        attempt(int(k))
    narrowed(tried, attempt)
    return best


def narrowed(tried: dict[int, float], attempt: Callable[[int], object]) -> int:
    """Tries counts halfway from the fastest to its neighbours until none is left; returns the best.

    tried: latency by count; `attempt` adds to it.
    """
    while True:
        valley = min(tried, key=lambda k: tried[k])
        left = max((k for k in tried if k < valley), default=valley)
        right = min((k for k in tried if k > valley), default=valley)
        middles = sorted({(left + valley) // 2, (valley + right + 1) // 2} - set(tried))
        if not middles:
            return valley
        for k in middles:
            attempt(k)


def _range(
    pipeline: Pipeline, message_bytes: float, bound_us: float, limits: Limits
) -> tuple[int, int]:
    """Returns the least and the greatest k whose plans could beat `bound_us`."""
    least, most = limits.counts(message_bytes)
    most = int(min(most, fragments_bound(pipeline, message_bytes, bound_us), SEARCH_COUNT_MAX))
    spare_us = bound_us - pipeline.delay_us - float(pipeline.g_us.sum())
    if spare_us > 0:
        least = max(
            least, math.ceil(message_bytes * float(pipeline.G_us_per_byte.sum()) / spare_us - 1e-9)
        )
    return min(least, most), max(least, most)
