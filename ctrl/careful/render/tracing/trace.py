"""`carefulctl trace` and `measure clearbox` as text and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from careful.measure.inside.clearbox import Result
from careful.measure.inside.listening import Heard
from careful.measure.inside.packet_flow import Burst
from careful.measure.inside.stages import Bottleneck, Fit, histogram
from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import Line
from careful.render.digits import not_negative
from careful.render.tables import table
from careful.units import shown_time

#: Transfers that the table of a burst lists.
_LISTED = 40


def _figures(name: str, unit: str, value: Estimate | None) -> dict[str, object]:
    """Returns a stage's figure for JSON; a difference below 0 becomes 0."""
    if value is None:
        return {f"{name}_{unit}": None}
    return {key: max(number, 0.0) for key, number in value.figures(name, unit).items()}


def _stage(one: Fit) -> dict[str, object]:
    """Returns a stage for JSON; `carefulctl plan --pipeline -` reads name, g, G and resource."""
    times, line = one.samples.time_us, one.line
    p50, p95 = (float(np.percentile(times, p)) if len(times) else None for p in (50, 95))
    return {
        "name": one.name,
        "host": one.owner,
        "resource": one.resource,
        "inside": one.inside or None,
        **_figures("g", "us", one.g_us),
        **_figures("G", "us_per_KiB", one.G_us_per_KiB),
        "residual_us": round(line.residual_us, 4) if line else None,
        "samples_count": len(one.samples),
        "fitted_count": line.samples_count if line else 0,
        "sizes_count": line.points_count if line else 0,
        "size_min_bytes": int(line.size_min_bytes) if line else None,
        "size_max_bytes": int(line.size_max_bytes) if line else None,
        "frames_per_transfer": one.frames_per_transfer,
        "waited_count": one.samples.waited_count,
        "transitions_bytes": [round(size) for size in one.transitions_bytes],
        "time_p50_us": p50,
        "time_p95_us": p95,
        "histogram": histogram(times),
        "reason": one.reason,
        "notes": one.notes,
    }


def _bottleneck(limits: Bottleneck | None) -> dict[str, object]:
    names = (("g_b", "us"), ("G_b", "us_per_KiB"), ("sum_G_others", "us_per_KiB"))
    if limits is None:
        return {"bottleneck": None, **{f"{name}_{unit}": None for name, unit in names}}
    values = (limits.g_b_us, limits.G_b_us_per_KiB, limits.sum_G_others_us_per_KiB)
    figures: dict[str, object] = {"bottleneck": limits.resource}
    for (name, unit), value in zip(names, values, strict=True):
        figures |= value.figures(name, unit)
    figures |= _rest("bottleneck", limits.lines) | _rest("others", limits.lines_of_others)
    lines = limits.lines + limits.lines_of_others
    return figures | {
        "size_min_bytes": int(max(line.size_min_bytes for line in lines)),
        "size_max_bytes": int(min(line.size_max_bytes for line in lines)),
    }


def _rest(name: str, lines: Sequence[Line]) -> dict[str, object]:
    """Returns the samples and the residuals behind a sum of stages."""
    return {
        f"{name}_samples_count": sum(line.samples_count for line in lines),
        f"{name}_residual_us": round(math.hypot(*(line.residual_us for line in lines)), 4),
    }


def clearbox_figures(found: Result) -> dict[str, object]:
    """Returns a measurement for JSON."""
    return {
        "kind": "clearbox",
        "name": "clear-box",
        "stages": [_stage(one) for one in found.stages],
        "sender": _stage(found.sender) if found.sender else None,
        **_bottleneck(found.bottleneck),
        "settled": found.settled,
        "rounds_count": found.rounds_count,
        "frames_count": found.frames_count,
        "lost_records_count": found.lost_count,
        "elapsed_s": round(found.elapsed_s, 3),
        "G_counts": "payload bytes",
        "notes": found.notes,
    }


def stages_figures(heard: Heard, found: Sequence[Fit]) -> dict[str, object]:
    """Returns traced traffic for JSON."""
    return {
        "kind": "stages",
        "stages": [_stage(one) for one in found],
        "records_count": heard.records_count,
        "lost_records_count": heard.lost_count,
        "interrupted": heard.interrupted,
        "elapsed_s": round(heard.seconds, 3),
        "G_counts": "payload bytes",
    }


def _range(one: Fit) -> str:
    if one.line:
        return f"{one.line.size_min_bytes:.0f}-{one.line.size_max_bytes:.0f}"
    sizes = one.samples.size_bytes
    if not len(sizes):
        return "-"
    low, high = float(sizes.min()), float(sizes.max())
    return f"{low:.0f}-{high:.0f}" if low != high else f"{low:.0f}"


