"""Two regressions against a pipeline in virtual time: the bottleneck and the others."""

from __future__ import annotations

import errno
import random
import re
from dataclasses import replace

import pytest
from careful.errors import CarefulError
from careful.measure.outside.blackbox_rounds import Round, usable_gaps
from careful.measure.outside.trains import bisected, bottlenecks
from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import train_gap_us
from careful.measure.statistics.oneway import Trip, in_host, without_drift
from careful.measure.statistics.oneway import drift as drift_of
from careful.render.measuring import measure as report
from fake_exchange import CROSSING, GAM, TRAINS, FakeExchange
from hypothesis import given
from hypothesis import strategies as st


def test_blackbox__finds_bottleneck_and_others() -> None:
    found = FakeExchange().measure(seconds=1000)
    assert found.settled
    assert len(found.regimes) == 1
    regime = found.regime
    assert regime.g_b_us is not None
    assert regime.G_b_us_per_KiB is not None
    assert found.sum_G_others_us_per_KiB is not None
    assert found.sum_g_us is not None
    assert regime.g_b_us.value == pytest.approx(750, rel=0.02)
    assert regime.G_b_us_per_KiB.value == pytest.approx(2490, rel=0.01)
    assert found.sum_G_others_us_per_KiB.value == pytest.approx(4000, rel=0.02)
    assert found.sum_g_us.value == pytest.approx(2730 + 500, rel=0.02)  # with the delay


#: Of 40 intervals of 95 %, 38 hold the truth; 36 or more in 95 % of such samples.
@pytest.mark.parametrize(
    "noise",
    [
        {},
        {"jitter_us": 40.0},
        {"trip_jitter_us": 30.0},
        {"late_us_per_KiB": 5.0},
        {"late_us_per_KiB": 2.0},
        {"wakes_us_per_KiB": 3.0},
        {"wakes_us_per_KiB": 15.0},
        {"wakes_us_per_KiB": 15.0, "trip_jitter_us": 30.0, "late_us_per_KiB": 2.0},
    ],
    ids=str,
)
def test_blackbox__intervals_hold_the_truth(noise: dict[str, float]) -> None:
    hits = {"g_b": 0, "G_b": 0, "others": 0}
    for seed in range(40):
        found = FakeExchange(seed=seed, **noise).measure(seed=seed, rounds_max=6)  # type: ignore[arg-type]
        assert found.regime.g_b_us is not None
        assert found.regime.G_b_us_per_KiB is not None
        assert found.sum_G_others_us_per_KiB is not None
        hits["g_b"] += found.regime.g_b_us.contains(750)
        hits["G_b"] += found.regime.G_b_us_per_KiB.contains(2490)
        hits["others"] += found.sum_G_others_us_per_KiB.contains(4000)
        assert found.sum_G_others_us_per_KiB.relative < 0.02
    assert min(hits.values()) >= 36, hits


def test_blackbox__interval_of_times_until_the_handler_is_wrong() -> None:
    """The other end's waking up is in all times alike, so no statistic of them shows it."""
    hits = 0
    for seed in range(10):
        fake = FakeExchange(seed=seed, wakes_us_per_KiB=15.0, tells_xdp=False)
        found = fake.measure(seed=seed, rounds_max=6).sum_G_others_us_per_KiB
        assert found is not None
        hits += found.contains(4000)
    assert hits <= 1


@pytest.mark.parametrize(("unknown", "said"), [(18, 4050), (2, 4025)])
def test_blackbox__the_record_of_arrivals_has_gaps(unknown: int, said: float) -> None:
    """Few times since XDP among times until the handler would look like a slope."""
    fake = FakeExchange(wakes_us_per_KiB=50.0)
    round_trips = fake.round_trips

    def with_gaps(size_bytes: int, count: int) -> list[Trip]:
        trips = round_trips(size_bytes, count)
        gap = fake.random.randrange(20) < unknown
        return [replace(trip, host_us=0.0) for trip in trips] if gap else trips

    fake.round_trips = with_gaps  # type: ignore[method-assign]
    found = fake.measure(rounds_max=8, seconds=1000, precision=1e-4)
    assert found.sum_G_others_us_per_KiB is not None
    assert found.sum_G_others_us_per_KiB.value == pytest.approx(said, abs=8)


