"""Derives plans that the datapath's tune map can express (plan.py) from the model's plans."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from careful.model.blackbox import BlackBox
from careful.model.eager import pulsed_us
from careful.model.fixed import best_count
from careful.model.fixed import class_plan as fixed_class_plan
from careful.model.flat import best_of, ramp_sizes, up_down_sizes
from careful.model.hierarchy import hierarchical
from careful.model.latency import fixed_latency_us, latency_us, staged_exit_times_us
from careful.model.planner import plan
from careful.model.stages import Array, Pipeline
from careful.plan import (
    CLASS_BYTES_FIRST,
    CLASS_COUNT,
    FRAME_LIMITS,
    Q16_ONE,
    U32_MAX,
    Limits,
    Plan,
)

#: Least gain over fixed sizes for which a ramp is written to the map.
RAMP_GAIN_MIN = 0.05
#: Sizes of a class over which a ramp and equal fragments are compared.
CLASS_SIZES = 16
#: Most fragments for which a ramp is derived: beyond it a ramp gains less than 1 %.
RAMP_FRAGMENTS_MAX = 96


@dataclass(frozen=True)
class ClassPlan:
    """The plan of a message-size class, and the cost of whole bytes and of only six numbers.

    `message_bytes`: the class's largest message, for which it is planned (twice the one before for
    the last class, which has no largest); `plan`: the map's entry; `latency_us`: of plan;
    `fixed_us`, `ramp_us`: best fixed size and best ramp that the map can express (no ramp is chosen
    if reassembly is faster); `flat_us`: best of all plans without reassembly, limits or whole
    bytes, the LP's excepted; `optimum_us`: the same with reassembly; `block_bytes`: bytes that
    stages outside every group gather before they start (their sink's minpulse, P1 section 4.3), 0
    without reassembly.
    """

    index: int
    message_bytes: int
    plan: Plan
    latency_us: float
    fixed_us: float
    ramp_us: float
    flat_us: float
    optimum_us: float
    block_bytes: int = 0

    @property
    def ramp_gain(self) -> float:
        """T_fixed / T_ramp - 1, as P1 counts improvements; 0 if reassembly is faster."""
        return 0.0 if self.block_bytes else self.fixed_us / self.ramp_us - 1

    @property
    def flat_loss(self) -> float:
        """T_plan / T_flat - 1: the cost of limits, whole bytes and six numbers.

        Negative if reassembly gains more than this cost.
        """
        return self.latency_us / self.flat_us - 1

    @property
    def loss(self) -> float:
        return self.latency_us / self.optimum_us - 1

    def as_dict(self) -> dict[str, object]:
        return {
            "class": self.index,
            "message_bytes_max": self.message_bytes,
            "plan": self.plan.as_dict(),
            "block_bytes": self.block_bytes,
            "latency_us": self.latency_us,
            "fixed_us": self.fixed_us,
            "ramp_us": self.ramp_us,
            "flat_us": self.flat_us,
            "optimum_us": self.optimum_us,
            "ramp_gain_percent": 100 * self.ramp_gain,
            "flat_loss_percent": 100 * self.flat_loss,
            "loss_percent": 100 * self.loss,
        }


def class_plan(
    pipeline: Pipeline,
    index: int,
    limits: Limits = FRAME_LIMITS,
    ramp_gain_min: float = RAMP_GAIN_MIN,
) -> ClassPlan:
    """Returns the plan of one class: fixed, or a ramp that gains at least `ramp_gain_min` for the
    largest message, and is not slower on average over the class.

    Raises ValueError for shared resources that no closed form covers.
    """
    message_bytes = CLASS_BYTES_FIRST << index
    fixed, fixed_us = fixed_plan(pipeline, message_bytes, limits)
    ramp_us = min(ramp_plan(pipeline, message_bytes, limits)[1], fixed_us)
    chosen, chosen_us, block = _for_class(pipeline, message_bytes, fixed, limits), fixed_us, 0
    if ramp := class_ramp(pipeline, message_bytes, limits, ramp_gain_min):
        chosen, chosen_us = ramp, ramp_us
    if any(stage.group for stage in pipeline.stages):
        reassembling = reassembling_plan(pipeline, message_bytes, limits)
        if reassembling[1] < chosen_us:
            chosen, chosen_us, block = reassembling
    flat = plan(pipeline, message_bytes, "best", whole=False, lp=False, reassembly=False)
    optimum = plan(pipeline, message_bytes, "best", whole=False, lp=False)
    return ClassPlan(
        index=index,
        message_bytes=message_bytes,
        plan=chosen,
        latency_us=chosen_us,
        fixed_us=fixed_us,
        ramp_us=ramp_us,
        flat_us=flat.latency_us,
        optimum_us=min(optimum.latency_us, flat.latency_us),
        block_bytes=block,
    )


def class_table(
    source: Pipeline | BlackBox, limits: Limits = FRAME_LIMITS, ramp_gain_min: float = RAMP_GAIN_MIN
) -> list[ClassPlan]:
    """Plans of all sixteen classes, smallest messages first; a black box gives fixed sizes."""
    if isinstance(source, BlackBox):
        return [_class_from_outside(source, i, limits) for i in range(CLASS_COUNT)]
    return [class_plan(source, i, limits, ramp_gain_min) for i in range(CLASS_COUNT)]


def _class_from_outside(box: BlackBox, index: int, limits: Limits) -> ClassPlan:
    """Plans a class from a black box, which covers fixed sizes only: all latencies are equal."""
    message_bytes = CLASS_BYTES_FIRST << index
    # The lower limit is for cut messages: a message below the limit goes as one fragment.
    within = Limits(min(limits.min_bytes, message_bytes), limits.max_bytes)
    best = box.plan(message_bytes, within)
    us = best.latency_us
    numbers = fixed_class_plan(message_bytes, best.fragments_count, limits, box.latency_us)
    return ClassPlan(index, message_bytes, numbers, us, us, us, us, us)


def fixed_plan(
    pipeline: Pipeline, message_bytes: int, limits: Limits = FRAME_LIMITS
) -> tuple[Plan, float]:
    """Returns the best fixed size, and its latency in µs."""
    k, _ = best_count(pipeline, message_bytes, limits)
    most = limits.max_bytes or U32_MAX
    sizes = {-(-message_bytes // count) for count in (k - 1, k, k + 1) if count > 0}
    allowed = sorted({min(max(size, limits.min_bytes), most) for size in sizes})
    plans = [Plan.fixed(size) for size in allowed]
    best = _best(pipeline, message_bytes, limits, plans)
    if best is None:
        # No number of fragments keeps both limits; the upper one, the frame's, must hold.
        best = _best(pipeline, message_bytes, Limits(1, limits.max_bytes), plans)
    assert best is not None
    return best


def _for_class(pipeline: Pipeline, message_bytes: int, fixed: Plan, limits: Limits) -> Plan:
    """Returns the fixed plan that cuts the largest message alike, and serves the whole class."""

    def cut_us(nbytes: float, k: int) -> float:
        return float(fixed_latency_us(pipeline, nbytes, [k])[0])

    return fixed_class_plan(message_bytes, len(fixed.sizes(message_bytes, limits)), limits, cut_us)


@lru_cache(4 * CLASS_COUNT)
def class_ramp(
    pipeline: Pipeline, message_bytes: int, limits: Limits, gain_min: float = RAMP_GAIN_MIN
) -> Plan | None:
    """Returns the ramp of a class, if it gains enough over equal fragments, as in class_plan()."""
    (fixed, fixed_us), (ramp, ramp_us) = (
        find(pipeline, message_bytes, limits) for find in (fixed_plan, ramp_plan)
    )
    equal = _for_class(pipeline, message_bytes, fixed, limits)
    pays = fixed_us / ramp_us - 1 >= gain_min
    return (
        ramp if pays and _class_share(pipeline, message_bytes, (ramp, equal), limits) <= 1 else None
    )


def _class_share(
    pipeline: Pipeline, message_bytes: int, plans: tuple[Plan, Plan], limits: Limits
) -> float:
    """Returns the first plan's latency as a share of the second's, mean over a class's sizes."""
    shares = []
    for size in np.linspace(message_bytes / 2 + 1, message_bytes, CLASS_SIZES, dtype=int).tolist():
        first, second = (
            latency_us(pipeline, np.array(one.sizes(size, limits), dtype=np.float64))
            for one in plans
        )
        shares.append(float(first / second))
    return float(np.mean(shares))


def reassembling_plan(
    pipeline: Pipeline, message_bytes: int, limits: Limits = FRAME_LIMITS
) -> tuple[Plan, float, int]:
    """Returns plan, latency in µs, bytes of a block: fixed frames in the groups, blocks outside.

    Both sizes come from the hierarchical plan (P1 section 4.3): a stage outside every group starts
    once a block or the message's tail has arrived. If that stage is the last, the block is its
    sink's minpulse, and the best minpulse is searched. When idle the sink takes all that is
    buffered (P3 section 3), so later blocks grow, as in a ramp.
    """
    hierarchy = hierarchical(pipeline, message_bytes, limits=limits)
    pipeline = pipeline.sequential()
    stages = pipeline.stages
    framed = next(j for j, stage in enumerate(stages) if stage.group)
    block = int(hierarchy.levels[0].sizes_bytes.max())
    frame = int(hierarchy.sizes_by_stage[framed].max())
    eager = [bool(stage.group) for stage in stages] == [True] * (len(stages) - 1) + [False]
    best: tuple[Plan, float, int] | None = None
    for size in sorted({frame, -(-block // max(1, round(block / frame)))}):
        numbers = Plan.fixed(min(max(size, limits.min_bytes), limits.max_bytes or U32_MAX))
        frames = np.array(numbers.sizes(message_bytes, limits), dtype=np.float64)
        if eager:
            latency, gathered_bytes = _eager(pipeline, frames)
        else:
            blocks = _gathered(frames, block)
            by_stage = [frames if stage.group else blocks for stage in stages]
            exits_us = staged_exit_times_us(pipeline, by_stage)
            latency, gathered_bytes = float(exits_us[-1][-1]), block
        if best is None or latency < best[1]:
            best = (numbers, latency, gathered_bytes)
    assert best is not None
    return best


def _eager(pipeline: Pipeline, frames: Array) -> tuple[float, int]:
    """Returns the least latency, µs, with eager pulses at the last stage, and the minpulse."""
    before = Pipeline(pipeline.stages[:-1])
    arrived_us = staged_exit_times_us(before, [frames] * len(before.stages))[-1]
    totals = np.cumsum(frames)
    last, G = pipeline.stages[-1], float(pipeline.G_us_per_byte[-1])
    best = (float("inf"), 0)
    for pulse in np.unique(totals):
        end_us = pulsed_us(totals.tolist(), arrived_us.tolist(), float(pulse), last.g_us, G)
        # Among equal pulses the largest wins: fewer writes.
        best = min(best, (end_us + last.delay_us, -int(pulse)))
    return best[0], -best[1]


def _gathered(frames: Array, block_bytes: int) -> Array:
    """Joins frames until they make a block; the last block is the rest."""
    blocks: list[float] = []
    open_bytes = 0.0
    for size in frames:
        open_bytes += size
        if open_bytes >= block_bytes:
            blocks.append(open_bytes)
            open_bytes = 0.0
    return np.array([*blocks, open_bytes] if open_bytes else blocks)


def ramp_plan(
    pipeline: Pipeline, message_bytes: int, limits: Limits = FRAME_LIMITS
) -> tuple[Plan, float]:
    """Returns the best ramp, up, down or both, that six numbers express, and its latency in µs.

    Starts from theorems 4 and 5, then varies the first size and the peak a little, because rounding
    changes the tail.
    """
    fixed = fixed_plan(pipeline, message_bytes, limits)
    if len(fixed[0].sizes(message_bytes, limits)) > RAMP_FRAGMENTS_MAX:
        return fixed
    plans = [fixed]
    for search in (ramp_sizes, up_down_sizes):
        sizes = search(pipeline, message_bytes, limits, False)
        if len(sizes) < 2 or np.ptp(sizes) <= 1:
            continue
        ramp = _best(pipeline, message_bytes, limits, _neighbours(from_sizes(sizes), limits))
        if ramp is not None:
            plans.append(ramp)
    return min(plans, key=lambda pair: pair[1])


def from_sizes(sizes_bytes: Array) -> Plan:
    """Returns the six numbers closest to a fragmentation that rises, falls, or both.

    A plan that only falls starts at its peak.
    """
    peak = int(np.argmax(sizes_bytes))
    ratio, step = _affine(sizes_bytes[: peak + 1])
    down_ratio, down_step = _affine(sizes_bytes[peak:])
    return Plan(
        first_bytes=max(1, round(float(sizes_bytes[0]))),
        ratio_q16=ratio,
        step_bytes=step,
        peak_bytes=max(1, round(float(sizes_bytes[peak]))),
        down_ratio_q16=down_ratio,
        down_step_bytes=down_step,
    )


def _affine(sizes: Array) -> tuple[int, int]:
    """Returns ratio (Q16) and step of x' = a x + b through a monotone run, both not negative.

    Recovers the theory's own a and b, which its sizes follow. If either is negative, the ratio
    through both ends replaces them.
    """
    if len(sizes) < 2:
        return Q16_ONE, 0
    if len(sizes) > 2 and np.ptp(sizes[:-1]) > 1e-6:
        ratio, step = np.polyfit(sizes[:-1], sizes[1:], 1)
        if ratio >= 0 and step >= 0:
            return min(round(float(ratio) * Q16_ONE), U32_MAX), round(float(step))
    growth = float(sizes[-1] / sizes[0]) ** (1 / (len(sizes) - 1))
    return min(round(growth * Q16_ONE), U32_MAX), 0


def _neighbours(start: Plan, limits: Limits) -> list[Plan]:
    """Returns plans with the first size and the peak varied by some percent.

    If a plan only falls, the peak is the first size, and the ratio varies instead.
    """
    most = limits.max_bytes or U32_MAX
    firsts = {round(start.first_bytes * (1 + move)) for move in np.linspace(-0.16, 0.16, 9)}
    allowed = [first for first in sorted(max(f, limits.min_bytes) for f in firsts) if first <= most]
    if start.first_bytes >= start.peak_bytes:
        ratios = [round(start.down_ratio_q16 * (1 + move)) for move in (-0.02, -0.01, 0.0, 0.01)]
        return [
            replace(start, first_bytes=first, peak_bytes=first, down_ratio_q16=min(ratio, U32_MAX))
            for first in allowed
            for ratio in ratios
        ]
    peaks = {round(start.peak_bytes * (1 + move)) for move in (-0.03, 0.0, 0.01, 0.06)}
    return [
        replace(start, first_bytes=first, peak_bytes=max(first, min(peak, most)))
        for first in allowed
        for peak in sorted(peaks)
    ]


def _best(
    pipeline: Pipeline, message_bytes: int, limits: Limits, plans: Iterable[Plan]
) -> tuple[Plan, float] | None:
    """Returns the fastest plan and its latency in µs.

    None if each has a fragment below the lower limit that is not the tail.
    """
    chosen: list[Plan] = []
    cut: list[Array] = []
    for candidate in plans:
        sizes = candidate.sizes_inside(message_bytes, limits)
        if sizes is not None:
            chosen.append(candidate)
            cut.append(np.array(sizes, dtype=np.float64))
    if not chosen:
        return None
    best = best_of(pipeline, cut)
    which = next(i for i, sizes in enumerate(cut) if sizes is best)
    return chosen[which], float(latency_us(pipeline, best))
