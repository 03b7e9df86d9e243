"""Plots of measurements, read back from the SVG."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from careful.measure.endpoints.bulk import Bulk
from careful.measure.endpoints.logp import Result
from careful.measure.inside.packet_flow import Burst, Transfer
from careful.measure.inside.stages import Fit, Samples
from careful.measure.statistics.estimate import Estimate
from careful.model import load_shipped
from careful.model.files import load_pipeline
from careful.model.stages import Pipeline, Stage
from careful.render import figure
from careful.render.digits import not_negative, or_most, time_with_half, with_half
from careful.render.measuring import logp_plots, measure_plots
from careful.render.tracing import trace_plots
from careful.render.tuning import plan as report
from careful.units import shown_time
from fake_exchange import CROSSING, FakeExchange
from fake_hosts import FakeHosts
from logp_machine import Machine
from logp_machine import measure as measure_logp


def test_plot__black_box_shows_both_regressions(tmp_path: Path) -> None:
    file = tmp_path / "box.svg"
    found = FakeExchange(CROSSING).measure(sizes_count=24)
    measure_plots.blackbox(found, "h2", file)
    text = file.read_text()
    assert text.count("gap in a train") == 2
    assert re.search(r"least of each size: 1\.[56]\d* ±[\d.]+ ms/KiB", text)
    assert f"{found.regimes[0].high_bytes:.0f} B" in text


def test_plot__reports_a_missing_slope(tmp_path: Path) -> None:
    file = tmp_path / "box.svg"
    flat = FakeExchange(((50.0, 0.0), (80.0, 0.0)), jitter_us=200).measure(rounds_max=4)
    measure_plots.blackbox(flat, "h2", file)
    assert "gap in a train: no slope" in file.read_text()


def test_plot__stages_inside_hosts_are_next_to_the_hops(tmp_path: Path) -> None:
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
        assert f"> {time_with_half(store, 5000.0)}<" in text
    measure_plots.pathchar(hosts.path(), "h2", file)
    assert "hostTx" not in file.read_text()


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collects figures that are drawn instead of writing them."""
    found: list[Any] = []

    def keep(one: Any, _: object) -> None:
        one.canvas.draw()
        found.append(one)

    monkeypatch.setattr(figure, "save", keep)
    return found


def hidden(one: Any) -> list[str]:
    """Returns texts and points under a legend."""
    found = []
    for pair in one.axes:
        legend = pair.get_legend()
        if legend is None:
            continue
        box = legend.get_window_extent()
        found += [text.get_text() for text in pair.texts if box.overlaps(text.get_window_extent())]
        ticks = [tick for tick in pair.get_xticklabels() if tick.get_text()]
        found += [tick.get_text() for tick in ticks if box.overlaps(tick.get_window_extent())]
        for line in pair.lines:
            at = pair.transData.transform(line.get_xydata())
            found += [f"{line.get_label()} {xy}" for xy in at if box.contains(*xy)]
        for bar in pair.patches:
            if box.overlaps(bar.get_window_extent()):
                found.append(f"bar {bar}")
    return found


def covered(one: Any) -> list[str]:
    """Returns texts on a marker of a curve, or on another text."""
    found = []
    for pair in one.axes:
        boxes = [(text.get_text(), text.get_window_extent()) for text in pair.texts]
        marked = [line for line in pair.lines if line.get_marker() not in (None, "None", "")]
        points = [pair.transData.transform(line.get_xydata()) for line in marked]
        for k, (text, box) in enumerate(boxes):
            found += [text for at in points for xy in at if box.contains(*xy)]
            found += [text for _, other in boxes[:k] if box.overlaps(other)]
    return found


def entries(one: Any) -> list[list[str]]:
    return [
        [text.get_text() for text in pair.get_legend().get_texts()]
        for pair in one.axes
        if pair.get_legend()
    ]


def signature() -> Result:
    return measure_logp(Machine(os=1.5, or_=1.2, g=8.0, L=6.0), seconds=2.0)


def bulk(known: Result, with_g: bool) -> Bulk:
    """Returns a bulk result of four sizes; with_g: whether any g is known."""
    one = known if with_g else replace(known, g=replace(known.g, estimate=None))
    half = Estimate(5000.4, 61.3)
    return Bulk("get", [8, 4096, 8192, 16384], [one] * 4, {}, half)


