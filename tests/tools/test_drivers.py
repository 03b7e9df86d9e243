"""What tools/drivers keeps of a pair: of both hosts, and of the card that was set up anew."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tool_module import load_tool


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_tool("drivers", monkeypatch)


def test_used__is_of_both_hosts(drivers: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = {"h1": "native", "h2": "generic"}

    def status(host: str) -> dict[str, Any]:
        return dict.fromkeys(drivers.USED, 0) | {"xdp_mode": modes[host], "driver": "igb"}

    monkeypatch.setattr(drivers, "status", status)
    found = drivers.used()
    assert set(found) == set(drivers.USED)
    assert found["xdp_mode"] == modes


def test_troubled__sets_up_either_card_twice(
    drivers: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended = tmp_path / "ended"
    met: list[str] = []

    def done(argv: list[str]) -> subprocess.CompletedProcess[str]:
        met.append(argv[0])
        if len(met) == 4:
            ended.touch()
        return subprocess.CompletedProcess(argv, int(argv[0] == "h1"), "", "Not supported\n")

    def inside(host: str, *argv: str) -> list[str]:
        transfer = ["sh", "-c", f"until [ -e {ended} ]; do sleep 0.01; done"]
        return transfer if argv[0] == "carefulctl" else [host, *argv]

    monkeypatch.setattr(drivers, "done", done)
    monkeypatch.setattr(drivers, "inside", inside)
    monkeypatch.setattr(drivers, "on", lambda *_: "the same sum")
    monkeypatch.setattr(drivers, "counted", lambda _: {"peer": {"epochs": 1}})
    monkeypatch.setattr(drivers.time, "sleep", lambda _: None)
    found = drivers.troubled("down and up", "ip link …")
    assert met == ["h2", "h1", "h2", "h1"]
    assert found["done"] == {"h1": 0, "h2": 2}
    assert found["driver_said"] == {"h1": "Not supported"}
    assert found["right"]