def test_in_host__is_between_nothing_and_the_slope() -> None:
    sizes = [64.0, 1000.0, 2000.0, 3700.0] * 3
    trips = [Trip(0, 0, 9, 30 + 0.01 * size) for size in sizes]
    found = in_host(sizes, trips)
    assert (found.low, found.high) == (pytest.approx(0, abs=1e-9), pytest.approx(0.01, rel=0.01))
    assert in_host([*sizes, 3700.0], [*trips, Trip(0, 0, 9)]) == found
    awake = in_host(sizes, [Trip(0, 0, 9, 1 + 1e-3 * size) for size in sizes])
    assert (awake.low, awake.high) == (pytest.approx(1e-3, rel=0.01),) * 2
    assert in_host(sizes, [Trip(0, 0, 9)] * len(sizes)) == Estimate(0.0)
    falling = [Trip(0, 0, 9, 60 - 0.01 * size) for size in sizes]
    assert in_host(sizes, falling).high == 0
    two = in_host(sizes[:2], trips[:2])  # no line: the difference is the bound
    assert (two.low, two.high) == (0, pytest.approx(0.01))
    one = in_host(sizes[:1], trips[:1])
    assert (one.low, one.high) == (0, 0)


def test_blackbox__intervals_hold_the_truth__rounds_alike_in_themselves() -> None:
    """Other work during a round moves all trains of the round, which residuals do not show."""
    hits = [0, 0]
    for seed in range(20):
        found = FakeExchange(seed=seed, mood=0.003).measure(seed=seed, rounds_max=8, precision=1e-4)
        assert found.regime.g_b_us is not None
        assert found.regime.G_b_us_per_KiB is not None
        hits[0] += found.regime.g_b_us.contains(750)
        hits[1] += found.regime.G_b_us_per_KiB.contains(2490)
        assert found.regime.G_b_us_per_KiB.relative < 0.02
    assert min(hits) >= 17, hits


def test_blackbox__intervals_hold_the_truth__late_with_size() -> None:
    """Lateness that grows with size is detected, and widens the interval."""
    hits = 0
    for seed in range(20):
        fake = FakeExchange(seed=seed, late_us_per_KiB=20.0)
        found = fake.measure(seed=seed, rounds_max=5, precision=1e-4)
        assert found.sum_G_others_us_per_KiB is not None
        assert 0 < found.sum_G_others_us_per_KiB.slack < 120
        hits += found.sum_G_others_us_per_KiB.contains(4000)
    assert hits >= 17, hits


def test_blackbox__delay_is_no_overhead_of_the_bottleneck() -> None:
    near, far = FakeExchange(delay_us=0).measure(), FakeExchange(delay_us=20000).measure()
    assert near.regime.g_b_us is not None
    assert far.regime.g_b_us is not None
    assert far.sum_g_us is not None
    assert near.sum_g_us is not None
    assert far.regime.g_b_us.value == pytest.approx(near.regime.g_b_us.value, rel=0.02)
    assert far.sum_g_us.value - near.sum_g_us.value == pytest.approx(20000, rel=0.02)


@pytest.mark.parametrize(("at_bytes", "G"), [(500, 300.0), (0, 1000.0)])
def test_blackbox__bottleneck_that_changes_with_size(at_bytes: int, G: float) -> None:
    """The transition of GMS × 100 is within 10 %, and each range has its own bottleneck."""
    found = FakeExchange(CROSSING).measure(sizes_count=24, at_bytes=at_bytes)
    assert len(found.regimes) == 2
    assert found.regimes[0].high_bytes == pytest.approx(2.62 * 1024, rel=0.10)
    assert found.regimes[1].low_bytes == found.regimes[0].high_bytes
    assert found.regime.G_b_us_per_KiB is not None
    assert found.regime.G_b_us_per_KiB.value == pytest.approx(G, rel=0.05)


