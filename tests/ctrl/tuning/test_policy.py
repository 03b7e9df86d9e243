"""The policy of `tune auto`, in virtual time: hours of a path within seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from careful.model import Pipeline, load_shipped
from careful.model.tunemap import fixed_plan
from careful.plan import CLASS_COUNT, Plan, class_of
from careful.tuning.controller import measurements
from careful.tuning.controller.policy import Controller
from careful.tuning.state import PathState
from live_path import (
    LIMITS,
    START,
    LivePath,
    Stream,
    run,
    scaled,
    told,
    truth_us,
    verdicts,
    widened,
)

GAM = load_shipped("gam")
KIB = 1024
MESSAGE = 4 * KIB
CLASS = class_of(MESSAGE)


def steady(_: float) -> Pipeline:
    return GAM


def path(
    pipeline: Callable[[float], Pipeline] = steady, every_s: float = 0.005, **more: object
) -> LivePath:
    """A path with one stream of 4 KiB messages."""
    return LivePath(pipeline, [Stream(MESSAGE, every_s)], **more)  # type: ignore[arg-type]


def controller(on: LivePath, state: PathState | None = None) -> Controller:
    return Controller(on, state or PathState({}), on.clock, seed=1)


def loss(on: LivePath, pipeline: Pipeline, index: int = CLASS) -> float:
    """Returns by which share messages take longer than with the best fixed size."""
    best_us = fixed_plan(pipeline, 64 << index, LIMITS)[1]
    return truth_us(pipeline, 64 << index, on.plan(index)) / best_us - 1


def test_steady__the_best_plan_is_set_and_stays() -> None:
    on = path()
    one = controller(on)
    run(one, on, 10)
    assert loss(on, GAM) < 0.02
    assert verdicts(one)[CLASS] == "held"
    kept = next(each for each in one.state.decisions if each["what"] == "kept")
    (ab,) = (each["ab"] for each in kept["classes"])
    assert "live messages" in ab["measures"]
    assert ab["after_us"] < ab["before_us"]
    assert ab["gain_low_us"] > 0
    assert min(ab["before_count"], ab["after_count"]) >= 30


def test_steady__at_most_one_change_in_ten_minutes() -> None:
    on = path(every_s=0.1, noise=0.4)
    one = controller(on)
    run(one, on, 2 * 3600)
    changed = told(one, "changed")
    assert changed
    assert all(b - a >= 600 for a, b in pairwise(changed))
    assert loss(on, GAM) < 0.03


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone__changes_nothing(seed: int) -> None:
    """The plans of this path are already the best, with any scatter of messages and figures."""
    on = path(every_s=0.02, noise=0.5, error=0.3, seed=seed)
    best = [fixed_plan(GAM, 64 << i, LIMITS)[0] for i in range(CLASS_COUNT)]
    on.versions = [[*best, *one[CLASS_COUNT:]] for one in on.versions]
    before = on.in_effect()
    one = controller(on)
    run(one, on, 1800)
    assert not told(one, "changed")
    assert on.in_effect() == before


def test_prediction__within_its_uncertainty_is_not_pushed() -> None:
    on = path(error=2.0)
    one = controller(on)
    run(one, on, 60)
    assert not told(one, "changed")
    assert told(one, "nothing to change")
    assert on.plan(CLASS) == START


def test_prediction__that_is_wrong_is_undone() -> None:
    """The measurement has no overheads; live messages refute it."""
    on = path(every_s=0.05, lies=lambda one: scaled(one, g=0.02))
    one = controller(on)
    run(one, on, 60)
    assert told(one, "undone")
    assert verdicts(one)[CLASS] == "not held"
    assert on.plan(CLASS) == START
    # It is not tried again and again.
    run(one, on, 3600)
    assert len(told(one, "undone")) == 1


@pytest.mark.parametrize(("part", "factor"), [("G", 0.5), ("g", 8.0), ("G", 3.0)])
@pytest.mark.parametrize("every_s", [0.002, 0.1])
def test_path_changes__answered(part: str, factor: float, every_s: float) -> None:
    """Within 2 s of traffic, or 30 messages an arm, whichever is later."""
    other = scaled(GAM, **{part: factor})
    at = 1000.0 + 120
    on = path(lambda now: GAM if now < at else other, every_s=every_s)
    one = controller(on)
    run(one, on, at - on.now)
    sent = on.sent
    while not told(one, "path changed"):
        on.advance(one.step())
        assert on.now - at < 60
    changed = told(one, "changed")[-1]
    assert changed > at
    assert changed - at < 2 or on.sent - sent <= 2 * 30
    run(one, on, 60)
    assert loss(on, other) < 0.03


@pytest.mark.parametrize("phase_s", [0.03 * step for step in range(8)])
def test_path_changes__each_change_is_answered(phase_s: float) -> None:
    """At any point in the detector's window, with messages as sparse as on the lab's slow path."""
    other = scaled(GAM, G=2.0)
    at = 1000.0 + 60 + phase_s
    on = path(lambda now: GAM if now < at else other, every_s=0.025)
    one = controller(on)
    run(one, on, 63)
    assert told(one, "path changed")
    assert told(one, "changed")[-1] - at < 2


def test_path_changes__measured_closely_when_calm() -> None:
    """A quick measurement answers; the close one follows, and changes nothing."""
    at = 1000.0 + 60
    on = path(lambda now: GAM if now < at else scaled(GAM, G=3.0), every_s=0.02)
    asked: list[tuple[float, bool]] = []
    real = on.measure

    def measure(quick: bool) -> object:
        asked.append((on.now, quick))
        return real(quick)

    on.measure = measure  # type: ignore[method-assign, assignment]
    one = controller(on)
    run(one, on, 200)
    assert [quick for _, quick in asked] == [False, True, False]
    assert asked[2][0] - asked[1][0] >= measurements.CLOSELY_S
    assert len(told(one, "changed")) == 2
    assert len(told(one, "path changed")) == 1


def test_path_changes__measured_closely_if_a_quick_measurement_is_not_enough() -> None:
    """The path has certainly changed, but the better plan is not clear."""
    at, other = 1000.0 + 60, scaled(GAM, G=0.4)
    on = path(lambda now: GAM if now < at else other, every_s=0.02)
    real = on.measure

    def measure(quick: bool) -> object:
        found, limits = real(quick)
        return (widened(found) if quick else found), limits

    on.measure = measure  # type: ignore[method-assign, assignment]
    one = controller(on)
    run(one, on, 70)
    (changed,) = told(one, "path changed")
    assert any(each["what"] == "nothing to change" for each in one.state.decisions)
    assert told(one, "changed")[-1] - changed < 2
    assert loss(on, other) < 0.03


@pytest.mark.parametrize("path_too", [False, True])
def test_messages_shift__a_glance_that_does_not_tell_is_followed_by_a_measurement(
    path_too: bool,
) -> None:
    """Rough figures that fit both the old and the new path decide nothing."""
    at, other = 1000.0 + 60, scaled(GAM, g=1.3, G=1.3)
    on = path(lambda now: GAM if now < at else other, every_s=0.02)
    real = on.measure
    asked: list[bool] = []

    def measure(quick: bool) -> object:
        asked.append(quick)
        on.lies = lambda one: one if path_too and not quick else GAM
        found, limits = real(quick)
        return (widened(found) if quick else found), limits

    on.measure = measure  # type: ignore[method-assign, assignment]
    one = controller(on)
    run(one, on, 68)
    assert asked == [False, True, False]
    assert bool(told(one, "path changed")) == path_too
    assert bool(told(one, "path as before")) != path_too


def test_messages_shift__without_a_known_cause() -> None:
    """No change is reported, and the next measurement waits twice as long."""
    at = 1000.0 + 60
    on = path(every_s=0.02)
    real, pipeline = on.measure, on.pipeline
    on.took = lambda nbytes, plan, _: (
        truth_us(pipeline(on.now), nbytes, plan) * (1 + (on.now > at and int(on.now / 7) % 2))
    )
    asked: list[float] = []

    def measure(quick: bool) -> object:
        if on.now > at:
            asked.append(on.now)
            if not quick:
                raise ValueError("the interval is wide")
        found, limits = real(quick)
        return (widened(found) if quick else found), limits

    on.measure = measure  # type: ignore[method-assign, assignment]
    one = controller(on)
    run(one, on, 60 + 600)
    assert told(one, "not measured")
    for what in ("path changed", "path as before", "trying"):
        assert not told(one, what), what
    assert len(asked) <= 2 * 7
    assert one.state.figures
    assert loss(on, GAM) < 0.02


@pytest.mark.parametrize("seed", range(4))
def test_steady__noise_hardly_ever_causes_a_measurement(seed: int) -> None:
    """With any scatter there is at most one useless measurement in ten minutes."""
    on = path(every_s=0.01, noise=0.5, seed=seed)
    one = controller(on)
    run(one, on, 1200)
    assert not told(one, "path changed")
    assert len(on.measured_at) <= 3


def test_answer__measures_closely_after_a_quick_failure() -> None:
    """A path that is always busy hides its times from the quick measurement."""
    at = 1000.0 + 60
    on = path(lambda now: GAM if now < at else scaled(GAM, G=3.0))
    real = on.measure

    def measure(quick: bool) -> object:
        found = real(quick)
        if quick:
            raise ValueError("the interval is wide")
        return found

    on.measure = measure  # type: ignore[method-assign, assignment]
    one = controller(on)
    run(one, on, 70)
    assert told(one, "not measured")
    assert told(one, "path changed")[0] - at < 5
    assert loss(on, scaled(GAM, G=3.0)) < 0.03


def test_answer__a_measurement_that_fails_is_made_again_soon() -> None:
    at = 1000.0 + 60
    on = path(lambda now: GAM if now < at else scaled(GAM, G=3.0))
    real = on.measure
    failed: list[float] = []

    def measure(quick: bool) -> object:
        if quick and not failed:
            failed.append(on.now)
            raise ValueError("no figures")
        return real(quick)

    on.measure = measure  # type: ignore[method-assign, assignment]
    one = controller(on)
    run(one, on, 70)
    assert failed
    assert told(one, "path changed")[0] - at < 4


def test_path_changes__within_an_ab() -> None:
    """The answer does not wait for the end of an A/B about the old path."""
    other = scaled(GAM, G=3.0)
    at = 1000.0 + 5
    on = path(lambda now: GAM if now < at else other, noise=0.6, every_s=0.01)
    one = controller(on)
    run(one, on, at - on.now)
    assert one.trying
    run(one, on, 120)
    assert told(one, "path changed")[0] - at < 2
    assert loss(on, other) < 0.05


def contended(pipeline: Pipeline, times: float) -> Pipeline:
    """A second stream's fragments stand between ours where the path is slowest (P1 5.1)."""
    slowest = pipeline.bottleneck(1024.0)
    return Pipeline(
        tuple(
            replace(one, g_us=times * one.g_us, G_us_per_KiB=times * one.G_us_per_KiB)
            if k == slowest
            else one
            for k, one in enumerate(pipeline.stages)
        )
    )


