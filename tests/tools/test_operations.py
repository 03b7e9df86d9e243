"""Tests how tools/bench/run operations sums up and draws the times of operations."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tool_module import load_tool


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_tool("bench operations", monkeypatch)


def one(each: float, mean_ns: float) -> dict[str, Any]:
    counts = [0, 0, 5, 1] if each else []
    return {"each": each, "median_ns": 2, "mean_ns": mean_ns, "counts": counts}


def kept(tool: ModuleType) -> dict[str, Any]:
    """Three rounds; the middle one counts."""
    careful = [{name: one(0, 0) for name in tool.OPERATIONS} for _ in range(3)]
    other = [{name: one(2, 10) for name in tool.OPERATIONS} for _ in range(3)]
    for times, run in zip((5, 20, 500), careful, strict=True):
        run["send"] = one(2, times)
    return {"schema": 1, "rounds": {"careful": careful, "traditional": other}}


def test_show__common_settings_are_left_out(
    tool: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.report(kept(tool))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(tool.OPERATIONS)
    assert "40.0 (2.0 times)" in lines[1]
    assert lines[-1] == ("together, without check: careful 40, traditional 120, 40 ns more a frame")


def test_draw__a_histogram_of_each(tool: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    tool.draw(kept(tool), tmp_path / "operations.png")
    assert (tmp_path / "operations.png").read_bytes().startswith(b"\x89PNG")