@pytest.mark.parametrize("G_us_per_KiB", [(300.0, 1000.0), (500.0, 700.0)])
@pytest.mark.parametrize("bend_bytes", [200, 260, 450, 700, 3000, 3200, 3500])
def test_blackbox__bend_near_an_end(bend_bytes: int, G_us_per_KiB: tuple[float, float]) -> None:
    """Both ends are examined closely, since a few even sizes beyond a bend would not show it."""
    low, high = G_us_per_KiB
    g = 1000.0 + (high - low) * bend_bytes / 1024
    fake = FakeExchange(stages=((g, low), (1000.0, high), (50.0, 200.0)))
    found = fake.measure(seconds=1000)
    assert [regime.high_bytes for regime in found.regimes] == [
        pytest.approx(bend_bytes, rel=0.1),
        3702,
    ]


@pytest.mark.parametrize("G_us_per_KiB", [(300.0, 1000.0), (500.0, 700.0)])
@pytest.mark.parametrize("bend_bytes", [80, 100, 120, 140, 170, 3570, 3600, 3620, 3650, 3680])
def test_blackbox__bend_at_the_very_end(bend_bytes: int, G_us_per_KiB: tuple[float, float]) -> None:
    """An end is compared with its line: a hidden bend makes no gap 1 % longer."""
    low, high = G_us_per_KiB
    g = 1000.0 + (high - low) * bend_bytes / 1024
    fake = FakeExchange(stages=((g, low), (1000.0, high), (50.0, 200.0)), seed=bend_bytes)
    found = fake.measure(seconds=1000)
    end = 64 if bend_bytes < 1000 else 3702
    hidden_us = abs(end - bend_bytes) * (high - low) / 1024
    if not found.settled and len(found.regimes) == 2:  # it was seen, if roughly
        assert abs(found.regimes[0].high_bytes - bend_bytes) * (high - low) / 1024 < 10
    elif hidden_us > 0.01 * 1000:
        assert found.settled
        assert found.regimes[0].high_bytes == pytest.approx(bend_bytes, abs=5)
    # The range with all sizes but the very end is known as if there were no bend.
    longest = max(found.regimes, key=lambda one: one.high_bytes - one.low_bytes)
    assert longest.G_b_us_per_KiB is not None
    assert longest.G_b_us_per_KiB.value == pytest.approx(high if end == 64 else low, rel=0.01)


def test_blackbox__noise_at_an_end_is_no_bend() -> None:
    for seed in range(10):
        found = FakeExchange(seed=seed, jitter_us=40).measure(seconds=1000, seed=seed)
        assert len(found.regimes) == 1, seed


def test_blackbox__hidden_stage_is_not_called_settled() -> None:
    """A stage is the bottleneck only between two sizes: too few for its line."""
    low, high, at = 300.0, 1500.0, 1800.0
    g = 1000.0 + (high - low) * at / 1024
    middle = (g + low * at / 1024 + 150.0 - 900.0 * at / 1024, 900.0)
    fake = FakeExchange(stages=((g, low), middle, (1000.0, high)), jitter_us=2)
    found = fake.measure(seconds=1000, rounds_max=8)
    assert not found.settled
    assert any("another stage" in note for note in found.notes)


def test_blackbox__a_quick_look_is_not_called_settled() -> None:
    """The look ends at the requested precision, but might have missed a bend near an end."""
    looked, quick = (
        FakeExchange().measure(seconds=1000, sizes_count=6, precision=0.03, ends=ends)
        for ends in (True, False)
    )
    assert looked.settled
    assert looked.rounds_count < 40
    assert quick.rounds_count < 40
    assert quick.sum_G_others_us_per_KiB is not None
    assert not quick.settled


