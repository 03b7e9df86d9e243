"""The kept reports are evidence of this code: each names a clean commit of this history whose wire
version is the code's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tool_module import ROOT, load_tool


@pytest.fixture
def evidence(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    argv = ["git", "-C", str(ROOT), "rev-parse", "--is-shallow-repository"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.stdout.strip() != "false":
        pytest.skip("needs the whole history in git")
    return load_tool("tools/evidence", monkeypatch)


def test_reports__are_of_this_code(evidence: ModuleType) -> None:
    assert not evidence.outdated(), "make these again: tools/evidence NAME"


def test_bench__makes_reports_that_there_are(evidence: ModuleType) -> None:
    programs = {one.stem for one in (ROOT / "tools/bench/scenarios").rglob("*.py")}
    for name, words in evidence.MADE_BY.items():
        assert (evidence.REPORTS / f"{name}.json").exists()
        assert words.split()[0] in programs | {"carefulctl"}


def head() -> str:
    argv = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("commit", "why"),
    [
        (None, "no commit"),
        ("HEAD", ""),
        ("HEAD-dirty", "not clean"),
        ("0123456789ab", "in no history"),
        ("0123456789ab-dirty", "in no history, not clean"),
        ("858f4be46809", "wire 1"),
    ],
)
def test_faults__of_a_report(
    evidence: ModuleType, tmp_path: Path, commit: str | None, why: str
) -> None:
    rows = [{"value": 1, "commit": head()}, {"value": 2}]
    if commit:
        rows[1]["commit"] = commit.replace("HEAD", head())
    else:
        del rows[0]["commit"]
    report = tmp_path / "one.json"
    report.write_text(json.dumps({"schema": 1, "runs": rows}))
    assert evidence.faults(report) == why


def test_evidence__a_report_is_kept_once_it_is_whole(
    evidence: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[list[str]] = []
    statuses = [143, 1, 1]  # ended from outside; a bound is not met

    def run(argv: list[str]) -> int:
        ran.append(argv[1:])
        kept = Path(argv[argv.index("--keep") + 1])
        if "--rounds" not in argv:
            kept.write_text("{}")
        return statuses.pop(0)

    (tmp_path / "idle.part.json").write_text("interrupted")
    with monkeypatch.context() as patched:
        patched.setattr(evidence, "faults", lambda _: "")
        patched.setattr(evidence, "run", run)
        found = [evidence.remake("idle", tmp_path) for _ in range(3)]
    assert found == [(None, False)] + [(tmp_path / "idle.json", False)] * 2
    assert [one[-2:] for one in ran] == [
        ["--keep", str(tmp_path / "idle.part.json")],
        ["--keep", str(tmp_path / "idle.part.json")],
        ["--rounds", "0"],
    ]


def test_evidence__a_report_of_carefulctl_names_the_commit(
    evidence: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(argv: list[str]) -> int:
        assert argv[0].endswith("/carefulctl")
        Path(argv[-1]).write_text('{"schema":1}')
        return 0

    monkeypatch.setattr(evidence, "run", run)
    monkeypatch.setattr(evidence, "made", lambda: {"commit": head(), "command": "pytest"})
    assert evidence.remake("bench", tmp_path) == (tmp_path / "bench.json", True)
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found == {"commit": head(), "schema": 1, "command": evidence.MADE_BY["bench"]}


#: Reports of longer runs, made before their programs named all of it.
UNNAMED = {
    *("arm64", "bench", "drivers", "faults", "incast", "installed", "instructions", "loss"),
    *("power-cut", "release", "reorder", "soak"),
}


def test_reports__name_commit_wire_date_machine_and_command(evidence: ModuleType) -> None:
    names = {"kernel", "machine", "date", "wire", "commit", "command"}
    lacking = {
        one.stem: missing
        for one in evidence.REPORTS.glob("*.json")
        if (missing := names - json.loads(one.read_text()).keys())
    }
    assert lacking.keys() <= UNNAMED, lacking


def test_evidence__an_interrupt_waits_for_the_benchmark(
    evidence: ModuleType, tmp_path: Path
) -> None:
    lab_is_down = tmp_path / "down"
    child = (
        "import os, pathlib, signal, sys, time\n"
        "os.kill(os.getppid(), signal.SIGINT)\n"
        "time.sleep(1)\n"
        "pathlib.Path(sys.argv[1]).touch()\n"
    )
    with pytest.raises(KeyboardInterrupt):
        evidence.run([sys.executable, "-c", child, str(lab_is_down)])
    assert lab_is_down.exists()
