"""Plots of measurements: round trips and trains over sizes, with the lines through them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from careful.measure.outside.blackbox_result import Result
from careful.measure.path.hops import Path as HopPath
from careful.measure.path.host_stages import Stages
from careful.measure.statistics.line import Line, minima
from careful.render import figure as draw
from careful.render.digits import time_with_half
from careful.units import shown_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Fewer points do not overlap.
_FAINT_FROM = 50


def _fitted(pair: Axes, line: Line, ends: tuple[float, float], number: int, label: str) -> None:
    """Draws a line between two sizes; dotted if the data support no slope.

    Its entry in the legend has the marker of the points, too.
    """
    colour = draw.COLOURS[number % len(draw.COLOURS)]
    dash, marker = "-" if line.supported else ":", draw.MARKERS[number % len(draw.MARKERS)]
    at = [line.at(size) for size in ends]
    pair.plot(ends, at, color=colour, linestyle=dash, linewidth=1.8, zorder=3)
    pair.plot([], [], color=colour, linestyle=dash, linewidth=1.8, marker=marker, label=label)


def _points(pair: Axes, sizes: Sequence[float], times_us: Sequence[float], number: int) -> None:
    pair.plot(
        sizes,
        times_us,
        draw.MARKERS[number % len(draw.MARKERS)],
        color=draw.COLOURS[number % len(draw.COLOURS)],
        markersize=6,
        alpha=0.35 if len(sizes) > _FAINT_FROM else 1.0,
    )


def _clip(pair: Axes, times_us: Sequence[float], least_us: float) -> None:
    """Leaves the slowest outliers out of the scale, and shows how many; least_us: always inside."""
    top = max(least_us, min(max(times_us), 1.5 * float(np.percentile(times_us, 90))))
    pair.set_ylim(0, 1.05 * top)
    top = pair.get_ylim()[1]
    if above := sum(one > top for one in times_us):
        text = f"{above} above {shown_time(top)}"
        pair.annotate(text, (1, 1.01), xycoords="axes fraction", ha="right", fontsize=11)


def blackbox(found: Result, host: str, path: str | Path) -> None:
    """Draws least round trips and gaps of trains over payload, their lines, and the transitions."""
    figure, pair = draw.axes(f"black box to {host}", "payload of a frame (bytes)", "time (µs)")
    trips, most_us = found.round_trips, max([*found.trip_minima[1], *found.gaps[1]])
    _points(pair, *found.trip_minima, 0)
    G = found.sum_G_us_per_KiB
    label = "round trips, least of each size"
    _fitted(
        pair,
        trips,
        (trips.size_min_bytes, trips.size_max_bytes),
        0,
        f"{label}: {time_with_half(G, most_us, '/KiB')}" if G else label,
    )
    for number, regime in enumerate(found.regimes, 1):
        G, g = regime.G_b_us_per_KiB, regime.g_b_us
        texts = time_with_half(g, most_us), time_with_half(G, most_us, "/KiB")
        text = " + ".join(texts) if g and G else "no slope"
        inside = [  # each gap has the marks of one range
            (size, gap_us)
            for size, gap_us in zip(*found.gaps, strict=True)
            if found.regime_of(size) is regime
        ]
        _points(pair, [size for size, _ in inside], [gap_us for _, gap_us in inside], number)
        ends = (regime.low_bytes, regime.high_bytes)
        _fitted(pair, regime.line, ends, number, f"gap in a train: {text}")
    for regime in found.regimes[1:]:
        pair.axvline(regime.low_bytes, color=draw.COLOURS[6], linestyle="--", linewidth=1.2)
        side = "left" if 2 * regime.low_bytes < trips.size_max_bytes else "right"
        at = (regime.low_bytes, 0)
        pair.annotate(f" {regime.low_bytes:.0f} B ", at, ha=side, va="bottom", fontsize=12)
    lines = [trips, *(one.line for one in found.regimes)]
    least_us = max(
        one.at(size) for one in lines for size in (one.size_min_bytes, one.size_max_bytes)
    )
    _clip(pair, [*found.trip_minima[1], *found.gaps[1]], 1.1 * least_us)
    draw.legend_below(pair)
    draw.save(figure, path)


def pathchar(path: HopPath, host: str, file: str | Path, ends: Stages | None = None) -> None:
    """Draws least round trips to each hop over size, with lines whose slopes differ by the hops' G.

    Stages inside the hosts get a second pair of axes, with each stage's time one way.
    """
    texts = (f"path to {host}", "probe (bytes of the IP packet)", "round trip (µs)")
    if ends is None:
        figure, pair = draw.axes(*texts)
    else:
        figure, [[pair, beside]] = draw.grid(1, 2, size=(15.0, 5.5), widths=(1, 1))
        draw.label(pair, *texts)
        _stages(beside, ends)
    measured = [hop for hop in path.hops if hop.line is not None and hop.sizes_bytes]
    most_us = max((max(minima(hop.sizes_bytes, hop.times_us)[1]) for hop in measured), default=0.0)
    for number, hop in enumerate(measured):
        sizes, least, _ = minima(hop.sizes_bytes, hop.times_us)
        _points(pair, list(sizes), list(least), number)
        segment = next((one for one in path.segments if one.ttls[-1] == hop.ttl), None)
        G = segment.G_us_per_KiB if segment else None
        label = f"hop {hop.ttl}, {hop.address}"
        if G:
            label += f": {time_with_half(G, most_us, '/KiB')}"
        assert hop.line is not None
        _fitted(pair, hop.line, (float(sizes[0]), float(sizes[-1])), number, label)
    if measured:
        pair.set_ylim(0, 1.05 * pair.get_ylim()[1])
        draw.legend_below(pair)
    draw.save(figure, file)


def _stages(pair: Axes, found: Stages) -> None:
    """Draws a bar for each stage and each of two sizes, from the sender's memory downwards."""
    sizes = found.sizes_bytes
    every = [stage.at(size) for stage in found.stages for size in sizes]
    most_us = max((one.value for one in every if one), default=0.0)
    names = [",\n".join(stage.names) for stage in found.stages]
    for number, size in enumerate(sizes):
        known = [stage.at(size) for stage in found.stages]
        times_us = [max(one.value, 0.0) if one else 0.0 for one in known]
        at = [row + (number - 0.5) * 0.4 for row in range(len(names))]
        colour = draw.COLOURS[number]
        pair.barh(at, times_us, height=0.36, color=colour, label=f"{size} bytes")
        for row, time_us, one in zip(at, times_us, known, strict=True):
            text = f" {time_with_half(one, most_us)}"
            pair.annotate(text, (time_us, row), va="center", fontsize=11)
    pair.set_yticks(range(len(names)), names)
    pair.set_ylim(len(names) - 0.4, -0.9)
    pair.set_xlim(right=pair.get_xlim()[1] * 1.3)  # room for the figures behind the bars
    pair.set_title("stages, hosts included", loc="left")
    pair.set_xlabel("time one way (µs)")
    draw.legend_below(pair, title="IP packet of", ncols=2)
