"""Plots of the pipeline model: P1 Figures 1, 2, 7 to 13, P3 Figures 4, 6 and 8, P5 Figure 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from careful.model.blackbox import BlackBox
from careful.model.fixed import candidates, segments
from careful.model.latency import fixed_latency_us, signature_us
from careful.model.planner import Plan
from careful.model.simulation import Outcome, Transfer
from careful.model.stages import KIB, Pipeline
from careful.model.surfaces import StaticComparison, Surface
from careful.render import figure as draw
from careful.units import shown_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def latency_curve(
    pipeline: Pipeline, message_bytes: int, answers: Sequence[Plan], path: str | Path
) -> None:
    """Draws latency over the number of fragments, signature curves, candidates (P1 Fig. 2, 8).

    answers: the best equal fragments, and the plan if it is another; both are marked.
    """
    pipeline = pipeline.sequential()
    most = max(10, 3 * answers[0].fragments_count)
    figure, pair = draw.axes(
        f"{pipeline.name or 'pipeline'}: {message_bytes} B in k equal fragments",
        "fragments k (count)",
        "latency (µs)",
    )
    k = np.linspace(1, most, 400)
    latency = fixed_latency_us(pipeline, message_bytes, k)
    slowest = list(dict.fromkeys(segment.stage for segment in segments(pipeline)))
    for number, stage in enumerate(slowest):
        pair.plot(
            k,
            signature_us(pipeline, stage, message_bytes, k),
            color=draw.COLOURS[1 + number % 6],
            linestyle=draw.DASHES[1 + number % 6],
            linewidth=1.6,
            zorder=3,  # above the latency, which may be the slowest stage's
            label=f"signature of {pipeline.stages[stage].name}",
        )
    pair.plot(k, latency, color=draw.COLOURS[6], label="latency")
    whole = np.arange(1, most + 1)
    times = fixed_latency_us(pipeline, message_bytes, whole)
    pair.plot(whole, times, "o", color=draw.COLOURS[6], markersize=4)
    for kind, marker, size in (("minimum", "^", 14), ("transition", "D", 11)):
        found = [c for c in candidates(pipeline, message_bytes, most) if c.kind == kind]
        if found:
            pair.plot(
                [c.k for c in found],
                [c.latency_us for c in found],
                marker,
                color=draw.COLOURS[0] if kind == "minimum" else "white",
                markeredgecolor=draw.COLOURS[0],
                markeredgewidth=2,
                markersize=size,
                label=f"candidate: {kind}",
            )
    low = min(float(latency.min()), *(one.latency_us for one in answers))
    height = float(latency.max()) - low
    pair.set_ylim(low - 0.15 * height, float(latency.max()) + 0.05 * height)
    _mark(pair, answers)
    draw.save(figure, path)


def black_box_curve(box: BlackBox, answer: Plan, path: str | Path) -> None:
    """Draws the latency that a black-box measurement foretells (P1 Fig. 2); marks the plan."""
    nbytes = answer.message_bytes
    most = int(min(nbytes, max(10, 3 * answer.fragments_count)))
    figure, pair = draw.axes(
        f"black box: {nbytes} B in k equal fragments", "fragments k (count)", "latency (µs)"
    )
    whole = range(1, most + 1)
    times = [box.latency_us(nbytes, k) for k in whole]
    pair.plot(whole, times, ".-", color=draw.COLOURS[6], label="latency")
    inside = [k for k in whole if box.holds(nbytes / k)]
    if len(inside) < most:
        label = "fragment sizes that were measured"
        times = [box.latency_us(nbytes, k) for k in inside]
        pair.plot(inside, times, "o", color=draw.COLOURS[0], label=label)
    pair.set_ylim(0, 1.05 * pair.get_ylim()[1])
    _mark(pair, [answer])
    draw.save(figure, path)


def _mark(pair: Axes, answers: Sequence[Plan]) -> None:
    """Marks plans with hollow signs, which leave candidates next to them visible."""
    for one, marker, colour in zip(answers, "o*", (draw.COLOURS[1], draw.COLOURS[3]), strict=False):
        pair.plot(
            [one.fragments_count],
            [one.latency_us],
            marker,
            color="none",
            markeredgecolor=colour,
            markeredgewidth=3,
            markersize=20,
            zorder=4,
            label=f"{one.strategy}: k = {one.fragments_count}, {shown_time(one.latency_us, 4)}",
        )
    draw.legend_below(pair, ncols=2, markerscale=0.6)


def space_time(pipeline: Pipeline, outcome: Outcome, title: str, path: str | Path) -> None:
    """Draws which stage holds which bytes at which time (P1 Figures 1 and 7, P5 Figure 3).

    Stages run from top to bottom in the order of the path. A box is a transfer; its colour is its
    message if there are several, else its fragment.
    """
    n = len(pipeline)
    several = len(outcome.complete_us) > 1
    meaning = f"a colour is a {'message' if several else 'fragment'}, numbers are bytes"
    figure, pair = draw.axes(
        f"{title}\n{meaning}", "time (µs)", "stage", size=(10.0, 1.9 + 0.75 * n)
    )
    turns = {
        id(transfer): number
        for stage in range(n)
        for number, transfer in enumerate(outcome.of_stage(stage))
    }

    def shade(transfer: Transfer) -> int:
        return (transfer.message if several else turns[id(transfer)]) % 6

    for transfer in outcome.transfers:
        pair.broken_barh(
            [(transfer.start_us, transfer.end_us - transfer.start_us)],
            (n - 1 - transfer.stage - 0.36, 0.72),
            facecolor=draw.COLOURS[shade(transfer)],
            alpha=0.9,
            edgecolor="black",
            linewidth=0.6,
        )
    end_us = max(outcome.complete_us)
    room = end_us / 40
    for transfer in outcome.transfers:
        if transfer.end_us - transfer.start_us > room * 3:
            pair.text(
                (transfer.start_us + transfer.end_us) / 2,
                n - 1 - transfer.stage,
                f"{transfer.size_bytes:.0f}",
                ha="center",
                va="center",
                fontsize=10,
                color=draw.ink(draw.COLOURS[shade(transfer)]),
                fontweight="bold",
            )
    pair.set_yticks(range(n), [stage.name for stage in reversed(pipeline.stages)])
    pair.set_xlim(0, end_us * 1.01)
    pair.grid(False, axis="y")
    draw.save(figure, path)


def surface(found: Surface, path: str | Path) -> None:
    """Draws the improvement of one strategy over another (P1 Figures 10 to 13)."""
    figure, pair = draw.axes(
        f"{found.new} over {found.old}, {found.message}",
        found.along_name,
        f"overhead of {found.stage} (ms)",
        size=(9.5, 5.5),
    )
    draw.heat(
        figure,
        pair,
        100 * found.improvement,
        [f"{value:g}" for value in found.along],
        [f"{g / 1000:g}" for g in found.overheads_us],
        "improvement (%), T_old / T_new − 1",
    )
    draw.save(figure, path)


def static_sizes(found: StaticComparison, path: str | Path) -> None:
    """Draws static fragment sizes against the adaptive one (P1 Figure 9)."""
    figure, pair = draw.axes(
        "static and adaptive fragment size", "message size (KiB)", "latency (µs)"
    )
    series = {f"static, {cut} B": list(values) for cut, values in found.static_us.items()}
    series["adaptive"] = list(found.adaptive_us)
    draw.lines(pair, list(found.sizes_bytes / KIB), series, markers=False)
    pair.legend(loc="upper left")
    draw.save(figure, path)


def pulses(
    thresholds_bytes: Sequence[int],
    series: Mapping[str, Sequence[float]],
    title: str,
    path: str | Path,
) -> None:
    """Draws latency over the pulse size (P3 Figures 4 and 6)."""
    figure, pair = draw.axes(title, "pulse threshold (bytes)", "latency (µs)")
    draw.lines(pair, list(thresholds_bytes), series)
    pair.set_xscale("log", base=2)
    pair.set_xticks(list(thresholds_bytes), [str(value) for value in thresholds_bytes])
    pair.minorticks_off()
    pair.tick_params(axis="x", rotation=45)
    pair.set_ylim(0, 1.05 * pair.get_ylim()[1])
    pair.legend()
    draw.save(figure, path)
