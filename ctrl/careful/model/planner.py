"""Plans how to cut a message of B bytes for a pipeline.

Owns the names of the strategies and the resulting plan. The searches are in `flat.py`,
`hierarchy.py` and `lp.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from careful.errors import InputError
from careful.extras import lacking
from careful.html import Grid, rendered
from careful.model.flat import best_of, fixed_sizes, ramp_sizes, up_down_sizes
from careful.model.hierarchy import BASES, Cache, Hierarchy, Level, hierarchical
from careful.model.latency import latency_us, lower_bound_us, staged_exit_times_us
from careful.model.lp import SEARCH_COUNT_MAX, best_lp_sizes, lp_sizes, narrowed
from careful.model.rounding import equal_sizes, whole_sizes
from careful.model.simulation import Sizes, simulate_sizes
from careful.model.stages import Array, Pipeline, check_message_bytes
from careful.plan import Limits
from careful.units import sizes

#: Most fragments that the search by simulation tries.
SIMULATED_COUNT_MAX = 512
STRATEGIES = ("fixed", "ramp", "ramp-up-down", "hierarchical", "lp")


@dataclass(frozen=True)
class LevelPlan:
    """One level of a plan, the top one first (P1 section 4.3).

    `name`: the group, "" for the top; `stages`: names of its elements; `latency_us`: exact, for the
    whole message through this level's stages alone; `bottleneck`: the slowest element at the mean
    size; `fragments_bytes`: sizes for the whole message; `lower_bound_us`: P1 equation 5 for these
    stages; `g_us`, `G_us_per_KiB`: costs of each element, approximated for compound stages.
    """

    name: str
    strategy: str
    latency_us: float
    lower_bound_us: float
    stages: tuple[str, ...]
    bottleneck: str
    fragments_bytes: tuple[float, ...]
    g_us: tuple[float, ...]
    G_us_per_KiB: tuple[float, ...]

    def as_dict(self) -> dict[str, object]:
        return vars(self) | {
            "name": self.name or "top",
            "fragments_bytes": _numbers(self.fragments_bytes),
            "fragments_count": len(self.fragments_bytes),
        }


@dataclass(frozen=True)
class Plan:
    """How a message is cut, and the resulting latency.

    `strategy`: the one of STRATEGIES that made the plan; `latency_us`: exact for these sizes;
    `bottleneck`: a stage, or a shared resource with its stages; `fragments_bytes`: sizes at the top
    level, in order; `lower_bound_us`: P1 equation 5; `one_fragment_us`: latency without
    fragmentation; `levels`: levels of a plan with reassembly, top first; `sizes_by_stage`: the
    sizes that each stage passes, one tuple per stage; `note`: why the strategy fell back, or
    another remark, "" for none; `extrapolated`: some fragment size was not measured.
    """

    strategy: str
    message_bytes: float
    latency_us: float
    fragments_bytes: tuple[float, ...]
    bottleneck: str
    lower_bound_us: float
    one_fragment_us: float
    sizes_by_stage: tuple[tuple[float, ...], ...]
    levels: tuple[LevelPlan, ...] = ()
    note: str = ""
    extrapolated: bool = False

    @property
    def fragments_count(self) -> int:
        return len(self.fragments_bytes)

    def _repr_html_(self) -> str:
        gain = 100 * (self.one_fragment_us / self.latency_us - 1)
        rows: list[tuple[str, object]] = [
            ("latency (µs)", self.latency_us),
            ("gain over one fragment (%)", gain),
            ("lower bound (µs)", self.lower_bound_us),
            ("bottleneck", self.bottleneck),
            ("fragments", self.fragments_count),
            ("their bytes", sizes(self.fragments_bytes)),
        ]
        rows += [
            (f"in {each.name} (bytes)", sizes(each.fragments_bytes)) for each in self.levels[1:]
        ]
        title = f"{self.message_bytes:g} bytes, {self.strategy}"
        return rendered([Grid(title, ("", ""), rows), self.note])

    def as_dict(self) -> dict[str, object]:
        out: dict[str, object] = {
            "strategy": self.strategy,
            "latency_us": self.latency_us,
            "fragments_bytes": _numbers(self.fragments_bytes),
            "fragments_count": self.fragments_count,
            "bottleneck": self.bottleneck,
            "lower_bound_us": self.lower_bound_us,
            "one_fragment_us": self.one_fragment_us,
        }
        if self.levels:
            out["levels"] = [level.as_dict() for level in self.levels]
        if self.note:
            out["note"] = self.note
        if self.extrapolated:
            out["extrapolated"] = True
        return out


def plan(
    pipeline: Pipeline,
    message_bytes: float,
    strategy: str = "best",
    *,
    fragments_count: int | None = None,
    limits: Limits | None = None,
    whole: bool = True,
    lp: bool = True,
    reassembly: bool = True,
    levels: tuple[str, str] = ("fixed", "fixed"),
    cache: Cache | None = None,
) -> Plan:
    """Cuts a message for least latency (P1 sections 2 to 4).

    message_bytes: B, 1 to MESSAGE_BYTES_MAX; whole if `whole` is.
    strategy: one of STRATEGIES, or "best": the fastest of them.
    fragments_count: the number of fragments, for "fixed" and "lp" only; None searches for it.
    limits: bounds of a fragment; whole: sizes in whole bytes.
    lp: "best" includes the linear program (imports scipy, about 100 ms); without scipy, a note says
    that it does not.
    reassembly: ramps may use compound stages (P1 section 4.4), which the tune map cannot express.
    levels: base strategies of "hierarchical" at the top level and below it: "fixed", "ramp" or
    "ramp-up-down". cache: plans of compound stages that one "best" shares.
    If stages share a resource that no closed form covers, "fixed" and "best" search equal sizes by
    simulation; other strategies raise ValueError. Fragments stay within the measured sizes if the
    limits allow it; otherwise the plan is marked extrapolated. Raises ValueError for bad input.
    """
    check_message_bytes(message_bytes)
    if strategy not in ("best", *STRATEGIES):
        raise InputError(f"unknown strategy '{strategy}': choose best, {', '.join(STRATEGIES)}")
    if whole and message_bytes != int(message_bytes):
        raise InputError(f"a message must have a whole number of bytes, not {message_bytes}")
    for base in levels:
        if base not in BASES:
            raise InputError(f"unknown strategy of a level '{base}': choose {', '.join(BASES)}")
    limits = limits or Limits()
    if fragments_count is not None:
        _check_count(fragments_count, strategy, message_bytes, limits)
    else:
        limits = measured_limits(pipeline, message_bytes, limits)
    if pipeline.shares_resources():
        if strategy not in ("best", "fixed"):
            pipeline.sequential()  # raises, and names the stages
        made = searched_plan(pipeline, int(message_bytes), limits, fragments_count)
        return _doubted(pipeline, made)
    line, how = pipeline.sequential(), (limits, whole, reassembly, levels)
    if strategy != "best":
        made = _planned(line, message_bytes, strategy, fragments_count, *how, cache)
        return _doubted(pipeline, made)
    missing = lp and lacking("scipy", "strategy lp")
    # If several plans are equally fast, the simplest kind wins.
    names = ["fixed"] + ["hierarchical"] * reassembly + ["ramp", "ramp-up-down"]
    names += ["lp"] * (lp and not missing)
    # The plans share their compound stages if all cut alike below the top.
    cache = {} if levels[1] == "fixed" else None
    plans = [_planned(line, message_bytes, name, None, *how, cache) for name in names]
    least = min(plans, key=lambda candidate: candidate.latency_us)
    notes = [note for note in (least.note, missing and f"not tried: {missing}") if note]
    return _doubted(pipeline, replace(least, note="; ".join(notes)))


def _planned(
    pipeline: Pipeline,
    message_bytes: float,
    strategy: str,
    fragments_count: int | None,
    limits: Limits,
    whole: bool,
    reassembly: bool,
    levels: tuple[str, str],
    cache: Cache | None,
) -> Plan:
    """Plans with one strategy, for a pipeline without shared resources."""
    if strategy == "hierarchical":
        compound = hierarchical(pipeline, message_bytes, *levels, limits, whole, cache=cache)
        return _from_hierarchy(pipeline, message_bytes, strategy, compound)
    flat = _flat_sizes(pipeline, message_bytes, strategy, fragments_count, limits, whole)
    result = _from_flat(pipeline, message_bytes, strategy, flat)
    if reassembly and strategy in ("ramp", "ramp-up-down"):
        compound = hierarchical(
            pipeline, message_bytes, strategy, "fixed", limits, whole, cache=cache
        )
        if compound.latency_us < result.latency_us:
            result = _from_hierarchy(pipeline, message_bytes, strategy, compound)
    if strategy == "lp" and fragments_count is None and len(flat) > SEARCH_COUNT_MAX:
        result = replace(result, note=f"a ramp: lp solves at most {SEARCH_COUNT_MAX} fragments")
    if strategy in ("ramp", "ramp-up-down") and _equal(result.fragments_bytes):
        result = replace(result, note="within the limits, no ramp is faster than equal sizes")
    if not limits.keeps(message_bytes):
        result = replace(
            result,
            note=f"no number of fragments fits {limits.min_bytes} to {limits.max_bytes} bytes: "
            f"some are below {limits.min_bytes}",
        )
    return result


def measured_limits(pipeline: Pipeline, message_bytes: float, limits: Limits) -> Limits:
    """Narrows the limits to the measured sizes, if the pipeline has such sizes and they overlap."""
    least, most = pipeline.size_min_bytes, pipeline.size_max_bytes
    if most is None or message_bytes < least:
        return limits
    least, most = max(least, limits.min_bytes), min(most, limits.max_bytes or most)
    return Limits(least, most) if least <= most else limits


def _doubted(pipeline: Pipeline, result: Plan) -> Plan:
    """Adds the pipeline's assumptions to the note, and reports sizes that were not measured."""
    if pipeline.rests_on:
        rests = f"rests on this: {pipeline.rests_on}"
        result = replace(result, note=f"{result.note}; {rests}" if result.note else rests)
    sizes = {size for sizes in result.sizes_by_stage for size in sizes}
    outside = not all(pipeline.measured_with(size) for size in sizes)
    if not outside and pipeline.measured_with(result.message_bytes):
        return result
    note = "" if outside else "the time in one fragment is "
    note += f"extrapolated: measured were fragments of {pipeline.size_min_bytes} to "
    note += f"{pipeline.size_max_bytes} bytes"
    note = f"{result.note}; {note}" if result.note else note
    return replace(result, note=note, extrapolated=outside)


