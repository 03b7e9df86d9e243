"""The output of `doctor` and `config check`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from careful.render.tables import alarm, folded

if TYPE_CHECKING:
    from careful.control.checks.check_result import Finding
    from careful.control.options.config import Config


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


def checked(found: Config, refused: Mapping[str, list[Finding]]) -> str:
    """Lists the configuration files. refused: by table, the findings that make `up` refuse it."""
    if not found.paths:
        return "no configuration file: every option has its default"
    listed = " and ".join(str(one) for one in found.paths)
    lines = [
        f"{listed}: {table}: {said(one)}" for table, all_of in refused.items() for one in all_of
    ]
    if lines:
        return "\n".join(lines)
    return f"{listed}: no error; {len(found.nodes)} nodes, {len(found.instances)} instances"
