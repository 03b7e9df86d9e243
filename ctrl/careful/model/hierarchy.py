"""Hierarchical fragmentation: compound stages and the recursion of P1 sections 4.3, 4.4.

A level is a short pipeline of stages and compound stages. A compound stage is approximated by one
(g, G) over the range of sizes that the level uses; the range is narrowed until it no longer
changes. Plans are then evaluated exactly, without the approximation.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from careful.errors import InputError
from careful.model.flat import fixed_sizes, ramp_sizes, up_down_sizes
from careful.model.latency import latency_of_times_us, latency_us, staged_exit_times_us
from careful.model.stages import KIB, Array, Pipeline, Stage, check_message_bytes
from careful.plan import Limits

#: Levels of compound stages that are formed without a `group`.
AUTOMATIC_DEPTH_MAX = 2
#: Without a `group`, a range is split only if one stage is this much slower than the rest (P1
#: section 4.4: fixed sizes for comparable speeds, a hierarchy for one slow stage).
SPLIT_RATIO = 1.5
#: Passes of the narrowing; three or four reach the fixed point to 0.1 %.
NARROWING_PASSES = 3
#: Narrowing ends when the approximated costs change by less than this part.
ALIKE = 5e-3
#: Most distinct sizes in a level's blocks; longer ramps gain less than a percent.
BLOCK_SIZES_MAX = 24

BASES: dict[str, Callable[[Pipeline, float, Limits, bool], Array]] = {
    "fixed": fixed_sizes,
    "ramp": ramp_sizes,
    "ramp-up-down": up_down_sizes,
}


@dataclass(frozen=True)
class Element:
    """A stage of one level, or a compound stage made of elements.

    first, last: range of stage indices [first, last) in the whole pipeline.
    """

    name: str
    first: int
    last: int
    inner: tuple[Element, ...] = ()


@dataclass
class Level:
    """One level of a hierarchical plan, for tables.

    `name`: group, "" for the top; `first`, `last`: its stages, [first, last) of the pipeline;
    `elements`: names in order; `sizes_bytes`: its fragments for the whole message, shape (k,);
    `approximated`: the (g, G) of each element, as a pipeline.
    """

    name: str
    first: int
    last: int
    elements: tuple[str, ...]
    strategy: str
    sizes_bytes: Array
    approximated: Pipeline


@dataclass
class Hierarchy:
    """A hierarchical plan: sizes of every stage, its latency, and its levels, top first.

    latency_us: exact, from the sizes of every stage; compound_us: the latency of P1's model
    (section 4.3.1), in which a compound stage takes no block before its last stage has finished the
    previous block. The model is never below the exact latency.
    """

    latency_us: float
    compound_us: float
    sizes_by_stage: list[Array]
    levels: list[Level] = field(default_factory=list)


#: Plans of compound stages by base strategy, element, size and whether in whole bytes. Calls of
#: `hierarchical` that differ only in `message_bytes` and `top` may share a cache.
Cache = dict[tuple[str, Element, float, bool], Hierarchy]


@dataclass(frozen=True)
class _Context:
    pipeline: Pipeline
    top: str
    inner: str
    limits: Limits
    whole: bool
    grouped: bool
    as_modelled: bool
    cache: Cache
    parts: dict[tuple[int, int], Pipeline]


def hierarchical(
    pipeline: Pipeline,
    message_bytes: float,
    top: str = "fixed",
    inner: str = "fixed",
    limits: Limits | None = None,
    whole: bool = True,
    as_modelled: bool = False,
    cache: Cache | None = None,
) -> Hierarchy:
    """Returns the best hierarchical plan (P1 4.3; with top "ramp-up-down" the plan of 4.4).

    Compound stages are the pipeline's groups. Without groups, the stages before and after the
    bottleneck form one each, recursively.
    top, inner: "fixed", "ramp" or "ramp-up-down" at the top level and at those below.
    limits: bound the fragments inside compound stages; a stage outside every group takes
    reassembled blocks of any size. Without groups they bound all fragments.
    as_modelled: minimise `compound_us`, like the paper's figures, instead of `latency_us`.
    cache: from earlier calls that differ only in `message_bytes` and `top`.
    Raises ValueError for a group whose stages are not neighbours or that has the name of a stage
    next to it, for shared resources, a bad size or an unknown base.
    """
    check_message_bytes(message_bytes)
    for base in (top, inner):
        if base not in BASES:
            raise InputError(f"unknown strategy of a level '{base}': choose {', '.join(BASES)}")
    pipeline = pipeline.sequential()
    grouped = any(stage.group for stage in pipeline.stages)
    if grouped:
        root = Element("", 0, len(pipeline), _grouped(pipeline, 0, len(pipeline), 0))
    else:
        size = fixed_sizes(pipeline, message_bytes, limits or Limits(), False)[0]
        root = _split(pipeline, 0, len(pipeline), float(size), 0, "")
    cache = {} if cache is None else cache
    bounds = limits or Limits()
    context = _Context(pipeline, top, inner, bounds, whole, grouped, as_modelled, cache, {})
    return _solve(context, root, message_bytes)


def _grouped(pipeline: Pipeline, first: int, last: int, depth: int) -> tuple[Element, ...]:
    """Returns a level's elements: runs of stages whose group path agrees at this depth."""

    def key(j: int) -> str:
        path = pipeline.stages[j].group.split("/") if pipeline.stages[j].group else []
        return "/".join(path[: depth + 1]) if len(path) > depth else f"\0{j}"

    elements: list[Element] = []
    for label, run in itertools.groupby(range(first, last), key):
        stages = list(run)
        if label.startswith("\0"):
            elements.append(Element(pipeline.stages[stages[0]].name, stages[0], stages[-1] + 1))
            continue
        if any(element.name == label and element.inner for element in elements):
            raise InputError(f"the stages of group '{label}' are not neighbours")
        low, high = stages[0], stages[-1] + 1
        elements.append(Element(label, low, high, _grouped(pipeline, low, high, depth + 1)))
    names = [element.name for element in elements]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"group '{name}' has the name of a stage next to it")
    return tuple(elements)