@pytest.mark.parametrize("every_s", [0.005, 0.1])
def test_second_stream__is_answered_and_undone_when_it_ends(every_s: float) -> None:
    """Within 2 s of traffic, or 30 messages an arm, both times; the plan is the previous one."""
    loaded = contended(GAM, 4.0)
    came, went = 1000.0 + 120, 1000.0 + 420
    on = path(lambda now: loaded if came < now < went else GAM, every_s=every_s)
    one = controller(on)
    run(one, on, came - on.now)
    before = on.plan(CLASS)
    answered: list[float] = []
    for at, pipeline in ((came, loaded), (went, GAM)):
        run(one, on, max(0.0, at - on.now))
        sent, known = on.sent, len(told(one, "path changed"))
        while len(told(one, "path changed")) == known:
            on.advance(one.step())
            assert on.now - at < 60
        assert on.now - at < 2 or on.sent - sent <= 2 * 30
        run(one, on, 90)
        assert loss(on, pipeline) < 0.03
        answered.append(on.plan(CLASS).first_bytes)
    assert answered[0] > before.first_bytes, "fewer fragments, for each costs four times as much"
    assert answered[1] == pytest.approx(before.first_bytes, rel=0.3)


def test_second_stream__that_pauses_is_answered_without_a_close_measurement() -> None:
    """In a pause one size of probes meets an idle path. A close measurement of a path that stays
    busy would end without figures."""
    came = 1000.0 + 60
    on = path(every_s=0.02)
    on.took = lambda nbytes, plan, _: truth_us(GAM, nbytes, plan) * (1.4 if on.now > came else 1)
    real = on.measure
    asked: list[bool] = []

    def measure(quick: bool) -> object:
        found, limits = real(quick)
        if on.now < came:
            return found, limits
        asked.append(quick)
        if not quick:
            raise ValueError("the interval is wide")
        trips = [
            {"size_bytes": size, "least_us": truth_us(GAM, size, START) + 27.3 * late}
            for size, late in ((64, 4), (1883, 2), (3702, 1))  # 1: back through idle stages
        ]
        return widened(found) | {"round_trip_minima": trips}, limits

    on.measure = measure  # type: ignore[method-assign, assignment]
    one = controller(on)
    run(one, on, 90)
    (as_before,) = told(one, "path as before")
    assert as_before - came < 5
    assert asked == [True]
    assert loss(on, GAM) < 0.02


