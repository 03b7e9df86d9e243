"""LogP signatures of machines whose parameters are known: regimes, figures, intervals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from careful.measure.endpoints.background import Background
from careful.measure.endpoints.curve import Curve
from careful.measure.endpoints.logp import LogP, Options, Result, derived, marks_to
from careful.measure.endpoints.overheads import plausible
from careful.measure.endpoints.predict import BY_GAP, BY_STEPS, by_gap_us, by_steps_us
from careful.measure.endpoints.regimes import find_regimes
from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.sample import (
    Bursts,
    Figure,
    figure,
    locations,
    supported,
    undisturbed,
)
from careful.render.measuring.logp import logp_text
from logp_machine import Machine, measure

#: P4 Table 4, µs.
TABLE_4 = {
    "Paragon": {"os": 1.4, "or_": 2.2, "g": 7.6, "L": 7.5},
    "Meiko": {"os": 1.7, "or_": 1.6, "g": 13.6, "L": 7.5},
    "Myrinet": {"os": 2.0, "or_": 2.6, "g": 12.4, "L": 11.1},
}
#: An emulated link of 1 Mbit/s, whose network is full long before the first reply.
LINK = {"os": 3.0, "or_": 2.0, "g": 1000.0, "L": 2000.0}

#: os, or, g and L, µs, noise 0.3: small, late or no changes of slope.
HARD = {
    "sender": (2.3, 0.4, 0.5, 25),
    "sender, or small": (2.3, 0.15, 0.5, 25),
    "sender, replies in waves": (2.3, 1.5, 0.5, 25),
    "sender, or > os": (1.0, 1.6, 0.5, 20),
    "sender, short path": (2.3, 0.4, 0.5, 1.5),
    "capacity": (2.3, 0.4, 0.5, 120),
    "wire, hardly slower than the sender": (2.3, 0.4, 2.85, 25),
    "wire, fills slowly": (1.2, 0.5, 2.0, 20),
    "wire": (2.3, 0.4, 4.0, 25),
    "receiver": (1.7, 5.0, 0.5, 8.0),
}


def gap_us(os: float, or_: float, g: float, L: float, capacity: int = 62) -> float:
    """Returns the limit of the steady regime: the wire, the sender, or the capacity (P4)."""
    return max(g, os + or_, 2 * (os + or_ + L) / capacity)


def known(result: Result, name: str) -> Estimate:
    estimate = getattr(result, name).estimate
    assert isinstance(estimate, Estimate), getattr(result, name).reason
    return estimate


@pytest.mark.parametrize("true", [*TABLE_4.values(), LINK], ids=[*TABLE_4, "link"])
def test_logp__reads_the_parameters_of_a_machine(true: dict[str, float]) -> None:
    found = measure(Machine(**true))
    assert found.settled
    for name, value in true.items():
        assert known(found, name).value == pytest.approx(value, rel=0.03), name
        assert getattr(found, name).residual > 0
        assert getattr(found, name).samples_count >= 50
    for trial in found.trials:
        assert trial.error == pytest.approx(0, abs=0.05), trial.messages
        assert trial.predicted_by == BY_GAP


SENDERS = [(1.0, 0.5, 0.0, 3.0), (1.0, 0.5, 0.0, 20.0), (1.2, 1.0, 0.5, 8.0), (1.0, 1.4, 0.2, 10)]


@pytest.mark.parametrize("true", SENDERS)
def test_logp__predicts_bursts_of_a_sender_that_is_the_bottleneck(
    true: tuple[float, float, float, float],
) -> None:
    """Short bursts end before a reply is taken, so messages are `os` apart, not `os` + `or`."""
    found = measure(Machine(*true))
    assert found.sender_bound
    for trial in found.trials:
        assert trial.error == pytest.approx(0, abs=0.05), trial.messages
        assert trial.predicted_by == BY_STEPS
    rtt, g = known(found, "rtt").value, known(found, "g").value
    by_gap = [by_gap_us(one.messages, g, rtt) / one.predicted_us - 1 for one in found.trials]
    assert max(by_gap) > 0.20
    assert min(by_gap) > -0.05


@pytest.mark.parametrize("noise", [0.02, 0.5])
def test_trials__say_how_far_their_error_may_be_off(noise: float) -> None:
    found = measure(Machine(**LINK, noise=noise), seconds=4.0)
    for trial in found.trials:
        assert trial.error is not None
        assert abs(trial.error) < trial.error_half + 0.005
        assert (trial.error_half > 0.01) == (noise > 0.1), trial.messages
        low, high = (
            by_gap_us(trial.messages, *(getattr(known(found, name), end) for name in ("g", "rtt")))
            for end in ("low", "high")
        )
        assert trial.predicted_half_us == pytest.approx((high - low) / 2)


def test_trials__too_wide_an_interval_is_no_error_in_the_table() -> None:
    found = measure(Machine(**LINK))
    assert re.search(
        r"bursts of 2, 3, .*50: the largest error of o .* is [+-]0.\d% ±\d.\d%",
        logp_text(found, "h2"),
    )
    loud = replace(found.trials[0], predicted_half_us=found.trials[0].predicted_us)
    found.trials = [loud, *found.trials[1:]]
    assert "bursts of 3, 5, 10, 20, 50: the largest error of o " in logp_text(found, "h2")
    found.trials = [loud]
    assert "too wide to judge o + (n-1)g" in logp_text(found, "h2")


def test_by_steps__is_the_senders_work() -> None:
    """One message takes half of a round trip; very many take all of the sender's time."""
    assert by_steps_us(1, 2.0, 1.0, 50.0) == pytest.approx(25)
    assert by_steps_us(2, 2.0, 1.0, 50.0) == pytest.approx(27)
    assert by_steps_us(10000, 2.0, 1.0, 50.0) == pytest.approx(30000, rel=0.01)
    # With 4 under way the fifth waits for a reply, so each four take a round trip.
    assert by_steps_us(4000, 2.0, 1.0, 50.0, 4) == pytest.approx(50000, rel=0.06)


