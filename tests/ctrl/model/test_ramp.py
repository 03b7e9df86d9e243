"""Ramps: theorems 3, 4 and 5, their closed forms, optimality and fall-back."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from careful.model import Limits, latency_us, plan
from careful.model.lp import best_lp_sizes
from careful.model.ramp import (
    Recurrence,
    _Sums,
    no_stall,
    ramps,
    ramps_up_and_down,
)
from hypothesis import assume, given
from hypothesis import strategies as st
from pipelines import busy, make

ratios = st.one_of(st.just(1.0), st.floats(0.3, 3.0))


@given(st.floats(1, 500), st.integers(1, 12), ratios, st.floats(-20, 200))
def test_sums__are_of_the_recurrence(first, k, ratio, step):
    """The sums equal P1's closed forms (equations 17 and 18)."""
    assume(ratio == 1.0 or abs(ratio - 1) > 1e-3)
    sums, i = _Sums(Recurrence(ratio, step), k), k - 1
    sizes = [first]
    for _ in range(i):
        sizes.append(sizes[-1] * ratio + step)
    size = first * sums.power[i] + sums.growth[i]
    total = first * sums.power_sum[k] + sums.growth_sum[k]
    assert size == pytest.approx(sizes[-1], rel=1e-6, abs=1e-6)
    assert total == pytest.approx(sum(sizes), rel=1e-6, abs=1e-4)
    if ratio != 1:
        grown = (ratio**i - 1) / (ratio - 1)
        assert size == pytest.approx(first * ratio**i + step * grown, rel=1e-6, abs=1e-4)


@given(busy, st.integers(1, 20000), st.integers(1, 12))
def test_ramps__sum_and_never_stall(pipeline, B, k):
    two = make(*((stage.g_us, stage.G_us_per_KiB) for stage in pipeline.stages[:2]))
    found = ramps(no_stall(two, 0, 1), B, np.array([float(k)]), 1.0)
    for sizes in found:
        assert sizes.sum() == pytest.approx(B)
        for before, after in itertools.pairwise(sizes):
            t_slow = two.stages[1].time_us(before)
            assert two.stages[0].time_us(after) == pytest.approx(t_slow, rel=1e-6)


@given(busy, st.integers(2, 20000))
def test_two_stages__ramp_equals_the_linear_program(pipeline, B):
    two = make(*((stage.g_us, stage.G_us_per_KiB) for stage in pipeline.stages[:2]))
    ramp = plan(two, B, "ramp", whole=False)
    start = np.array([float(B)])
    optimal = float(latency_us(two, best_lp_sizes(two, B, start, Limits())))
    assert ramp.latency_us == pytest.approx(optimal, rel=1e-6)


def test_ramp__grows_towards_a_slow_stage_and_shrinks_towards_a_fast_one():
    up = plan(make((5, 5), (8, 12)), 1 << 18, "ramp").fragments_bytes
    down = plan(make((8, 12), (5, 5)), 1 << 18, "ramp").fragments_bytes
    assert len(up) > 3
    assert up[0] < up[1] < up[-1]
    assert list(up) == sorted(up)
    assert sorted(down, reverse=True) == list(down)
    assert list(up) == pytest.approx(list(down[::-1]), abs=1)


@given(
    st.tuples(st.integers(1, 20), st.integers(4, 80)),
    st.tuples(st.integers(1, 60), st.integers(4, 160)),
    st.tuples(st.integers(1, 20), st.integers(4, 80)),
    st.integers(64, 16000),
)
def test_fast_slow_fast__up_and_down_equals_the_linear_program(first, more, last, B):
    # The middle stage is slowest for all sizes, as theorem 5 assumes.
    slow = (max(first[0], last[0]) + more[0], max(first[1], last[1]) + more[1])
    pipeline = make(first, slow, last)
    found = plan(pipeline, B, "ramp-up-down", whole=False)
    start = np.array(found.fragments_bytes)
    optimal = float(latency_us(pipeline, best_lp_sizes(pipeline, B, start, Limits())))
    assert found.latency_us <= optimal * (1 + 1e-6)


@given(busy, st.integers(2, 30000))
def test_up_and_down__is_never_behind_the_ramp(pipeline, B):
    # Theorem 5 subsumes theorem 4, also where the bottleneck is the first or last stage.
    one_way = plan(pipeline, B, "ramp", whole=False, reassembly=False).latency_us
    both = plan(pipeline, B, "ramp-up-down", whole=False, reassembly=False).latency_us
    assert both <= one_way * (1 + 1e-12)


