"""Plots of measurements: what is drawn, read from the SVG, where a picture needs to be right."""

from __future__ import annotations

import re
from pathlib import Path

from careful.report import measure_plots

from .test_blackbox import CROSSING, FakeExchange
from .test_host_stages import FakeHosts


def test_plot__black_box_shows_both_regressions(tmp_path: Path) -> None:
    file = tmp_path / "box.svg"
    found = FakeExchange(CROSSING).measure(sizes_count=24)
    measure_plots.blackbox(found, "h2", file)
    text = file.read_text()
    assert text.count("gap in a train") == 2
    assert re.search(r"round trips, least of each size: 1[56]\d\d ±", text)
    assert f"{found.regimes[0].high_bytes:.0f} B" in text


def test_plot__without_a_slope_says_so(tmp_path: Path) -> None:
    file = tmp_path / "box.svg"
    flat = FakeExchange(((50.0, 0.0), (80.0, 0.0)), jitter_us=200).measure(rounds_max=4)
    measure_plots.blackbox(flat, "h2", file)
    assert "gap in a train: no slope" in file.read_text()


def test_plot__stages_inside_hosts_are_beside_the_hops(tmp_path: Path) -> None:
    file = tmp_path / "path.svg"
    hosts = FakeHosts()
    ends = hosts.measure()
    measure_plots.pathchar(hosts.path(), "h2", file, ends)
    text = file.read_text()
    for name in ("hostTx", "netTx", "hop 1", "netRx", "hostRx", "store"):
        assert name in text
    for size in ends.sizes_bytes:
        assert f"{size} bytes" in text
        store = ends.stages[-1].at(size)
        assert store is not None
        assert f"> {store.value:.4g} ±{store.half:.2g}<" in text
    measure_plots.pathchar(hosts.path(), "h2", file)
    assert "hostTx" not in file.read_text()