def stages_table(title: str, found: Sequence[Fit]) -> str:
    """Returns stages for people."""
    columns = (
        *("stage", "host", "resource", "g (µs)", "G (µs/KiB)"),
        *("p50 (µs)", "samples", "bytes", "frames"),
    )
    rows = [
        (
            one.name,
            one.owner,
            one.resource,
            not_negative(one.g_us),
            not_negative(one.G_us_per_KiB),
            float(np.median(one.samples.time_us)) if len(one.samples) else "-",
            len(one.samples),
            _range(one),
            one.frames_per_transfer,
        )
        for one in found
    ]
    lines = [table(title, columns, rows)]
    for one in found:
        said = [f"no line: {one.reason}"] if one.reason else []
        lines += [f"{one.name} of {one.owner}: {note}" for note in said + one.notes]
    return "\n".join(lines)


def heard_table(heard: Heard, found: Sequence[Fit]) -> str:
    """Returns traced traffic for people."""
    if not found:
        return f"nothing crossed in {heard.seconds:.1f} s, so no stage was busy"
    lines = [stages_table("stages, time of a frame", found), ""]
    lines.append(f"{heard.records_count} records in {heard.seconds:.1f} s, one stage at a time")
    if heard.interrupted:
        lines[-1] += ", interrupted"
    if heard.lost_count:
        lines.append(f"{heard.lost_count} records were lost: they came faster than they were read")
    return "\n".join(lines)


def clearbox_table(found: Result, host: str) -> str:
    """Returns a measurement for people."""
    listed = [*found.stages, *([found.sender] if found.sender else [])]
    lines = [stages_table(f"careful to {host}, measured from inside", listed), ""]
    limits = found.bottleneck
    if limits:
        lines.append(
            f"bottleneck at {limits.size_bytes:.0f} bytes: {limits.resource}, "
            f"g_b {not_negative(limits.g_b_us)} µs, "
            f"G_b {not_negative(limits.G_b_us_per_KiB)} µs/KiB; "
            f"others' G {not_negative(limits.sum_G_others_us_per_KiB)} µs/KiB"
        )
    lines.append(f"{found.frames_count} frames in {found.elapsed_s:.1f} s, one stage at a time")
    if not found.settled:
        lines.append("stopped before the intervals were as narrow as asked for")
    return "\n".join([*lines, *found.notes])


def frames_figures(burst: Burst, heard: Heard) -> dict[str, object]:
    """Returns a burst for JSON."""
    return {
        "kind": "frames",
        "rows": [{"stage": stage, "host": host} for stage, host in burst.rows],
        "transfers": [
            {
                "stage": one.stage,
                "host": one.owner,
                "begin_us": round(one.begin_us, 3),
                "end_us": round(one.end_us, 3),
                "bytes": one.bytes,
                "frames": one.frames,
                "messages": list(one.messages),
                "waited": one.waited,
                "runs_net_rx_of": list(one.runs),
            }
            for one in burst.transfers
        ],
        "messages_count": burst.messages_count,
        "took_us": round(burst.took_us, 3),
        "notes": burst.notes,
        "transfers_left_out_count": burst.cut_count,
        "records_count": heard.records_count,
        "lost_records_count": heard.lost_count,
        "interrupted": heard.interrupted,
    }


def frames_table(burst: Burst, heard: Heard) -> str:
    """Returns a burst for people: the work of each stage, and its first transfers."""
    rows = []
    for row in burst.rows:
        mine = burst.of(row)
        busy = sum(one.took_us for one in mine)
        frames, carried = sum(one.frames for one in mine), sum(one.bytes for one in mine)
        rows.append(
            (
                *row,
                len(mine),
                frames,
                carried,
                f"{carried / len(mine):.0f}",
                busy,
                f"{busy / burst.took_us:.0%}",
            )
        )
    columns = ("stage", "host", "transfers", "frames", "bytes", "bytes each", "busy (µs)", "busy")
    title = f"one burst, messages: {burst.messages_count}, {shown_time(burst.took_us)}"
    listed = [
        (
            one.stage,
            one.begin_us,
            one.took_us,
            one.bytes,
            one.frames,
            ", ".join(map(str, one.messages)) or "?",
        )
        for one in sorted(burst.transfers, key=lambda one: one.begin_us)[:_LISTED]
    ]
    detail = ("stage", "begin (µs)", "took (µs)", "bytes", "frames", "messages")
    lines = [table(title, columns, rows), "", table("", detail, listed)]
    rest = len(burst.transfers) - len(listed) + burst.cut_count
    if rest > 0:
        lines.append(f"and {rest} more transfers (--json has them)")
    if heard.lost_count:
        lines.append(
            f"{heard.lost_count} records came too fast to be read: the graph is without them"
        )
    return "\n".join(lines + burst.notes)
