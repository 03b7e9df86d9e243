"""The output of `doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from careful.render.tables import alarm, folded

if TYPE_CHECKING:
    from careful.control.checks.check_result import Finding


def findings(found: Iterable[Finding]) -> str:
    """Returns a line for each finding."""
    mark = {"ok": "ok  ", "warn": "warn", "fail": alarm("FAIL"), "unknown": "?   "}
    lines = []
    for one in found:
        lines.append(f"{mark[one.state]}  {one.check:10} {said(one)}")
    return folded("\n".join(lines), hang=17)


def said(one: Finding) -> str:
    """Returns a finding and its advice, unless its text (a line of `up`) contains the advice."""
    return one.text if one.advice in one.text else f"{one.text} ({one.advice})"
