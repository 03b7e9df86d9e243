"""The output of `carefulctl fleet`: a line for each host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from careful.errors import shown
from careful.fleet.chain import Member, Result
from careful.fleet.running import Outcome, number, tables
from careful.render.tables import alarm, table
from careful.render.tuning import explain
from careful.units import shown_bytes as size


def outcome_figures(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Returns each host's JSON object, or its error."""
    found = [
        {
            "host": one.host,
            **({"peer": one.job.name} if one.job.name else {}),
            "error": one.error or None,
            "took_s": round(one.took_s, 3),
            **({"figures": one.figures} if one.figures else {}),
        }
        for one in outcomes
    ]
    return {"hosts": found, "failed_count": sum(1 for one in outcomes if one.error)}


def failed(one: Outcome) -> str:
    """Returns a line about a host that failed."""
    peer = f" to {one.job.name}" if one.job.name else ""
    return f"{one.host}{peer}: {one.error}"


def _row(one: Outcome, found: dict[str, object]) -> tuple[object, ...]:
    peers = tables(found.get("peers"))
    well = sum(1 for peer in peers if peer.get("state") == "up")
    counts = ("lost_here_frames", "lost_there_frames")
    lost = int(sum(number(peer, key) or 0 for peer in peers for key in counts))
    exports = shown(", ".join(str(one.get("path")) for one in tables(found.get("exports"))))
    ifname, driver, mode, window = (
        shown(str(found.get(key, "-")))
        for key in ("ifname", "driver", "xdp_mode", "window_buffers")
    )
    return (
        one.host,
        ifname,
        f"{driver}, {mode}, {'zero-copy' if found.get('zerocopy') else 'copy'}",
        window,
        f"{well} of {len(peers)}",
        alarm(str(lost)) if lost else 0,
        "auto" if found.get("tuner_pid") else "-",
        shown(exports) or "-",
    )


def status(outcomes: Sequence[Outcome]) -> str:
    """Returns a table of the status of each host that answered."""
    columns = ("host", "interface", "XDP", "window", "peers up", "lost", "tune", "exports")
    rows = [
        _row(one, found)
        for one in outcomes
        if not one.error
        for found in tables(one.figures.get("instances")) or [one.figures]
    ]
    return table("", columns, rows) if rows else "no host answered"


def brief(outcomes: Sequence[Outcome], done: str) -> str:
    """Returns how many hosts succeeded."""
    well = [one for one in outcomes if not one.error]
    return f"{done} on {len(well)} of {len(outcomes)} hosts"


def _decision(one: dict[str, object]) -> str:
    try:
        return shown(explain.decision(one))
    except (KeyError, TypeError, AttributeError):
        return "?"


def tuned(outcomes: Sequence[Outcome]) -> str:
    """Returns a table of the last decision of `tune auto --once` for each host and peer."""
    rows: list[tuple[object, ...]] = []
    for one in outcomes:
        for path in tables(one.figures.get("paths")):
            decisions = tables(path.get("decisions"))
            last = _decision(decisions[-1]) if decisions else "-"
            rows.append((one.host, one.job.name, last))
    return table("", ("host", "peer", "last decision"), rows) if rows else "nothing was tuned"


def put_figures(found: Result) -> dict[str, object]:
    """Returns the result of `fleet put` for JSON."""
    blocks, hop = found.blocks, found.hop
    predicted = blocks.predicted_us if blocks else None
    return {
        "hosts": [
            {
                "host": one.host.name,
                "state": one.state or None,
                "error": one.error or None,
                "took_s": round(one.took_s, 3),
                "resumed_blocks": one.resumed_blocks,
            }
            for one in found.members
        ],
        "failed_count": sum(1 for one in found.members if one.error),
        "file_bytes": blocks.file_bytes if blocks else None,
        "block_bytes": blocks.block_bytes if blocks else None,
        "predicted_s": None if predicted is None else round(predicted / 1e6, 3),
        "hop": None if hop is None else asdict(hop),
        "took_s": round(found.took_s, 3),
    }


def member(one: Member) -> str:
    """Returns a line about a host that has the file, or failed."""
    return f"{one.host.name}: {one.error}" if one.error else f"{one.host.name}: {one.state}"


def put(found: Result) -> str:
    """Returns the result of `fleet put` for people."""
    rows = [
        (one.host.name, one.state or "failed", f"{one.took_s:.2f}" if one.state else "-")
        for one in found.members
    ]
    text = table("", ("host", "file", "took (s)"), rows)
    if found.blocks and found.blocks.file_bytes:
        predicted = found.blocks.predicted_us
        text += f"\n{size(found.blocks.file_bytes)} in blocks of {size(found.blocks.block_bytes)}"
        text += f", predicted {predicted / 1e6:.2f} s" if predicted else ""
    return text
