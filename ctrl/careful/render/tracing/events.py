"""Traffic of programs on the event interface (P2 section 6.2): a table, figures, a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from careful.event.trace import Pair, Trace, matrix, pair_times, pairs
from careful.render import figure as draw
from careful.render.tables import table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Fragments that the time line draws, from the first on; more would run together.
_LINES_MOST = 60


def traffic_figures(traces: Sequence[Trace]) -> dict[str, object]:
    """Returns the traffic for JSON."""
    count, nbytes = matrix(traces)
    return {
        "nodes": len(traces),
        "window_buffers": traces[0].window,
        "receive_buffers": traces[0].receive_buffers,
        "notes_left_out": sum(one.left_out for one in traces),
        "fragments": count,
        "payload_bytes": nbytes,
        "pairs": [asdict(one) for one in pairs(traces)],
    }


def traffic_text(traces: Sequence[Trace]) -> str:
    """Shows for people who sends to whom, and the effect of windows of that size."""
    found = pairs(traces)
    _, nbytes = matrix(traces)
    head = (
        "from",
        "to",
        "fragments",
        "bytes",
        "outstanding",
        "window",
        "closed",
        "sized",
        "then closed",
    )
    rows = [
        (
            str(one.source),
            str(one.to),
            str(one.fragments),
            str(int(nbytes[one.source, one.to])),
            str(one.most),
            str(one.window),
            f"{one.closed:.1%}",
            str(one.sized),
            f"{one.sized_closed:.1%}",
        )
        for one in found
    ]
    lines = [table("", head, rows), "", _verdict(len(traces), found)]
    if left := sum(one.left_out for one in traces):
        lines.append(f"{left} notes were left out: there was no room for them")
    return "\n".join(lines)


def _verdict(nodes: int, found: Sequence[Pair]) -> str:
    if not found:
        return "nobody sent anything"
    sent = sum(one.fragments for one in found)
    now = sum(one.closed * one.fragments for one in found) / sent
    then = sum(one.sized_closed * one.fragments for one in found) / sent
    talk = f"{len(found)} of {nodes * (nodes - 1)} pairs talk"
    return (
        f"{talk}; without copying out, {now:.1%} of the fragments would meet a closed window, "
        f"{then:.1%} with windows sized to the outstanding frames"
    )


def plot(traces: Sequence[Trace], path: str | Path) -> None:
    """Draws the matrix, and a time line: each fragment from its sending to its use."""
    height = 3.0 + 0.35 * len(traces)
    picture, ((left, right),) = draw.grid(1, 2, size=(13.0, height), widths=(1, 1.5))
    _matrix(picture, left, traces)
    _time_line(right, traces)
    draw.save(picture, path)


def _matrix(picture: Figure, pair: Axes, traces: Sequence[Trace]) -> None:
    """Draws senders as rows, receivers as columns; rank 0 is at the top, as in the time line."""
    count, _ = matrix(traces)
    ranks = [str(one.rank) for one in traces]
    draw.heat(picture, pair, count[::-1], ranks, ranks[::-1], "fragments (count)")
    draw.label(pair, "who sends to whom", "to (rank)", "from (rank)")


def _flights(traces: Sequence[Trace]) -> list[tuple[int, int, int, int]]:
    """Returns (sent ns, from, consumed ns, to) of each consumed fragment, in order."""
    found = []
    for source in range(len(traces)):
        for to in range(len(traces)):
            sent, consumed = pair_times(traces, source, to)
            found += [(int(a), source, int(b), to) for a, b in zip(sent, consumed, strict=False)]
    return sorted(found)


def _time_line(pair: Axes, traces: Sequence[Trace]) -> None:
    flights = _flights(traces)
    shown = flights[:_LINES_MOST]
    start = shown[0][0] if shown else 0
    for sent, source, consumed, to in shown:
        pair.plot(
            [(sent - start) / 1e6, (consumed - start) / 1e6],
            [source, to],
            color=draw.COLOURS[source % len(draw.COLOURS)],
            linewidth=1.1,
        )
    title = "from sent to consumed, coloured by sender"
    if len(shown) < len(flights):
        title += f"\nthe first {len(shown)} of {len(flights)}"
    draw.label(pair, title, "time (ms)", "rank")
    pair.set_yticks(range(len(traces)))
    pair.invert_yaxis()
