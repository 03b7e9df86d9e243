"""Gain of one strategy over another as a pipeline or a message changes (P1 5.5).

An improvement is T_old / T_new - 1, as in P1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from careful.errors import InputError
from careful.model.hierarchy import hierarchical
from careful.model.latency import latency_us
from careful.model.planner import plan
from careful.model.rounding import static_sizes
from careful.model.stages import KIB, Array, Pipeline

#: Axes of P1 Figures 10 to 13.
OVERHEADS_US = (500.0, 1000.0, 2000.0, 4000.0, 8000.0, 16000.0, 32000.0)
BANDWIDTHS_MB_PER_S = (1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0)
SIZES_BYTES = tuple(KIB << i for i in range(2, 13))


@dataclass(frozen=True)
class Surface:
    """Latency under two strategies while a stage's overhead and a second quantity vary.

    overheads_us: shape (a,); along: values of the second quantity, shape (b,); along_name: its
    name; message: the message, for titles; old_us, new_us: shape (a, b).
    """

    stage: str
    old: str
    new: str
    overheads_us: tuple[float, ...]
    along: tuple[float, ...]
    along_name: str
    message: str
    old_us: Array
    new_us: Array

    @property
    def improvement(self) -> Array:
        gain: Array = self.old_us / self.new_us - 1
        return gain


def with_stage(
    pipeline: Pipeline, name: str, g_us: float, bandwidth_MB_per_s: float | None = None
) -> Pipeline:
    """Returns the pipeline with another overhead and, if given, bandwidth at one stage.

    1 MB is 1024 KiB. Raises ValueError if there is no such stage.
    """
    if name not in [stage.name for stage in pipeline.stages]:
        names = ", ".join(f"'{stage.name}'" for stage in pipeline.stages)
        raise InputError(f"no stage '{name}': there are {names}")
    changed = []
    for stage in pipeline.stages:
        if stage.name == name:
            stage = replace(stage, g_us=g_us)
            if bandwidth_MB_per_s is not None:
                stage = replace(stage, G_us_per_KiB=1e6 / (bandwidth_MB_per_s * KIB))
        changed.append(stage)
    return replace(pipeline, stages=tuple(changed))


def over_bandwidth(
    pipeline: Pipeline,
    stage: str,
    message_bytes: int,
    old: str,
    new: str,
    overheads_us: Sequence[float] = OVERHEADS_US,
    bandwidths_MB_per_s: Sequence[float] = BANDWIDTHS_MB_PER_S,
    as_modelled: bool = False,
) -> Surface:
    """Varies one stage's overhead and bandwidth (P1 Figures 10 and 11).

    old, new: strategies of `planner.plan`. as_modelled: assume, like P1 section 4.3.1, that a
    compound stage is free only when its last stage is.
    """
    cases = [
        [
            (with_stage(pipeline, stage, g, bandwidth), message_bytes)
            for bandwidth in bandwidths_MB_per_s
        ]
        for g in overheads_us
    ]
    axis = (tuple(bandwidths_MB_per_s), f"bandwidth of {stage} (MB/s)", f"{message_bytes} B")
    return _surface(stage, old, new, tuple(overheads_us), axis, cases, as_modelled)


def over_sizes(
    pipeline: Pipeline,
    stage: str,
    old: str,
    new: str,
    overheads_us: Sequence[float] = OVERHEADS_US,
    sizes_bytes: Sequence[int] = SIZES_BYTES,
    as_modelled: bool = False,
) -> Surface:
    """Varies one stage's overhead and the message size (P1 Figures 12 and 13).

    Arguments are those of `over_bandwidth`.
    """
    cases = [[(with_stage(pipeline, stage, g), size) for size in sizes_bytes] for g in overheads_us]
    axis = (tuple(size / KIB for size in sizes_bytes), "message size (KiB)", "by message size")
    return _surface(stage, old, new, tuple(overheads_us), axis, cases, as_modelled)


def _surface(
    stage: str,
    old: str,
    new: str,
    overheads_us: tuple[float, ...],
    axis: tuple[tuple[float, ...], str, str],
    cases: list[list[tuple[Pipeline, int]]],
    as_modelled: bool,
) -> Surface:
    old_us, new_us = (
        np.array(
            [[_latency_us(line, size, name, as_modelled) for line, size in row] for row in cases]
        )
        for name in (old, new)
    )
    return Surface(stage, old, new, overheads_us, *axis, old_us, new_us)


def _latency_us(pipeline: Pipeline, size_bytes: int, strategy: str, as_modelled: bool) -> float:
    if not as_modelled or strategy in ("fixed", "lp"):
        return plan(pipeline, size_bytes, strategy).latency_us
    top = "fixed" if strategy == "hierarchical" else strategy
    return hierarchical(pipeline, size_bytes, top, as_modelled=True).compound_us


@dataclass(frozen=True)
class StaticComparison:
    """Latency by message size for static fragment sizes and the adaptive one (P1 Figure 9).

    sizes_bytes: shape (s,); static_us: fragment size in bytes -> shape (s,);
    adaptive_us: best fixed size of each message, shape (s,).
    """

    sizes_bytes: Array
    static_us: dict[int, Array]
    adaptive_us: Array


def against_static(
    pipeline: Pipeline, sizes_bytes: Sequence[int], static_bytes: Sequence[int]
) -> StaticComparison:
    """Compares the best fixed size with one fragment size for all messages."""
    static = {
        cut: np.array(
            [float(latency_us(pipeline, static_sizes(size, cut))) for size in sizes_bytes]
        )
        for cut in static_bytes
    }
    adaptive = np.array([plan(pipeline, size, "fixed").latency_us for size in sizes_bytes])
    return StaticComparison(np.array(sizes_bytes, dtype=np.float64), static, adaptive)
