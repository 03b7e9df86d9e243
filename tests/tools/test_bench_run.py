"""tools/bench/run compares XDP modes within a round, not between runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import careful
import pytest
from hosts import finish
from lab import Lab
from tool_module import load_tool

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/bench/run"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_tool("bench speed", monkeypatch)


@dataclass
class FakeBench:
    """Takes twice as long in each round as in the one before, like a busy machine."""

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
    # The result does not depend on changes of the machine between rounds.
    both = {mode: each["request_us"] for mode, each in rounds.items()}
    assert tool.ratio(both, "generic", "native") == (0.75, 0.75, 0.75)


def test_round__goes_on_without_a_yardstick_that_fails(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A yardstick that fails is named once, and left out of that round and its ratio."""
    fio: list[float | None] = [40.0, None, 50.0]

    def one() -> float:
        found = fio.pop(0)
        if not found:
            raise tool.BenchError("fio is not installed")
        return found

    monkeypatch.setattr(sys.modules["yardsticks"], "fio_us", one)
    bench = tool.Bench(Path(), 1, "auto")
    monkeypatch.setattr(bench, "_best", lambda *_: {"nbdcopy_gbit": 10.0})
    monkeypatch.setattr(sys.modules["speed_parts"], "beside", lambda *_: nullcontext())
    rounds: dict[str, dict[str, list[float]]] = {"auto": {}}
    for _ in range(3):
        tool.one_round({"auto": bench}, ["nbd"], rounds)
    assert rounds["auto"] == {"nbdcopy_gbit": [10.0] * 3, "fio_us": [40.0, None, 50.0]}
    assert bench.missing == ["fio is not installed"]
    assert tool.ratio(rounds["auto"], "nbdcopy_gbit", "fio_us")[1:] == (0.2, 0.25)
    assert "fio is not installed" in capsys.readouterr().err


def test_missed__is_a_bound_that_is_not_met_or_not_judged(tool: ModuleType) -> None:
    """A yardstick that is not installed leaves its bound open, which is not success."""
    rounds = {"request_us": [10.0], "bare_echo_us": [10.0]}
    slow = rounds | {"request_us": [12.0]}
    some = {"whole": False, "modes": {"native": rounds}}
    assert tool.missed(some) == []
    some["modes"]["generic"] = slow
    assert tool.missed(some) == ["request_us / bare_echo_us: not met"]
    bounded = [one for one in tool.BOUNDS if one.bound is not None]
    assert len(tool.missed(some | {"whole": True})) == len(bounded)
    assert "fetch_us / fio_us: not measured" in tool.missed(some | {"whole": True})


def test_best__arms_take_turns(tool: ModuleType, tmp_path: Path) -> None:
    """All arms meet the same state of the machine."""
    (tmp_path / "out").mkdir()
    made: list[str] = []

    def arm(name: str, rates: list[float]) -> tuple[str, object]:
        def once(target: Path) -> float:
            target.touch()
            made.append(name)
            return rates.pop(0)

        return name, once

    bench = tool.Bench(tmp_path, 1 << 30, "auto")
    found = bench._best(arm("get", [1.0, 5.0, 2.0]), arm("plain", [6.0, 3.0, 4.0]))
    assert made == ["get", "plain"] * 3
    assert found == {"get_gbit": 5.0, "plain_gbit": 6.0}
    assert not list((tmp_path / "out").iterdir())


def test_every_program_of_ours_is_in_the_mode(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server once used `auto`, whatever mode was requested."""
    started: list[dict[str, str]] = []

    class Server:
        def __init__(self, argv: list[str], env: dict[str, str], **_: object) -> None:
            started.append(env)
            self.stdout = iter(())
            raise tool.BenchError("seen")

    monkeypatch.setattr(subprocess, "Popen", Server)
    with pytest.raises(tool.BenchError, match="seen"):
        tool.Bench(Path(), 1, "generic").request()
    assert [env.get("CAREFUL_XDP") for env in started] == ["generic"]


def test_program__that_runs_in_another_mode_is_a_fault(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = sys.modules["speed_parts"]
    monkeypatch.setattr(parts, "run", lambda *_, **__: '{"xdp": "generic", "p50_us": 3.0}')
    assert tool.Bench(Path(), 1, "generic")._found(["pair"])["p50_us"] == 3.0
    with pytest.raises(tool.BenchError, match="pair: XDP mode generic in place of native"):
        tool.Bench(Path(), 1, "native")._found(["pair"])


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """tools/bench/pair with the libcareful of this environment."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler")
    library = Path(careful.__file__).parent / "libcareful.so"
    headers = [f"-I{ROOT / 'datapath/include'}", f"-I{ROOT / 'datapath'}"]
    sources = [ROOT / "tools/bench/programs/pair.c", *headers]
    linked = [library, f"-Wl,-rpath,{library.parent}"]
    subprocess.run([compiler, "-o", tmp_path / "pair", *sources, *linked], check=True)
    return tmp_path / "pair"


@pytest.mark.lab
def test_pair__serves_until_it_is_told_to_end(lab: Lab, pair: Path) -> None:
    """It once ended after four seconds, on a busy machine before the last request."""
    server = lab.start("h2", pair, "serve", "eth1")
    assert server.stdout
    assert server.stdout.readline() == "ready\n"
    time.sleep(4.5)
    asked = lab.run("h1", pair, "ask", "eth1", lab.address("h2"), "64", "100")
    assert json.loads(asked.stdout)["count"] == 100
    assert server.poll() is None
    server.terminate()
    assert finish(server) == (0, "", "")


def test_help__explains_both() -> None:
    done = subprocess.run(
        [sys.executable, TOOL, "speed", "--help"], capture_output=True, text=True, check=True
    )
    assert "--xdp {auto,native,generic,both}" in done.stdout
    assert "generic / native" in " ".join(done.stdout.split())
