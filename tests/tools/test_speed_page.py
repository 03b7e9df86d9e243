"""The page of speed has the tables of the kept run, and of no other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tool_module import load_tool

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_tool("bench/summary", monkeypatch)


def test_page__has_the_kept_run_s_tables(tool: ModuleType) -> None:
    """A run of an older tools/bench/run has none of them."""
    has = tool.HEADING in tool.PAGE.read_text()
    assert has == ("commit" in json.loads(tool.KEPT.read_text()))
    if has:
        done = subprocess.run([sys.executable, tool.__file__, "--check"], check=False)
        assert done.returncode == 0, "tools/bench/summary --page writes it"


def test_page__tables(tool: ModuleType) -> None:
    rounds: dict[str, list[float | None]] = {
        "trip_careful_64_p50_us": [3.0, None, 5.0],
        "small_mps": [2e6, 1e6, 3e6],
        "cpu_get_client_s": [1.0, 1.5, 2.0],
        "cpu_get_server_s": [0.5, 0.5, 0.5],
    }
    ratio = {"figure": "request_us", "yardstick": "bare_echo_us", "ratio": 1.2, "ratio_min": 1.1}
    ratio |= {"ratio_max": 1.3, "bound": 1.1, "at_most": True, "met": False}
    whole = {"commit": "c0ffee", "kernel": "6.18.1-x", "file_bytes": 1 << 30, "rounds": rounds}
    text = tool.page(whole | {"ratios": [ratio]}, "# speed\n")
    for line in (
        "| careful | 4.0 | - | - | - |",
        "| careful, 64 B messages in a stream | 2.00 million/s | 1.00 | 3.00 |",
        "| carefulctl get | 1.50 | 0.50 |",
    ):
        assert line in text.splitlines()
    assert "| request, 64 B | AF_XDP | 1.20 | 1.10 to 1.30 | no: at most 1.10 |" in text
    assert "At commit c0ffee, kernel 6.18" in text
    assert tool.page(whole | {"ratios": [ratio]}, text) == text
