"""Tests the bounds of tools/bench cost: each phase of the controller has its own."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from tool_module import load_tool


@pytest.fixture
def cost(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_tool("bench cost", monkeypatch)


def share(cpu_share: float, elapsed_s: float) -> dict[str, float]:
    return {"cpu_share": cpu_share, "elapsed_s": elapsed_s}


GOOD: dict[str, Any] = {
    "tuned": {"measure": share(0.02, 5.0), "trial": share(0.025, 2.0), "idle": share(0.006, 22.0)},
    "veth": {"measure": share(0.02, 26.0), "trial": share(0.016, 5.0)},
    "rss_max_MiB": 47.0,
}


@pytest.mark.parametrize(
    ("wrong", "met"),
    [
        ({}, True),
        ({"tuned": GOOD["tuned"] | {"idle": share(0.03, 22.0)}}, False),
        ({"tuned": GOOD["tuned"] | {"measure": share(0.2, 5.0)}}, False),
        ({"veth": GOOD["veth"] | {"trial": share(0.03, 5.0)}}, False),
        ({"veth": GOOD["veth"] | {"measure": share(0.03, 26.0)}}, False),
    ],
)
def test_report__keeps_to_the_bounds(
    cost: ModuleType, wrong: dict[str, Any], met: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cost.report({"rounds": [GOOD, GOOD | wrong, GOOD | wrong]}) is met
    assert "when all is decided" in capsys.readouterr().out
