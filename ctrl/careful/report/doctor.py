"""What `doctor` prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from careful.report.tables import alarm, folded

if TYPE_CHECKING:
    from careful.control.finding import Finding


def findings(found: Iterable[Finding]) -> str:
    """What doctor found, a line each."""
    mark = {"ok": "ok  ", "warn": "warn", "fail": alarm("FAIL"), "unknown": "?   "}
    lines = []
    for one in found:
        said = one.advice in one.text  # a line of `up` may say what to do
        advice = "" if said else f" ({one.advice})"
        lines.append(f"{mark[one.state]}  {one.check:10} {one.text}{advice}")
    return folded("\n".join(lines), hang=17)
