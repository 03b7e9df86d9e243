"""Strategies side by side: best, reversibility, the LP, limits, errors, time."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from careful.model import (
    STRATEGIES,
    Limits,
    Pipeline,
    Stage,
    class_table,
    latency_us,
    load_shipped,
    lp_sizes,
    plan,
    shipped_names,
)
from careful.model.flat import _ramp, _up_down
from careful.model.latency import staged_exit_times_us
from careful.model.lp import _range, best_lp_sizes
from careful.model.planner import rules
from careful.model.simulation import Message, simulate, simulate_sizes
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import busy, make, pipelines, plans


def grouped(pipeline: Pipeline, count: int) -> Pipeline:
    """Returns the pipeline with its first `count` stages as a compound stage."""
    return Pipeline(
        tuple(
            Stage(stage.name, stage.g_us, stage.G_us_per_KiB, "front" if j < count else "")
            for j, stage in enumerate(pipeline.stages)
        )
    )


@settings(max_examples=30)
@given(pipelines(), st.integers(1, 20000), st.integers(0, 2))
def test_best__is_the_least_of_all(pipeline, B, count):
    pipeline = grouped(pipeline, count)
    best = plan(pipeline, B)
    for strategy in STRATEGIES:
        assert best.latency_us <= plan(pipeline, B, strategy).latency_us + 1e-9
    assert best.latency_us <= best.one_fragment_us + 1e-9
    assert best.latency_us >= best.lower_bound_us - 1e-9


@settings(max_examples=30)
@given(busy, st.integers(16, 20000), st.integers(0, 2), st.sampled_from(STRATEGIES))
def test_reversibility__every_strategy(pipeline, B, count, strategy):
    pipeline = grouped(pipeline, count)
    there = plan(pipeline, B, strategy, whole=False)
    back = plan(pipeline.reversed(), B, strategy, whole=False)
    assert back.latency_us == pytest.approx(there.latency_us, rel=1e-9)
    mirrored = [np.array(sizes[::-1]) for sizes in there.sizes_by_stage[::-1]]
    exits = staged_exit_times_us(pipeline.reversed().sequential(), mirrored)
    assert exits[-1][-1] == pytest.approx(there.latency_us, rel=1e-9)


@settings(max_examples=40)
@given(busy, st.integers(1, 20000), st.integers(0, 2), st.sampled_from(("best", *STRATEGIES)))
def test_plan__latency_equals_the_simulation(pipeline, B, count, strategy):
    pipeline = grouped(pipeline, count)
    made = plan(pipeline, B, strategy, lp=False)
    outcome = simulate(pipeline, [Message(B)], rules(pipeline, made))
    assert outcome.latency_us[0] == pytest.approx(made.latency_us)
    for sizes in made.sizes_by_stage:
        assert sum(sizes) == B
        assert all(size >= 1 and size == int(size) for size in sizes)


@settings(max_examples=40)
@given(busy, st.integers(1, 20000), st.integers(1, 8))
def test_lp__not_above_fixed_for_any_count(pipeline, B, k):
    k = min(k, B)
    optimal = float(latency_us(pipeline, lp_sizes(pipeline, B, k)))
    assert optimal <= float(latency_us(pipeline, np.full(k, B / k))) * (1 + 1e-9)


@settings(max_examples=20)
@given(busy, st.integers(1, 9000))
def test_lp__best_count_equals_trying_them_all(pipeline, B):
    found = best_lp_sizes(pipeline, B, np.array([float(B)]))
    every = [
        float(latency_us(pipeline, lp_sizes(pipeline, B, k))) for k in range(1, min(B, 25) + 1)
    ]
    assert float(latency_us(pipeline, found)) <= min(every) * (1 + 1e-7)


@settings(max_examples=30)
@given(busy, st.integers(10, 20000))
def test_lp__not_above_any_plan_without_reassembly(pipeline, B):
    optimal = plan(pipeline, B, "lp", whole=False).latency_us
    for strategy in ("fixed", "ramp", "ramp-up-down"):
        flat = plan(pipeline, B, strategy, whole=False, reassembly=False)
        assert optimal <= flat.latency_us * (1 + 1e-9)


@given(pipelines(), plans)
def test_lp__range_of_counts_keeps_every_plan_that_is_as_fast(pipeline, sizes):
    least, most = _range(pipeline, sum(sizes), float(latency_us(pipeline, sizes)), Limits())
    assert least <= len(sizes) <= most


def test_lp__one_fragment_is_the_tight_end_of_its_range():
    gam = load_shipped("gam")
    assert _range(gam, 4096, float(latency_us(gam, [4096])), Limits())[0] == 1


def test_lp__given_count_and_limits():
    gam = load_shipped("gam")
    made = plan(gam, 4096, "lp", fragments_count=4, limits=Limits(500, 1200))
    assert made.fragments_count == 4
    assert min(made.fragments_bytes) >= 500
    assert max(made.fragments_bytes) <= 1200
    assert made.latency_us < plan(gam, 4096, "fixed", fragments_count=4).latency_us


@pytest.mark.parametrize(("low", "high"), [(200, 1100), (900, 1400), (700, 1050)])
def test_lp__is_optimal_inside_its_limits(low, high):
    gms = load_shipped("gms")
    found = float(latency_us(gms, lp_sizes(gms, 3000, 3, Limits(low, high))))
    first, second = (grid.ravel() for grid in np.meshgrid(*[np.arange(low, high + 1, 5.0)] * 2))
    plans = np.stack([first, second, 3000 - first - second], axis=1)
    inside = (plans[:, 2] >= low) & (plans[:, 2] <= high)
    every = latency_us(gms, plans[inside])
    assert every.min() * 0.999 <= found <= every.min() * (1 + 1e-9)


def test_hierarchical__beats_the_lp_and_loses_to_fixed_both_in_5_5():
    slow = load_shipped("network-disk")
    hierarchical = plan(slow, 65536, "hierarchical").latency_us
    assert hierarchical < plan(slow, 65536, "lp").latency_us
    fast = Pipeline((*slow.stages[:4], Stage("disk", 500.0, 1e6 / (20 * 1024))))
    hierarchical = plan(fast, 65536, "hierarchical").latency_us
    assert hierarchical > 1.02 * plan(fast, 65536, "fixed").latency_us


def test_fixed__given_count():
    made = plan(load_shipped("gam"), 4096, "fixed", fragments_count=3)
    assert sorted(made.fragments_bytes) == [1365.0, 1365.0, 1366.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"message_bytes": 0}, "a message of 0 bytes: must be at least 1 byte"),
        ({"message_bytes": -5}, "a message of -5 bytes"),
        ({"message_bytes": 2**41}, "at most 1099511627776"),
        ({"message_bytes": math.inf}, "a message of inf bytes"),
        ({"message_bytes": 10.5}, "a whole number of bytes, not 10.5"),
        ({"message_bytes": 100, "strategy": "magic"}, "unknown strategy 'magic': choose best"),
        ({"message_bytes": 100, "strategy": "ramp", "fragments_count": 3}, "fixed or lp"),
        ({"message_bytes": 100, "strategy": "fixed", "fragments_count": 101}, "allow 1 to 100"),
        ({"message_bytes": 100, "strategy": "fixed", "fragments_count": 0}, "allow 1 to 100"),
    ],
)
def test_plan__bad_input_gets_one_line(arguments, message):
    with pytest.raises(ValueError, match=message) as error:
        plan(load_shipped("gam"), **arguments)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("strategy", ["best", *STRATEGIES])
def test_limits__hold_for_a_single_stage_too(strategy):
    made = plan(make((5.0, 10.0)), 2000, strategy, limits=Limits(64, 900))
    assert made.fragments_count == 3
    assert max(made.fragments_bytes) <= 900


@pytest.mark.parametrize("limits", [(0, None), (-1, None), (100, 50)])
def test_limits__contradictory_ones_are_refused(limits):
    with pytest.raises(ValueError, match="fragment"):
        Limits(*limits)


@pytest.mark.parametrize("limits", [(1.5, None), (1, math.nan), (1, math.inf)])
def test_limits__fractions_are_refused(limits):
    with pytest.raises(ValueError, match="a whole number of bytes"):
        Limits(*limits)


@pytest.mark.parametrize("strategy", ["best", "fixed", "ramp", "ramp-up-down", "lp"])
def test_limits__that_no_count_meets_are_reported(strategy):
    made = plan(load_shipped("gam"), 250, strategy, limits=Limits(100, 120))
    assert max(made.fragments_bytes) <= 120
    assert "no number of fragments fits 100 to 120 bytes" in made.note
    # A message below the least size is a single fragment, without a note.
    small = plan(load_shipped("gam"), 50, strategy, limits=Limits(100, 120))
    assert "no number" not in small.note


def test_limits__more_fragments_than_can_be_planned_are_refused():
    for strategy in ("best", *STRATEGIES):
        with pytest.raises(ValueError, match="more than 1048576 fragments"):
            plan(load_shipped("gam"), 1 << 30, strategy, limits=Limits(1, 100))
    made = plan(load_shipped("gam"), 1 << 27, "ramp", limits=Limits(1, 1500))
    assert made.fragments_count == -(-(1 << 27) // 1500)


@pytest.mark.parametrize(("k", "B"), [(0, 4096), (-1, 4096), (2, 0), (2, math.nan)])
def test_lp__bad_input_is_refused(k, B):
    with pytest.raises(ValueError, match=r"fragment|message"):
        lp_sizes(load_shipped("gam"), B, k)


def test_shared_resource__fixed_is_searched_by_simulation():
    pipeline = Pipeline(
        (
            Stage("read", 5.0, 20.0, resource="cpu"),
            Stage("wire", 3.0, 30.0),
            Stage("write", 5.0, 20.0, resource="cpu"),
        )
    )
    made = plan(pipeline, 8192)
    every = [simulate_sizes(pipeline, [8192 / k] * k).latency_us[0] for k in (1, 2, 4, 8, 16, 32)]
    assert made.latency_us <= min(every)
    assert made.latency_us >= made.lower_bound_us >= 2 * (5.0 + 8 * 20.0)
    assert "simulation" in made.note
    with pytest.raises(ValueError, match="'read' and 'write' share 'cpu'"):
        plan(pipeline, 8192, "ramp")


def calls(work):
    """Counts the function calls of `work`, in Python and C: its cost on any machine."""
    count = itertools.count()
    sys.setprofile(lambda _frame, event, _: next(count) if event in ("call", "c_call") else None)
    try:
        work()
    finally:
        sys.setprofile(None)
    return next(count)


@pytest.mark.parametrize("size", [4096, 65536])
def test_cost__ten_stages(size):
    """A user waits for it: its 10,000 calls take about 10 ms."""
    rng = np.random.default_rng(7)
    pipeline = make(*zip(rng.uniform(1, 20, 10), rng.uniform(1, 40, 10), strict=True))
    plan(load_shipped("gam"), 4096, lp=False)
    assert calls(lambda: plan(pipeline, size, lp=False)) < 20_000


@pytest.mark.parametrize("name", [*shipped_names(), "ten stages", "ten stages and a disk"])
def test_cost__sixteen_classes(name):
    """200,000 to 640,000 calls when this was written, a fifth of a second."""
    rng = np.random.default_rng(7)
    pairs = list(zip(rng.uniform(1, 20, 10), rng.uniform(1, 40, 10), strict=True))
    if name == "ten stages and a disk":
        pairs[4] = (4000.0, 50.0)
    pipeline = load_shipped(name) if name in shipped_names() else make(*pairs)
    _ramp.cache_clear()
    _up_down.cache_clear()
    assert calls(lambda: class_table(pipeline)) < 1_000_000


def test_bottleneck__is_a_shared_resource():
    # With 50 fragments the CPU is busy for 1000 of 1005 µs, B for 750.
    stages = (
        Stage("A", 10, 0, resource="cpu"),
        Stage("B", 15, 0),
        Stage("C", 10, 0, resource="cpu"),
    )
    made = plan(Pipeline(stages), 50, "fixed", fragments_count=50)
    assert made.bottleneck == "cpu (A, C)"
    assert 1000 < made.latency_us <= 1015


def test_bottleneck__is_a_stage_slower_than_a_shared_resource():
    stages = (
        Stage("A", 10, 0, resource="cpu"),
        Stage("B", 15, 8),
        Stage("C", 10, 0, resource="cpu"),
    )
    pipeline = Pipeline(stages)
    # B takes over where 15 + x 8 / 1024 reaches 20 µs.
    assert pipeline.busiest(639) == "cpu (A, C)"
    assert pipeline.busiest(641) == "B"
    assert plan(pipeline, 6410, "fixed", fragments_count=10).bottleneck == "B"


def test_import__needs_nothing_heavy():
    code = (
        "import sys, careful.model;"
        "print([m for m in sys.modules if m.split('.')[0] in ('scipy', 'matplotlib', 'click')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
