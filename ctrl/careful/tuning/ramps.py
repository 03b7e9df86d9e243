"""What fragments that are not equal take on a path that was seen from outside.

Owns the pipelines that a black box may stand for. P1's equation 13 needs equal fragments; of
others the first one's size counts before the bottleneck and the last one's behind it, and a black
box does not say which stages are where. So pipelines with its figures are drawn: bottlenecks as
measured, what is left over in stages that are nowhere slower, in any order. What a ramp takes in
them is an interval that is wider than what ramps gain: of 527 random pipelines there was none
for which a ramp was surely better than the best fixed size. Those that gain enough in many of
them are worth a try on live messages. Who knows the stages has `plan`. Pure. Calls model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from careful.model.blackbox import BlackBox, Regime
from careful.model.latency import latency_us
from careful.model.stages import KIB, Array, Limits, Pipeline, Stage
from careful.model.tunemap import RAMP_GAIN_MIN, TunePlan, ramp_plan

#: Stages beside the bottlenecks, at most more than there must be; attempts to draw their shares.
_MORE, _ATTEMPTS = 2, 20
#: Bottlenecks of two ranges that are this much alike are one, as a share.
_ALIKE = 0.1
_SIZE_BYTES = 4096.0  # where a range has no end
#: A ramp is worth a try that gains so much in so large a share of the pipelines, and another where
#: it does in so many more of them; ramps of a class at most, and pipelines that they are made for.
SHARE_MIN, MORE_MIN, RAMPS_MAX, _MADE_FOR = 0.25, 0.1, 3, 16


def rebuilt(boxes: Sequence[BlackBox]) -> tuple[Pipeline, ...]:
    """A pipeline for each of some black boxes, with its figures, in an order of its own."""
    random = np.random.default_rng(2)
    return tuple(_pipeline(box, random) for box in boxes)


def _pipeline(box: BlackBox, random: np.random.Generator) -> Pipeline:
    slow = list(_bottlenecks(box.regimes))
    g_us = max(0.0, box.sum_g_us - sum(one.g_b_us for one in slow))
    # As equation 13 counts them: what is beside a range's own bottleneck.
    G = slow[0].G_b_us_per_KiB + slow[0].sum_G_others_us_per_KiB
    G_us_per_KiB = max(0.0, G - sum(one.G_b_us_per_KiB for one in slow))
    costs = [(one.g_b_us, one.G_b_us_per_KiB) for one in slow]
    costs += _others(g_us, G_us_per_KiB, slow, random)
    random.shuffle(costs)
    return Pipeline(tuple(Stage(f"stage {k}", *cost) for k, cost in enumerate(costs)))


def _bottlenecks(regimes: Sequence[Regime]) -> Iterator[Regime]:
    """Those of the ranges, each stage once."""
    known: list[Regime] = []
    for one in regimes:
        if not any(_alike(one, other) for other in known):
            known.append(one)
            yield one


def _alike(one: Regime, other: Regime) -> bool:
    sizes = (64.0, _SIZE_BYTES)
    return all(
        abs(_us(one, size) - _us(other, size)) <= _ALIKE * _us(other, size) for size in sizes
    )


def _us(one: Regime, size_bytes: float) -> float:
    return one.g_b_us + one.G_b_us_per_KiB * size_bytes / KIB


def _others(
    g_us: float, G_us_per_KiB: float, slow: Sequence[Regime], random: np.random.Generator
) -> list[tuple[float, float]]:
    """Costs of the stages beside the bottlenecks: as many as there must be, or some more."""
    if g_us + G_us_per_KiB <= 0:
        return []
    sizes = (64.0, _SIZE_BYTES)
    most = [max(_us(one, size) for one in slow) for size in sizes]
    whole = [g_us + G_us_per_KiB * size / KIB for size in sizes]
    needed = max([1, *(math.ceil(w / m) for w, m in zip(whole, most, strict=True) if m > 0)])
    needed = min(needed, 16)
    count = needed + int(random.integers(0, _MORE + 1))
    for _ in range(_ATTEMPTS):
        shares = random.dirichlet(np.full(count, 2.0), size=2)
        costs = [(float(g_us * a), float(G_us_per_KiB * b)) for a, b in zip(*shares, strict=True)]
        if all(
            g + G * size / KIB <= limit
            for g, G in costs
            for size, limit in zip(sizes, most, strict=True)
        ):
            return costs
    return [(g_us / count, G_us_per_KiB / count)] * count


def latencies_us(
    pipelines: Sequence[Pipeline], message_bytes: int, plan: TunePlan, limits: Limits
) -> Array:
    """What a message takes, cut by a plan, in each pipeline, µs."""
    sizes = [float(size) for size in plan.sizes(message_bytes, limits)]
    return np.array([float(latency_us(one, sizes)) for one in pipelines])


def worth_a_try(
    pipelines: Sequence[Pipeline], message_bytes: int, fixed: Sequence[TunePlan], limits: Limits
) -> list[TunePlan]:
    """Ramps that may gain RAMP_GAIN_MIN over the best of some fixed sizes, by the stages' order.

    Each is the best of some order (P1 section 4.1): one that grows, or falls, or both.
    """
    made = {ramp_plan(one, message_bytes, limits)[0] for one in pipelines[:_MADE_FOR]}
    ramps = sorted((one for one in made if not one.is_fixed), key=lambda one: str(one.as_dict()))
    least_us = np.min(
        [latencies_us(pipelines, message_bytes, one, limits) for one in fixed], axis=0
    )
    gain = {
        one: least_us / latencies_us(pipelines, message_bytes, one, limits) - 1 >= RAMP_GAIN_MIN
        for one in ramps
    }
    found: list[TunePlan] = []
    gained = np.zeros(len(pipelines), dtype=bool)
    while gain and len(found) < RAMPS_MAX:
        best = max(gain, key=lambda one: np.mean(gain[one] & ~gained))
        if np.mean(gain[best] & ~gained) < (MORE_MIN if found else SHARE_MIN):
            break
        found.append(best)
        gained |= gain.pop(best)
    return found