def searched_plan(
    pipeline: Pipeline, message_bytes: int, limits: Limits, count: int | None = None
) -> Plan:
    """Returns the best equal sizes, whole bytes, for a pipeline that only simulation covers.

    Tries numbers of fragments in ratios of about 1.4 up to SIMULATED_COUNT_MAX, then those next to
    the best. Equation 5 holds stage by stage; a shared resource adds its own bound.
    """
    least, most = limits.counts(message_bytes)
    most = max(least, min(most, SIMULATED_COUNT_MAX))
    known: dict[int, float] = {}

    def attempt(k: int) -> float:
        if k not in known:
            sizes = [float(size) for size in equal_sizes(message_bytes, k)]
            known[k] = simulate_sizes(pipeline, sizes).latency_us[0]
        return known[k]

    if count is None:
        for k in np.unique(np.round(np.geomspace(least, most, 2 + int(6 * np.log10(most))))):
            attempt(int(k))
        count = narrowed(known, attempt)
    sizes = tuple(float(size) for size in equal_sizes(message_bytes, count))
    bounds = [float(message_bytes * pipeline.G_us_per_byte.max() + pipeline.g_us.sum())]
    for resource in {stage.resource for stage in pipeline.stages if stage.resource}:
        shared = [stage for stage in pipeline.stages if stage.resource == resource]
        bounds.append(sum(stage.time_us(message_bytes) for stage in shared))
    return Plan(
        strategy="fixed",
        message_bytes=message_bytes,
        latency_us=attempt(count),
        fragments_bytes=sizes,
        bottleneck=pipeline.busiest(sizes[0]),
        lower_bound_us=max(bounds) + pipeline.delay_us,
        one_fragment_us=attempt(1),
        sizes_by_stage=(sizes,) * len(pipeline),
        note="stages share a resource: equal sizes, searched by simulation",
    )


