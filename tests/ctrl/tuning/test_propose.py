"""Predictions from a measurement with intervals."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from careful.model import Pipeline, load_shipped
from careful.model.stages import Stage
from careful.model.tunemap import ramp_plan
from careful.plan import CLASS_COUNT, Plan
from careful.tuning.propose import measured, moved, same, table, worth
from live_path import LIMITS, START, figures, scaled, truth_us, widened

GAM = load_shipped("gam")
DEFAULT = [START] * CLASS_COUNT


def known(pipeline: Pipeline = GAM, error: float = 0.03, seed: int = 1) -> dict[str, object]:
    return figures(pipeline, error, random.Random(seed))


def test_table__predicts_the_truth() -> None:
    rows = table(measured(known(error=1e-6), LIMITS), DEFAULT)
    assert [row.index for row in rows] == list(range(CLASS_COUNT))
    for row in rows[2:]:  # the fixed-sized theorem leaves out what a shorter tail gains
        assert row.now_us.value == pytest.approx(
            truth_us(GAM, row.message_bytes, row.now), rel=0.12
        )
        true_gain = truth_us(GAM, row.message_bytes, row.now) - truth_us(
            GAM, row.message_bytes, row.best
        )
        assert row.gain_us.value == pytest.approx(
            true_gain, abs=0.03 * truth_us(GAM, row.message_bytes, row.now)
        )


def test_table__the_interval_holds_the_truth() -> None:
    """Nearly all intervals of twenty measurements hold the true gain."""
    within = total = 0
    for seed in range(20):
        path = measured(known(error=0.2, seed=seed), LIMITS)
        exact = measured(known(error=1e-9), LIMITS)
        for row in table(path, DEFAULT)[4:9]:
            true = exact.gain_us(row.message_bytes, row.now, row.best).value
            within += row.gain_us.low <= true <= row.gain_us.high
            total += 1
    assert within >= 0.9 * total


def test_worth__only_beyond_the_uncertainty() -> None:
    sure = worth(table(measured(known(error=0.03), LIMITS), DEFAULT))
    assert {4, 5, 6, 7} <= sure.keys()
    for row in sure.values():
        assert row.gain_us.low > 0
    for seed in range(5):
        unsure = table(measured(known(error=2.0, seed=seed), LIMITS), DEFAULT)
        assert not worth(unsure)
    assert any("uncertainty" in row.why_not for row in unsure)
    assert not worth(list(sure.values()), frozenset(range(CLASS_COUNT)))


def test_table__the_best_plan_stays() -> None:
    path = measured(known(), LIMITS)
    best = [row.best for row in table(path, DEFAULT)]
    assert not worth(table(path, best))


SLOW_MIDDLE = Pipeline(
    tuple(Stage(f"{k}", *cost) for k, cost in enumerate([(2, 20), (2, 20), (40, 40), (2, 20)]))
)
RISING = Pipeline((Stage("fast", 5, 10), Stage("slow", 20, 40)))


def test_ramps__a_ramp_in_effect_stays_unless_surely_slower() -> None:
    path = measured(known(RISING), LIMITS)
    good, _ = ramp_plan(RISING, 4096, LIMITS)
    bad = Plan(64, step_bytes=16, peak_bytes=3750)  # 21 fragments
    rows = worth(table(path, [START] * 6 + [good] + [bad] + [START] * 8))
    assert 6 not in rows
    assert rows[7].best.is_fixed  # type: ignore[union-attr]
    assert rows[7].gain_us.low > 0


def test_measured__without_figures() -> None:
    empty = {"kind": "blackbox", "sum_g_us": None, "reason": "times do not grow with the size"}
    with pytest.raises(ValueError, match="times do not grow"):
        measured(empty)


def test_moved__only_beyond_both_intervals() -> None:
    before = measured(known(), LIMITS)
    assert not moved(before, measured(known(seed=2), LIMITS), DEFAULT)
    slower = Pipeline(
        tuple(replace(one, G_us_per_KiB=1.5 * one.G_us_per_KiB) for one in GAM.stages)
    )
    assert moved(before, measured(known(slower), LIMITS), DEFAULT)
    assert not moved(before, measured(known(slower, error=1.5), LIMITS), DEFAULT)


def test_same__needs_a_measurement_that_is_sure() -> None:
    """A rough measurement that agrees with the old figures neither confirms nor refutes them."""
    before = measured(known(error=0.01), LIMITS)
    near = measured(known(error=0.02, seed=2), LIMITS)
    rough = measured(widened(known(error=0.02, seed=2)), LIMITS)
    other = measured(known(scaled(GAM, G=1.5)), LIMITS)
    assert same(before, near, DEFAULT, [6, 8])
    for one in (rough, other):
        assert not same(before, one, DEFAULT, [6, 8])
    assert not moved(before, rough, DEFAULT)
    assert moved(before, other, DEFAULT)


def test_moved__by_some_classes_alone() -> None:
    """If overheads grow, small messages take longer, and large ones almost the same."""
    before, after = (measured(known(one, error=0.02), LIMITS) for one in (GAM, scaled(GAM, g=1.8)))
    assert moved(before, after, DEFAULT, [0])
    assert not moved(before, after, DEFAULT, [12])


def test_table__ramps_need_the_order_of_the_stages() -> None:
    """pathchar knows it. Each ramp gains what the model says, and is then kept."""
    gms = load_shipped("gms")
    hops = [
        {"hops": [ttl], "G_us_per_KiB": stage.G_us_per_KiB, "latency_us": stage.g_us}
        for ttl, stage in enumerate(gms.stages, 1)
    ]
    seen = known(gms, error=1e-3)
    assert all(row.best.is_fixed for row in table(measured(seen, LIMITS), DEFAULT))
    path = measured({**seen, "order": {"hops": hops}}, LIMITS)
    rows = table(path, DEFAULT)
    ramps = {row.index: row for row in rows if not row.best.is_fixed}
    assert ramps.keys() >= {6, 7} <= worth(rows).keys()
    for row in ramps.values():
        true_gain = 1 - truth_us(gms, row.message_bytes, row.best) / truth_us(
            gms, row.message_bytes, row.now
        )
        assert row.gain_us.value / row.now_us.value == pytest.approx(true_gain, abs=0.03)
    again = table(path, [row.best for row in rows])
    assert not worth(again)