def test_logp__intervals_hold_the_truth() -> None:
    true, hits = TABLE_4["Paragon"], dict.fromkeys(TABLE_4["Paragon"], 0)
    for seed in range(20):
        found = measure(Machine(**true, capacity=20, noise=0.3, seed=seed))
        for name, value in true.items():
            hits[name] += known(found, name).contains(value)
    assert min(hits.values()) >= 17, hits


@pytest.mark.parametrize("true", HARD.values(), ids=HARD)
def test_logp__a_small_change_of_slope(true: tuple[float, float, float, float]) -> None:
    os, or_, g, L = true
    found = measure(Machine(os, or_, g, L, noise=0.3, preempted=1e-6), precision=0.1)
    curve = found.curves[0]
    assert curve.send_messages <= min(62, 2 * (os + or_ + L) / os)
    assert curve.steady_messages is not None
    assert curve.steady_messages >= 62
    assert known(found, "os").value == pytest.approx(os, rel=0.03)
    assert known(found, "g").value == pytest.approx(gap_us(*true), rel=0.04)
    for name, value in {"or_": or_, "L": L}.items():
        figure = getattr(found, name).estimate
        assert figure is None or figure.value == pytest.approx(value, abs=2 * figure.half), name


@pytest.mark.parametrize("name", ["sender", "wire, fills slowly", "receiver"])
def test_logp__intervals_hold_a_gap_that_is_hard_to_see(name: str) -> None:
    hits = {"os": 0, "g": 0}
    os, or_, g, L = HARD[name]
    for seed in range(8):
        machine = Machine(os, or_, g, L, noise=0.3, preempted=1e-5, seed=seed)
        found = measure(machine, only="gap", seconds=0.2)
        hits["os"] += known(found, "os").contains(os)
        hits["g"] += known(found, "g").contains(gap_us(os, or_, g, L))
    assert min(hits.values()) >= 7, hits


def test_logp__no_gap_while_the_network_fills() -> None:
    """From the first reply on, 124 messages lie on a line of 1.6 µs each, but g is 2."""
    found = measure(Machine(1.2, 0.5, 2.0, 20), only="gap", messages_max=124, seconds=0.2)
    assert found.g.estimate is None
    assert "no steady regime within 124" in found.g.reason


def test_logp__the_curve_gets_longer_if_the_network_is_not_full() -> None:
    class Changed(Machine):
        calls = 0

        def bursts(self, marks: Sequence[int], compute_us: float, count: int) -> Bursts:
            self.calls += marks[-1] > 64
            if self.calls > 1:
                self.os, self.g = 0.8, 2.0
            return super().bursts(marks, compute_us, count)

    found = measure(Changed(2.0, 0.3, 0.5, 1), only="gap", precision=0.004, seconds=0.3)
    assert len(found.curves[0].bursts.marks) > len(marks_to(124))
    assert known(found, "g").value == pytest.approx(2.0, rel=0.04)


