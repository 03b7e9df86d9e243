"""Ways that `tune auto` tries if nothing is predicted, in virtual time."""

from __future__ import annotations

import math
import random
import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from careful.errors import EndedBySignal
from careful.measure.statistics.estimate import Estimate
from careful.model import load_shipped
from careful.plan import Limits, Plan, class_of
from careful.tuning.controller.policy import Controller
from careful.tuning.search.candidates import ROUND_MESSAGES, Search
from careful.tuning.search.live_fit import Point, fitted
from careful.tuning.settings import NET_TX, Kick, Value
from careful.tuning.state import PathState
from careful.tuning.verify import MESSAGES_MIN, Counts
from live_path import LIMITS, START, LivePath, Stream, run, scaled, told, verdicts

GAM = load_shipped("gam")
MESSAGE = 4096
CLASS = class_of(MESSAGE)
UNTUNED = Kick(65536)


def pipelined_us(message_bytes: int, plan: Plan, kick: Kick) -> float:
    """Two stages that overlap unless a kick is the whole message, and 100 us more."""
    count = len(plan.sizes(message_bytes, LIMITS))
    size = message_bytes / count
    kicked = min(message_bytes, size * max(1, math.ceil(kick.net_tx_bytes / size)))
    return 100 + 4 * count + 0.02 * (message_bytes + kicked)


def flat_us(*_: object) -> float:
    """Returns a constant time, whatever is in effect."""
    return 200.0


def path(**more: object) -> LivePath:
    """A path that cannot be measured, with one stream of 4 KiB messages."""
    given = {"took": pipelined_us, "figureless": True, "noise": 0.3, **more}
    every_s = given.pop("every_s", 0.005)
    return LivePath(lambda _: GAM, [Stream(MESSAGE, every_s)], **given)  # type: ignore[arg-type]


def controller(on: LivePath, state: PathState | None = None) -> Controller:
    return Controller(on, state or PathState({}), on.clock, seed=1)


def loss(on: LivePath) -> float:
    """Returns the loss of the plan in effect against the best way."""
    plans = [Plan.fixed(math.ceil(MESSAGE / count)) for count in range(2, 9)]
    best_us = min(
        pipelined_us(MESSAGE, plan, kick) for plan in plans for kick in (UNTUNED, Kick(1))
    )
    return pipelined_us(MESSAGE, on.plan(CLASS), on.kick(CLASS)) / best_us - 1


def values_with(plan: Plan, kick: Kick) -> list[Value]:
    """Returns values in effect with one plan and one kick for all classes."""
    return [plan] * 16 + [START] * 16 + [kick] * 16


def turn(
    search: Search, took_us: Callable[[Plan, Kick], float], random_: random.Random, index: int
) -> None:
    """Gives both arms of the search's way ten messages."""
    now = values_with(START, UNTUNED)
    then = dict(enumerate(now)) | dict(search.way.values)
    trial = search.way.trial
    for arm, values in ((trial.a, dict(enumerate(now))), (trial.b, then)):
        plan, kick = values[index], values[NET_TX + index]
        assert isinstance(plan, Plan)
        assert isinstance(kick, Kick)
        mean_ns = 1000 * took_us(plan, kick)
        took = [int(mean_ns * max(0.1, random_.gauss(1, 0.3))) for _ in range(10)]
        arm.add(Counts(10, sum(took), sum(one * one for one in took)))


def searched(
    took_us: Callable[[Plan, Kick], float], seed: int = 1, turns: int = 200, index: int = CLASS
) -> Search:
    """Returns a search of the class, after at most this many turns, if messages take this
    long."""
    random_ = random.Random(seed)
    search = Search(index, values_with(START, UNTUNED), LIMITS, frozenset())
    for _ in range(turns):
        if search.over:
            break
        turn(search, took_us, random_, index)
        search.look()
    return search