def test_blackbox__json_has_the_source_of_each_figure() -> None:
    """Each regime has the count of its trains, its residual and sizes, and its own others' G."""
    found = FakeExchange(CROSSING).measure(sizes_count=24, at_bytes=500)
    shown = found.figures()
    trains = [one["gaps_us"] for one in shown["train_gaps"]]
    assert len(trains) == 24 + 8
    assert sum(map(len, trains)) == len(found.gaps[0])
    assert sum(one["trains_count"] for one in shown["regimes"]) == len(found.gaps[0])
    low, high = shown["regimes"]
    assert (low["size_min_bytes"], high["size_max_bytes"]) == (64, 3702)
    assert low["size_max_bytes"] < high["size_min_bytes"]
    assert low["sum_G_others_us_per_KiB"] == pytest.approx(1300, rel=0.05)
    assert high["sum_G_others_us_per_KiB"] == pytest.approx(600, rel=0.05)
    for name in ("trains_count", "sum_G_others_us_per_KiB"):
        assert shown[name] == low[name]
    assert shown["trains_residual_us"] == low["residual_us"] > 0


def test_blackbox__table_has_digits_of_small_figures() -> None:
    fake = FakeExchange(((1.5, 0.37), (0.5, 0.2)), delay_us=0, jitter_us=0.001, own_us=0.5)
    table = report.blackbox_table(fake.measure(seconds=0.1), "h2")
    assert re.search(r" 0\.5[67]\d* ±0\.0", table)


def test_blackbox__a_wide_interval_has_one_reason_and_one_bound() -> None:
    """The bound of all stages stood for that of the others, and a reason was printed twice."""
    found = FakeExchange().measure(seconds=1000)
    wide = replace(found.one_way, slope_us_per_byte=Estimate(0.01, slack=3.0))
    reason = wide.G_us_per_KiB.wide("µs/KiB")
    shown = replace(found, one_way=replace(wide, reason=reason), reason=reason)
    shown.sum_G_us_per_KiB = shown.sum_G_others_us_per_KiB = None
    lines = report.blackbox_table(shown, "h2").splitlines()
    (said,) = (line for line in lines if line.startswith("not told"))
    (row,) = (line for line in lines if line.startswith("all but"))
    bound = re.search(r"at most [\d.]+", said)
    assert bound
    assert bound[0] in row
    assert [line.count("the interval is wide") for line in lines if "wide" in line] == [1, 1]
    for sure in (found, replace(found, sum_G_others_us_per_KiB=None, reason="it changed")):
        text = report.blackbox_table(sure, "h2")
        assert text.count("it changed") == (sure is not found)


def test_blackbox__other_regimes_keep_their_figures_if_one_has_none() -> None:
    """Small frames meet a bottleneck with a constant time, which has no slope."""
    found = FakeExchange(((3000.0, 0.0), (200.0, 2000.0))).measure(sizes_count=24, at_bytes=300)
    low, high = found.figures()["regimes"]
    assert found.sum_G_others_us_per_KiB is None
    assert found.reason == low["reason"] != ""
    assert found.sum_G_us_per_KiB is not None
    assert high["G_b_us_per_KiB"] == pytest.approx(2000, rel=0.02)


@pytest.mark.parametrize("rounds_max", [6, 7, 8])
def test_blackbox__path_that_changes_while_only_trains_are_sent(rounds_max: int) -> None:
    """After the change no round trips are valid: they are repeated, also in the last round."""
    fake = FakeExchange(jitter_us=1)
    train_us = fake.train_us

    def changing(size_bytes: int, count: int) -> tuple[list[float], float]:
        _, own_us = train_us(size_bytes, count)
        gap_us = 1000.0 if len(fake.trains) <= 3 + 5 * TRAINS else 3000.0  # no slope: never enough
        return [number * gap_us for number in range(count)], own_us

    fake.train_us = changing  # type: ignore[method-assign]
    found = fake.measure(seconds=1000, rounds_max=rounds_max)
    assert any("halfway: the path changed" in note for note in found.notes) == (rounds_max > 6)
    assert found.round_trips.G_us_per_KiB.value == pytest.approx(6490, rel=0.05)