def test_logp__bursts_of_which_most_were_disturbed_have_no_gap() -> None:
    """A preemption empties the network, so even the quiet parts are not steady."""
    machine = Machine(1.2, 0.5, 2.0, 20, preempted=2e-3)
    found = measure(machine, only="gap", seconds=0.5)
    assert known(found, "os").value == pytest.approx(1.2, rel=0.03)
    assert found.g.estimate is None
    assert "other work" in found.g.reason


def test_logp__finds_the_regimes() -> None:
    """Replies begin at RTT / os, and the network of 62 is full as P4 Figure 3 counts it."""
    curve = measure(Machine(**TABLE_4["Paragon"])).curves[0]
    assert 9 <= curve.send_messages <= 16  # 22.2 µs of 1.4
    assert curve.steady_messages is not None
    assert 70 <= curve.steady_messages <= 100  # 48 more under way, 0.74 of each that leaves


def test_logp__a_full_network_comes_before_the_first_reply() -> None:
    curve = measure(Machine(**LINK), only="gap").curves[0]
    assert 44 <= curve.send_messages <= 62
    assert curve.steady_messages is not None
    assert 62 < curve.steady_messages <= 80


def test_logp__a_sender_that_is_the_bottleneck_hides_nothing() -> None:
    """P4 Figure 11: the first D raises the gap, which is os + or."""
    found = measure(Machine(os=150, or_=120, g=100, L=200, capacity=32))
    assert known(found, "g").value == pytest.approx(270, rel=0.03)
    assert known(found, "or_").value == pytest.approx(120, rel=0.03)
    assert "bottleneck" in found.notes[0]


@pytest.mark.parametrize("noise", [0.1, 0.5])
@pytest.mark.parametrize("wakes", [0.0, 16.0, 60.0])
def test_logp__a_pauses_cost_is_no_part_of_or(noise: float, wakes: float) -> None:
    """After a pause D each request takes longer; P4's g' - D - os would count that as or."""
    hits = 0
    for seed in range(8):
        found = measure(Machine(**LINK, wakes=wakes, noise=noise, seed=seed))
        assert found.settled
        assert known(found, "os").value == pytest.approx(LINK["os"], rel=0.05)
        assert known(found, "os_D").value == pytest.approx(LINK["os"] + wakes, rel=0.05)
        assert known(found, "or_").value == pytest.approx(LINK["or_"], rel=0.06)
        hits += known(found, "or_").contains(LINK["or_"])
    assert hits >= 6
    notes = [one for one in found.notes if "after a pause D, a request" in one]
    assert bool(notes) == bool(wakes)
    if wakes == 16:
        assert re.search(r"a request takes 1[89]\.?\d* µs to send, 1[56]\.?\d* ±", notes[0])


def test_logp__or_does_not_depend_on_slow_first_requests() -> None:
    """The first requests take 16 µs more, later ones 4, so neither os_D nor os may be subtracted
    from g'.
    """

    class Settling(Machine):
        def bursts(self, marks: Sequence[int], compute_us: float, count: int) -> Bursts:
            found = super().bursts(marks, compute_us, count)
            if not compute_us:
                return found
            first = np.minimum(found.marks, 4) * 16 + np.maximum(found.marks - 4, 0) * 4
            later = replace(found, done_us=found.done_us + first[-1])
            return replace(later, elapsed_us=found.elapsed_us + first)

    found = measure(Settling(**LINK), seconds=60.0)
    assert known(found, "os_D").value > known(found, "os").value + 10
    assert known(found, "or_").value == pytest.approx(LINK["or_"], rel=0.05)


def test_logp__a_reply_that_does_not_come_in_the_pause_gives_no_or() -> None:
    """For example a transfer that needs its sender's processor more than once."""

    class Later(Machine):
        def bursts(self, marks: Sequence[int], compute_us: float, count: int) -> Bursts:
            found = super().bursts(marks, compute_us, count)
            late_us = 2500.0 if compute_us and marks[-1] == 1 else 0.0
            return replace(found, done_us=found.done_us + late_us)

    found = measure(Later(**LINK), seconds=4.0)
    assert found.or_.estimate is None
    assert "the pause was too short for a reply" in found.or_.reason
    assert found.L.estimate is None
    assert known(found, "os").value == pytest.approx(LINK["os"], rel=0.05)


