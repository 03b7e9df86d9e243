"""Latency: equations 1 to 3 against direct simulation, bounds, padding, transformations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from careful.model import (
    Message,
    Pipeline,
    Sizes,
    Stage,
    exit_times_us,
    fixed_latency_us,
    latency_us,
    load_shipped,
    lower_bound_us,
    signature_us,
    simulate,
)
from careful.model.latency import fragments_bound, staged_exit_times_us
from careful.model.simulation import simulate_sizes
from hypothesis import assume, given
from hypothesis import strategies as st
from pipelines import make, pipelines, plans


@given(pipelines(delays=True), plans)
def test_latency__equals_event_simulation(pipeline, sizes):
    outcome = simulate_sizes(pipeline, sizes)
    assert float(latency_us(pipeline, sizes)) == pytest.approx(outcome.latency_us[0], rel=1e-12)
    exits = exit_times_us(pipeline, sizes)
    for j, stage in enumerate(pipeline.stages):
        ends = [transfer.end_us + stage.delay_us for transfer in outcome.of_stage(j)]
        assert ends == pytest.approx(list(exits[:, j]))


@given(pipelines(), plans)
def test_latency__satisfies_the_constraints_tightly(pipeline, sizes):
    tau = exit_times_us(pipeline, sizes)
    for i, j in itertools.product(range(len(sizes)), range(len(pipeline))):
        t = pipeline.stages[j].time_us(sizes[i])
        before = max(tau[i, j - 1] if j else 0.0, tau[i - 1, j] if i else 0.0)
        assert tau[i, j] == pytest.approx(before + t)


@given(pipelines(), st.lists(plans, min_size=2, max_size=5))
def test_latency__vectorised_over_padded_plans(pipeline, many):
    padded = np.zeros((len(many), max(len(sizes) for sizes in many)))
    for row, sizes in zip(padded, many, strict=True):
        row[: len(sizes)] = sizes
    single = [float(latency_us(pipeline, sizes)) for sizes in many]
    assert list(latency_us(pipeline, padded)) == pytest.approx(single)
    assert list(latency_us(pipeline, padded[:, ::-1])) == pytest.approx(
        [float(latency_us(pipeline, sizes[::-1])) for sizes in many]
    )


@given(pipelines(delays=True), plans)
def test_latency__reversed_plan_in_reversed_pipeline(pipeline, sizes):
    forward = float(latency_us(pipeline, sizes))
    assert float(latency_us(pipeline.reversed(), sizes[::-1])) == pytest.approx(forward)


@given(pipelines(delays=True), plans)
def test_lower_bound__holds_for_every_plan(pipeline, sizes):
    assert lower_bound_us(pipeline, sum(sizes)) <= float(latency_us(pipeline, sizes)) + 1e-9


def test_lower_bound__is_equation_5():
    gam = load_shipped("gam")
    assert lower_bound_us(gam, 4096) == pytest.approx(4 * 24.9 + 7.2 + 5.2 + 7.5 + 7.4)
    # Equality holds if only one stage has a cost per byte, and with its delay.
    tight = Pipeline((Stage("a", 3, 0), Stage("b", 5, 10, delay_us=2), Stage("c", 4, 0)))
    assert lower_bound_us(tight, 2048) == pytest.approx(float(latency_us(tight, [2048])))


@given(pipelines(), plans)
def test_fragments_bound__no_plan_has_more_fragments_than_its_own_bound(pipeline, sizes):
    latency = float(latency_us(pipeline, sizes))
    assert len(sizes) <= fragments_bound(pipeline, sum(sizes), latency) + 1e-9


@given(pipelines(delays=True), st.integers(1, 20000), st.integers(1, 30))
def test_fixed_latency__equals_equal_fragments_and_greatest_signature(pipeline, B, k):
    closed = float(fixed_latency_us(pipeline, B, k))
    assert closed == pytest.approx(float(latency_us(pipeline, np.full(k, B / k))))
    curves = [float(signature_us(pipeline, j, B, k)) for j in range(len(pipeline))]
    assert closed == pytest.approx(max(curves))


@given(pipelines(delays=True), st.data())
def test_staged_latency__equals_event_simulation_with_reassembly(pipeline, data):
    units = data.draw(st.integers(1, 12))
    by_stage = []
    for _ in pipeline.stages:
        cuts = sorted(data.draw(st.sets(st.integers(1, units), max_size=6)) | {units})
        by_stage.append(np.diff([0, *cuts]) * 100.0)
    exits = staged_exit_times_us(pipeline, by_stage)
    rules = [Sizes(tuple(sizes)) for sizes in by_stage]
    outcome = simulate(pipeline, [Message(units * 100)], rules)
    assert exits[-1][-1] == pytest.approx(outcome.latency_us[0])


def test_staged_latency__same_sizes_everywhere_is_flat():
    pipeline = make((3, 10), (7, 20), (1, 5))
    sizes = np.array([100.0, 700.0, 333.3])
    exits = staged_exit_times_us(pipeline, [sizes] * 3)
    assert exits[-1][-1] == pytest.approx(float(latency_us(pipeline, sizes)))


def test_staged_latency__sums_that_differ_are_refused():
    with pytest.raises(ValueError, match="fragments sum to 90 bytes, but 100 bytes arrived"):
        staged_exit_times_us(make((1, 1), (1, 1)), [np.array([100.0]), np.array([90.0])])


@pytest.mark.parametrize("header", [-1, float("nan"), float("inf"), 1 << 40])
def test_header__invalid_headers_are_refused(header):
    with pytest.raises(ValueError, match="header of"):
        make((1, 1)).with_header(header)


def test_costs__the_greatest_do_not_overflow():
    big = make((1e15, 1e15), (1e15, 1e15))
    assert np.isfinite(float(latency_us(big, np.full(1000, 1 << 30))))


@given(pipelines(), plans, st.integers(0, 200))
def test_header__costs_as_much_as_larger_fragments(pipeline, sizes, header):
    framed = pipeline.with_header(header)
    larger = [size + header for size in sizes]
    assert float(latency_us(framed, sizes)) == pytest.approx(float(latency_us(pipeline, larger)))


def _shared(*resources: str) -> Pipeline:
    return Pipeline(
        tuple(
            Stage(f"s{j}", 2.0 + j, 10.0 * (j + 1), resource=resource)
            for j, resource in enumerate(resources)
        )
    )


@given(plans)
def test_sequential__neighbours_on_a_resource_equal_the_simulation(sizes):
    pipeline = _shared("", "cpu", "cpu", "")
    outcome = simulate_sizes(pipeline, sizes)
    assert float(latency_us(pipeline, sizes)) == pytest.approx(outcome.latency_us[0])
    assert [stage.name for stage in pipeline.sequential().stages] == ["s0", "s1 + s2", "s3"]
    assert pipeline.sequential_index() == [0, 1, 1, 2]


def test_sequential__merged_as_the_paper_merges_gam():
    parts = Pipeline(
        (
            Stage("net", 3.0, 6.0, resource="lanai"),
            Stage("receiver host DMA", 4.5, 18.9, resource="lanai"),
        )
    )
    (merged,) = parts.sequential().stages
    assert (merged.g_us, merged.G_us_per_KiB) == pytest.approx((7.5, 24.9))


def test_sequential__others_are_refused_by_name():
    with pytest.raises(ValueError, match="'s0' and 's2' share 'cpu' and are not neighbours"):
        latency_us(_shared("cpu", "", "cpu"), [100])
    delayed = Pipeline((Stage("a", 1, 1, "", "cpu", 5.0), Stage("b", 1, 1, "", "cpu")))
    with pytest.raises(ValueError, match="across a delay of 5 µs"):
        latency_us(delayed, [100])


@pytest.mark.parametrize("sizes", [[], [-1.0], [float("nan")], [float("inf")]])
def test_latency__bad_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match=r"\w"):
        latency_us(make((1, 1)), sizes)


@pytest.mark.parametrize("field", ["g_us", "G_us_per_KiB", "delay_us"])
@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan"), 2e15, 10**400, "3", True])
def test_stage__bad_parameters_are_refused_by_name(field, value):
    good = {"g_us": 1.0, "G_us_per_KiB": 1.0, "delay_us": 0.0}
    with pytest.raises(ValueError, match=f"stage 'wire': {field}"):
        Stage("wire", **(good | {field: value}))


def test_pipeline__no_stages_and_double_names_are_refused():
    with pytest.raises(ValueError, match="at least one stage"):
        Pipeline(())
    with pytest.raises(ValueError, match="two stages have the name 'a'"):
        Pipeline((Stage("a", 1, 1), Stage("a", 1, 1)))
    with pytest.raises(ValueError, match="of 65 stages: at most 64"):
        Pipeline(tuple(Stage(f"s{j}", 1, 1) for j in range(65)))


@given(pipelines(delays=True), plans)
def test_delay__moves_latency_by_its_sum(pipeline, sizes):
    assume(pipeline.delay_us > 0)
    bare = Pipeline(tuple(Stage(s.name, s.g_us, s.G_us_per_KiB) for s in pipeline.stages))
    moved = float(latency_us(bare, sizes)) + pipeline.delay_us
    assert float(latency_us(pipeline, sizes)) == pytest.approx(moved)