def modelled_us(g_us: float, H_us: float) -> Callable[[Plan, Kick], float]:
    """Returns latencies that follow P1's equation 10, with any kick."""

    def took_us(plan: Plan, _: Kick) -> float:
        count = len(plan.sizes(MESSAGE, LIMITS))
        return 100 + g_us * count + H_us / count

    return took_us


def test_ways__kicks_and_fragments_and_none_twice() -> None:
    limits = Limits(64, 3694)
    base = values_with(Plan.fixed(3694), UNTUNED)
    # A message of one frame is kicked alone anyway.
    assert Search(4, base, limits, frozenset()).ways_count == 1
    assert Search(3, base, limits, frozenset()).over
    # A kick of each frame, halves and quarters; two frames are in effect.
    assert Search(CLASS, base, limits, frozenset()).ways_count == 3
    assert sum(Search(index, base, limits, frozenset()).ways_count for index in (6, 8, 10)) <= 14
    # Values set by hand are not tried.
    search = Search(CLASS, base, limits, frozenset({CLASS}))
    assert search.way.values == {NET_TX + CLASS: Kick(1)}
    assert search.ways_count == 1
    assert Search(CLASS, base, limits, frozenset({CLASS, NET_TX + CLASS})).over


@pytest.mark.parametrize(("g_us", "H_us"), [(20.0, 500.0), (5.0, 900.0), (40.0, 40.0)])
def test_fit__recovers_the_path_from_differences(g_us: float, H_us: float) -> None:
    points = [
        Point(n, Estimate(g_us * (n - 2) + H_us * (1 / n - 1 / 2), 1.0), 300.0) for n in (1, 4, 8)
    ]
    fit = fitted(2, points, False)
    assert fit
    assert fit.fits
    assert fit.values[1:] == pytest.approx([g_us, H_us], abs=1e-6)
    best = min(range(1, 17), key=lambda n: g_us * n + H_us / n)
    assert fit.best_count(1, 16) == best
    shifted = [replace(one, longer_us=one.longer_us + Estimate(-30.0)) for one in points]
    fit = fitted(2, [*shifted, Point(2, Estimate(-30.0, 1.0), 300.0)], True)
    assert fit
    assert fit.longer_us(2).value == pytest.approx(-30.0)
    assert fit.best_count(1, 16) == best


def test_fit__intervals_hold() -> None:
    """The true saving lies in its 95 % interval, over many noisy measurements."""
    random_, inside, runs = random.Random(2), 0, 300
    g_us, H_us = 15.0, 500.0
    for _ in range(runs):
        points = [
            Point(
                n,
                Estimate(g_us * (n - 2) + H_us * (1 / n - 1 / 2) + random_.gauss(0, 6), 6.0),
                300.0,
            )
            for n in (1, 4, 8)
        ]
        fit = fitted(2, points, False)
        assert fit
        inside += fit.longer_us(5).contains(g_us * 3 + H_us * (1 / 5 - 1 / 2))
    assert inside / runs >= 0.9


def test_fit__times_of_another_law_do_not_fit() -> None:
    points = [Point(n, Estimate(us, 1.0), 300.0) for n, us in ((1, 0.0), (4, -80.0), (8, -80.0))]
    fit = fitted(2, [*points, Point(6, Estimate(60.0, 1.0), 300.0)], False)
    assert fit
    assert not fit.fits
    assert fitted(2, points[:1], False) is None


def test_search__finds_the_models_best_in_few_messages() -> None:
    """Five fragments are the best, and none of the ways has five."""
    near, took_us = 0, modelled_us(15, 400)
    for seed in range(10):
        search = searched(took_us, seed)
        assert all(one.trial.count <= ROUND_MESSAGES + 10 for one in search._ways)
        best = search.best()
        assert best
        assert "the model fits" in best.source
        plan = best.values[CLASS]
        assert isinstance(plan, Plan)
        near += took_us(plan, UNTUNED) <= 1.05 * (100 + 15 * 5 + 400 / 5)
    assert near >= 9


