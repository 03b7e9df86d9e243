"""Several paths of one process: the order of measurements, and trials that continue meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from careful.model import Pipeline, load_shipped
from careful.model.tunemap import fixed_plan
from careful.plan import Limits, class_of
from careful.tuning.controller.policy import Controller
from careful.tuning.controller.scheduler import Scheduler
from careful.tuning.state import PathState
from live_path import LIMITS, START, LivePath, Stream, truth_us

GAM = load_shipped("gam")
MESSAGE = 4096
CLASS = class_of(MESSAGE)
#: A train holds the shared device for this long; a pause of three times as long follows.
TRAIN_S = 0.004


@dataclass
class World:
    """Paths that share a clock, and a device that trains hold."""

    now: float = 1000.0
    paths: list[Shared] = field(default_factory=list)
    held: bool = False

    def __post_init__(self) -> None:
        self.turns = Scheduler(lambda: self.now, self.advance)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for one in self.paths:
            one.advance(self.now - one.now)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.turns.step()
            if (rest := self.turns.due() - self.now) > 0:
                self.advance(rest)


class Shared(LivePath):
    """A path of this world. Its messages take `held_us` longer during any path's train."""

    def __init__(self, world: World, pipeline: Callable[[float], Pipeline], **more: Any) -> None:
        super().__init__(pipeline, [Stream(MESSAGE, 0.003)], now=world.now, **more)
        self.world, self.measuring = world, (0.0, 0.0)
        self.held_us = 0.0
        world.paths.append(self)

    def measure(self, quick: bool) -> tuple[dict[str, Any], Limits]:
        began = self.world.now
        while self.world.now - began < self.measure_s:
            self.world.held = True
            self.world.advance(TRAIN_S)
            self.world.held = False
            self.world.turns.meanwhile(3 * TRAIN_S)
        self.measuring = (began, self.world.now)
        took_s, self.measure_s, self.quick_s = self.measure_s, 0.0, 0.0
        try:
            return super().measure(quick)
        finally:
            self.measure_s = self.quick_s = took_s

    def _count(self, item: int, took_us: float) -> None:
        super()._count(item, took_us + self.held_us * self.world.held)


def tuned(world: World, path: Shared) -> Controller:
    one = Controller(path, PathState({}), lambda: world.now, seed=1)
    world.turns.add(one)
    return one


def told(one: Controller, what: str) -> list[float]:
    return [each["at_s"] for each in one.state.decisions if each["what"] == what]


def loss(on: LivePath, pipeline: Pipeline) -> float:
    best_us = fixed_plan(pipeline, MESSAGE, LIMITS)[1]
    return truth_us(pipeline, MESSAGE, on.plan(CLASS)) / best_us - 1


def slower(pipeline: Pipeline) -> Pipeline:
    return Pipeline(
        tuple(replace(one, G_us_per_KiB=3 * one.G_us_per_KiB) for one in pipeline.stages)
    )


@pytest.mark.parametrize("held_us", [0.0, 2000.0])
def test_two_peers__an_ab_continues_during_the_other_peers_measurement(held_us: float) -> None:
    """The A/B runs to its end, though its messages wait for the other path's frames."""
    world = World()
    first, second = (Shared(world, lambda _: GAM, noise=0.4, measure_s=s) for s in (0.3, 60.0))
    first.held_us = held_us
    one, other = tuned(world, first), tuned(world, second)
    world.run(90)
    began, ended = second.measuring
    assert ended - began >= 60
    assert began < told(one, "changed")[0] < told(one, "kept")[0] < ended
    assert loss(first, GAM) < 0.02
    ab = next(each["ab"] for each in one.state.decisions[-2]["classes"] if each["class"] == CLASS)
    assert ab["before_us"] < 1.1 * truth_us(GAM, MESSAGE, START), "messages that waited are out"
    # Waiting messages do not count as a changed path, so the path was not measured again.
    assert len(first.measured_at) == 1
    assert not told(one, "path changed")
    assert told(other, "kept")
    assert loss(second, GAM) < 0.02


def test_two_peers__a_path_changes_during_the_other_peers_ab() -> None:
    """The change is answered, and the A/B ends as usual."""
    world = World()
    at = world.now + 30
    first = Shared(world, lambda _: GAM, noise=1.0)
    second = Shared(world, lambda now: GAM if now < at else slower(GAM))
    # The first is tuned from shortly before on: its A/B is under way then.
    other = tuned(world, second)
    world.run(28)
    one = tuned(world, first)
    while world.now < at:
        world.run(0.05)
    assert one.trying
    world.run(60)
    (answered,) = told(other, "path changed")
    assert answered - at < 2
    assert loss(second, slower(GAM)) < 0.03
    assert told(one, "kept")
    assert not told(one, "path changed")
    assert loss(first, GAM) < 0.02


def test_two_peers__a_shift_waits_for_the_other_peers_measurement() -> None:
    world = World()
    at = world.now + 30
    first = Shared(world, lambda now: GAM if now < at else slower(GAM))
    second = Shared(world, lambda _: GAM, measure_s=20.0)
    one = tuned(world, first)
    world.run(20)
    tuned(world, second)
    world.run(60)
    began, ended = second.measuring
    assert began < at < ended
    (answered,) = told(one, "path changed")
    assert 0 <= answered - ended < 2
    assert loss(first, slower(GAM)) < 0.03


class Measures:
    """A controller that measures for this long whenever it may; 0 s: that only looks."""

    def __init__(self, name: str, world: World, said: list[str], seconds: float) -> None:
        self.name, self.world, self.said, self.seconds = name, world, said, seconds
        self.trying = False

    def collect(self, keep: bool, /) -> None:
        raise AssertionError("it tries nothing")

    def step(self, alone: bool = True, /) -> float:
        if not alone:
            return 0.01
        if self.seconds:
            self.said.append(self.name)
            self.world.turns.meanwhile(self.seconds)
        return 0.01


def test_turns__no_path_is_measured_twice_while_another_waits() -> None:
    world, lines = World(), list[str]()
    for name, seconds in (("a", 1.0), ("b", 9.0), ("looks", 0.0), ("c", 0.5)):
        world.turns.add(Measures(name, world, lines, seconds))
    world.run(40)
    assert lines[:9] == ["a", "b", "c"] * 3
    late = world.turns.add(Measures("late", world, lines, 1.0))
    lines.clear()
    world.run(12)
    assert lines[0] == "late", "it was never measured"
    assert sorted(lines[:4]) == ["a", "b", "c", "late"]
    world.turns.remove(late)
    lines.clear()
    world.run(30)
    assert "late" not in lines


def test_turns__no_other_path_to_wait_for() -> None:
    world = World()
    world.turns.step()
    assert world.turns.due() == float("inf")
    world.turns.meanwhile(1.0)
    assert world.now == 1001.0