def test_blackbox__trains_in_a_bunch_are_of_those_that_count() -> None:
    """Neither number counts trains of dropped rounds or of the warm-up."""
    fake = FakeExchange(own_us=5000)
    train_us = fake.train_us

    def bunched(size_bytes: int, count: int) -> tuple[list[float], float]:
        arrivals, _ = train_us(size_bytes, count)
        gap_us = 0.1 if len(fake.trains) < 300 else 0.3
        return [number * gap_us for number in range(len(arrivals))], 5000.0

    fake.train_us = bunched  # type: ignore[method-assign]
    found = fake.measure(seconds=1000, rounds_max=9)
    note = next(one for one in found.notes if "arrived at once" in one)
    assert any("halfway: the path changed" in one for one in found.notes)
    assert len(found.gaps[0]) < 9 * TRAINS
    assert note.startswith(f"in {len(found.gaps[0])} of {len(found.gaps[0])} trains all")


@pytest.mark.parametrize(("share", "known"), [(0.3, True), (0.8, False)])
def test_blackbox__trains_mostly_in_a_bunch_are_no_regime(share: float, known: bool) -> None:
    """Even if they lie on a straight line: it shows the other end's work after it wakes."""
    fake = FakeExchange(own_us=800, jitter_us=1)
    train_us, noise = fake.train_us, random.Random(2)

    def bunched(size_bytes: int, count: int) -> tuple[list[float], float]:
        arrivals, own_us = train_us(size_bytes, count)
        if noise.random() < share**0.25:  # four times in a row: a bunch
            arrivals = [number * (100 + size_bytes / 10) for number in range(count)]
        return arrivals, own_us

    fake.train_us = bunched  # type: ignore[method-assign]
    found = fake.measure(seconds=1000, rounds_max=8, precision=1e-4)
    assert (found.regime.G_b_us_per_KiB is not None) == known
    assert (found.sum_G_others_us_per_KiB is not None) == known
    assert ("all frames arrived at once" in found.reason) == (not known)
    shown = found.figures()
    assert (shown["regimes"][0]["g_b_us"] is not None) == known


def test_blackbox__stops_when_precise_enough() -> None:
    quiet = FakeExchange(jitter_us=1).measure(precision=0.05)
    fine = FakeExchange(jitter_us=60).measure(precision=0.0003, seconds=1000)
    assert quiet.rounds_count == 4
    assert fine.rounds_count > 4


def test_blackbox__known_figures_cost_no_probes() -> None:
    """Round trips that the machine spoils are repeated; trains that are good are not."""
    fake = FakeExchange(trip_jitter_us=2500)
    found = fake.measure(seconds=1000, rounds_max=30)
    assert found.rounds_count > 4
    assert len(fake.trains) == 3 + 4 * TRAINS + 2 * 3  # and three at either end of the sizes
    assert found.round_trips.samples_count == 3 * 16 * (4 + 4 * (found.rounds_count - 4))
    assert found.sum_G_others_us_per_KiB is not None
    assert found.sum_G_others_us_per_KiB.value == pytest.approx(4000, rel=0.05)


def test_blackbox__a_difference_of_noise_is_no_figure() -> None:
    """The other stages are far faster than the bottleneck, and round trips are noisy."""
    found = FakeExchange(((700.0, 2490.0), (10.0, 20.0)), trip_jitter_us=800).measure(rounds_max=5)
    assert found.regime.G_b_us_per_KiB is not None
    assert found.sum_G_others_us_per_KiB is None
    assert "µs/KiB" in found.reason


def test_blackbox__time_is_bounded() -> None:
    fake = FakeExchange(jitter_us=5000)
    found = fake.measure(seconds=20, precision=0.001)
    assert not found.settled
    assert fake.now_us / 1e6 < 20 + 5


def test_blackbox__path_that_changes_in_the_middle() -> None:
    """Rounds before the change are dropped, and the result says so. A single disturbed round drops
    nothing.
    """
    fake = FakeExchange()
    train_us = fake.train_us

    def changing(size_bytes: int, count: int) -> tuple[list[float], float]:
        if len(fake.trains) == 3 * TRAINS:
            fake.stages = (*GAM[:2], (1500.0, 4980.0), GAM[3])
        return train_us(size_bytes, count)

    fake.train_us = changing  # type: ignore[method-assign]
    found = fake.measure(seconds=1000, rounds_max=12)
    assert "halfway: the path changed" in found.notes[0]
    assert len(found.notes) == 1
    assert found.regime.G_b_us_per_KiB is not None
    assert found.sum_G_others_us_per_KiB is not None
    assert found.regime.G_b_us_per_KiB.value == pytest.approx(4980, rel=0.01)
    assert found.sum_G_others_us_per_KiB.value == pytest.approx(4000, rel=0.02)


