"""Every measurement has a result: round trips, a rate or its lower bound, and reasons for missing
figures.
"""

from __future__ import annotations

import pytest
from careful.measure.path import answer
from careful.measure.path.answer import Answer
from careful.measure.path.host_stages import Stage, Stages
from careful.measure.statistics.line import fit_line
from careful.render.measuring import measure as report
from fake_exchange import FakeExchange
from fake_path import FakePath


def said(found: Answer) -> str:
    return "\n".join(report.answer(found))


def test_of_path__names_the_slowest_hop_and_its_rate() -> None:
    found = answer.of_path(FakePath().measure(), None)
    assert (found.bottleneck, found.is_bound, found.why_not) == ("hop 3", False, "")
    assert found.rate_gbit_per_s == pytest.approx(0.002, rel=0.03)
    assert [size for size, _ in found.trips] == [600, 3826]
    assert "Mbit/s" in said(found)


def test_of_path__a_fast_link_has_a_least_rate_and_the_reason() -> None:
    """A veth once gave only dashes, and the advice to take more time."""
    path = FakePath(G_us_per_KiB=(0.2,), g_us=2, delay_us=1, jitter_us=0.2).measure(
        seconds=1000, rounds_max=10**6
    )
    found = answer.of_path(path, None)
    assert path.segments[0].G_us_per_KiB is None
    assert path.elapsed_s < 100
    assert (found.bottleneck, found.is_bound) == ("", True)
    assert found.rate_gbit_per_s is not None
    assert 4 < found.rate_gbit_per_s <= 8.192 / 0.2
    assert len(found.trips) == 2
    assert "more time will not help" in found.why_not
    assert any("more time will not help" in note for note in path.notes)
    assert "at least" in said(found)


def test_of_path__a_host_may_be_faster_than_its_single_frames() -> None:
    """The rate of single frames was printed as the path's, though `get` was twice as fast."""
    sizes = [float(size) for size in range(64, 3800, 400)]
    line = fit_line(sizes, [5.0 + size / 1000 for size in sizes])
    ends = Stages([Stage(("hostRx",), line, line, None)], 0, 10, 0, 1, 1.0)
    found = answer.of_path(FakePath().measure(), ends)
    assert (found.bottleneck, found.is_bound) == ("hostRx", True)
    assert "at least" in said(found)


def test_measure__uses_all_its_time_whatever_the_rounds() -> None:
    """A hidden limit of 32 rounds once ended it after 1.3 s, whatever --time was."""
    found = FakePath(jitter_us=60).measure(
        precision=1e-5, resolution_us=1e-6, seconds=60, rounds_max=10**6
    )
    assert found.elapsed_s > 60
    assert found.rounds_count > 32


def test_of_path__a_limited_hop_still_has_a_round_trip() -> None:
    path = FakePath(G_us_per_KiB=(800.0,), limited={1}).measure()
    found = answer.of_path(path, None)
    assert path.segments == []
    assert (found.rate_gbit_per_s, bool(found.trips)) == (None, True)
    assert "rate-limited" in found.why_not
    assert "the rate and the bottleneck" in said(found)


def test_of_blackbox__rate_of_a_full_frame() -> None:
    found = answer.of_blackbox(FakeExchange().measure(seconds=1000))
    assert (found.is_bound, found.why_not) == (False, "")
    gap_us = 750 + 2490 * found.size_bytes / 1024  # of its slowest stage
    assert found.rate_gbit_per_s == pytest.approx(8e-3 * found.size_bytes / gap_us, rel=0.05)
    made = FakeExchange(((50.0, 0.0), (80.0, 0.0)), jitter_us=200).measure(rounds_max=4)
    wide = answer.of_blackbox(made)
    assert made.reason
    assert wide.why_not == made.reason
    assert wide.rate_gbit_per_s is not None
    assert len(wide.trips) == 2
    assert "round trip: " in said(wide)