def test_search__returns_the_fastest_way_if_the_model_does_not_fit() -> None:
    large = class_of(65536)

    def took_us(plan: Plan, _: Kick) -> float:
        return 100.0 if plan == Plan.fixed(911) else 300.0

    best = searched(took_us, index=large).best()
    assert best
    assert best.values[large] == Plan.fixed(911)
    assert "does not fit" in best.source


def test_search__kicks_that_make_no_difference_stay() -> None:
    kept = 0
    for seed in range(10):
        best = searched(modelled_us(15, 400), seed).best()
        kept += best is not None and NET_TX + CLASS not in best.values
    assert kept >= 7


def test_search__each_way_has_a_turn_with_slow_messages() -> None:
    """If a turn has used its time, the number of messages for a verdict is enough."""
    search = Search(CLASS, values_with(START, UNTUNED), LIMITS, frozenset())
    first = search.way
    for turn_ in range(MESSAGES_MIN):
        assert not search.look(late=True)
        took_ns = 50_000 + 100_000 * (turn_ % 2)
        for arm in (first.trial.a, first.trial.b):
            arm.add(Counts(1, took_ns, took_ns**2))
    assert not search.look()
    assert search.look(late=True)
    assert search.way is not first


def test_search__too_few_messages_give_no_result() -> None:
    search = searched(modelled_us(15, 400), turns=0)
    assert not search.has_result
    assert search.best() is None


def test_search__steady_latencies_need_few_messages() -> None:
    """Slow messages that hardly vary are told apart by a few of each way."""
    search = Search(CLASS, values_with(START, UNTUNED), LIMITS, frozenset())
    took_us, messages = modelled_us(15, 400), 0
    while not search.over:
        way = search.way
        plan = way.values.get(CLASS, START)
        assert isinstance(plan, Plan)
        for arm, us in (
            (way.trial.a, took_us(START, UNTUNED)),
            (way.trial.b, took_us(plan, UNTUNED)),
        ):
            arm.add(Counts(1, int(1000 * us), int(1000 * us) ** 2))
        messages += 2
        search.look()
    assert messages <= 100
    best = search.best()
    assert best
    assert best.values == {CLASS: Plan.fixed(math.ceil(MESSAGE / 5))}


@pytest.mark.parametrize("seed", range(3))
def test_tried__the_best_way_is_set_and_stays(seed: int) -> None:
    on = path(seed=seed, noise=0.5)
    assert loss(on) > 0.15
    one = controller(on)
    run(one, on, 120)
    assert loss(on) < 0.1
    assert verdicts(one)[CLASS] == "held"
    whats = [each["what"] for each in one.state.decisions if each["what"] != "not measured"]
    assert whats == ["trying", "changed", "kept"]
    kept = next(each for each in one.state.decisions if each["what"] == "kept")
    for row in kept["classes"]:
        assert row["by"] == "trying"
        assert min(row["ab"]["before_count"], row["ab"]["after_count"]) >= 30
        assert row["ab"]["gain_low_us"] > 0
    assert not one.state.put_back
    assert one.state.tried[CLASS].found


def test_tried__stays_quiet_afterwards() -> None:
    on = path(every_s=0.02)
    one = controller(on)
    run(one, on, 700)
    assert loss(on) < 0.1
    settings, settled, measured = on.in_effect(), len(on.effects), len(on.measured_at)
    run(one, on, 1200)
    assert on.in_effect() == settings
    assert len(on.effects) == settled
    assert len(told(one, "changed")) == 1
    assert len(on.measured_at) - measured <= 4


@pytest.mark.parametrize("seed", range(3))
def test_tried__no_gain_changes_nothing(seed: int) -> None:
    on = path(took=flat_us, noise=0.4, seed=seed, every_s=0.01)
    before = on.in_effect()
    one = controller(on)
    run(one, on, 800)
    assert on.in_effect() == before
    assert len(told(one, "trying")) == 1
    assert len(told(one, "changed")) <= 1
    assert len(told(one, "nothing better")) + len(told(one, "undone")) == 1


