"""Ramps of `tune auto`: which are worth a try, and what live messages say of them."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest
from careful.model import Pipeline
from careful.model.stages import Stage
from careful.model.tunemap import TunePlan, class_of, fixed_plan, ramp_plan
from careful.render.explain import cut
from careful.tuning.decide import Controller
from careful.tuning.propose import measured, moved, ramps_to_try
from careful.tuning.state import PathState
from live_path import (
    LIMITS,
    START,
    LivePath,
    Stream,
    figures,
    run,
    scaled,
    told,
    truth_us,
    verdicts,
)

MESSAGE = 4096
CLASS = class_of(MESSAGE)
#: A ramp that suits the order gains 10 %; turned around it loses 8.
RISING = Pipeline((Stage("a", 4, 20), Stage("b", 4, 20), Stage("slow", 40, 80)))
FALLING = Pipeline(RISING.stages[::-1])


def known(pipeline: Pipeline) -> dict[str, object]:
    return figures(pipeline, 0.01, random.Random(1))


def path(pipeline: Pipeline, every_s: float = 0.02) -> LivePath:
    return LivePath(lambda _: pipeline, [Stream(MESSAGE, every_s)], noise=0.1, error=0.01)


def fixed(pipeline: Pipeline) -> TunePlan:
    return fixed_plan(pipeline, MESSAGE, LIMITS)[0]


def gain(pipeline: Pipeline, plan: TunePlan) -> float:
    """Over the best fixed size."""
    return fixed_plan(pipeline, MESSAGE, LIMITS)[1] / truth_us(pipeline, MESSAGE, plan) - 1


@pytest.mark.parametrize("pipeline", [RISING, FALLING])
def test_worth_a_try__one_for_either_order(pipeline: Pipeline) -> None:
    """From outside both are the same."""
    found = ramps_to_try(measured(known(pipeline), LIMITS), CLASS, fixed(pipeline))
    assert 1 <= len(found) <= 3
    best = ramp_plan(pipeline, MESSAGE, LIMITS)[0]
    assert max(gain(pipeline, one) for one in found) > 0.8 * gain(pipeline, best) > 0.07
    assert any(gain(Pipeline(pipeline.stages[::-1]), one) < 0 for one in found)


def test_worth_a_try__none_where_no_order_gains() -> None:
    one = Pipeline((Stage("all", 50, 20),))
    assert not ramps_to_try(measured(known(one), LIMITS), CLASS, fixed(one))
    assert not ramps_to_try(measured(known(RISING), LIMITS), 0, TunePlan.fixed(64))
    untuned = TunePlan.fixed(350)
    assert not ramps_to_try(measured(known(RISING), LIMITS), CLASS, untuned), "a fixed size first"
    ramp = ramp_plan(RISING, MESSAGE, LIMITS)[0]
    assert not ramps_to_try(measured(known(RISING), LIMITS), CLASS, ramp), "it is one already"


@pytest.mark.parametrize("pipeline", [RISING, FALLING])
def test_auto__a_ramp_is_found_and_kept(pipeline: Pipeline) -> None:
    """When a change is due again, ramps take turns with the best fixed size; the A/B proves one."""
    on = path(pipeline)
    one = Controller(on, PathState({}, changed_at=on.now), on.clock, seed=1)
    run(one, on, 500)
    assert on.plan(CLASS).is_fixed
    assert not told(one, "trying")
    run(one, on, 400)
    (changed,) = [each for each in one.state.decisions if each["what"] == "trying"]
    assert "ramps may gain" in changed["why"]
    ramp = on.plan(CLASS)
    assert not ramp.is_fixed
    assert gain(pipeline, ramp) > 0.05
    assert verdicts(one)[CLASS] == "held"
    assert all(b - a >= 600 for a, b in pairwise(told(one, "changed")))
    tried = one.state.tried[CLASS]
    assert (tried.found, tried.ramps, tried.reads) == (True, True, False)
    assert PathState.from_dict(json.loads(json.dumps(one.state.as_dict()))).tried == {CLASS: tried}
    # It stays, and is not searched for again.
    run(one, on, 1500)
    assert on.plan(CLASS) == ramp
    assert len(told(one, "trying")) == 1


def test_auto__where_no_ramp_gains_the_fixed_size_stays() -> None:
    """Orders that were possible, and are not so: equal stages before and behind the bottleneck."""
    pipeline = Pipeline((Stage("a", 10, 20), Stage("b", 20, 40), Stage("c", 10, 20)))
    on = path(pipeline)
    one = Controller(on, PathState({}), on.clock, seed=1)
    run(one, on, 500)
    fixed = on.plan(CLASS)
    run(one, on, 600)
    held = [each["what"] for each in one.state.decisions]
    assert on.plan(CLASS) == fixed or gain(pipeline, on.plan(CLASS)) > 0, held


def test_moved__a_path_with_a_ramp_in_effect() -> None:
    """What a ramp takes is uncertain; that the path is another is not."""
    ramp = ramp_plan(RISING, MESSAGE, LIMITS)[0]
    before, after = (measured(known(one), LIMITS) for one in (RISING, scaled(RISING, G=1.3)))
    values = [START] * CLASS + [ramp] + [START] * (16 - CLASS)
    assert moved(before, after, values, [CLASS])
    assert not moved(before, before, values, [CLASS])


def test_explain__says_that_it_is_a_ramp() -> None:
    assert cut(TunePlan.fixed(500).as_dict()) == "500"
    assert cut(ramp_plan(RISING, MESSAGE, LIMITS)[0].as_dict()).split(", ")[1].startswith("rising")
    assert cut(ramp_plan(FALLING, MESSAGE, LIMITS)[0].as_dict()).endswith("falling")
