"""tools/bench/run compares XDP modes within one round, not one run with another."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools/bench/run"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("bench_run", str(TOOL))
    spec = importlib.util.spec_from_loader("bench_run", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@dataclass
class FakeBench:
    """Takes twice as long in each round as in the one before, as a machine may."""

    mode: str
    us: float
    asked: list[str]
    rounds: list[int] = field(default_factory=list)

    def request(self) -> dict[str, float]:
        self.asked.append(f"request {self.mode}")
        self.rounds.append(0)
        return {"request_us": self.us * 2 ** len(self.rounds)}

    def tcp(self) -> dict[str, float]:
        self.asked.append("tcp")
        return {"tcp_spin_us": 10.0}


def test_both__modes_take_turns_within_a_round(tool: ModuleType) -> None:
    asked: list[str] = []
    benches = {
        "native": FakeBench("native", 4.0, asked),
        "generic": FakeBench("generic", 3.0, asked),
    }
    rounds: dict[str, dict[str, list[float]]] = {mode: {} for mode in benches}
    for _ in range(3):
        tool.one_round(benches, ["tcp", "request"], rounds)
    first, then = ["tcp", "request native", "request generic"], ["tcp", "request generic"]
    assert asked == [*first, *then, "request native", *first]
    assert rounds["native"]["tcp_spin_us"] == rounds["generic"]["tcp_spin_us"] == [10.0] * 3
    # However the machine changes from round to round, and of what has no mode nothing is said.
    assert tool.between(rounds) == [
        {"figure": "request_us", "ratio": 0.75, "ratio_min": 0.75, "ratio_max": 0.75}
    ]


def test_every_program_of_ours_is_in_the_mode(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server, too: it took whatever `auto` is, whichever mode was asked for."""
    started: list[dict[str, str]] = []

    class Server:
        def __init__(self, argv: list[str], env: dict[str, str], **_: object) -> None:
            started.append(env)
            self.stdout = iter(())
            raise tool.BenchError("seen")

    monkeypatch.setattr(tool.subprocess, "Popen", Server)
    with pytest.raises(tool.BenchError, match="seen"):
        tool.Bench(Path(), 1, "generic").request()
    assert [env.get("CAREFUL_XDP") for env in started] == ["generic"]


def test_help__says_what_both_is() -> None:
    done = subprocess.run(
        [sys.executable, TOOL, "--help"], capture_output=True, text=True, check=True
    )
    assert "--xdp {auto,native,generic,both}" in done.stdout
    assert "generic / native" in " ".join(done.stdout.split())