def test_blackbox__times_that_keep_moving_are_noise() -> None:
    """On a loaded machine nothing is dropped after two changes, and the interval is wide."""
    found = FakeExchange(mood=0.5).measure(seconds=1000, rounds_max=20)
    assert sum("halfway: the path changed" in note for note in found.notes) <= 2
    G = found.regime.G_b_us_per_KiB
    assert G is None or G.relative > 0.1


def test_shift__is_of_all_sizes_and_needs_something_to_compare() -> None:
    sizes = [64.0, 64.0, 1000.0, 3000.0]
    before = [Round(sizes, [Trip(0, 0, time) for time in (5, 9, 10, 20)], {64: 3.0})] * 2
    late = Round(sizes, [Trip(0, 0, time) for time in (5, 5, 10, 90)], {64: 3.0})
    assert late.shift_from(before) == 0
    assert Round([64.0], [Trip(0, 0, 6)]).shift_from(before) == pytest.approx(0.2)
    assert Round([], [], {64: 1.5}).shift_from(before) == pytest.approx(-0.5)
    assert Round().shift_from(before) == 0
    assert late.shift_from([]) == 0


@pytest.mark.parametrize("first_us", [0.0, -1.8e16], ids=["at once", "a clock that jumps"])
def test_blackbox__arrivals_that_make_no_gap_are_no_figures(first_us: float) -> None:
    """A lying peer may report them; the controller continues with the other peers."""
    fake = FakeExchange()

    def at_once(size_bytes: int, count: int) -> tuple[list[float], float]:
        FakeExchange.train_us(fake, size_bytes, count)
        return [first_us] + [0.0] * (count - 1), fake.own_us

    fake.train_us = at_once  # type: ignore[method-assign]
    found = fake.measure(rounds_max=5)
    assert found.regime.g_b_us is None
    assert found.reason
    assert not found.settled
    assert found.figures()["G_b_us_per_KiB"] is None


def test_usable_gaps__leave_out_bunches_and_our_own_pace() -> None:
    """Rounds in which our own pace may be the bottleneck are left out; a slower bottleneck's gap
    does not depend on how we sent."""
    near, late = (
        Round(gaps_us=dict.fromkeys(range(8), gap_us), own_us=dict.fromkeys(range(8), own_us))
        for gap_us, own_us in ((10.0, 9.0), (15.0, 14.0))
    )
    bunched = Round(gaps_us={0: 1.0, 1: 10.0}, own_us={0: 9.0, 1: 9.0}, bunched={0})
    far = Round(gaps_us={9: 300.0}, own_us={9: 140.0})
    quick = Round(gaps_us={9: 300.0}, own_us={9: 9.0})
    found = usable_gaps([near] * 9 + [late, bunched, far, quick])
    assert found[:9] == [near.gaps_us] * 9
    assert found[9:] == [{}, {1: 10.0}, {9: 300.0}, {9: 300.0}]
    assert usable_gaps([bunched, quick])[0] == bunched.gaps_us  # too few without


def test_bottlenecks__a_round_may_have_few_of_a_regime() -> None:
    """A round may even have none: three adjacent gaps can have any slope."""
    whole = {size: 100 + 0.1 * size for size in range(200, 3400, 200)}
    (found,) = bottlenecks([whole, {}, whole, {1000: 200.0, 1200: 230.0, 1400: 220.0}], 0.1)
    assert found.G_b_us_per_KiB is not None
    assert found.line.samples_count == 2 * len(whole) + 3
    assert found.G_b_us_per_KiB.relative < 0.01


