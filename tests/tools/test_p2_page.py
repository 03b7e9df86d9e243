"""The benchmarks page has the tables of the kept run, and of no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_page__has_the_kept_run_s_tables() -> None:
    page = (ROOT / "tests/reports/benchmarks.md").read_text()
    kept = (ROOT / "tests/reports/bench.json").exists()
    assert ("\n## A kept run\n" in page) == kept
    if kept:
        done = subprocess.run([sys.executable, ROOT / "tools/bench/run", "p2_page", "--check"])
        assert done.returncode == 0, "tools/bench/run p2_page writes it"
