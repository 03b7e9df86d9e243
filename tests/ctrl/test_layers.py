"""Which package may import which, and what only link knows in the datapath.

daemon is the ground that the other packages stand on. A peer's window, sequence, cookies and
session are link's: whoever is above it asks it (datapath/link/link.h).
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import careful
import pytest

ROOT = Path(careful.__file__).parent
#: Package -> packages of this project that it must not import.
FORBIDDEN = {
    "bench": {"cli", "control", "files", "measure", "report", "transfer", "tuning"},
    "daemon": {
        "cli",
        "control",
        "files",
        "measure",
        "model",
        "node",
        "report",
        "transfer",
        "tuning",
    },
    "control": {"cli", "files", "measure", "transfer", "tuning"},
    "event": {"cli", "files", "measure", "transfer", "tuning"},
    "files": {"cli", "measure", "report", "tuning"},
    "fleet": {"cli", "control", "measure", "report", "transfer", "tuning"},
    "measure": {"cli", "files", "transfer", "tuning"},
    "model": {"cli", "control", "files", "measure", "report", "transfer", "tuning"},
    "transfer": {"cli", "control", "files", "measure", "report", "tuning"},
    "tuning": {"cli", "files", "node", "transfer"},
}


def imported(source: Path) -> set[str]:
    """The packages of this project that a module imports, at its top or in a function."""
    found = set()
    for node in ast.walk(ast.parse(source.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{one.name}" for one in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("careful.")}
    return found


@pytest.mark.parametrize("package", FORBIDDEN)
def test_package__imports_nothing_above_it(package: str) -> None:
    sources = sorted((ROOT / package).rglob("*.py"))
    assert sources
    wrong = {
        str(one.relative_to(ROOT)): above
        for one in sources
        if (above := imported(one) & FORBIDDEN[package])
    }
    assert not wrong


@pytest.mark.parametrize("layer", ["message", "service", "daemon"])
def test_datapath__windows_and_sessions_are_link_s(layer: str) -> None:
    of_link = re.compile(r"(?:->|\.)(?:flow|session|phase|cookie_in|cookie_out|heard)\b")
    sources = sorted((Path(__file__).parents[2] / "datapath" / layer).glob("*.[ch]"))
    assert sources
    assert not {one.name: said for one in sources if (said := of_link.findall(one.read_text()))}


def test_datapath__each_file_says_whom_it_calls() -> None:
    """In the comment that it opens with."""
    sources = sorted((Path(__file__).parents[2] / "datapath").glob("*/*.c"))
    head = re.compile(
        r"(?:(?://[^\n]*|/\* SPDX[^\n]*\*/)\n)?/\*(?:(?!\*/).)*\b([Cc]alls|Asks)\b", re.S
    )
    assert sources
    assert [str(one) for one in sources if not head.match(one.read_text())] == []
