"""Plans without reassembly: the search for the best fixed size, ramp, or ramp up and down.

Takes candidates from the theorems (`fixed.py`, `ramp.py`), compares their exact latency, and rounds
the best to whole bytes. Sizes are float64 arrays, shape (k,).
"""

from __future__ import annotations

import functools
import math

import numpy as np

from careful.model.fixed import best_counts, segments
from careful.model.latency import fixed_latency_us, fragments_bound, latency_us
from careful.model.ramp import (
    Recurrence,
    count_grid,
    distinct,
    least,
    no_stall,
    ramps,
    ramps_up_and_down,
)
from careful.model.rounding import equal_sizes, whole_sizes
from careful.model.stages import Array, Pipeline
from careful.plan import Limits

#: Longest ramp that is searched, fragments; longer ramps are no better than fixed sizes.
RAMP_COUNT_MAX = 512
#: Lengths tried for each side of a ramp up and down in the coarse pass.
SIDE_POINTS = 20
#: Lengths at which each recurrence is tried first, and the number of recurrences refined.
RULE_POINTS = 8
RULES_KEPT = 3
#: Number of slowest stages on either side of a bottleneck that are tried as its partner.
PARTNERS = 2


def fixed_sizes(
    pipeline: Pipeline, message_bytes: float, limits: Limits, whole: bool, count: int | None = None
) -> Array:
    """Returns the best plan of equal sizes, or the plan of `count` fragments (P1 section 3).

    whole: whole bytes instead of real sizes. Sizes then differ by at most one byte, and the larger
    ones go to the end at which they cost less.
    """
    counts = (
        best_counts(pipeline, message_bytes, limits) if count is None else np.array([float(count)])
    )
    real_us = fixed_latency_us(pipeline, message_bytes, counts)
    if not whole:
        k = int(counts[np.argmin(real_us)])
        return np.full(k, message_bytes / k)
    # Rounding to bytes changes T by at most the cost of two bytes, so closer counts are compared
    # exactly.
    close = real_us <= real_us.min() + 2 * float(pipeline.G_us_per_byte.sum())
    if close.sum() == 1:
        k = int(counts[close][0])
        if int(message_bytes) % k == 0:
            return np.full(k, float(message_bytes // k))
    plans = [equal_sizes(int(message_bytes), int(k)).astype(np.float64) for k in counts[close]]
    return best_of(pipeline, [p for plan in plans for p in (plan, plan[::-1])])


def ramp_sizes(pipeline: Pipeline, message_bytes: float, limits: Limits, whole: bool) -> Array:
    """Returns the best rising or falling plan (P1 theorem 4), never worse than one fragment.

    Pairs each possible bottleneck with other stages. Falling ramps are the rising ramps of the
    reversed pipeline (P1 theorem 2). If the upper limit is below the message, ramps stop at the
    limit and hold it.
    """
    pipeline = pipeline.sequential()
    return _rounded(pipeline, _ramp(pipeline, message_bytes, limits), message_bytes, limits, whole)


@functools.lru_cache(maxsize=64)
def _ramp(pipeline: Pipeline, message_bytes: float, limits: Limits) -> Array:
    """Returns the best ramp in one direction, or equal sizes if no ramp is faster; real sizes."""
    fixed = fixed_sizes(pipeline, message_bytes, limits, False)
    counts = _counts(pipeline, message_bytes, limits, float(latency_us(pipeline, fixed)))
    plans_tried = [fixed]
    rules = _rules_both_ways(pipeline, message_bytes, float(fixed[0]))
    coarse = _thinned(counts, RULE_POINTS if len(rules) * len(counts) > 256 else len(counts))
    ranked: list[tuple[float, int, int, Recurrence, Array]] = []
    for step, rule in rules:
        plans = _below(ramps(rule, message_bytes, coarse, limits.min_bytes), limits)
        if len(plans):
            sizes, latency = least(pipeline, plans[:, ::step] if step < 0 else plans)
            ranked.append((latency, len(ranked), step, rule, sizes))
        plans_tried.extend(plan[::step] for plan in _capped(rule, None, message_bytes, limits))
    ranked.sort()
    for _, _, step, rule, sizes in ranked[:RULES_KEPT]:
        plans_tried.append(sizes)
        if len(coarse) < len(counts):
            k = len(sizes)
            near = counts[(counts >= k / 2) & (counts <= 2 * k)]
            near = _thinned(near, 2 * SIDE_POINTS)
            plans = _below(ramps(rule, message_bytes, near, limits.min_bytes), limits)
            if len(plans):
                plans_tried.append(least(pipeline, plans[:, ::step] if step < 0 else plans)[0])
    return best_of(pipeline, plans_tried)


def up_down_sizes(pipeline: Pipeline, message_bytes: float, limits: Limits, whole: bool) -> Array:
    """Returns the best plan that rises, then falls (P1 theorem 5), or a ramp in one direction.

    The bottleneck is that of the best fixed size; its partners are the slowest stages before and
    after it. Searches k1 and k2, coarsely first if there are many.
    """
    pipeline = pipeline.sequential()
    best = _up_down(pipeline, message_bytes, limits)
    return _rounded(pipeline, best, message_bytes, limits, whole)


@functools.lru_cache(maxsize=64)
def _up_down(pipeline: Pipeline, message_bytes: float, limits: Limits) -> Array:
    """Returns the best ramp up and down, or in one direction, or equal sizes; real sizes."""
    fixed = fixed_sizes(pipeline, message_bytes, limits, False)
    one_way = _ramp(pipeline, message_bytes, limits)
    plans_tried = [one_way]
    bound_us = float(latency_us(pipeline, one_way))
    most = int(_counts(pipeline, message_bytes, limits, bound_us)[-1])
    for up, down in _up_down_rules(pipeline, float(fixed[0])):
        sides = count_grid(most, SIDE_POINTS)
        k1, k2 = (grid.ravel() for grid in np.meshgrid(sides, sides))
        step = 2.0 if most > SIDE_POINTS else 0.0
        while True:
            fits = k1 + k2 - 1 <= most
            plans = ramps_up_and_down(up, down, message_bytes, k1[fits], k2[fits], limits.min_bytes)
            plans = _below(plans, limits)
            if len(plans) == 0:
                break
            sizes, _ = least(pipeline, plans)
            plans_tried.append(sizes)
            if step == 0:
                break
            step = 0.0
            peak = int(np.argmax(sizes))
            near = np.arange(-6.0, 7.0)
            k1, k2 = (
                grid.ravel() for grid in np.meshgrid(near + peak + 1, near + len(sizes) - peak)
            )
            good = (k1 >= 1) & (k2 >= 1)
            k1, k2 = k1[good], k2[good]
        plans_tried.extend(_capped(up, down, message_bytes, limits))
    return best_of(pipeline, plans_tried)


def best_of(pipeline: Pipeline, plans: list[Array]) -> Array:
    """Returns the plan of least latency among 1-d plans of any length."""
    padded = np.zeros((len(plans), max(len(plan) for plan in plans)))
    for row, plan in zip(padded, plans, strict=True):
        row[: len(plan)] = plan
    return plans[int(np.argmin(latency_us(pipeline, padded)))]


def _rounded(
    pipeline: Pipeline, best: Array, message_bytes: float, limits: Limits, whole: bool
) -> Array:
    """Rounds a plan to whole bytes if `whole`; equal sizes replace it if they are faster."""
    if not whole:
        return best
    equal = fixed_sizes(pipeline, message_bytes, limits, True)
    if np.ptp(best) <= 1:
        return equal
    return best_of(pipeline, [whole_sizes(best), equal])


def _thinned(counts: Array, points: int) -> Array:
    """Returns at most `points` of the ascending `counts`, in even ratios, ends included."""
    if len(counts) <= points:
        return counts
    places = distinct(np.round(np.geomspace(1, len(counts), points))).astype(np.intp) - 1
    thinned: Array = counts[places]
    return thinned


def _counts(pipeline: Pipeline, message_bytes: float, limits: Limits, bound_us: float) -> Array:
    """Returns lengths worth trying: within the limits, not ruled out by `fragments_bound`."""
    least_count, most = limits.counts(message_bytes)
    most = int(min(most, fragments_bound(pipeline, message_bytes, bound_us), RAMP_COUNT_MAX))
    return np.arange(min(least_count, max(most, 1)), max(most, 1) + 1, dtype=np.float64)


def _rules_both_ways(
    pipeline: Pipeline, message_bytes: float, size_bytes: float
) -> list[tuple[int, Recurrence]]:
    """Returns recurrences along the pipeline (1) and against it (-1) for bottleneck and partner.

    If the bottleneck is the later stage, sizes rise towards it; if it is the earlier stage, sizes
    fall away from it. Partners are the stages that could make the bottleneck wait: its neighbour
    and the slowest PARTNERS on either side, for fragments of `size_bytes`.
    """
    rules: dict[tuple[int, Recurrence], None] = {}
    for direction, line in ((1, pipeline), (-1, pipeline.reversed())):
        time_us = line.g_us + size_bytes * line.G_us_per_byte
        slowest = {
            segment.stage for segment in segments(line) if segment.low_bytes <= message_bytes
        }
        for b in sorted(slowest):
            for side, near in ((range(b), b - 1), (range(b + 1, len(line)), b + 1)):
                ranked = sorted(side, key=lambda j: -float(time_us[j]))
                partners = {*ranked[:PARTNERS], near} & set(side)
                for j in sorted(partners):
                    rule = no_stall(line, min(j, b), max(j, b))
                    if rule is not None:
                        rules[direction, rule] = None
    return list(rules)


def _up_down_rules(pipeline: Pipeline, size_bytes: float) -> list[tuple[Recurrence, Recurrence]]:
    """Returns recurrences on both sides of the bottleneck, with its slowest partner on each."""
    time_us = pipeline.g_us + size_bytes * pipeline.G_us_per_byte
    b = int(np.argmax(time_us))
    n = len(pipeline)
    if b == 0 or b == n - 1:
        return []
    before = int(np.argmax(time_us[:b]))
    after = b + 1 + int(np.argmax(time_us[b + 1 :]))
    up = no_stall(pipeline, before, b)
    down = no_stall(pipeline.reversed(), n - 1 - after, n - 1 - b)
    return [(up, down)] if up is not None and down is not None else []


def _below(plans: Array, limits: Limits) -> Array:
    if limits.max_bytes is None or len(plans) == 0:
        return plans
    kept: Array = plans[plans.max(axis=1) <= limits.max_bytes]
    return kept


def _capped(
    up: Recurrence, down: Recurrence | None, message_bytes: float, limits: Limits
) -> list[Array]:
    """Returns plans that rise to the upper limit, hold equal sizes there, and may fall again."""
    if limits.max_bytes is None or message_bytes <= limits.max_bytes:
        return []
    if message_bytes > limits.max_bytes * RAMP_COUNT_MAX:
        return []
    edges = np.geomspace(limits.min_bytes, limits.max_bytes, 24 if down is None else 8)
    plans = []
    for first in edges:
        head = _rise(up, float(first), limits.max_bytes)
        for last in edges if down is not None else edges[:1]:
            tail = _rise(down, float(last), limits.max_bytes) if down is not None else []
            rest = message_bytes - sum(head) - sum(tail)
            if rest < limits.min_bytes:
                continue
            k = math.ceil(rest / limits.max_bytes)
            if rest / k >= limits.min_bytes:
                plans.append(np.array(head + [rest / k] * k + tail[::-1]))
    return plans


def _rise(rule: Recurrence, first_bytes: float, max_bytes: float) -> list[float]:
    """Returns the sizes from `first_bytes` while they grow and stay below `max_bytes`."""
    sizes: list[float] = []
    size = first_bytes
    while size < max_bytes and len(sizes) < RAMP_COUNT_MAX:
        sizes.append(size)
        grown = size * rule.ratio + rule.step_bytes
        if grown <= size * 1.01:
            break
        size = grown
    return sizes