def _split(
    pipeline: Pipeline, first: int, last: int, size_bytes: float, depth: int, name: str
) -> Element:
    """Returns the compound stages before and after the bottleneck of a range (P1 section 4.4)."""
    if last - first == 1:
        leaf = Element(pipeline.stages[first].name, first, last)
        return leaf if depth else Element(name, first, last, (leaf,))
    time_us = pipeline.g_us + size_bytes * pipeline.G_us_per_byte
    b = first + int(np.argmax(time_us[first:last]))
    slower, slowest = np.sort(time_us[first:last])[-2:]
    comparable = slowest < SPLIT_RATIO * slower
    if comparable or depth >= AUTOMATIC_DEPTH_MAX or last - first == 2:
        ranges = [(j, j + 1) for j in range(first, last)]
    else:
        ranges = [(first, b), (b, b + 1), (b + 1, last)]
    inner = tuple(
        _split(pipeline, low, high, size_bytes, depth + 1, _span_name(pipeline, low, high))
        for low, high in ranges
        if high > low
    )
    return Element(name, first, last, inner)


def _span_name(pipeline: Pipeline, first: int, last: int) -> str:
    return f"{pipeline.stages[first].name} … {pipeline.stages[last - 1].name}"


def _solve(context: _Context, element: Element, message_bytes: float) -> Hierarchy:
    base = context.top if element.name == "" else context.inner
    known = (base, element, round(message_bytes, 6), context.whole)
    if known not in context.cache:
        context.cache[known] = _solve_new(context, element, message_bytes)
    return context.cache[known]


def _solve_new(context: _Context, element: Element, message_bytes: float) -> Hierarchy:
    place = (element.first, element.last)
    if place not in context.parts:
        context.parts[place] = Pipeline(context.pipeline.stages[element.first : element.last])
    own = context.parts[place]
    if not element.inner:
        time_us = float(own.stages[0].time_us(message_bytes) + own.delay_us)
        return Hierarchy(time_us, time_us, [np.array([message_bytes])])
    base = context.top if element.name == "" else context.inner
    limits = context.limits if element.name or not context.grouped else Limits()
    if not any(part.inner for part in element.inner):
        sizes_flat = BASES[base](own, message_bytes, limits, context.whole)
        return _flat(own, element, base, sizes_flat)
    plans = [
        _assemble(context, element, base, own, sizes, level)
        for sizes, level in _proposals(context, element, base, message_bytes, limits)
    ]
    if not context.grouped:
        # P1 section 4.4 does not say when to split; do not split if the undivided level is faster.
        flat = BASES[base](own, message_bytes, limits, context.whole)
        plans.append(_flat(own, element, base, flat))
    return min(plans, key=lambda plan: plan.compound_us if context.as_modelled else plan.latency_us)