@pytest.mark.parametrize("every_s", [0.005, 0.03])
def test_bursts_of_other_work__change_no_plan(every_s: float) -> None:
    """The host holds up all messages for a moment, again and again: the path is the same."""
    on = path(every_s=every_s, noise=0.2)
    on.took = lambda nbytes, plan, _: (
        truth_us(GAM, nbytes, plan) * (1 if on.now < 1020 or on.now % 23 > 1.5 else 4)
    )
    one = controller(on)
    run(one, on, 20)
    before = on.plan(CLASS)
    run(one, on, 590)
    assert on.plan(CLASS) == before
    assert len(told(one, "changed")) == 1
    assert len(on.measured_at) <= 12  # the first, and answers that wait twice as long each time


def test_second_stream__begins_and_ends() -> None:
    """Every 20 s for an hour: plans follow it at first, and later wait."""
    loaded = scaled(GAM, G=2.0)
    on = path(lambda now: loaded if int(now / 20) % 2 else GAM, every_s=0.02)
    one = controller(on)
    run(one, on, 3600)
    assert len(on.measured_at) <= 16
    for pipeline in (GAM, loaded):
        assert loss(on, pipeline) < 0.1


def test_no_traffic__a_change_stays_marked() -> None:
    on = LivePath(steady, [Stream(MESSAGE, 0.01, alive=lambda now: now > 1100)])
    one = controller(on)
    run(one, on, 60)
    assert told(one, "unverified")
    assert loss(on, GAM) < 0.02
    decision = next(each for each in one.state.decisions if each["what"] == "unverified")
    said = {each["class"]: each["ab"]["said"] for each in decision["classes"]}
    assert said[CLASS] == "not verified: 0 messages of the 30 that are needed"
    assert CLASS in one.state.unverified
    # When messages come, it is verified, and does not count as a second change.
    run(one, on, 60)
    assert CLASS not in one.state.unverified
    assert verdicts(one)[CLASS] == "held"
    assert len(told(one, "changed")) == 1


