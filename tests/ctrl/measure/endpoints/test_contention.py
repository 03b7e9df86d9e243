"""Floods and bulk transfers of machines whose figures are known."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

import numpy as np
import pytest
from careful.measure.endpoints import bulk
from careful.measure.endpoints.bulk import half_power, sizes_to
from careful.measure.endpoints.contention import Slice, flood, gap_of
from careful.measure.endpoints.logp import Options
from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import fit_line
from careful.measure.statistics.sample import Bursts, Figure
from careful.render.measuring.logp_bulk import bulk_figures, bulk_text, flood_figures, flood_text
from logp_machine import Machine


class Steady:
    """Needs `gap_us` per message once the network is full; now and then replies are ready."""

    capacity = 60

    def __init__(self, gap_us: float) -> None:
        self.gap_us, self.now_s, self.calls = gap_us, 1e9, []  # type: float, float, list[int]

    def clock(self) -> float:
        return self.now_s

    def go_on(self, messages: int) -> Bursts:
        self.calls.append(messages)
        ready = messages if len(self.calls) in (1, 2, 9) else 0
        self.now_s += (messages - ready) * self.gap_us / 1e6 + 1e-5
        none = np.zeros((1, 1))
        return Bursts(np.array([messages]), none, none, none[0], none[0])


@pytest.mark.parametrize("gap_us", [2.0, 1000.0, 50000.0])
def test_flood__gap_of_a_full_network(gap_us: float) -> None:
    sender = Steady(gap_us)
    found = flood(sender, 30, sender.clock)
    assert found.gap_us.estimate
    assert found.gap_us.estimate.value == pytest.approx(gap_us, rel=0.02)
    # A short slice does not make the next one too long.
    assert max(sender.calls) * gap_us < 1e6 or max(sender.calls) == sender.capacity


def test_flood__a_wall_clock_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock gives the end of a slice, not its duration."""
    sender, walls = Steady(1000.0), itertools.cycle([5e8, 1e9, 7e8])
    monkeypatch.setattr(time, "time", lambda: next(walls))
    clock = itertools.chain([0.0] * 4, iter(sender.clock, None))
    found = flood(sender, 30, lambda: next(clock) or 1e9)
    assert found.gap_us.estimate
    assert found.gap_us.estimate.value == pytest.approx(1000, rel=0.02)
    assert [one.ended_s for one in found.slices[:4]] == [5e8, 1e9, 7e8, 5e8]
    assert found.slices[0].at_s == found.slices[2].at_s
    assert flood_figures(found, "store", 60)["slices"][1]["ended_s"] == 1e9
    assert " messages in 3" in flood_text(found, "store", "h2")


def test_flood__too_short_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0\.1 s"):
        flood(Steady(10), 0.1)


def test_gap__few_slices_have_no_figure() -> None:
    found = gap_of([Slice(0.0, 60, 1.0), Slice(0.0, 10, 2.0), Slice(0.0, 10, 3.0)])
    assert found.estimate is None
    assert "samples" in found.reason


#: A small message's round trip on the machine below.
TRIP = Figure(Estimate(27.0, 0.01, 50), 50)


def kib_machine(kind: str, size: int) -> Machine:
    """os(n) = 2 + n / 1 KiB, g(n) = 5 + 4 n / KiB, L(n) = 10 + 2 n / KiB."""
    kib = size / 1024
    assert kind == "store"
    return Machine(os=2 + kib, or_=1.5, g=5 + 4 * kib, L=10 + 2 * kib, capacity=30, noise=0.02)


def test_bulk__lines_and_half_power() -> None:
    sizes = sizes_to(8192, 5)
    found = bulk.measure("store", kib_machine, sizes, Options(seconds=50), TRIP)
    lines = {name: line for name, line in found.lines.items() if line}
    assert list(lines) == ["os", "or", "g", "L", "T"]
    assert lines["os"].G_us_per_KiB.value == pytest.approx(1, rel=0.05)
    assert lines["g"].G_us_per_KiB.value == pytest.approx(4, rel=0.05)
    assert lines["g"].intercept_us.contains(5)
    # The machine's reply is as large as the request: T(n) = 2 (os + L + or).
    assert found.half_power_bytes
    assert found.half_power_bytes.value == pytest.approx(27 / 6 * 1024, rel=0.05)
    assert found.half_power_bytes.contains(27 / 6 * 1024)


def test_bulk__a_signature_and_a_bandwidth_of_each_size() -> None:
    """P4 Figures 7b, 8 and 9, also with a pause between transfers, and n / T(n)."""
    sizes = [8, 1024, 2048, 4096]
    found = bulk.measure("store", kib_machine, sizes, Options(seconds=50), TRIP)
    for size, one, rate in zip(sizes, found.results, found.bandwidths(), strict=True):
        kib = size / 1024
        assert [curve.compute_us > 0 for curve in one.curves] == [False, True, True, True]
        assert one.or_.estimate
        assert one.or_.estimate.value == pytest.approx(1.5, abs=0.2 + 0.05 * kib)
        assert one.L.estimate  # T(n) less a small reply's time, but this machine's reply is large
        assert one.L.estimate.value == pytest.approx(10 + 5 * kib, rel=0.06)
        assert not one.trials
        assert rate
        assert rate.value == pytest.approx(size / (27 + 6 * kib), rel=0.03)
        assert rate.contains(size / (27 + 6 * kib))
    shown = bulk_figures(found)
    assert len(shown["sizes"][1]["curves"]) == 4
    assert shown["sizes"][1]["BW_low_MB_per_s"] < shown["sizes"][1]["BW_MB_per_s"]
    assert "BW(n) MB/s" in bulk_text(found)
    # A reason stands once, with the sizes that it concerns.
    why = "no steady regime within 64 messages"
    found.results[:2] = [replace(one, g=Figure(None, reason=why)) for one in found.results[:2]]
    assert f"8, 1024 bytes: {why}\n" in bulk_text(found)
    assert bulk_text(found).count("no steady regime") == 1


def test_bulk__without_a_small_trip_there_is_no_latency() -> None:
    trip = Figure(None, reason="the interval is wide")
    found = bulk.measure("store", kib_machine, [8, 64, 512, 1024], Options(seconds=20), trip)
    assert {one.L.reason for one in found.results} == {"the interval is wide"}
    assert found.lines["L"] is None
    assert found.lines["T"]


def test_half_power__flat_data_have_none() -> None:
    noise = np.random.default_rng(3).normal(0, 5, 8)
    assert half_power(fit_line([8.0 * k for k in range(8)], list(100 + noise))) is None


def test_sizes__from_small_to_the_largest() -> None:
    assert sizes_to(16384, 4) == [8, 5461, 10923, 16384]
    with pytest.raises(ValueError, match="too few for a line"):
        sizes_to(16384, 2)
