"""The output of `verify` and `partials`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from careful.render.tables import table
from careful.units import counted
from careful.units import shown_bytes as size

if TYPE_CHECKING:
    from careful.transfer.file.find_partials import PartialFile
    from careful.transfer.run.verify import Verified


def verified_figures(found: Verified) -> dict[str, object]:
    """Returns a comparison for JSON."""
    return {
        "files_count": found.files,
        "compared_bytes": found.bytes,
        "elapsed_s": found.seconds,
        "differences": [{"name": name, "what": what} for name, what in found.differences],
    }


def verified(found: Verified) -> str:
    """Returns a comparison for people: a line for each difference, and a total."""
    lines = [f"{name}: {what}" for name, what in found.differences]
    whole = f"{counted(found.files, 'file')}, {size(found.bytes)} compared in {found.seconds:.2f} s"
    differing = counted(len(found.differences), "difference")
    lines.append(f"{whole}: {differing}" if lines else f"{whole}: equal")
    return "\n".join(lines)


def partial_figures(one: PartialFile) -> dict[str, object]:
    """Returns a partial file for JSON."""
    return {
        "name": one.name,
        "bytes": one.bytes,
        "present_bytes": one.present_bytes,
        "source": one.source or None,
        "age_s": one.age_s,
        "state": one.state,
    }


def _age(seconds: float) -> str:
    for unit, count in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= count:
            return f"{seconds / count:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"


def partials(found: Sequence[PartialFile]) -> str:
    """Returns partial files as a table."""
    if not found:
        return "no partial files"
    rows = [
        (
            one.name,
            "?" if one.bytes is None else f"{size(one.present_bytes or 0)} of {size(one.bytes)}",
            one.source or "?",
            _age(one.age_s),
            one.state,
        )
        for one in found
    ]
    return table("", ["partial file", "kept", "source", "age", "state"], rows)
