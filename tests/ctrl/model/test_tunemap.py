"""The plans that the tune map can express, and their cost."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from careful.model import (
    Limits,
    Pipeline,
    Stage,
    class_of,
    class_plan,
    class_table,
    latency_us,
    load_shipped,
    plan,
)
from careful.model.tunemap import _eager, fixed_plan, from_sizes, ramp_plan
from careful.plan import Q16_ONE, Plan
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import busy

DATAPATH = Path(__file__).parents[3] / "datapath"
u32 = st.integers(0, (1 << 32) - 1)


#: Sizes as datapath/message/plan.c cuts them, for a plan's six numbers.
SHIM = """
#include "message/plan.h"

int sizes(const uint32_t *six, uint32_t bytes, uint32_t cap, uint32_t *out, int most)
{
	static struct careful_tune_entry entry;
	struct plan_cursor cursor;
	int count = 0;

	entry.version[0].classes[plan_class(bytes)].plan =
		(struct careful_plan){ six[0], six[1], six[2], six[3], six[4], six[5] };
	plan_take(&entry, bytes, &cursor);
	for (; bytes && count < most; count++) {
		uint32_t next = plan_next(&cursor, cap);

		out[count] = next < bytes ? next : bytes;
		bytes -= out[count];
	}
	return count;
}
"""


@pytest.fixture(scope="module")
def datapath_sizes(tmp_path_factory):
    """Compiles the datapath's own function: (plan, message bytes, frame bytes) -> sizes."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("no C compiler: the datapath's plan.c cannot be held against the model")
    folder = tmp_path_factory.mktemp("plan")
    (folder / "shim.c").write_text(SHIM, encoding="utf-8")
    sources = [folder / "shim.c", DATAPATH / "message/plan.c"]
    includes = [f"-I{DATAPATH}", f"-I{DATAPATH / 'include'}"]
    built = folder / "plan.so"
    command = [compiler, "-std=gnu11", "-shared", "-fPIC", *includes, *sources, "-o", built]
    subprocess.run(command, check=True)
    call = ctypes.CDLL(str(built)).sizes

    def cut(numbers: Plan, message_bytes: int, most_bytes: int) -> list[int]:
        six = (ctypes.c_uint32 * 6)(*numbers.as_dict().values())
        out = (ctypes.c_uint32 * 20000)()
        return list(out[: call(six, message_bytes, most_bytes, out, len(out))])

    return cut


some_ratio = st.one_of(st.just(Q16_ONE), st.integers(0, 4 * Q16_ONE), u32)
some_bytes = st.one_of(st.just(0), st.integers(0, 6000), u32)


@settings(max_examples=400)
@given(
    st.one_of(st.integers(1, 6000), st.integers(1, (1 << 32) - 1)),
    some_ratio,
    some_bytes,
    st.one_of(st.integers(0, 6000), u32),
    some_ratio,
    some_bytes,
    st.integers(1, 200000),
    st.sampled_from([16, 1400, 3750]),
)
def test_sizes__are_the_datapath_s(
    datapath_sizes, first, ratio, step, peak, down, down_step, B, most
):
    for end in (peak, first):
        numbers = Plan(first, ratio, step, end, down, down_step)
        sizes = numbers.sizes(B, Limits(1, most))
        assert sum(sizes) == B
        assert 1 <= min(sizes) <= max(sizes) <= most
        assert sizes == datapath_sizes(numbers, B, most)


def test_sizes__of_huge_plans_match_the_datapath(datapath_sizes):
    # The sum of the message and its fragment is more than a u32 holds.
    numbers = Plan.fixed(3 << 30)
    B = (1 << 32) - 1
    most = 1 << 30
    assert numbers.sizes(B, Limits(1, most)) == datapath_sizes(numbers, B, most)


