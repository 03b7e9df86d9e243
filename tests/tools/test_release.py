"""A release's long runs: their pieces, that they continue, and that a failure stays recorded."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tool_module import load_tool

ROOT = Path(__file__).parents[2]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_tool("tools/release", monkeypatch)


def test_pieces__of_a_release(release: ModuleType, tmp_path: Path) -> None:
    made = release.pieces(tmp_path, 1.0)
    of = {kind: [one for one in made if one.kind == kind] for kind in release.KINDS}
    kinds = {"sim": 10_000_000, "traditional": 1_000_000, "hostile": 1_000_000}
    for kind, count in kinds.items():
        seeds = [(int(one.argv[3]), int(one.argv[5])) for one in of[kind]]
        assert sum(n for _, n in seeds) == count
        assert all(a + n == b for (a, n), (b, _) in itertools.pairwise(seeds))
        assert all(("--hostile" in one.argv) == (kind == "hostile") for one in of[kind])
        assert all(("traditional" in one.argv) == (kind == "traditional") for one in of[kind])
    assert sum(int(one.argv[3]) for one in of["faults"]) == 1_000
    assert len({one.argv[5] for one in of["faults"]}) == len(of["faults"])  # seeds
    assert sum(int(one.argv[2]) for one in of["fuzz"]) == 3_600  # of all targets
    assert [one.argv[2] for one in of["soak"]] == ["1600000000"]
    assert {one.argv[2]: one.argv[4] for one in of["powercut"]} == {"ext4": "100", "xfs": "100"}
    assert {one.argv[3] for one in of["drivers"]} == {"1000000"}
    assert len({one.key for one in made}) == len(made)


def test_pieces__of_a_small_scale_are_one_of_each(release: ModuleType, tmp_path: Path) -> None:
    made = release.pieces(tmp_path, 1e-9)
    assert [one.kind for one in made] == [
        "sim",
        "traditional",
        "hostile",
        "fuzz",
        "faults",
        *["powercut"] * 2,
        *["drivers"] * len(release.DRIVERS),
        "soak",
    ]
    assert "--count 1" in " ".join(made[0].argv)


def test_pieces__have_commands_that_know_their_options(release: ModuleType, tmp_path: Path) -> None:
    made = release.pieces(tmp_path, 1e-9)
    for program in {tuple(one.argv[: 1 + (one.kind == "faults")]) for one in made}:
        options = {
            word for one in made if one.argv[: len(program)] == [*program] for word in one.argv
        }
        text = (ROOT / program[-1]).read_text()
        unknown = {word for word in options if word.startswith("--") and word not in text}
        assert not unknown, program


class Played:
    """A release of three pieces; the test decides about the middle one."""

    def __init__(self, release: ModuleType, out: Path, patch: pytest.MonkeyPatch) -> None:
        self.out, self.release, self.status = out, release, out.parent / "status"
        script = "import sys, pathlib; print(sys.argv[1]); pathlib.Path(sys.argv[2]).open('a')"
        script += ".write('x'); sys.exit(int(pathlib.Path(sys.argv[3]).read_text() or 0))"
        self.ok = out.parent / "ok"
        self.ok.write_text("0")
        names = (("sim", self.ok), ("fuzz", self.status), ("soak", self.ok))
        made = [
            release.Piece(
                kind,
                "1",
                [sys.executable, "-c", script, kind, str(out.parent / kind), str(status)],
            )
            for kind, status in names
        ]
        patch.setattr(release, "pieces", lambda *_: made)
        patch.setattr(sys, "argv", ["release", "--scale", "1e-9", "--out", str(out)])

    def run(self, status: int) -> int:
        self.status.write_text(str(status))
        return int(self.release.main())

    def ran(self) -> dict[str, int]:
        found = [self.out.parent / kind for kind in ("sim", "fuzz", "soak")]
        return {one.name: len(one.read_text()) for one in found if one.exists()}

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "release.json").read_text())
        return found


@pytest.fixture
def played(release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(release, tmp_path / "out", monkeypatch)


def test_release__interrupted_goes_on(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    assert played.run(130) == 130
    assert "the same command continues" in capsys.readouterr().out
    assert set(played.report["done"]) == {"sim 1"}
    assert played.run(0) == 0
    assert played.ran() == {"sim": 1, "fuzz": 2, "soak": 1}
    assert set(played.report["done"]) == {"sim 1", "fuzz 1", "soak 1"}
    assert played.report["failures"] == []
    assert "fuzz\n" in (played.out / "fuzz.txt").read_text()
    assert played.run(0) == 0  # nothing left to do
    assert played.ran() == {"sim": 1, "fuzz": 2, "soak": 1}


def test_run__finds_carefulctl(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tools/release` is also called without the environment in PATH."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    piece = release.Piece("faults", "1", ["sh", "-c", 'echo "$PATH"'])
    assert release.run(piece, tmp_path) == (0, f"{ROOT / '.venv/bin'}:/usr/bin:/bin")


def test_release__a_failure_ends_nothing_else_and_stays_told(
    played: Played, capsys: pytest.CaptureFixture[str]
) -> None:
    assert played.run(3) == 1
    assert played.ran() == {"sim": 1, "fuzz": 1, "soak": 1}
    assert "FAILED  fuzz 1: status 3, fuzz" in capsys.readouterr().out
    assert played.run(0) == 1  # it succeeds now, but failed before
    assert played.ran() == {"sim": 1, "fuzz": 2, "soak": 1}
    assert [one["status"] for one in played.report["failures"]] == [3]


def test_release__of_another_commit_is_not_gone_on_with(
    played: Played, release: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert played.run(130) == 130
    monkeypatch.setattr(release, "commit", lambda: "another")
    with pytest.raises(SystemExit, match="choose another --out"):
        played.run(0)


def test_release__list_runs_nothing(release: ModuleType, tmp_path: Path) -> None:
    argv = [sys.executable, ROOT / "tools/release", "--list", "--scale", "1e-9"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == len(release.pieces(tmp_path, 1e-9))
    assert "tests/soak/run --sim --from 0 --count 1" in done.stdout