def rules(pipeline: Pipeline, plan: Plan) -> list[Sizes]:
    """Converts a plan to rules for `simulate`: the sizes that each stage of `pipeline` passes."""
    if pipeline.shares_resources():
        return [Sizes(sizes) for sizes in plan.sizes_by_stage]
    return [Sizes(plan.sizes_by_stage[j]) for j in pipeline.sequential_index()]


def _check_count(count: int, strategy: str, message_bytes: float, limits: Limits) -> None:
    if strategy not in ("fixed", "lp"):
        raise InputError(f"a number of fragments needs strategy fixed or lp, not {strategy}")
    least, most = limits.counts(message_bytes)
    if not least <= count <= most:
        raise InputError(
            f"{count} fragments of {message_bytes:g} bytes: the limits allow {least} to {most}"
        )


def _flat_sizes(
    pipeline: Pipeline,
    message_bytes: float,
    strategy: str,
    count: int | None,
    limits: Limits,
    whole: bool,
) -> Array:
    if strategy == "fixed":
        return fixed_sizes(pipeline, message_bytes, limits, whole, count)
    if strategy == "ramp":
        return ramp_sizes(pipeline, message_bytes, limits, whole)
    start = up_down_sizes(pipeline, message_bytes, limits, whole)
    if strategy == "ramp-up-down":
        return start
    if count is not None:
        sizes = lp_sizes(pipeline, message_bytes, count, limits)
    else:
        sizes = best_lp_sizes(pipeline, message_bytes, start, limits)
    if not whole:
        return sizes
    rounded = whole_sizes(sizes)
    rounded = rounded[rounded > 0]
    return rounded if count is not None else best_of(pipeline, [rounded, start])