@pytest.mark.parametrize("train_max", [4, 32])
def test_blackbox__background_uses_a_hundredth_of_the_time(train_max: int) -> None:
    fake = FakeExchange()
    fake.train_max = train_max
    fake.measure(background=True, seconds=2000, precision=1e-3)
    assert fake.busy_us <= 0.01001 * fake.now_us


def test_blackbox__background_that_does_not_suffice_is_refused_at_once() -> None:
    """GAM x 100 needs minutes a round. The error names the needed time, which is enough."""
    fake = FakeExchange()
    with pytest.raises(ValueError, match="in the background 4 rounds of 16 sizes take") as said:
        fake.measure(background=True, seconds=5)
    assert fake.now_us / 1e6 < 2
    seconds = float(str(said.value).split("--time ")[1].split(",")[0])
    assert 300 < seconds < 3000
    enough = FakeExchange()
    assert enough.measure(background=True, seconds=seconds).rounds_count >= 4
    assert enough.now_us / 1e6 < 1.5 * seconds


class GoesDown(FakeExchange):
    """A path that goes down after some trains; an answer is awaited for five seconds."""

    down_after = 10**9

    def train_us(self, size_bytes: int, count: int) -> tuple[list[float], float]:
        if len(self.trains) >= self.down_after:
            self.now_us += 5e6
            raise CarefulError(errno.ETIMEDOUT, "it answers no longer", "h2")
        return super().train_us(size_bytes, count)


@pytest.mark.parametrize("trains", [3 + 5 * TRAINS + 7, 3 + 5 * TRAINS])
def test_blackbox__a_path_that_goes_down_keeps_whole_rounds(trains: int) -> None:
    fake = GoesDown()
    fake.down_after = trains
    found = fake.measure(seconds=1000, precision=1e-6)
    assert found.rounds_count == 5
    assert not found.settled
    assert found.notes[-1].startswith("ended after ")
    assert found.notes[-1].endswith("(h2: it answers no longer): the figures are from earlier")
    assert len(found.gaps[0]) == 5 * TRAINS
    assert found.regime.G_b_us_per_KiB is not None
    assert found.regime.G_b_us_per_KiB.value == pytest.approx(2490, rel=0.01)
    assert found.sum_G_others_us_per_KiB is not None
    assert found.sum_G_others_us_per_KiB.value == pytest.approx(4000, rel=0.03)


def test_blackbox__a_path_that_goes_down_too_early_is_one_line() -> None:
    fake = GoesDown()
    fake.down_after = 3 + 3 * TRAINS + 1
    with pytest.raises(CarefulError, match=r"^h2: it answers no longer \(after .* s and 3 of 4"):
        fake.measure(seconds=1000)


@pytest.mark.parametrize("step", [0.001, 50.0])
def test_blackbox__a_coarse_clock_is_seen(step: float) -> None:
    """Repetition does not remove a clock's rounding; a clock of ns does not widen an interval."""
    fake = FakeExchange(jitter_us=1)
    round_trips = fake.round_trips

    def coarse(size_bytes: int, count: int) -> list[Trip]:
        return [
            Trip(one.sent_us, one.one_way_us, round(one.round_us / step) * step)
            for one in round_trips(size_bytes, count)
        ]

    fake.round_trips = coarse  # type: ignore[method-assign]
    found = fake.measure(rounds_max=4)
    low = 2 * step / (3702 - 64)
    assert low <= found.one_way.slope_us_per_byte.slack < low + 0.01


def test_blackbox__trains_fit_the_window() -> None:
    fake = FakeExchange()
    fake.train_max = 7
    fake.measure(rounds_max=4)
    assert set(fake.trains) == {7}
    fake.train_max = 3
    with pytest.raises(ValueError, match="too small for a train"):
        fake.measure()


def test_blackbox__reports_this_hosts_pace() -> None:
    found = FakeExchange(((5.0, 10.0),), own_us=40, jitter_us=1).measure(rounds_max=4)
    assert "it may be the bottleneck" in found.notes[0]
    slow = FakeExchange(own_us=40).measure(rounds_max=4)
    assert slow.notes == []