def test_tried__at_most_one_change_in_ten_minutes() -> None:
    """Although the best way changes every four minutes."""
    on = path(every_s=0.03, noise=0.2)

    def took(message_bytes: int, plan: Plan, kick: Kick) -> float:
        took_us = pipelined_us(message_bytes, plan, kick)
        return 500 - took_us if int(on.now / 240) % 2 else took_us

    on.took = took
    one = controller(on)
    run(one, on, 2000)
    changed = told(one, "changed")
    assert changed
    assert all(b - a >= 600 for a, b in pairwise(changed))


def test_tried__again_when_messages_take_another_time() -> None:
    """Ten minutes later, not before: small frames are no longer the best."""
    at = 1000.0 + 200
    on = path(every_s=0.01, noise=0.1)

    def took(message_bytes: int, plan: Plan, kick: Kick) -> float:
        if on.now < at:
            return pipelined_us(message_bytes, plan, kick)
        return 100 + 80 * len(plan.sizes(message_bytes, LIMITS))

    on.took = took
    one = controller(on)
    run(one, on, 180)
    assert len(on.plan(CLASS).sizes(MESSAGE, LIMITS)) >= 4
    run(one, on, 1500)
    assert len(on.plan(CLASS).sizes(MESSAGE, LIMITS)) == 2
    first, second = told(one, "changed")
    assert second - first >= 600


@pytest.mark.parametrize("when_s", [0.3, 0.8, 1.2])
def test_killed__another_goes_on(when_s: float) -> None:
    """The plan in effect is restored at once, and the best one is found."""
    on = path()
    kept: list[dict[str, object]] = []
    state = PathState({})
    one = Controller(on, state, on.clock, save=lambda: kept.append(state.as_dict()), seed=1)
    run(one, on, when_s)
    assert one.trying
    while on.in_effect()[CLASS] == START and on.kick(CLASS) == UNTUNED:
        on.advance(one.step())  # until another way has its turn
    saved = PathState.from_dict(kept[-1])
    later = controller(on, saved)
    if saved.put_back:
        assert (on.plan(CLASS), on.kick(CLASS)) == (START, UNTUNED)
        assert not later.state.put_back
    run(later, on, 120)
    assert loss(on) < 0.1
    assert len(told(later, "changed")) == 1


def test_killed__its_result_is_kept() -> None:
    on = path()
    one = controller(on)
    run(one, on, 120)
    settings = on.in_effect()
    later = controller(on, PathState.from_dict(one.state.as_dict()))
    assert on.in_effect() == settings
    run(later, on, 120)
    assert on.in_effect() == settings
    assert len(told(later, "trying")) == 1


def test_closed__restores_the_values_before() -> None:
    on = path()
    one = controller(on)
    run(one, on, 1)
    while on.in_effect()[CLASS] == START and on.kick(CLASS) == UNTUNED:
        on.advance(one.step())
    one.close()
    assert (on.plan(CLASS), on.kick(CLASS)) == (START, UNTUNED)
    assert not one.state.put_back
    assert not one.trying


def test_few_messages__no_verdict() -> None:
    """With fewer than thirty messages each, the search ends without a change."""
    on = path(noise=0.01)
    on.streams[0].alive = lambda now: now < 1000.3 + 20 * 0.005
    one = controller(on)
    run(one, on, 900)
    assert not told(one, "changed")
    assert (on.plan(CLASS), on.kick(CLASS)) == (START, UNTUNED)
    assert not one.state.tried
    assert not one.trying


def test_messages_that_pause__are_waited_for() -> None:
    """Messages come for half a second in five: the search continues each time."""
    on = path(every_s=0.002)
    on.streams[0].alive = lambda now: now % 5 < 0.5
    one = controller(on)
    run(one, on, 580)
    assert len(told(one, "trying")) == 1
    assert loss(on) < 0.1


def small_us(_: int, plan: Plan, __: Kick) -> float:
    """Half a frame is faster than a whole one."""
    return 2000.0 if plan.first_bytes < 3000 else 3000.0


