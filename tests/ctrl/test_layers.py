"""Only link/ touches a peer's window, sequence numbers, cookies and session.

Layers above ask through datapath/link/link.h. tools/lint/house.py checks who may use whom.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "layer", ["message", "engine", "events", "files", "local", "measure", "daemon"]
)
def test_datapath__windows_and_sessions_are_link_s(layer: str) -> None:
    of_link = re.compile(r"(?:->|\.)(?:flow|session|phase|cookie_in|cookie_out|heard)\b")
    sources = sorted((Path(__file__).parents[2] / "datapath" / layer).glob("*.[ch]"))
    assert sources
    assert not {one.name: said for one in sources if (said := of_link.findall(one.read_text()))}
