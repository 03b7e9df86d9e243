"""A quick measurement of a shared path, compared with earlier figures."""

from __future__ import annotations

import random
from typing import Any

import pytest
from careful.model import Pipeline, load_shipped
from careful.plan import CLASS_COUNT
from careful.tuning.controller.quick_correction import grown, is_as_before, waiting
from careful.tuning.propose import measured, moved
from live_path import LIMITS, START, figures, scaled

GAM = load_shipped("gam")
DEFAULT = [START] * CLASS_COUNT


def known(pipeline: Pipeline = GAM, error: float = 0.03, seed: int = 1) -> dict[str, Any]:
    return figures(pipeline, error, random.Random(seed))


def glanced(pipeline: Pipeline = GAM, *later_us: float) -> dict[str, Any]:
    """Returns a quick measurement's figures; later_us: extra time of round trips, by size."""
    found = known(pipeline, error=0.02)
    g_us, G = (
        sum(getattr(one, name) for one in pipeline.stages) for name in ("g_us", "G_us_per_KiB")
    )
    return found | {
        "round_trip_minima": [
            {"size_bytes": size, "least_us": 2 * g_us + G * size / 1024 + extra_us}
            for size, extra_us in zip((64, 1883, 3702), later_us or (0.0, 0.0, 0.0), strict=True)
        ]
    }


def test_waiting__is_a_delay_and_no_reason_for_another_plan() -> None:
    old = known(error=0.02)
    before = measured(old, LIMITS)
    found = waiting(before, old, glanced(GAM, 200.0, 200.0, 200.0))
    assert found["sum_g_us"] == pytest.approx(old["sum_g_us"] + 100, rel=0.1)
    assert found["sum_g_low_us"] < found["sum_g_us"] < found["sum_g_high_us"]
    assert found["regimes"] == old["regimes"]
    now = measured(found, LIMITS)
    assert moved(before, now, DEFAULT, [4, 6])
    assert now.box.plan(4096, LIMITS).fragments_bytes == (
        before.box.plan(4096, LIMITS).fragments_bytes
    )


@pytest.mark.parametrize(
    "seen",
    [
        glanced(),  # nothing waits
        glanced(scaled(GAM, G=2.0), 200.0, 200.0, 200.0),  # the stages are others
        glanced(scaled(GAM, g=0.4), 5.0, 5.0, 5.0),
        known(),  # no round trips to look at
    ],
)
def test_waiting__another_pattern_is_not_corrected(seen: dict[str, Any]) -> None:
    old = known(error=0.02)
    assert waiting(measured(old, LIMITS), old, seen) == {}


def other_stage(**factors: float) -> Pipeline:
    """Returns GAM with another first stage, which is not the bottleneck."""
    first = scaled(GAM, **factors).stages[0]
    return Pipeline((first, *GAM.stages[1:]))


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (glanced(), True),
        (glanced(GAM, 90.0, 50.0, 0.0), True),  # only the largest met no other frames
        (glanced(GAM, 90.0, 0.0, 90.0), True),
        (glanced(GAM, 0.0, 90.0, 90.0), False),  # another stage could cost more a byte
        (glanced(GAM, 90.0, 90.0, 90.0), False),  # nothing met an idle path
        (glanced(scaled(GAM, G=2.0)), False),
        (glanced(scaled(GAM, g=8.0)), False),
        (glanced(other_stage(g=8.0)), False),
        (glanced(other_stage(G=12.0)), False),
        (glanced(other_stage(g=0.1, G=0.1)), False),
        (known(), False),  # no round trips to look at
    ],
)
def test_is_as_before__needs_a_larger_round_trip_that_met_an_idle_path(
    seen: dict[str, Any], expected: bool
) -> None:
    assert is_as_before(measured(known(error=0.02), LIMITS), seen) == expected


def test_grown__round_trips_slip_through_a_second_stream() -> None:
    """Trains meet the stream, so the bottleneck costs four times as much; sums seem unchanged."""
    before = measured(known(error=1e-6), LIMITS)
    seen = known(error=1e-6)
    old = {name: seen[name] for name in ("sum_g_us", "sum_G_us_per_KiB", "g_b_us")}
    regime = seen["regimes"][0]
    others = seen["sum_G_others_us_per_KiB"]
    for entry in (seen, regime):
        for end in ("", "low_", "high_"):
            entry[f"g_b_{end}us"] *= 4
            entry[f"G_b_{end}us_per_KiB"] *= 4
            entry[f"sum_G_others_{end}us_per_KiB"] = 0.0
    seen["sum_g_us"] = seen["g_b_us"]  # a sum is never less than the bottleneck's g
    found = grown(before, seen)
    assert found["sum_g_us"] == pytest.approx(old["sum_g_us"] + 3 * old["g_b_us"])
    assert found["sum_G_others_us_per_KiB"] == pytest.approx(others)
    assert found["regimes"][0]["sum_G_others_us_per_KiB"] == pytest.approx(others)
    assert found["sum_G_us_per_KiB"] > 2 * old["sum_G_us_per_KiB"]
    now = measured(found, LIMITS)
    assert moved(before, now, DEFAULT)
    sizes = [one.box.plan(4096, LIMITS).fragments_bytes[0] for one in (before, now)]
    assert sizes[1] > sizes[0], "fewer fragments, for each costs four times as much"


def test_grown__leaves_sums_that_grew_like_the_bottleneck() -> None:
    before = measured(known(error=1e-6), LIMITS)
    for one in (GAM, scaled(GAM, g=0.5, G=0.5)):
        seen = known(one, error=1e-6)
        assert grown(before, seen) == seen
    seen = known(scaled(GAM, g=3.0, G=3.0), error=1e-6)
    assert grown(before, seen)["sum_g_us"] == pytest.approx(seen["sum_g_us"])