def _from_flat(pipeline: Pipeline, message_bytes: float, strategy: str, sizes: Array) -> Plan:
    fragments = tuple(float(size) for size in sizes)
    return Plan(
        strategy=strategy,
        message_bytes=message_bytes,
        latency_us=float(latency_us(pipeline, sizes)),
        fragments_bytes=fragments,
        bottleneck=pipeline.stages[pipeline.bottleneck(float(np.mean(sizes)))].name,
        lower_bound_us=lower_bound_us(pipeline, message_bytes),
        one_fragment_us=float(latency_us(pipeline, [message_bytes])),
        sizes_by_stage=(fragments,) * len(pipeline),
    )


def _from_hierarchy(
    pipeline: Pipeline, message_bytes: float, strategy: str, hierarchy: Hierarchy
) -> Plan:
    by_stage = hierarchy.sizes_by_stage
    levels = tuple(_level_plan(pipeline, message_bytes, one, by_stage) for one in hierarchy.levels)
    flat = _from_flat(pipeline, message_bytes, strategy, np.array([message_bytes]))
    return replace(
        flat,
        latency_us=hierarchy.latency_us,
        fragments_bytes=levels[0].fragments_bytes if levels else flat.fragments_bytes,
        bottleneck=levels[0].bottleneck if levels else flat.bottleneck,
        sizes_by_stage=tuple(tuple(float(s) for s in sizes) for sizes in by_stage),
        levels=levels,
    )


def _level_plan(
    pipeline: Pipeline, message_bytes: float, level: Level, sizes_by_stage: list[Array]
) -> LevelPlan:
    own = Pipeline(pipeline.stages[level.first : level.last])
    passed = sizes_by_stage[level.first : level.last]
    slowest = level.approximated.bottleneck(float(np.mean(level.sizes_bytes)))
    return LevelPlan(
        name=level.name,
        strategy="fixed" if _equal(level.sizes_bytes) else level.strategy,
        latency_us=float(staged_exit_times_us(own, passed)[-1][-1]),
        lower_bound_us=lower_bound_us(own, message_bytes),
        stages=level.elements,
        bottleneck=level.approximated.stages[slowest].name,
        fragments_bytes=tuple(float(size) for size in level.sizes_bytes),
        g_us=tuple(stage.g_us for stage in level.approximated.stages),
        G_us_per_KiB=tuple(stage.G_us_per_KiB for stage in level.approximated.stages),
    )


def _equal(sizes: tuple[float, ...] | Array) -> bool:
    return max(sizes) - min(sizes) <= 1


def _numbers(sizes: tuple[float, ...]) -> list[int | float]:
    return [int(size) if math.isfinite(size) and size == int(size) else size for size in sizes]