def test_blackbox__no_slope_no_figure() -> None:
    found = FakeExchange(((50.0, 0.0), (80.0, 0.0)), jitter_us=200).measure(rounds_max=4)
    assert found.sum_G_others_us_per_KiB is None
    assert found.reason


@given(
    gap=st.floats(1, 1e5),
    count=st.integers(4, 30),
    late=st.floats(0, 1e5),
    which=st.integers(0, 29),
)
def test_train_gap__one_late_frame_does_not_matter(
    gap: float, count: int, late: float, which: int
) -> None:
    arrivals = [number * gap for number in range(count)]
    if count >= 8:
        arrivals[which % count] += min(late, gap / 2)
    assert train_gap_us(arrivals) == pytest.approx(gap, rel=0.10)


def test_train_gap__one_arrival_is_no_train() -> None:
    with pytest.raises(ValueError, match="a train needs two"):
        train_gap_us([3.0])


def test_bottlenecks__ranges_join() -> None:
    gaps = {64 * k: max(500.0, 200 + 0.3 * 64 * k) for k in range(1, 40)}
    low, high = bottlenecks([gaps] * 3, 0.1)
    assert low.G_b_us_per_KiB is None  # flat: an overhead without a G to speak of
    assert high.G_b_us_per_KiB is not None
    assert low.high_bytes == high.low_bytes == pytest.approx(1000, rel=0.05)


@pytest.mark.parametrize("rate", [0.0, 50e-6, -300e-6])
def test_drift__is_measured_and_removed(rate: float) -> None:
    """The drift does not depend on late messages or the clocks' offsets."""
    noise = random.Random(5)
    sizes = [noise.choice([64.0, 1000.0, 2000.0, 3700.0]) for _ in range(300)]
    late = [noise.expovariate(1 / 30) for _ in sizes]
    whole = [3000 + 6 * size for size in sizes]
    trips = [
        Trip(1e5 + 2e4 * k, time - 1500 + 7e8 + late[k] + rate * 2e4 * k, time + late[k])
        for k, time in enumerate(whole)
    ]
    found = drift_of(sizes, trips)
    assert found == pytest.approx(rate, abs=2e-6)
    there = without_drift(sizes, trips, found)
    flat = [
        time - 6 * size - late_us for time, size, late_us in zip(there, sizes, late, strict=True)
    ]
    assert max(flat) - min(flat) < 15  # of 6 s


def test_bisected__step_between_two_sizes() -> None:
    """A second descriptor begins between 1600 and 1800 bytes; bisection finds the size."""

    def gap_us(size: int) -> float:
        return 100 + 0.1 * size + (40 if size > 1683 else 0)

    low, high = bottlenecks([{size: gap_us(size) for size in range(200, 3400, 200)}] * 4, 0.1)
    assert (low.line.size_max_bytes, high.line.size_min_bytes) == (1600, 1800)
    asked: list[int] = []

    def gap_at(size: int) -> float:
        asked.append(size)
        return gap_us(size) + 3 * (-1) ** len(asked)

    low, high = bisected([low, high], gap_at)
    assert low.high_bytes == high.low_bytes == pytest.approx(1683, rel=0.01)
    assert len(asked) <= 5


def test_bisected__lines_that_cross_need_no_halving() -> None:
    gaps = [
        {64 * k: max(900.0, 400 + 0.3 * 64 * k) + noise for k in range(1, 40)}
        for noise in (-1.0, 0.0, 1.0)
    ]
    regimes = bottlenecks(gaps, 5.0)
    assert regimes[0].high_bytes == pytest.approx(1667, rel=0.01)
    found = bisected(regimes, lambda size: 900.0 if size < 1667 else 400 + 0.3 * size)
    assert found[0].high_bytes == pytest.approx(1667, rel=0.02)
    assert bisected(regimes[:1], lambda _: pytest.fail("nothing to look for")) == regimes[:1]


@pytest.mark.parametrize(
    "options", [{"sizes_count": 3}, {"min_bytes": -1}, {"precision": 1.0}, {"max_bytes": 80}]
)
def test_blackbox__bad_options(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"sizes|negative|precision|alike"):
        FakeExchange().measure(**options)
