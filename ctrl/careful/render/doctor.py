"""What `doctor` prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from careful.render.tables import alarm, folded

if TYPE_CHECKING:
    from careful.control.finding import Finding


def findings(found: Iterable[Finding]) -> str:
    """What doctor found, a line each."""
    mark = {"ok": "ok  ", "warn": "warn", "fail": alarm("FAIL"), "unknown": "?   "}
    lines = []
    for one in found:
        lines.append(f"{mark[one.state]}  {one.check:10} {said(one)}")
    return folded("\n".join(lines), hang=17)


def said(one: Finding) -> str:
    """What was found, and what mends it, unless that says so: a line of `up` may."""
    return one.text if one.advice in one.text else f"{one.text} ({one.advice})"