def _proposals(
    context: _Context, element: Element, base: str, message_bytes: float, limits: Limits
) -> list[tuple[Array, Pipeline]]:
    """Returns a level's fragmentations, with the approximated level each was found for."""
    proposals: dict[tuple[float, ...], tuple[Array, Pipeline]] = {}
    for strategy in dict.fromkeys((base, "fixed")):
        low, high = message_bytes / 16, float(message_bytes)
        level, sizes = _approximated(context, element, low, high), np.zeros(0)
        for narrowed in range(NARROWING_PASSES):
            if narrowed:
                before, level = level, _approximated(context, element, low, high)
                if _alike(before, level):
                    break
            sizes = BASES[strategy](level, message_bytes, limits, context.whole)
            # A secant needs two different sizes.
            low, high = float(sizes.min()) / 1.05, float(sizes.max()) * 1.05
        proposals[tuple(sizes)] = (sizes, level)
    # The approximation may be off by one fragment; the exact latency decides.
    k = len(sizes)
    least, most = limits.counts(message_bytes)
    for near in {max(k - 1, least), min(k + 1, most)} - {k}:
        near_sizes = fixed_sizes(level, message_bytes, limits, context.whole, near)
        proposals.setdefault(tuple(near_sizes), (near_sizes, level))
    # Each distinct size needs a plan of its own on the level below, so long ramps are dropped.
    return [pair for pair in proposals.values() if len(set(pair[0])) <= BLOCK_SIZES_MAX]


def _alike(first: Pipeline, second: Pipeline) -> bool:
    return np.allclose(first.g_us, second.g_us, rtol=ALIKE) and np.allclose(
        first.G_us_per_byte, second.G_us_per_byte, rtol=ALIKE
    )


def _approximated(context: _Context, element: Element, low: float, high: float) -> Pipeline:
    """Returns the level with each compound stage as one (g, G): its secant over [low, high].

    The line goes through both ends and is not a regression: the smallest and the largest size in
    use then meet the no-stall condition exactly.
    """
    low = max(low, 1.0)
    high = max(high, low + 1.0)
    # Allow real sizes: rounding would bend the line.
    context = replace(context, whole=False)
    stages = []
    for inner in element.inner:
        if not inner.inner:
            stages.append(context.pipeline.stages[inner.first])
            continue
        at_low, at_high = (_solve(context, inner, size).compound_us for size in (low, high))
        G = (at_high - at_low) / (high - low)
        stages.append(Stage(inner.name, max(at_low - G * low, 0.0), max(G, 0.0) * KIB))
    return Pipeline(tuple(stages))


def _assemble(
    context: _Context,
    element: Element,
    base: str,
    own: Pipeline,
    sizes: Array,
    approximated: Pipeline,
) -> Hierarchy:
    """Refines each fragment inside the compound stages, and evaluates the plan exactly."""
    by_stage: list[Array] = []
    below: list[Level] = []
    times_us: list[Array] = []
    for inner in element.inner:
        if not inner.inner:
            by_stage.append(sizes)
            stage = context.pipeline.stages[inner.first]
            times_us.append(stage.g_us + sizes * stage.G_us_per_KiB / KIB)
            continue
        plans = [_solve(context, inner, float(size)) for size in sizes]
        stages = context.pipeline.stages[inner.first : inner.last]
        delay_us = sum(stage.delay_us for stage in stages)
        times_us.append(np.array([plan.compound_us - delay_us for plan in plans]))
        for j in range(inner.last - inner.first):
            by_stage.append(np.concatenate([plan.sizes_by_stage[j] for plan in plans]))
        for rank, level in enumerate(plans[0].levels):
            # Blocks of one compound stage may differ in depth; the first block names the levels.
            parts = [plan.levels[rank].sizes_bytes for plan in plans if rank < len(plan.levels)]
            below.append(replace(level, sizes_bytes=np.concatenate(parts)))
    return Hierarchy(
        float(staged_exit_times_us(own, by_stage)[-1][-1]),
        latency_of_times_us(np.stack(times_us, axis=1)) + own.delay_us,
        by_stage,
        [_level(element, base, sizes, approximated), *below],
    )


def _flat(own: Pipeline, element: Element, base: str, sizes: Array) -> Hierarchy:
    """Returns a level that is not divided: every stage passes the same sizes."""
    time_us = float(latency_us(own, sizes))
    level = _level(element, base, sizes, own)
    return Hierarchy(time_us, time_us, [sizes] * len(own), [level])


def _level(element: Element, base: str, sizes: Array, approximated: Pipeline) -> Level:
    names = tuple(inner.name for inner in element.inner)
    return Level(element.name, element.first, element.last, names, base, sizes, approximated)