def test_plot__a_legend_hides_nothing(drawn: list[Any]) -> None:
    """A legend once hid the time in the store, and points of a signature."""
    hosts = FakeHosts()
    measure_plots.pathchar(hosts.path(), "h2", "x.svg", hosts.measure())
    known = signature()
    logp_plots.draw([known], [bulk(known, True)], "h2", Path("x.svg"))
    measure_plots.blackbox(FakeExchange(CROSSING).measure(sizes_count=24), "h2", "x.svg")
    assert [hidden(one) for one in drawn] == [[], [], []]
    assert entries(drawn[0])[1] == [f"{size} bytes" for size in hosts.measure().sizes_bytes]
    assert all(entry.startswith("D = ") for entry in entries(drawn[1])[0])


@pytest.mark.parametrize(("g", "L"), [(8.0, 6.0), (2.9, 60.0)])
def test_plot__texts_of_a_signature_cover_no_curve(drawn: list[Any], g: float, L: float) -> None:
    """ "transition" was once on the topmost curve, and g's value on another."""
    found = measure_logp(Machine(os=1.5, or_=1.2, g=g, L=L), seconds=2.0)
    logp_plots.draw([found], [], "h2", Path("x.svg"))
    assert "transition" in [text.get_text() for text in drawn[0].axes[0].texts]
    assert covered(drawn[0]) == []


def test_plot__a_gap_has_the_marks_of_one_range(drawn: list[Any]) -> None:
    """Two ranges that shared a line once drew each train twice."""
    found = FakeExchange().measure(seconds=1000)
    (one,) = found.regimes
    found.regimes = [replace(one, high_bytes=3000.0), replace(one, low_bytes=3000.0)]
    measure_plots.blackbox(found, "h2", "box.svg")
    marked = [line for line in drawn[0].axes[0].lines if line.get_linestyle() == "None"]
    assert sum(len(line.get_xdata()) for line in marked[1:]) == len(found.gaps[0])
    assert max(marked[1].get_xdata()) < 3000 <= min(marked[2].get_xdata())


def test_plot__outliers_of_a_black_box_do_not_set_the_scale(drawn: list[Any]) -> None:
    found = FakeExchange().measure(seconds=1000)
    measure_plots.blackbox(found, "h2", "box.svg")
    sizes, gaps_us = found.gaps
    found.gaps = ([*sizes, sizes[0]], [*gaps_us, 100 * max(gaps_us)])
    measure_plots.blackbox(found, "h2", "box.svg")
    quiet, busy = (one.axes[0] for one in drawn)
    assert busy.get_ylim()[1] < 2 * quiet.get_ylim()[1]
    assert any(text.get_text().startswith("1 above ") for text in busy.texts)
    assert not any(" above " in text.get_text() for text in quiet.texts)


def test_plot__the_answer_of_plan_is_marked(drawn: list[Any]) -> None:
    """The answer was six fragments of lp, but the plot once marked only five equal ones."""
    request = report.Request("", load_shipped("gam"), 4096, "best", None, 1, None, 0)
    report.draw(request, Path("x.svg"), "latency", None, "", "")
    best, fixed = request.answer(), request.answer("fixed")
    assert best.latency_us < fixed.latency_us
    marks = {line.get_label(): line.get_xydata().tolist() for line in drawn[0].axes[0].lines}
    for one in (best, fixed):
        label = f"{one.strategy}: k = {one.fragments_count}, {shown_time(one.latency_us, 4)}"
        assert marks[label] == [[one.fragments_count, one.latency_us]]
    assert hidden(drawn[0]) == []


def test_plot__a_long_legend_stays_on_the_image(drawn: list[Any]) -> None:
    """The legend of a slow path with long names ran off the image, and had µs next to ms."""
    stages = [Stage(f"{name} " * 9, 3000.0 + 50 * name, 900.0) for name in range(3)]
    request = report.Request("", Pipeline(stages), 1 << 20, "best", None, 1, None, 0)
    report.draw(request, Path("x.svg"), "latency", None, "", "")
    drawn[0].draw_without_rendering()
    legend = drawn[0].axes[0].get_legend()
    assert legend.get_window_extent().x1 <= drawn[0].bbox.x1
    assert "µs" not in "".join(one.get_text() for one in legend.get_texts())


