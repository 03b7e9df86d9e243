"""The output of tools/demo fits a terminal."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_show__fits_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest possible figures are neither folded nor cut off."""
    monkeypatch.syspath_prepend(str(ROOT / "tools/bench"))
    demo = importlib.import_module("demo")
    row = {
        "what": "get 99999 files",
        "files": 99999,
        "bytes": 99_999_999_999,
        "seconds": 9999.99,
        "gbit": 99.99,
        "frames": 99_999_999,
        "lost": 0,
    }
    copied = {key: row[key] for key in ("what", "files", "bytes", "seconds", "gbit")}
    demo.show([row, copied], {"fetch_8KiB_p50_us": 99999.9, "fetch_8KiB_p99_us": 99999.9})
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    (whole, _) = (line for line in lines if "get 99999 files" in line)
    assert "99,999,999,999" in whole
    assert "99,999,999 " in whole


def test_tune__draws_the_times_of_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "tools/bench"))
    demo_tune = importlib.import_module("demo_tune")
    decided = [{"what": what, "at_s": 102.0} for what in ("changed", "kept", "unverified")]
    monkeypatch.setattr(demo_tune, "decisions", lambda: decided)
    reads = "".join(f"{100 + k / 10} 0.02\n" for k in range(50)) + "104."
    demo_tune.draw(reads, tmp_path / "plot.svg", 102.0)
    drawn = (tmp_path / "plot.svg").read_text()
    assert "changed" in drawn
    assert "kept" in drawn
    assert "the path changes" in drawn
    assert "unverified" not in drawn