def test_tried__fragments_of_a_frame_if_nothing_can_be_measured() -> None:
    """Halves and quarters of 64 KiB are larger than a frame, and would all be the same."""
    on = LivePath(lambda _: GAM, [Stream(65536, 0.01)], took=small_us, figureless=True)
    run(controller(on), on, 300)
    assert on.plan(class_of(65536)).first_bytes < 3000


def test_messages_that_cease_for_long__are_waited_for() -> None:
    """Silence does not count for the ten minutes, or most ways would never have a turn."""
    stream = Stream(65536, 0.01, lambda now: (now - 1000) % 700 < 1)
    on = LivePath(lambda _: GAM, [stream], took=small_us, figureless=True)
    one = controller(on)
    run(one, on, 1500)
    assert told(one, "trying")
    assert not told(one, "nothing better")
    assert not one.state.tried


def test_by_hand__meanwhile() -> None:
    on = path()
    one = controller(on)
    run(one, on, 1)
    mine = Plan.fixed(777)
    on.set_by_hand(CLASS, mine)
    run(one, on, 300)
    assert on.plan(CLASS) == mine
    assert told(one, "set by hand")


def test_ended__within_a_flip() -> None:
    """The signal's exception comes after the map changed and before that is noted."""
    on = path()
    one = controller(on)
    real = on.flip

    def flip() -> bool:
        real()
        raise EndedBySignal(signal.SIGTERM)

    run(one, on, 1)
    while one._search is None or not one._search._base:
        on.advance(one.step())
    on.flip = flip  # type: ignore[method-assign]
    with pytest.raises(EndedBySignal):
        run(one, on, 1)
    assert (on.plan(CLASS), on.kick(CLASS)) != (START, UNTUNED)
    one.close()
    assert (on.plan(CLASS), on.kick(CLASS)) == (START, UNTUNED)


def test_measured_after_all__is_planned() -> None:
    """Figures that come during a search end it."""
    on = path(took=None, every_s=0.4)
    one = controller(on)
    run(one, on, 10)
    assert one.trying
    on.figureless = False
    run(one, on, 300)
    assert (
        "prediction"
        in next(each for each in one.state.decisions if each["what"] == "changed")["classes"][0]
    )
    assert not one.state.put_back
    assert verdicts(one)[CLASS] == "held"


def test_unmeasured__a_glance_alone_makes_no_figures() -> None:
    """A quick measurement always has figures; those that a close one withheld do not count."""
    at = 1000.0 + 200
    on = path(every_s=0.01, noise=0.1)
    on.took = lambda *what: pipelined_us(*what) * (1 + (on.now > at))
    real = on.measure

    def measure(quick: bool) -> object:
        on.figureless = not quick
        return real(quick)

    on.measure = measure  # type: ignore[method-assign, assignment]
    one = controller(on)
    run(one, on, 400)
    assert any("the latency of live messages" in each["why"] for each in one.state.decisions)
    assert not told(one, "path changed")
    assert one.state.figures is None


def test_refuted__is_tried_when_a_change_is_due() -> None:
    """The measurement has only overheads; live messages refute it."""
    on = path(figureless=False, every_s=0.01, lies=lambda one: scaled(one, g=0.02))
    on.took = lambda nbytes, plan, kick: (
        100 + 60 * len(plan.sizes(nbytes, LIMITS)) + (80 if kick == UNTUNED else 0)
    )
    one = controller(on)
    run(one, on, 590)
    assert told(one, "undone")
    assert not told(one, "trying")
    assert (on.plan(CLASS), on.kick(CLASS)) == (START, UNTUNED)
    run(one, on, 600)
    assert told(one, "trying")
    assert on.kick(CLASS) == Kick(1)
    assert on.plan(CLASS) == START
    assert verdicts(one)[CLASS] == "held"


def test_once__nothing_is_tried() -> None:
    on = path()
    one = controller(on)
    one.searches = False
    run(one, on, 60)
    assert [each["what"] for each in one.state.decisions] == ["not measured"]
    assert one.considered
    assert not one.trying