def test_plausible__an_overhead_above_half_a_round_trip_is_withheld() -> None:
    """TCP on one processor: the other end answers before the call that sends is over."""
    os, why = Figure(Estimate(65.99, 0.09, 50), 123), "so it is"
    found = plausible(os, Figure(Estimate(64.90, 0.2, 50)), why)
    assert found.estimate is None
    assert found.samples_count == 123
    assert found.reason.startswith("2 × 66 µs is more than the round trip of 64.9: so it is, or")
    assert plausible(os, Figure(Estimate(140.0, 0.2, 50)), why) == os
    assert plausible(os, Figure(Estimate(131.0, 9.0, 50)), why) == os
    withheld = Figure(None, reason="none")
    assert plausible(withheld, Figure(Estimate(64.90, 0.2, 50)), why) == withheld
    assert plausible(os, withheld, why) == os


def test_logp__sends_that_take_a_whole_round_trip_give_no_os_and_no_L() -> None:
    machine = Machine(**LINK)
    trips = machine.bursts([1], 0.0, 50)
    slow = replace(trips, elapsed_us=trips.done_us[:, None] + 1.0)
    late = machine.bursts([1], 6000.0, 50)
    found = derived(machine, trips, [Curve(0.0, slow, trips.done_us, 62)], late)
    for name in ("os", "or_", "L"):
        assert getattr(found, name).estimate is None
        assert "more than the round trip" in getattr(found, name).reason
    assert found.rtt.estimate is not None
    # A person still gets bounds, a rate, and the reason once.
    text = logp_text(found, "h2")
    assert found.most_us("os") == found.rtt.estimate.high / 2
    assert "os   at most" in text
    assert text.count("more than the round trip") == 1
    assert "not told exactly: os, or, L: 2 × " in text
    gap_us = float(np.median(trips.done_us))
    assert "L    at most 0.2 " in logp_text(
        replace(found, L=supported(Estimate(0.1, slack=0.1), 9, 0.1)), "h2"
    )
    assert found.g.estimate is None
    assert found.most_us("g") == gap_us
    assert f"rate: at least {1e6 / gap_us:,.0f} messages a second" in text


def test_logp__an_impossible_latency_takes_the_time_that_was_given() -> None:
    """L = -1.9 µs of disturbed bursts ended the measurement early, and no line said why."""

    class Late(Machine):
        def bursts(self, marks: Sequence[int], compute_us: float, count: int) -> Bursts:
            made = super().bursts(marks, compute_us, count)
            alone = len(marks) == 1 and compute_us and self.now_us < 0.5e6
            return replace(made, done_us=made.done_us + 12) if alone else made

    found = measure(Late(**TABLE_4["Myrinet"]), only="signature", seconds=0.2)
    assert found.L_is_impossible
    assert found.elapsed_s > 0.2
    assert not found.settled
    found = measure(Late(**TABLE_4["Myrinet"]), only="signature", seconds=5)
    assert known(found, "L").value > 0


def test_logp__a_missing_steady_regime_is_reported_once() -> None:
    found = measure(Machine(1.2, 0.5, 2.0, 20), only="signature", messages_max=64, seconds=0.1)
    text = logp_text(found, "h2")
    assert not found.curves[0].steady_messages
    assert text.count("no steady regime") == 1


def test_logp__a_longer_burst_if_the_network_fills_slowly() -> None:
    found = measure(Machine(os=1.2, or_=0.5, g=2.0, L=1.2), only="gap")
    assert found.curves[0].bursts.marks[-1] > 124
    assert known(found, "g").value == pytest.approx(2.0, rel=0.03)