def test_plot__bars_of_stages_start_at_0(drawn: list[Any]) -> None:
    hosts = FakeHosts()
    measure_plots.pathchar(hosts.path(), "h2", "path.svg", hosts.measure())
    beside = drawn[0].axes[1]
    assert (beside.get_xscale(), beside.get_xlim()[0]) == ("linear", 0)
    assert all(text.get_text().endswith(("µs", "ms")) for text in beside.texts)


def test_plot__finds_hidden_marks(drawn: list[Any]) -> None:
    one, pair = figure.axes("", "", "")
    pair.plot([0, 1], [0, 1], label="line")
    pair.legend(loc="upper right")
    figure.save(one, "")
    assert len(hidden(drawn[0])) == 1


def test_plot__figures_6_to_9_of_the_paper(drawn: list[Any]) -> None:
    """These show times next to gaps, BW(n), and signatures of 8 bytes and 2 KiB, per layer."""
    known = signature()
    kinds = replace(bulk(known, True), sizes_bytes=[8, 1024, 2341, 4096])
    logp_plots.draw([known, replace(known, layer="TCP")], [kinds], "h2", Path("x.svg"))
    titles = [pair.get_title(loc="left") for pair in drawn[0].axes]
    assert titles == [
        "machine to h2",
        "TCP to h2",
        "os + L + or, and the gap, to h2",
        "get to h2",
        "get to h2",
        "get of 8 bytes to h2",
        "get of 2341 bytes to h2",
    ]
    bars = drawn[0].axes[2]
    assert [tick.get_text() for tick in bars.get_xticklabels()] == ["machine", "TCP"]
    assert len(bars.patches) == 8  # three parts and a gap of each
    rates = drawn[0].axes[4].lines[0].get_ydata()
    assert known.rtt.estimate
    assert rates[-1] == pytest.approx(4096 / known.rtt.estimate.value)
    assert hidden(drawn[0]) == []


def test_plot__no_entry_of_a_legend_without_a_curve(drawn: list[Any]) -> None:
    known = signature()
    logp_plots.draw([], [bulk(known, False), bulk(known, True)], "h2", Path("x.svg"))
    shown = [entry for entry in entries(drawn[0]) if not entry[0].startswith("D = ")]
    assert shown == [["T(n)", "os(n)", "or(n)"], ["T(n)", "g(n)", "os(n)", "or(n)"]]
    request = report.Request("", load_pipeline("network-disk"), 65536, "best", None, 1, None, 0)
    report.draw(request, Path("x.svg"), "latency", None, "", "")
    pair = drawn[1].axes[0]
    lines = {line.get_label(): line for line in pair.lines}
    stage, latency = lines["signature of disk"], lines["latency"]
    assert stage.get_zorder() > latency.get_zorder()


def test_plot__explains_hatching_if_there_is_any(drawn: list[Any]) -> None:
    one = Transfer("store", "h2", 0.0, 5.0, 100, 1, (1,))
    burst = Burst([one], [("store", "h2")], 1, 0)
    trace_plots.frames(burst, "x.svg")
    trace_plots.frames(Burst([replace(one, waited=True)], burst.rows, 1, 0), "x.svg")
    titles = [each.axes[0].get_title(loc="left") for each in drawn]
    assert ["hatched" in title for title in titles] == [False, True]


def test_plot__a_long_burst_is_cut_and_drawn_by_few_calls(drawn: list[Any]) -> None:
    """One call for each of 5,000 boxes would take half a minute."""
    many = [Transfer("store", "h2", 2.0 * k, 2.0 * k + 1, 100, 1, (1,)) for k in range(5000)]
    trace_plots.frames(Burst(many, [("store", "h2")], 1, 0), "x.svg")
    (pair,) = drawn[0].axes
    assert len(pair.collections) == 1
    assert "; the first 480 µs of 10 ms" in pair.get_title(loc="left")
    assert 480 <= pair.get_xlim()[1] < 600


