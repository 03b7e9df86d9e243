"""Stages inside hosts from made-up stamps: figures, resources, and withheld figures."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path as FilePath
from typing import Any

import pytest
from careful._abi import lib
from careful.address import resolve
from careful.daemon.route import Route
from careful.measure.path import host_stages, path_to_file
from careful.measure.path.hops import Path
from careful.measure.path.pathchar import Options, Pathchar
from careful.measure.probes.udp import IPV4
from careful.render.measuring import measure_plots
from careful.render.measuring.pathchar_stages import resources, stages_figures, stages_table
from fake_hosts import FakeHosts


def names(found: host_stages.Stages) -> list[tuple[str, ...]]:
    return [stage.names for stage in found.stages]


def test_stages__in_the_order_of_the_way() -> None:
    found = FakeHosts().measure()
    assert names(found) == [
        ("hostTx",),
        ("netTx",),
        ("hop 1",),
        ("hop 2",),
        ("hop 3", "netRx"),
        ("hostRx",),
        ("store",),
    ]


def test_stages__g_and_G_of_each_are_in_their_intervals() -> None:
    hits: dict[str, int] = {}
    for seed in range(10):
        hosts = FakeHosts(dice=random.Random(seed), jitter_us=1.0)
        found = {stage.names[0]: stage for stage in hosts.measure().stages}
        for name, key in (("hostTx", "host_tx"), ("hostRx", "host_rx"), ("store", "store")):
            g, G = hosts.g_G[key]
            assert found[name].latency_us is None
            assert found[name].g_us is not None
            assert found[name].G_us_per_KiB is not None
            # Minima of few samples are a little too large, in g only.
            assert found[name].g_us.value == pytest.approx(g, abs=0.5)
            hits[name] = hits.get(name, 0) + found[name].G_us_per_KiB.contains(G)
        assert found["hop 2"].g_us is None  # a hop's intercept is never g
        assert found["hop 2"].latency_us is not None
        assert found["hop 2"].latency_us.value == pytest.approx(350, abs=5)
    assert min(hits.values()) >= 8, hits


def test_stages__unsupported_figures_are_withheld() -> None:
    """Without a slope there is no g or G, only the time at a size."""
    hosts = FakeHosts(jitter_us=300.0)
    found = hosts.measure(seconds=1.0)
    host_rx = found.stages[-2]
    assert host_rx.names == ("hostRx",)
    assert host_rx.g_us is None
    assert host_rx.G_us_per_KiB is None
    assert "wide" in host_rx.reason or "falls" in host_rx.reason
    figures = stages_figures(found)["stages"][-2]
    assert figures["g_us"] is None
    assert figures["middle_us"] > 9
    text = stages_table(found, "h2")
    assert "at most" in text
    assert "hostRx" in text.splitlines()[-1]
    assert text.endswith("a quiet machine or more --time helps")


def test_stages__more_time_does_not_both_help_and_not_help() -> None:
    """One line said that more time helps, another that it does not."""
    flat = dict.fromkeys(("host_tx", "net_tx", "host_rx", "store"), (1.0, 0.001))
    hosts = FakeHosts(g_G=flat, hops=((1.0, 0.001),) * 3, jitter_us=0.001, probe_jitter_us=0.001)
    path = hosts.path(resolution_us=host_stages.RESOLUTION_US)
    found = host_stages.measure(hosts.ask, path, kick_runs_all=False, clock=lambda: hosts.now_s)
    assert found.rounds_count == host_stages.ROUNDS_MIN
    (note,) = [note for note in [*found.notes, *path.notes] if "hostTx" in note]
    assert note.startswith("hostTx, netTx, hostRx, store: the clocks' step of 0.05 µs")
    assert path.clock_bound
    assert not any("--time helps" in note for note in [*found.notes, *path.notes])
    # netTx is no stage if the kick runs the whole path; its noise prevents nothing.
    times = host_stages._Times()
    for size in (64, 1000, 2000, 3000) * 20:
        times.add(size, replace(hosts.ask(0, size, 1.0), net_tx_us=1 + 500 * hosts.dice.random()))
    assert host_stages._settled(times, kick_runs_all=True)
    assert not host_stages._settled(times, kick_runs_all=False)


def test_stages__stop_when_precise_enough() -> None:
    quiet, noisy = FakeHosts(jitter_us=0.01), FakeHosts(jitter_us=50.0)
    assert quiet.measure(seconds=1000).rounds_count == host_stages.ROUNDS_MIN
    assert noisy.measure(seconds=1000).rounds_count > host_stages.ROUNDS_MIN
    assert set(quiet.asked) == {lib.CAREFUL_STAGE_STORE}


def test_stages__of_one_thread_or_cpu_are_one_resource() -> None:
    apart = resources(FakeHosts().measure())
    assert ["hostTx", "netTx"] in apart.values()
    assert ["netRx"] in apart.values()
    assert ["hostRx"] in apart.values()
    assert ["store"] in apart.values()
    shared = FakeHosts(cpus=(0, 1, 1), inline=True).measure()
    assert ["netRx", "hostRx", "store"] in resources(shared).values()
    kicked = FakeHosts(hops=((3.0, 1.0),)).measure(kick_runs_all=True)
    assert names(kicked)[1] == ("netTx", "hop 1", "netRx")
    assert ["hostTx", "netTx", "netRx"] in resources(kicked).values()


def test_stages__sum_is_the_one_way_time() -> None:
    found = FakeHosts(jitter_us=0.5).measure(one_clock=True)
    rows = stages_figures(found)["one_way"]
    assert [row["size_bytes"] for row in rows] == [600, 2213, 3826]
    for row in rows:
        assert row["sum_of_stages_us"] == pytest.approx(row["measured_us"], rel=0.01)
    assert "one_way" not in stages_figures(FakeHosts().measure())


def test_stages__a_hop_without_G_has_its_own_time_all_the_same() -> None:
    """1 Gbit/s behind 2 Mbit/s: it has no G, and its time is not a round trip."""
    hosts = FakeHosts(hops=((100.0, 4096.0), (60.0, 8.2), (150.0, 1024.0)), probe_jitter_us=900.0)
    found = hosts.measure(one_clock=True)
    slow, fast = found.stages[2:4]
    assert slow.G_us_per_KiB is not None
    assert fast.G_us_per_KiB is None
    assert "wide" in fast.reason
    own = fast.at(2213)
    assert own is not None
    assert own.contains(60 + 8.2 * 2213 / 1024)
    assert abs(own.value) < 200  # the round trip is over 11000
    assert own.half < 500
    figures = stages_figures(found)
    hop = figures["stages"][3]
    assert hop["middle_low_us"] < 60 + 8.2 * hop["middle_bytes"] / 1024 < hop["middle_high_us"]
    for row in figures["one_way"]:
        assert row["sum_of_stages_low_us"] < row["measured_us"] < row["sum_of_stages_high_us"]


def test_stages__unknown_stages_are_in_no_sum(tmp_path: FilePath) -> None:
    found = FakeHosts().measure(one_clock=True)
    found.stages[3] = replace(found.stages[3], own=None, G_us_per_KiB=None, reason="2 sizes")
    assert found.sum_us(1000) is None
    figures = stages_figures(found)
    assert figures["one_way"][0]["sum_of_stages_us"] is None
    assert figures["stages"][3]["middle_us"] is None
    table = stages_table(found, "h2")
    assert "sum -: not every stage is known" in table
    (row,) = (line for line in table.splitlines() if line.strip().startswith("hop 2 "))
    assert row.split()[-2] == "-"
    measure_plots.pathchar(FakeHosts().path(), "h2", tmp_path / "p.svg", found)
    assert " -<" in (tmp_path / "p.svg").read_text()


def test_stages__no_scratch_file_no_store() -> None:
    found = FakeHosts(scratch=lib.CAREFUL_SCRATCH_NONE).measure()
    assert names(found)[-1] == ("hostRx",)
    assert any("no scratch file" in note for note in found.notes)


def test_stages__only_xdp_answers() -> None:
    found = FakeHosts(silent=True).measure(seconds=1.0)
    assert names(found) == [("hop 1",), ("hop 2",), ("hop 3", "netRx")]
    assert found.lost_count == found.probes_count > 0
    assert "was answered" in found.notes[0]


@pytest.mark.parametrize("how", ["silent_after", "ends_after"])
def test_stages__figures_stay_after_the_host_leaves(how: str) -> None:
    found = FakeHosts(**{how: 40}, jitter_us=0.5).measure()
    assert found.elapsed_s < 15  # 12 silent probes of a second each, not six rounds of them
    assert names(found)[0] == ("hostTx",)
    assert found.stages[0].line.samples_count == 40
    assert found.stages[0].G_us_per_KiB is not None
    assert found.notes[-1].startswith("stopped after ")
    assert found.notes[-1].endswith("the figures are from earlier")
    assert found.lost_count == found.probes_count - 40


class Session:
    """Stands in for path_to_file.PingSession."""

    hosts: FakeHosts

    def __init__(self, *_: object) -> None:
        self.probe, self.ask, self.mtu_bytes = self.hosts.probe, self.hosts.ask, 3826
        self.family = IPV4

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def whole_path(
    hosts: FakeHosts, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[Path, host_stages.Stages | None, str]:
    monkeypatch.setattr(Session, "hosts", hosts, raising=False)
    monkeypatch.setattr(path_to_file, "PingSession", Session)
    virtual: dict[str, Any] = {"clock": lambda: hosts.now_s, "sleep": lambda _: None}
    monkeypatch.setattr(path_to_file.pathchar, "Pathchar", partial(Pathchar, **virtual))
    monkeypatch.setattr(
        path_to_file.host_stages, "measure", partial(host_stages.measure, **virtual)
    )
    route = Route(FilePath("/none"), "h1", resolve("10.0.3.1"), "h2", 1.0)
    return path_to_file.measure(route.address, route, "e1000", Options(**options), required=True)


def test_whole__hops_stay_if_the_host_falls_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, ends, why = whole_path(FakeHosts(hops_silent_after=100), monkeypatch, precision=1e-4)
    assert [segment.ttls for segment in path.segments] == [(1,), (2,), (3,)]
    assert all(segment.G_us_per_KiB for segment in path.segments)
    assert ends is None
    assert "no longer answers" in why
    assert any("no answer since" in note for note in path.notes)


def test_whole__reports_the_background_time_that_stages_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts = FakeHosts()
    path, ends, why = whole_path(hosts, monkeypatch, background=True, seconds=150)
    assert len(path.segments) == 3
    assert ends is None
    assert not hosts.asked
    seconds = float(why.split("--time ")[1])
    assert 150 < seconds < 2000
    _, ends, why = whole_path(FakeHosts(), monkeypatch, background=True, seconds=seconds)
    assert ends is not None, why