class Sleeper:
    """A machine in background mode: the times of its bursts and its sleeps."""

    def __init__(self, machine: Machine, seconds: float) -> None:
        self.machine, self.slept_s = machine, 0.0
        self.layer = Background(machine, seconds, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        self.machine.now_us += seconds * 1e6


def test_background__bursts_take_one_percent_of_the_time() -> None:
    asleep = Sleeper(Machine(**TABLE_4["Myrinet"]), 60)
    found = LogP(asleep.layer, Options(seconds=60), clock=asleep.machine.clock).run()
    busy_s = found.elapsed_s - asleep.slept_s
    assert 0 < busy_s / found.elapsed_s == pytest.approx(0.01, rel=0.01)
    assert found.settled
    for name, value in TABLE_4["Myrinet"].items():
        assert known(found, name).value == pytest.approx(value, rel=0.05), name


def test_background__reports_at_once_the_time_that_it_needs() -> None:
    asleep = Sleeper(Machine(**LINK), 60)
    measurement = LogP(asleep.layer, Options(seconds=60), clock=asleep.machine.clock)
    with pytest.raises(ValueError, match=r"about \d+ s on this path: give --time (\d+)$") as said:
        measurement.run()
    assert asleep.machine.now_us < 60e6  # after round trips, and one burst
    enough = float(str(said.value).rpartition(" ")[2])
    asleep = Sleeper(Machine(**LINK), enough)
    found = LogP(asleep.layer, Options(seconds=enough), clock=asleep.machine.clock).run()
    assert known(found, "g").value == pytest.approx(1000, rel=0.03)


def test_logp__a_loaded_machine_gets_no_gap() -> None:
    found = measure(Machine(**TABLE_4["Paragon"], noise=0.99, preempted=0.2), seconds=0.05)
    assert not found.settled
    assert found.g.estimate is None
    assert "other work" in found.g.reason
    assert known(found, "or_").contains(TABLE_4["Paragon"]["or_"])


def test_logp__batches_of_fifty_also_in_pieces() -> None:
    machine = Machine(**TABLE_4["Paragon"], capacity=20)
    machine.at_most = 7
    found = measure(machine)
    assert {curve.samples_count % 50 for curve in found.curves} == {0}


def test_logp__a_slow_path_gets_shorter_batches() -> None:
    machine = Machine(os=3, or_=2, g=50000, L=2000)
    machine.at_most = 1
    found = measure(machine, only="gap", seconds=20)
    assert found.elapsed_s < 80
    assert 5 <= found.curves[0].samples_count < 50


def test_regimes__too_few_bursts_show_no_bend() -> None:
    """The regimes' limits stay: a round trip, and the capacity."""
    machine = Machine(**TABLE_4["Paragon"])
    found = machine.bursts(marks_to(124), 0.0, 4)
    regimes = find_regimes(found.marks, found.elapsed_us, 22.2, 62)
    assert regimes.steady_begin is not None
    assert found.marks[regimes.send_end] == pytest.approx(22.2 / 1.4, abs=3)
    assert found.marks[regimes.steady_begin] == 64


def test_marks__end_at_the_last_message() -> None:
    assert marks_to(1) == [1]
    assert marks_to(9) == [*range(1, 10)]
    assert marks_to(4096)[-1] == 4096
    assert len(marks_to(4096)) <= 64


def test_locations__four_in_ten_disturbed() -> None:
    rng = np.random.default_rng(5)
    sample = rng.normal(10, 1, 200)
    sample[::5] += 1000
    sample[1::5] += 100
    means, errors, _ = locations(sample)
    assert abs(means[0] - 10) < 0.4
    assert errors[0] < 0.2


def test_undisturbed__keeps_a_rows_common_part() -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(10, 1, (200, 1)) + rng.normal(0, 0.1, (200, 8))
    late = rows + 500 * (rng.random(rows.shape) < 0.1)
    assert (late.sum(axis=1) > 500).mean() > 0.5
    sums = undisturbed(late).sum(axis=1)
    assert sums.mean() == pytest.approx(80, rel=0.01)
    assert np.std(sums) == pytest.approx(np.std(rows.sum(axis=1)), rel=0.15)


def test_locations__equal_samples() -> None:
    means, errors, _ = locations(np.full(20, 7.0))
    assert (means[0], errors[0]) == (7.0, 0.0)


def test_locations__coverage() -> None:
    """About 95 % of the 95 % intervals hold the truth, also if other work lengthens every fifth
    time.
    """
    rng = np.random.default_rng(7)
    for share, least in ((0.0, 365), (0.2, 360)):
        hits = 0
        for _ in range(400):
            late = (rng.random(50) < share) * rng.exponential(100, 50)
            known = figure(rng.normal(10, 2, 50) + late).estimate
            hits += known is not None and known.contains(10)
        assert least <= hits <= 395, share


def test_figure__gives_a_reason_if_withheld() -> None:
    assert "samples" in figure(np.array([1.0, 2.0])).reason
    wide = figure(np.array([1.0, -5.0, 9.0, -8.0, 6.0]))
    assert wide.estimate is None
    assert "wide" in wide.reason


@pytest.mark.parametrize("options", [{"precision": 0}, {"seconds": 0}, {"messages_max": 4}])
def test_logp__bad_options(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"precision|messages"):
        measure(Machine(**LINK), **options)
