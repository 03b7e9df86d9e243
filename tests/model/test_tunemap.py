"""What the tune map can express, and what it costs."""

from __future__ import annotations

import numpy as np
import pytest
from careful.model import (
    Limits,
    TunePlan,
    class_of,
    class_plan,
    class_table,
    latency_us,
    load_shipped,
    plan,
)
from careful.model.tunemap import FRAME_LIMITS, Q16_ONE, fixed_plan, from_sizes, ramp_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from .pipelines import busy

u32 = st.integers(0, (1 << 32) - 1)


@given(st.integers(1, 10000), u32, u32, u32, u32, u32, st.integers(1, 100000))
def test_sizes__any_six_numbers_give_whole_messages(first, ratio, step, peak, down, down_step, B):
    numbers = TunePlan(first, ratio, step, peak, down, down_step)
    sizes = numbers.sizes(B, FRAME_LIMITS)
    assert sum(sizes) == B
    assert max(sizes) <= 3750
    assert all(size >= 64 for size in sizes[:-1])


def test_sizes__rise_peak_and_fall_in_fixed_point():
    numbers = TunePlan(100, 2 * Q16_ONE, 10, 900, Q16_ONE // 2, 5)
    assert numbers.sizes(3000, Limits(64)) == [100, 210, 430, 870, 900, 455, 35]
    assert TunePlan(100, Q16_ONE + 1, 0, 200).sizes(300, Limits()) == [100, 100, 100]


def test_sizes__fixed():
    assert TunePlan.fixed(820).sizes(4096) == [820, 820, 820, 820, 816]
    assert TunePlan.fixed(820).is_fixed
    assert not TunePlan(100, Q16_ONE, 10, 900).is_fixed


@pytest.mark.parametrize("numbers", [{"first_bytes": 0}, {"first_bytes": 1, "step_bytes": 1 << 32}])
def test_tune_plan__what_no_u32_holds_is_refused(numbers):
    with pytest.raises(ValueError, match=r"u32|at least a byte"):
        TunePlan(**numbers)


def test_class_of__edges():
    assert [class_of(B) for B in (1, 64, 65, 128, 129, 4096, 4097)] == [0, 0, 1, 1, 2, 6, 7]
    assert class_of(64 << 15) == class_of((64 << 15) + 1) == class_of(1 << 40) == 15
    assert class_of((64 << 14) + 1) == 15


@settings(max_examples=25)
@given(busy, st.integers(64, 60000))
def test_ramp_plan__latency_is_that_of_its_own_bytes(pipeline, B):
    for found, latency in (fixed_plan(pipeline, B), ramp_plan(pipeline, B)):
        sizes = found.sizes(B)
        assert latency == pytest.approx(float(latency_us(pipeline, sizes)))
        bound = plan(pipeline, B, "lp", whole=False).latency_us
        assert latency >= bound * (1 - 1e-9)


def test_from_sizes__recovers_the_theory_s_recurrence():
    sizes = np.array([400.0, 900.0, 1650.0, 2775.0, 1200.0, 412.5])
    numbers = from_sizes(sizes)
    assert numbers.first_bytes == 400
    assert numbers.peak_bytes == 2775
    assert numbers.ratio_q16 == pytest.approx(1.5 * Q16_ONE, abs=1)
    assert numbers.step_bytes == 300
    # The falling side's step would be negative: a ratio through both ends instead.
    assert numbers.down_step_bytes == 0
    assert numbers.down_ratio_q16 == pytest.approx((412.5 / 2775) ** 0.5 * Q16_ONE, abs=1)


def test_trapeze__ramp_loses_little_to_the_theory():
    found = class_plan(load_shipped("trapeze"), class_of(8192))
    assert not found.plan.is_fixed
    assert found.ramp_gain > 0.05
    assert 0 <= found.flat_loss < 0.01


def test_class_plan__fixed_unless_a_ramp_gains_enough():
    gms = load_shipped("gms")
    assert not class_plan(gms, class_of(4096)).plan.is_fixed
    assert class_plan(gms, class_of(4096), ramp_gain_min=0.5).plan.is_fixed
    for each in class_table(load_shipped("gam")):
        assert each.plan.is_fixed
        assert each.latency_us == each.fixed_us >= each.ramp_us
        assert each.loss >= each.flat_loss - 1e-12
        assert each.flat_loss >= -1e-9


def test_gam__without_limits_the_map_holds_the_theory_s_plan():
    found, latency = fixed_plan(load_shipped("gam"), 4096, Limits())
    assert found.first_bytes == 820
    assert latency == pytest.approx(plan(load_shipped("gam"), 4096, "fixed").latency_us, rel=1e-3)


def test_groups__frames_in_the_network_and_blocks_for_the_disk():
    found = class_plan(load_shipped("network-disk"), class_of(65536))
    assert found.block_bytes == 32768
    assert 64 <= found.plan.first_bytes <= 3750
    # Within 2 % of algorithm B, and far from a disk access for every frame.
    assert found.latency_us == pytest.approx(25562.7, rel=0.02)
    assert found.fixed_us > 3 * found.latency_us
    assert found.as_dict()["block_bytes"] == 32768
    assert class_plan(load_shipped("gam"), 5).block_bytes == 0