def test_no_traffic__a_wrong_change_is_undone_when_traffic_comes() -> None:
    on = LivePath(
        steady,
        [Stream(MESSAGE, 0.01, alive=lambda now: now > 1100)],
        lies=lambda one: scaled(one, g=0.02),
    )
    one = controller(on)
    run(one, on, 60)
    assert on.plan(CLASS) != START
    run(one, on, 60)
    assert on.plan(CLASS) == START
    assert verdicts(one)[CLASS] == "not held"


def test_by_hand__stays() -> None:
    on = path(pinned={CLASS})
    one = controller(on)
    run(one, on, 60)
    assert on.plan(CLASS) == START
    assert all(
        each["class"] != CLASS for decision in one.state.decisions for each in decision["classes"]
    )
    # It is taken over again on command.
    on.pinned.clear()
    run(one, on, 700)
    assert loss(on, GAM) < 0.02


@pytest.mark.parametrize("count", [1, CLASS_COUNT])
def test_by_hand__is_the_reason(count: int) -> None:
    """`tune set --fragment-bytes`, then `tune auto`: no plan gained, it said."""
    on = path(pinned=set(range(count)), error=2.0)
    one = controller(on)
    run(one, on, 60)
    (why,) = {each["why"] for each in one.state.decisions if each["what"] == "nothing to change"}
    assert ("no plan gains" in why) == (count < CLASS_COUNT)
    assert ("set by hand: class 0 (" if count == 1 else "all classes are set by hand (") in why
    assert "`carefulctl tune set --default` gives them back" in why


def test_by_hand__within_an_ab() -> None:
    on = path(noise=2.0)
    one = controller(on)
    while not one.trying:
        on.advance(one.step())
    mine = Plan.fixed(777)
    on.set_by_hand(CLASS, mine)
    run(one, on, 60)
    assert on.plan(CLASS) == mine
    assert told(one, "set by hand")


def test_by_hand__another_class_within_an_ab() -> None:
    """The other values have no verdict yet: they stay in effect unverified, and are tried again."""
    on = path(noise=0.5)
    one = controller(on)
    while not one.trying:
        on.advance(one.step())
    pairs = dict(one.state.on_trial)
    another = next(item for item in pairs if item != CLASS)
    on.set_by_hand(another, pairs.pop(another).before)
    on.advance(one.step())
    assert not one.trying
    assert one.state.unverified == pairs
    assert all(on.in_effect()[item] == pair.after for item, pair in pairs.items())
    run(one, on, 60)
    assert verdicts(one)[CLASS] == "held"


