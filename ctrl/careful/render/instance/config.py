"""The output of `config check`."""

from __future__ import annotations

from collections.abc import Mapping

from careful.control.checks.check_result import Finding
from careful.control.options.config import Config
from careful.render.instance.doctor import said


def checked(found: Config, refused: Mapping[str, list[Finding]]) -> str:
    """Lists the files and their contents, or by table what `up` would refuse."""
    if not found.paths:
        return "no configuration file: every option has its default"
    listed = " and ".join(str(one) for one in found.paths)
    lines = [
        f"{listed}: {table}: {said(one)}" for table, all_of in refused.items() for one in all_of
    ]
    if lines:
        return "\n".join(lines)
    return f"{listed}: no error; {len(found.nodes)} nodes, {len(found.instances)} instances"