def test_sizes__rise_peak_and_fall_in_fixed_point():
    numbers = Plan(100, 2 * Q16_ONE, 10, 900, Q16_ONE // 2, 5)
    assert numbers.sizes(3000, Limits(64)) == [100, 210, 430, 870, 900, 455, 35]
    assert Plan(100, Q16_ONE + 1, 0, 200).sizes(300, Limits()) == [100, 100, 100]


def test_sizes__fixed_are_equal():
    assert Plan.fixed(1000).sizes(4096) == [820, 820, 820, 820, 816]
    assert Plan.fixed(9000).sizes(4096) == [2048, 2048]  # not 3750 and 346
    assert Plan.fixed(820).is_fixed
    assert not Plan(100, Q16_ONE, 10, 900).is_fixed


def test_sizes__that_only_fall_are_a_plan_of_their_own(datapath_sizes):
    numbers = Plan(900, Q16_ONE, 0, 900, Q16_ONE // 2, 5)
    assert not numbers.is_fixed
    assert numbers.sizes(1500) == datapath_sizes(numbers, 1500, 3750) == [900, 455, 145]
    # A plan that never reaches its peak has no falling side.
    assert Plan(400, Q16_ONE, 0, 900, Q16_ONE // 2, 5).sizes(1500) == [375] * 4


@pytest.mark.parametrize("numbers", [{"first_bytes": 0}, {"first_bytes": 1, "step_bytes": 1 << 32}])
def test_tune_plan__refuses_numbers_out_of_range(numbers):
    with pytest.raises(ValueError, match=r"u32|at least a byte"):
        Plan(**numbers)


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


def test_trapeze__backwards_falls_as_it_rose(datapath_sizes):
    # Theorem 2: the map expresses the mirrored ramp as well, and the datapath sends it.
    back = class_plan(load_shipped("trapeze").reversed(), class_of(16384))
    assert back.ramp_gain > 0.05
    sizes = back.plan.sizes(16384)
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 3
    assert sizes == datapath_sizes(back.plan, 16384, 3750)
    there = class_plan(load_shipped("trapeze"), class_of(16384))
    assert back.latency_us == pytest.approx(there.latency_us, rel=0.01)


def test_limits__bound_planned_ramps_but_for_the_tail():
    for name in ("trapeze", "gms"):
        for line in (load_shipped(name), load_shipped(name).reversed()):
            for each in class_table(line, Limits(200, 3000)):
                sizes = each.plan.sizes(each.message_bytes, Limits(200, 3000))
                assert max(sizes) <= 3000
                assert min(sizes[:-1], default=200) >= 200


def test_class_plan__fixed_unless_a_ramp_gains_enough():
    gms = load_shipped("gms")
    assert not class_plan(gms, class_of(4096)).plan.is_fixed
    assert class_plan(gms, class_of(4096), ramp_gain_min=0.5).plan.is_fixed
    for each in class_table(load_shipped("gam")):
        assert each.plan.is_fixed
        assert each.latency_us == each.fixed_us >= each.ramp_us
        assert each.loss >= each.flat_loss - 1e-12
        assert each.flat_loss >= -1e-9


def test_class_plan__no_ramp_that_makes_its_class_slower():
    """A ramp gains 13 % for 2 KiB over GMS, and costs messages just above 1 KiB 21 %."""
    gms = load_shipped("gms")
    assert class_plan(gms, class_of(2048)).ramp_gain > 0.1
    assert class_plan(gms, class_of(2048)).plan.is_fixed
    for line in (gms, load_shipped("trapeze")):
        for index in range(16):
            chosen = class_plan(line, index).plan
            equal = class_plan(line, index, ramp_gain_min=9.0).plan
            sizes = np.linspace((32 << index) + 1, 64 << index, 40).astype(int)
            shares = [
                latency_us(line, chosen.sizes(int(nbytes)))
                / latency_us(line, equal.sizes(int(nbytes)))
                for nbytes in sizes
            ]
            assert np.mean(shares) <= 1.001


EQUAL = Pipeline(tuple(Stage(f"hop {k}", 10, 20) for k in range(5)))


@pytest.mark.parametrize(
    "pipeline", [load_shipped("gam"), load_shipped("gms"), load_shipped("trapeze"), EQUAL]
)
def test_fixed_class__serves_every_size_of_its_class(pipeline):
    """The size that only suits the largest message costs a message in the middle 5 to 15 %."""
    pipeline = pipeline.sequential()
    costs = []
    for index in range(1, 16):
        entry = class_plan(pipeline, index, ramp_gain_min=9.0)
        assert len(entry.plan.sizes(64 << index)) == len(
            fixed_plan(pipeline, 64 << index)[0].sizes(64 << index)
        )
        for nbytes in np.linspace((32 << index) + 1, 64 << index, 25).astype(int):
            took = latency_us(pipeline, entry.plan.sizes(int(nbytes)))
            costs.append(took / fixed_plan(pipeline, int(nbytes))[1] - 1)
    assert max(costs) < 0.03
    assert np.mean(costs) < 0.002


def test_gam__without_limits_the_map_holds_the_theory_s_plan():
    found, latency = fixed_plan(load_shipped("gam"), 4096, Limits())
    assert found.first_bytes == 820
    assert latency == pytest.approx(plan(load_shipped("gam"), 4096, "fixed").latency_us, rel=1e-3)


def test_groups__frames_in_the_network_and_blocks_for_the_disk():
    found = class_plan(load_shipped("network-disk"), class_of(65536))
    assert 64 <= found.plan.first_bytes <= 3750
    # The idle disk takes everything buffered: as good as a ramp (P1: 9.2 % better than algorithm
    # B), and with far fewer disk accesses than frames.
    assert found.block_bytes == 6 * found.plan.first_bytes == 15126
    assert found.latency_us == pytest.approx(23346, rel=0.01)
    assert found.fixed_us > 3 * found.latency_us
    assert found.as_dict()["block_bytes"] == 15126


def test_groups__an_eager_sink_empties_its_buffer():
    """By hand: frames of 1 KiB each 1 ms apart; a disk of 2 ms and 1 ms a KiB."""
    network = Stage("wire", 0, 1000, group="network")
    disk = Stage("disk", 2000, 1000)
    frames = np.full(4, 1024.0)
    # At once: 1 KiB from 1 to 4 ms, then the other three, to 9 ms. From 2 KiB on: 2 to 6, 6 to 10.
    # From 3 KiB on: 3 to 8, 8 to 11. All of it: 4 to 10.
    assert _eager(Pipeline((network, disk)), frames) == (9000.0, 1024)


def test_groups__blocks_in_the_middle_are_of_one_size():
    found = class_plan(load_shipped("network-disk-network"), class_of(65536))
    assert found.block_bytes == 32768
    # A ramp of all stages would gain 6 % over fixed ones here, and lose to the blocks.
    small = class_plan(load_shipped("network-disk"), class_of(4096))
    assert small.fixed_us > 1.05 * small.ramp_us > small.latency_us
    assert small.ramp_gain == 0
    assert class_plan(load_shipped("gam"), 5).block_bytes == 0