@pytest.mark.parametrize("when_s", [0.31, 0.5, 1.0, 3.0, 30.0])
def test_killed__another_continues(when_s: float) -> None:
    """In any step: the state is the last saved one, and the plans stay."""
    on = path(noise=0.5)
    kept: list[dict[str, object]] = []
    state = PathState({})
    one = Controller(on, state, on.clock, save=lambda: kept.append(state.as_dict()), seed=1)
    run(one, on, when_s)
    measured = len(on.measured_at)
    later = controller(on, PathState.from_dict(kept[-1]))
    run(later, on, 120)
    assert len(on.measured_at) == measured, "what is known of the path is measured again"
    assert loss(on, GAM) < 0.02
    assert CLASS not in later.state.unverified
    assert len(told(later, "changed")) == 1


def kept_of(on: LivePath, seconds: float) -> PathState:
    """Returns the controller's knowledge of a path at its end."""
    one = controller(on)
    run(one, on, seconds)
    one.close()
    return PathState.from_dict(one.state.as_dict())


def returned(on: LivePath, state: PathState) -> Controller:
    return Controller(on, state, on.clock, seed=1, returned=True)


def test_returned__plans_at_once_and_a_look() -> None:
    """A new carefuld knows nothing, but the path is the same."""
    state = kept_of(path(), 30)
    figures, when = state.figures, state.measured_at
    on = path(now=2000.0)
    one = returned(on, state)
    assert loss(on, GAM) < 0.02, "before anything is measured"
    assert not on.measured_at
    run(one, on, 120)
    assert len(on.measured_at) == 1
    assert one.state.figures == figures
    assert one.state.measured_at == when
    assert one.state.confirmed_at
    assert told(one, "path as before")
    assert len(told(one, "changed")) == 1
    assert loss(on, GAM) < 0.02


def test_returned__to_another_path() -> None:
    """The quick measurement detects it, and it is answered without waiting for ten minutes."""
    other = scaled(GAM, G=0.3, g=3.0)
    state = kept_of(path(), 30)
    on = path(lambda _: other, now=state.measured_at + 40)
    one = returned(on, state)
    run(one, on, 20)
    assert told(one, "path changed")
    assert loss(on, other) < 0.03


def test_returned__by_hand_stays() -> None:
    state = kept_of(path(), 30)
    on = path(pinned={CLASS})
    one = returned(on, state)
    run(one, on, 10)
    assert on.plan(CLASS) == START
    assert on.plan(CLASS + 1) == state.plans[CLASS + 1]


def test_taken_over__fresh_figures_are_trusted_and_old_ones_confirmed() -> None:
    on = path()
    state = kept_of(on, 30)
    run(controller(on, state), on, 5)
    assert len(on.measured_at) == 1
    on.advance(2 * measurements.TRUST_S)
    run(controller(on, state), on, 5)
    assert len(on.measured_at) == 2


def test_killed__after_any_save() -> None:
    """From any saved state, the next controller carries out the decision and verifies it."""
    kept: list[dict[str, object]] = []
    on, state = path(noise=0.5), PathState({})
    one = Controller(on, state, on.clock, save=lambda: kept.append(state.as_dict()), seed=1)
    run(one, on, 60)
    assert len(kept) >= 3  # measured, changed, decided
    for saved in kept:
        # The map before any push.
        other = path(noise=0.5, now=on.now)
        later = controller(other, PathState.from_dict(saved))
        run(later, other, 60)
        if saved["on_trial"] or not saved["changed_at"]:
            assert loss(other, GAM) < 0.02
            assert CLASS not in later.state.unverified


def test_closed__within_an_ab() -> None:
    on = path(noise=2.0)
    one = controller(on)
    while not one.trying:
        on.advance(one.step())
    one.close()
    assert not one.trying
    assert CLASS in one.state.unverified
    assert on.plan(CLASS) == one.state.unverified[CLASS].after


def test_measurement__failures_double_the_wait() -> None:
    on = path()
    real, asked = on.measure, []

    def measure(quick: bool) -> object:
        asked.append(on.now)
        if len(asked) < 3:
            raise ValueError("no figures")
        return real(quick)

    on.measure = measure  # type: ignore[method-assign, assignment]
    one = controller(on)
    run(one, on, 120)
    assert len(asked) == 3
    assert asked[1] - asked[0] >= measurements.RETRY_S
    assert asked[2] - asked[1] >= 2 * measurements.RETRY_S
    assert loss(on, GAM) < 0.02


def test_measurement__repeated_failures_use_little_time() -> None:
    """Also without messages for a trial."""
    on = LivePath(steady, [], figureless=True)
    one = controller(on)
    run(one, on, 3600)
    assert 3 <= len(on.measured_at) <= 11
    assert len(one.state.decisions) == 1  # the newest of them