def test_up_and_down__partners_need_not_be_neighbours():
    pipeline = make((5, 20), (0.5, 1), (9, 34), (0.5, 1), (4, 15))
    found = plan(pipeline, 32768, "ramp-up-down", whole=False)
    start = np.array(found.fragments_bytes)
    optimal = float(latency_us(pipeline, best_lp_sizes(pipeline, 32768, start, Limits())))
    assert found.latency_us <= optimal * 1.002


def test_up_and_down__search_closes_in_on_long_plans():
    pipeline = make((1, 28), (8, 30), (2, 27))
    B = 1 << 18
    up, down = no_stall(pipeline, 0, 1), no_stall(pipeline.reversed(), 0, 1)
    k1, k2 = (grid.ravel() * 1.0 for grid in np.meshgrid(np.arange(1, 60), np.arange(1, 60)))
    every = latency_us(pipeline, ramps_up_and_down(up, down, B, k1, k2, 1.0))
    found = plan(pipeline, B, "ramp-up-down", whole=False, reassembly=False)
    assert found.latency_us <= every.min() * (1 + 1e-9)


def test_up_and_down__keeps_the_neighbours_busy():
    pipeline = make((2, 10), (8, 30), (3, 15))
    up = no_stall(pipeline, 0, 1)
    down = no_stall(pipeline.reversed(), 0, 1)
    (sizes,) = ramps_up_and_down(up, down, 20000, np.array([3.0]), np.array([4.0]), 1.0)
    assert len(sizes) == 6
    assert sizes.sum() == pytest.approx(20000)
    time = [[stage.time_us(size) for stage in pipeline.stages] for size in sizes]
    for i in range(2):
        assert time[i + 1][0] == pytest.approx(time[i][1])
    for i in range(2, 5):
        assert time[i + 1][1] == pytest.approx(time[i][2])


def test_up_and_down__with_one_side_of_length_1_equals_a_ramp():
    pipeline = make((2, 10), (8, 30), (3, 15))
    up, down = no_stall(pipeline, 0, 1), no_stall(pipeline.reversed(), 0, 1)
    (both,) = ramps_up_and_down(up, down, 20000, np.array([4.0]), np.array([1.0]), 1.0)
    (one,) = ramps(up, 20000, np.array([4.0]), 1.0)
    assert list(both) == pytest.approx(list(one))


def test_fall_back__sizes_below_a_byte_are_left_out():
    # The second fragment must be 100 KiB more than the first: no such ramp of 4 KiB.
    pipeline = make((0, 1), (100, 1))
    rule = no_stall(pipeline, 0, 1)
    assert rule.step_bytes == pytest.approx(100 * 1024)
    assert len(ramps(rule, 4096, np.array([2.0, 3.0]), 1.0)) == 0
    made = plan(pipeline, 4096, "ramp")
    assert made.fragments_bytes == (4096.0,)
    assert "no ramp" in made.note


@given(busy, st.integers(1, 30000), st.sampled_from(["ramp", "ramp-up-down"]))
def test_ramps__never_lose_to_fixed_and_stay_whole(pipeline, B, strategy):
    made = plan(pipeline, B, strategy)
    assert made.latency_us <= plan(pipeline, B, "fixed").latency_us + 1e-9
    assert sum(made.fragments_bytes) == B
    assert all(size >= 1 and size == int(size) for size in made.fragments_bytes)


@given(busy, st.integers(4000, 60000))
def test_ramps__stay_inside_the_limits(pipeline, B):
    limits = Limits(64, 3750)
    for strategy in ("fixed", "ramp", "ramp-up-down"):
        made = plan(pipeline, B, strategy, limits=limits, reassembly=False)
        assert sum(made.fragments_bytes) == B
        assert min(made.fragments_bytes) >= 64
        assert max(made.fragments_bytes) <= 3750


def test_ramps__long_inexact_ramps_are_dropped():
    gms = make((2.1, 25.6), (4.0, 60.1), (2.1, 25.6), (92.8, 26.2))
    made = plan(gms, 524288, "ramp", whole=False)
    assert sum(made.fragments_bytes) == pytest.approx(524288, abs=0.01)
    assert made.latency_us >= made.lower_bound_us
