"""The pages of speed and bench have the kept runs' tables and verdicts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tool_module import load_tool

ROOT = Path(__file__).resolve().parents[2]
Rounds = dict[str, list[float | None]]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_tool("bench speed", monkeypatch)


def kept(modes: dict[str, Rounds]) -> dict[str, Any]:
    head = {"commit": "c0ffee", "kernel": "6.18.1-x", "file_bytes": 1 << 30, "missing": []}
    return head | {"modes": modes}


def test_pages__are_of_the_kept_runs() -> None:
    argv = [sys.executable, ROOT / "tools/bench/run", "pages", "--check"]
    assert subprocess.run(argv, check=False).returncode == 0, "tools/bench/run pages writes them"


def test_section__has_ratios_and_figures(tool: ModuleType) -> None:
    rounds: Rounds = {
        "request_us": [12.0, 11.0, 13.0],
        "bare_echo_us": [10.0, 10.0, 10.0],
        "small_mps": [2e6, 1e6, 3e6],
        "fio_us": [58.0, None, 62.0],
        "tree_careful_s": [0.3, 0.4, 0.5],
    }
    lines = tool.section(kept({"generic": rounds})).splitlines()
    for line in (
        "| request, 64 B / AF_XDP | 1.20 (1.10 to 1.30): no | - | ≤ 1.10 |",
        "| careful, 64 B messages in a stream | 2.00 million/s | 1.00 | 3.00 |",
        "| NBD read, 8 KiB (nbdkit memory, fio) | 60.00 µs | 58.00 | 62.00 |",
        "| carefulctl get -r, 10,000 files of 4 KiB | 0.40 s | 0.30 | 0.50 |",
    ):
        assert line in lines
    assert "At commit c0ffee, kernel 6.18" in lines[0]
    assert "ran in generic XDP mode" in lines[0]


def test_section__of_both_xdp_modes(tool: ModuleType) -> None:
    """The section has both modes' ratios and the device's own; rows without a mode occur once."""
    tree: Rounds = {"tree_careful_s": [0.6], "tree_rsync_s": [1.0]}
    modes: dict[str, Rounds] = {
        name: {"bare_echo_us": [device], "tcp_spin_us": [10.0], "request_us": [own], **tree}
        for name, device, own in (("native", 4.7, 5.0), ("generic", 3.5, 4.0))
    }
    text = tool.section(kept(modes))
    assert "| careful / other | native | generic | device | target |" in text
    line = "| 0.50 (0.50 to 0.50): no | 0.40 (0.40 to 0.40): met | 0.47, 0.35 | ≤ 0.45 |"
    assert f"| request, 64 B / TCP {line}" in text
    assert "| get -r, 10,000 / rsync | 0.60 (0.60 to 0.60): no | - | - | ≤ 0.50 |" in text
    assert "| careful request and reply, 64 B, spinning | 5.00 µs | 5.00 | 5.00 | 0.80 |" in text
    assert "| TCP round trip, 64 B, spinning (sockperf) | 10.00 µs | 10.00 | 10.00 | - |" in text


def test_device__is_not_next_to_our_own(tool: ModuleType) -> None:
    names = ("bare_stream_gbit", "nbdcopy_gbit", "get_plain_gbit")
    rounds = dict(zip(names, ([16.0], [8.0], [12.0]), strict=True))
    said = [tool.device(rounds, tool.Bound("get_gbit", name, None, False)) for name in names]
    assert said == ["-", "2.00", "-"]


def test_bench_page__keeps_the_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first sentence of a verdict comes from the run."""
    pages = load_tool("bench pages", monkeypatch)
    path = ROOT / "tests/reports/benchmarks.md"
    old = (
        path.read_text().partition(pages.HEADING)[2].replace("Careful is ahead in 10 of", "Nine of")
    )
    whole = pages.json.loads(path.with_name("bench.json").read_text())
    assert f"\n\n{pages.of_bench(whole, old)}\n" == path.read_text().partition(pages.HEADING)[2]


def test_plot__of_a_run_of_some_parts(tool: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rounds: Rounds = {"get_gbit": [10.0, 12.0], "nbdcopy_gbit": [8.0, 8.0], "tcp_spin_us": [7.0]}
    found = kept({"native": rounds})
    assert tool.table(found)[2:] == ["| file of 1 GiB | 11 Gbit/s | nbdcopy: 8 Gbit/s | 1.38 |"]
    tool.draw(found, tmp_path / "speed.png")
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
