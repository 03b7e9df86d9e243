"""The output of `tune`: fragment sizes for each peer and message-size class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from careful.plan import Plan, class_bytes
from careful.render.tables import table

if TYPE_CHECKING:
    from careful.control.plans.tune_entry import Setting, Tune
    from careful.control.plans.tune_peers import Row


def plan(one: Plan | None) -> str:
    """Returns the fragment sizes of a class in a few words."""
    if one is None:
        return "as before"
    if one.is_fixed:
        return f"{one.first_bytes} fixed"
    ratio, down = one.ratio_q16 / 65536, one.down_ratio_q16 / 65536
    return (
        f"{one.first_bytes} ×{ratio:.3f} +{one.step_bytes} to {one.peak_bytes}, "
        f"then ×{down:.3f} +{one.down_step_bytes}"
    )


def _class_range(first: int, last: int, count: int) -> str:
    low = class_bytes(first - 1) + 1 if first else 0
    if last == count - 1:
        return f"from {low}" if first else "all"
    return f"{low} … {class_bytes(last)}"


def _pulses(one: Setting) -> str:
    return ", ".join(f"{name} {value}" for name, value in one.minpulse_bytes.items())


def tuning(rows: Sequence[tuple[str, Tune]]) -> str:
    """Lists plans and minpulse for each peer and message-size class; equal classes share a line."""
    shown_rows = []
    for who, one in rows:
        start = 0
        for index, current in enumerate(one):
            if index + 1 < len(one) and one[index + 1] == current:
                continue
            label = _class_range(start, index, len(one))
            shown_rows.append((who, label, plan(current.plan), _pulses(current)))
            start, who = index + 1, ""
    columns = ["peer", "message (bytes)", "fragments (bytes)", "minpulse (bytes)"]
    return table("", columns, shown_rows)


def tune_row(row: Row) -> dict[str, object]:
    """Returns a peer's settings for JSON."""
    classes = [
        {"class": index, "message_bytes_max": class_bytes(index), **asdict(one)}
        for index, one in enumerate(row.tune)
    ]
    return {"peer": row.peer, "slot": row.slot, "classes": classes}


def clipped(fragment_bytes: int | None, frame_bytes: int) -> str:
    """Returns a note if a fragment is larger than a frame of the device; else ""."""
    if fragment_bytes is None or not frame_bytes or fragment_bytes <= frame_bytes:
        return ""
    return f"a frame has {frame_bytes} bytes, headers included: fragments shrink to fit it"
