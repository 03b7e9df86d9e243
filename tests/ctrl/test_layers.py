"""Only link/ touches a peer's window, sequence numbers, cookies and session.

Layers above ask through datapath/link/link.h. tools/lint/house.py checks who may use whom.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DATAPATH = Path(__file__).parents[2] / "datapath"
ABOVE_LINK = ("message", "engine", "events", "files", "local", "measure", "daemon")


@pytest.mark.parametrize("layer", ABOVE_LINK)
def test_datapath__windows_and_sessions_are_link_s(layer: str) -> None:
    of_link = re.compile(r"(?:->|\.)(?:flow|session|phase|cookie_in|cookie_out|heard)\b")
    sources = sorted((DATAPATH / layer).glob("*.[ch]"))
    assert sources
    assert not {one.name: output for one in sources if (output := of_link.findall(one.read_text()))}


@pytest.mark.parametrize("layer", ABOVE_LINK)
def test_datapath__only_link_writes_its_fields(layer: str) -> None:
    write = re.compile(r"\blink(?:\.|->)\w+(?:\[[^]]*\])?\s*(?:[-+|&]?=[^=]|\+\+|--).*")
    sources = sorted((DATAPATH / layer).glob("*.[ch]"))
    assert sources
    assert not {one.name: output for one in sources if (output := write.findall(one.read_text()))}