def test_plot__stages_of_one_size_share_an_axis_from_0(drawn: list[Any]) -> None:
    ones, nobody = np.ones(9, np.int64), frozenset[int]()
    fits = [
        Fit(
            name, "h1", Samples(np.full(9, size), np.arange(9.0), ones, nobody), None, None, None, 1
        )
        for name, size in (("netTx", 0.0), ("store", 3694.0))
    ]
    trace_plots.stages(fits, "x.svg")
    limits = {pair.get_xlim() for pair in drawn[0].axes[::2]}
    assert limits == {(-0.02 * 3694, 1.05 * 3694)}


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("bench29-h1", "bench29-h2"), ("h1", "h2")),
        (("eth1", "eth2"), ("eth1", "eth2")),
        (("node-1", "node-2"), ("node-1", "node-2")),
        (("lab-h1", "lab-h1"), ("lab-h1", "lab-h1")),
        (("lab-h1", "lab-"), ("lab-h1", "lab-")),
    ],
)
def test_plot__names_of_lab_hosts_lack_the_labs_name(
    drawn: list[Any], names: tuple[str, str], shown: tuple[str, str]
) -> None:
    one, other = names
    sent = Transfer("netTx", one, 0.0, 5.0, 100, 1, (1,), runs=(other,))
    taken = Transfer("netRx", other, 1.0, 4.0, 100, 1, (1,))
    burst = Burst([sent, taken], [("netTx", one), ("netRx", other)], 1, 0)
    trace_plots.frames(burst, "x.svg")
    pair = drawn[0].axes[0]
    labels = [label.get_text() for label in pair.get_yticklabels()]
    assert labels == [f"netRx, {shown[1]}", f"netTx, {shown[0]}"]
    note = f"netTx of {shown[0]}: its kick also runs netRx of {shown[1]}"
    assert pair.get_title(loc="left").splitlines()[1] == note


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [
        (0.8981, 0.512, "0.90 ±0.51"),
        (59.54, 24.2, "60 ±24"),
        (8.482, 1.018, "8.5 ±1.0"),
        (16042.8, 310.0, "16043 ±310"),
        (0.00123, 0.000045, "0.001230 ±0.000045"),
        (12.3, 0.0, "12.300 ±0.000"),
    ],
)
def test_digits__by_the_interval(value: float, half: float, text: str) -> None:
    """A plot once showed "0.8981 ±0.51", a table "59.54 ±24.21"."""
    assert with_half(Estimate(value, slack=half)) == text
    assert not_negative(Estimate(value, slack=half)) == text
    assert not_negative(Estimate(-0.5, slack=1.5)) == "0 to 1.0"
    assert with_half(None) == "-"


@pytest.mark.parametrize(
    ("high", "text"), [(0.0594, "at most 0.06"), (2.31, "at most 2.4"), (1234.5, "at most 1235")]
)
def test_digits__of_a_bound_are_rounded_up(high: float, text: str) -> None:
    assert or_most(None, Estimate(0.0, slack=high)) == text
    assert or_most(Estimate(3.0, slack=1.0), Estimate(0.0, slack=high)) == "3.0 ±1.0"
    for unknown in (None, Estimate(0.0, slack=math.inf), Estimate(-1.0)):
        assert or_most(None, unknown) == "-"


@pytest.mark.parametrize(
    ("most_us", "label", "end"), [(500, "µs", "500"), (5e5, "ms", "500"), (2e7, "s", "20")]
)
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_plot__a_long_time_is_in_ms_or_s(
    most_us: float, label: str, end: str, scale: str, tmp_path: Path
) -> None:
    """An axis ran to 10,000,000 µs."""
    drawn, pair = figure.axes("", "size (bytes)", "latency (µs)")
    pair.plot([1, 2], [most_us / 100, most_us])
    pair.set_yscale(scale)
    if scale == "log":
        figure.plain_numbers(pair)
    figure.save(drawn, tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert f"latency ({label})" in text
    ticks = [one.replace(",", "") for one in re.findall(r">([0-9.,]+)</text>", text)]
    values = [float(one) for one in ticks if one]
    assert max(values) <= 10 * float(end.replace(",", ""))
    assert any(float(end.replace(",", "")) / 20 < value for value in values[2:])
