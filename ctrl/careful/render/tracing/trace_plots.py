"""Plots of traced stages: time over size with histograms, and a burst (P5 Figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from careful.errors import InputError
from careful.measure.inside.packet_flow import Burst, Transfer
from careful.measure.inside.stages import Fit
from careful.render import figure as draw
from careful.render.digits import not_negative
from careful.units import shown_time

#: The most points of a stage that are drawn: SVG keeps each.
_POINTS_MOST = 1500
#: Fewer points do not overlap.
_FAINT_FROM = 200
#: A box narrower than the whole width divided by this has no edge.
_EDGED = 400
#: More transfers than this are lines without a width.
_TRANSFERS_MOST = 240


def stages(found: Sequence[Fit], path: str | Path) -> None:
    """Draws each stage's samples over size with its line, and its histogram next to them."""
    drawn = [one for one in found if len(one.samples)]
    if not drawn:
        raise InputError("nothing to plot: no stage was busy")
    # One scale for all: a stage may have a single size, or none.
    most = max(float(np.max(one.samples.size_bytes)) for one in drawn) or 1.0
    figure, pairs = draw.grid(len(drawn), 2, size=(11.0, 2.6 * len(drawn) + 0.6), widths=(2, 1))
    for number, (one, (left, right)) in enumerate(zip(drawn, pairs, strict=True)):
        colour = draw.COLOURS[number % 6]
        sizes, times = one.samples.size_bytes, one.samples.time_us
        step = max(len(sizes) // _POINTS_MOST, 1)
        faint = 0.35 if len(sizes) > _FAINT_FROM else 1.0
        left.plot(sizes[::step], times[::step], ".", color=colour, markersize=4, alpha=faint)
        # A few late frames do not set the scale; most frames may take no time in a stage.
        middle, high = np.percentile(times, (50, 97))
        top = 1.25 * float(min(8 * middle, high) or high or np.max(times)) or 1.0
        if one.line and one.line.supported:
            ends = np.array([one.line.size_min_bytes, one.line.size_max_bytes])
            left.plot(ends, [one.line.at(size) for size in ends], color="black", linewidth=1.8)
        left.set_ylim(0, top)
        left.set_xlim(-0.02 * most, 1.05 * most)
        left.set_title(f"{one.name}, {one.owner}{_formula(one)}", loc="left", fontsize=12)
        left.set_ylabel("time (µs)")
        right.hist(np.minimum(times, top), bins=40, range=(0, top), color=colour)
        right.set_ylabel("frames (count)")
        right.locator_params(axis="y", integer=True)
    pairs[-1][0].set_xlabel("payload of a frame (bytes)")
    pairs[-1][1].set_xlabel("time (µs), the last bin and above")
    draw.save(figure, path)


def _formula(one: Fit) -> str:
    if not one.line or not one.line.supported:
        return f": {one.reason}" if one.reason else ""
    g, G = one.g_us, one.G_us_per_KiB
    if g is None or G is None:
        return ""
    figures = f": {not_negative(g)} µs + {not_negative(G)} µs/KiB"
    # The points are whole kicks; the fitted stage is a part of them.
    whole = G.value == one.line.G_us_per_KiB.value
    return figures if whole else f"{figures}; drawn with netRx"


def frames(burst: Burst, path: str | Path) -> None:
    """Draws stages below one another, time to the right, a box for each fragment.

    A kick that runs netRx is one box: its frames leave one by one before it ends, and boxes of
    equal parts would end after the other host had them all.
    """
    count = len(burst.rows)
    lab = _lab([host for _, host in burst.rows])
    title = f"one burst, messages: {burst.messages_count}"
    begins = sorted(one.begin_us for one in burst.transfers)
    end_us = burst.took_us
    if len(begins) > _TRANSFERS_MOST:
        end_us = begins[_TRANSFERS_MOST]
        title += f"; the first {shown_time(end_us)} of {shown_time(burst.took_us)}"
    if any(one.waited for one in burst.transfers):
        title += "; hatched: waiting for a file"
    if any(len(one.messages) > 1 and one.runs for one in burst.transfers):
        title += "; grey: of several messages"
    figure, pair = draw.axes(
        "\n".join([title, *(note.replace(lab, "") for note in burst.notes)]),
        "time (µs); neighbouring messages differ in colour",
        "",
        size=(12.0, 1.6 + 0.75 * count + 0.3 * len(burst.notes)),
    )
    for number, row in enumerate(burst.rows):
        alike: dict[_Style, list[tuple[float, float]]] = {}
        for one in burst.of(row):
            if one.begin_us <= end_us:
                _boxes(one, end_us / _EDGED, alike)
        for style, boxes in alike.items():  # a call for each box would take half a minute
            y = (count - 1 - number - 0.36, 0.72)
            pair.broken_barh(boxes, y, linewidth=0.4, **style._asdict())
    rows = [f"{stage}, {host.removeprefix(lab)}" for stage, host in reversed(burst.rows)]
    pair.set_yticks(range(count), rows)
    pair.set_xlim(0, end_us * 1.01)
    pair.grid(False, axis="y")
    draw.save(figure, path)


def _lab(hosts: Sequence[str]) -> str:
    """Returns the common prefix of instances that are hosts of a lab: "lab-" of lab-h1."""
    labs = {one.rpartition("-")[0] for one in hosts}
    named = all(one.rpartition("-")[2][:1].isalpha() for one in hosts)
    return f"{labs.pop()}-" if len(labs) == 1 < len(set(hosts)) and named else ""


class _Style(NamedTuple):
    facecolor: str
    edgecolor: str
    hatch: str | None


def _boxes(one: Transfer, edged_us: float, alike: dict[_Style, list[tuple[float, float]]]) -> None:
    """Adds the begin and width of a transfer's boxes, one for each frame, to those of their style.

    A box is hatched while a device has the frame.
    """
    count = 1 if one.runs else one.frames
    each = one.took_us / count
    for k in range(count):
        # Frames of several messages share a kick, in order; the exact boundaries are unknown.
        message = one.messages[k * len(one.messages) // count] if one.messages else 0
        if one.runs and len(one.messages) > 1:
            message = 0
        style = _Style(
            draw.COLOURS[(message - 1) % 6] if message else "#BBBBBB",
            "black" if each > edged_us else "none",
            "//" if one.waited else None,
        )
        alike.setdefault(style, []).append((one.begin_us + k * each, each))
