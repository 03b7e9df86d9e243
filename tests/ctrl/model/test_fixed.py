"""Fixed sizes: theorem 1 and the generalised bottleneck against brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from careful.model import (
    Limits,
    best_count,
    candidates,
    fixed_latency_us,
    latency_us,
    load_shipped,
    optimal_count,
    optimal_size_bytes,
    plan,
    signature_us,
)
from careful.model.fixed import segments
from careful.model.rounding import equal_sizes, static_sizes, whole_sizes
from hypothesis import given
from hypothesis import strategies as st
from pipelines import make, pipelines


def test_theorem_1__size_times_count_is_the_message():
    B, g_b, G = 4096, 7.5, 40 / 1024
    assert optimal_size_bytes(B, g_b, G) == pytest.approx(math.sqrt(B * g_b / G))
    assert optimal_size_bytes(B, g_b, G) * optimal_count(B, g_b, G) == pytest.approx(B)
    assert optimal_count(B, g_b, G) == pytest.approx(4.62, abs=0.01)


def test_theorem_1__without_overhead_or_other_bandwidth():
    assert optimal_count(4096, 0, 1) == math.inf
    assert optimal_size_bytes(4096, 1, 0) == math.inf
    assert plan(make((0, 1), (0, 2)), 300, "fixed").fragments_count == 300
    assert plan(make((5, 0), (9, 0)), 300, "fixed").fragments_count == 1


@given(pipelines(), st.integers(1, 600))
def test_best_count__equals_brute_force(pipeline, B):
    every = fixed_latency_us(pipeline, B, np.arange(1, B + 1))
    _, latency = best_count(pipeline, B)
    assert latency == pytest.approx(every.min(), rel=1e-12)


@given(pipelines(), st.integers(20, 600), st.integers(1, 20), st.integers(20, 300))
def test_best_count__respects_limits(pipeline, B, low, high):
    k, latency = best_count(pipeline, B, Limits(low, high))
    allowed = [n for n in range(1, B + 1) if B / n <= high and B // n >= low]
    if allowed:
        assert k in allowed
        assert latency == pytest.approx(fixed_latency_us(pipeline, B, allowed).min())


@given(pipelines(most=6))
def test_segments__name_the_slowest_stage_of_every_size(pipeline):
    found = segments(pipeline)
    assert found[0].low_bytes == 0
    assert found[-1].high_bytes == math.inf
    for before, after in itertools.pairwise(found):
        assert before.high_bytes == after.low_bytes
    for segment in found:
        inside = segment.low_bytes + (
            (segment.high_bytes - segment.low_bytes) / 2 if segment.high_bytes < math.inf else 1e4
        )
        times = [stage.time_us(inside) for stage in pipeline.stages]
        assert times[segment.stage] == pytest.approx(max(times))


def test_candidates__false_minimum_of_another_signature_is_left_out():
    # Figure 2(b): the first stage's own minimum is where the second one is the bottleneck.
    pipeline = make((40.0, 20.0), (4.0, 100.0))
    B = 16384
    found = candidates(pipeline, B, 400)
    totals = pipeline.G_us_per_byte.sum() - pipeline.G_us_per_byte
    minima = [
        optimal_count(B, float(g), float(G)) for g, G in zip(pipeline.g_us, totals, strict=False)
    ]
    off_curve = [
        k
        for stage, k in enumerate(minima)
        if float(signature_us(pipeline, stage, B, k))
        < float(fixed_latency_us(pipeline, B, k)) - 1e-6
    ]
    assert len(off_curve) == 1
    # The false minimum looks better than any possible plan.
    assert all(candidate.k != pytest.approx(off_curve[0]) for candidate in found)
    assert "transition" in {candidate.kind for candidate in found}
    best = min(candidate.latency_us for candidate in found)
    grid = fixed_latency_us(pipeline, B, np.linspace(1, 400, 40001))
    assert best == pytest.approx(grid.min(), rel=1e-6)


def test_gms__bottleneck_moves_from_cpu_to_wire():
    gms = load_shipped("gms")
    names = [gms.stages[segment.stage].name for segment in segments(gms)]
    assert names == ["Req-CPU", "Wire"]
    assert segments(gms)[1].low_bytes == pytest.approx(1024 * 88.8 / 33.9)


def test_equal_sizes__differ_by_a_byte_and_sum():
    assert list(equal_sizes(10, 3)) == [4, 3, 3]
    assert list(equal_sizes(11, 3)) == [4, 4, 3]
    assert list(static_sizes(10, 4)) == [4, 4, 2]
    assert list(static_sizes(8, 4)) == [4, 4]


@given(st.lists(st.floats(1, 5000), min_size=1, max_size=30))
def test_whole_sizes__keep_sum_and_bounds(sizes):
    B = round(sum(sizes))
    scaled = np.array(sizes) * (B / sum(sizes))
    whole = whole_sizes(scaled)
    assert whole.sum() == B
    assert np.all(whole == np.round(whole))
    assert np.all(np.abs(whole - scaled) <= 1 + 1e-6)
    assert np.all(np.abs(np.cumsum(whole) - np.cumsum(scaled)) <= 0.5 + 1e-6)
    assert whole.min() >= math.floor(scaled.min() + 1e-6)
    assert whole.max() <= math.ceil(scaled.max() - 1e-6)


@given(pipelines(), st.integers(1, 5000))
def test_fixed_plan__whole_bytes_cost_at_most_two_bytes(pipeline, B):
    made = plan(pipeline, B, "fixed")
    assert sum(made.fragments_bytes) == B
    assert max(made.fragments_bytes) - min(made.fragments_bytes) <= 1
    _, real = best_count(pipeline, B)
    assert made.latency_us <= real + 2 * pipeline.G_us_per_byte.sum() + 1e-9
    assert made.latency_us == pytest.approx(float(latency_us(pipeline, made.fragments_bytes)))
