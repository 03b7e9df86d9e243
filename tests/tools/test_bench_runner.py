"""tools/bench/run keeps a scenario's measurements, and its exit status is the report's verdict."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from careful._abi import lib
from tool_module import ROOT, load_tool

RUN = ROOT / "tools/bench/run"


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(RUN.parent))
    return load_tool("tools/bench/run", monkeypatch)


def scenario(rows: bool) -> ModuleType:
    """A scenario of numbers whose report wants all below 10."""
    made = ModuleType("scenarios.fake")
    made.__doc__ = "Counts."

    def options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--first", type=int, default=1)

    def measured(args: argparse.Namespace) -> dict[str, Any]:
        return {"rounds": [args.first + k for k in range(args.rounds)]}

    def yielded(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
        yield from ({"value": value} for value in measured(args)["rounds"])

    def report(kept: dict[str, Any]) -> bool:
        found = [one["value"] for one in kept["runs"]] if rows else kept["rounds"]
        print(found)
        return max(found) < 10

    more = {"ROWS": "runs", "measured": yielded} if rows else {"measured": measured}
    vars(made).update(ROUNDS=3, WITHOUT_LAB=True, options=options, report=report, **more)
    return made


def played(runner: ModuleType, monkeypatch: pytest.MonkeyPatch, rows: bool, *words: str) -> int:
    monkeypatch.setattr(runner.importlib, "import_module", lambda _: scenario(rows))
    monkeypatch.setitem(runner.SCENARIOS, "fake", runner.HERE / "scenarios/fake.py")
    monkeypatch.setattr(sys, "argv", ["tools/bench/run fake", *words])
    return int(runner.play("fake"))


def test_play__keeps_the_commit_and_the_command(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.json"
    assert played(runner, monkeypatch, False, "--keep", str(kept)) == 0
    found = json.loads(kept.read_text())
    assert found["rounds"] == [1, 2, 3]
    assert found["command"] == "tools/bench/run fake", "a path is of this machine alone"
    assert {"schema", "kernel", "commit", "machine", "date"} <= found.keys()
    assert found["wire"].startswith(f"{lib.CAREFUL_WIRE_VERSION}.")
    assert played(runner, monkeypatch, False, "--keep", str(kept), "--first", "9") == 1
    assert played(runner, monkeypatch, False, "--keep", str(kept), "--rounds", "0") == 1


def test_play__adds_rows_to_those_that_are_kept(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.json"
    for first in ("1", "5"):
        words = ("--keep", str(kept), "--runs", "2", "--first", first)
        assert played(runner, monkeypatch, True, *words) == 0
    rows = json.loads(kept.read_text())["runs"]
    assert [one["value"] for one in rows] == [1, 2, 5, 6]
    assert all(one["commit"] for one in rows)


def test_run__lists_scenarios_and_refuses_unknown_ones() -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, str(RUN), *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    listed = run()
    assert (listed.returncode, "speed" in listed.stdout.split()) == (0, True)
    wrong = run("no-such")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "no scenario no-such" in wrong.stderr
    none = run("idle", "--rounds", "0", "--keep", "/nonexistent/kept.json")
    assert (none.returncode, none.stderr) == (1, "idle: /nonexistent/kept.json: no runs yet\n")
