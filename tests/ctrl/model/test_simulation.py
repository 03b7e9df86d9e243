"""Virtual time: pulses, bursts, resources, delays."""

from __future__ import annotations

import itertools

import pytest
from careful.model import (
    EagerPulse,
    FixedPulse,
    Message,
    Pipeline,
    Sizes,
    Stage,
    WholeMessage,
    cut_through_speedup,
    load_shipped,
    pulse_rules,
    simulate,
)
from careful.model.pulses import pulse_latency_us
from hypothesis import given
from hypothesis import strategies as st
from pipelines import make, pipelines

PAGE = 8192


@given(
    pipelines(least=2, delays=True),
    st.lists(st.tuples(st.integers(1, 9000), st.integers(0, 500)), min_size=1, max_size=5),
    st.sampled_from(["eager", "fixed", "store-and-forward"]),
    st.integers(64, 4096),
    st.booleans(),
    st.booleans(),
)
def test_simulate__invariants(pipeline, messages, kind, pulse, progressive, shared):
    if shared:
        pipeline = Pipeline(
            tuple(
                Stage(s.name, s.g_us, s.G_us_per_KiB, "", "cpu" if j % 2 else "", s.delay_us)
                for j, s in enumerate(pipeline.stages)
            )
        )
    at = itertools.accumulate(gap for _, gap in messages)
    sent = [Message(size, float(t)) for (size, _), t in zip(messages, at, strict=True)]
    outcome = simulate(pipeline, sent, pulse_rules(kind, [pulse], len(pipeline)), progressive)
    for j, stage in enumerate(pipeline.stages):
        mine = outcome.of_stage(j)
        for number, message in enumerate(sent):
            parts = [transfer for transfer in mine if transfer.message == number]
            # Every byte once, in order.
            ends = list(itertools.accumulate(transfer.size_bytes for transfer in parts))
            assert ends[-1] == message.message_bytes
            assert [transfer.offset_bytes for transfer in parts] == [0, *ends[:-1]]
        for transfer in mine:
            length = transfer.end_us - transfer.start_us
            assert length == pytest.approx(stage.time_us(transfer.size_bytes))
    by_resource = itertools.groupby(
        sorted(
            outcome.transfers, key=lambda t: (_resource(pipeline, t.stage), t.start_us, t.end_us)
        ),
        lambda t: _resource(pipeline, t.stage),
    )
    for _, transfers in by_resource:
        for before, after in itertools.pairwise(transfers):
            assert after.start_us >= before.end_us - 1e-9
    bound = [sum(s.time_us(m.message_bytes) for s in pipeline.stages[:1]) for m in sent]
    for latency, least in zip(outcome.latency_us, bound, strict=True):
        assert latency >= least + pipeline.delay_us - 1e-6


def _resource(pipeline: Pipeline, stage: int) -> str:
    return pipeline.stages[stage].resource or str(stage)


def test_store_and_forward__is_the_sum_of_the_stages():
    trapeze = load_shipped("trapeze")
    total = sum(stage.time_us(PAGE) + stage.delay_us for stage in trapeze.stages)
    assert pulse_latency_us(trapeze, PAGE, "store-and-forward") == pytest.approx(total)


def test_eager__a_sink_empties_its_buffer():
    # Source 1 µs/KiB, sink 2 µs/KiB, no overhead: each pulse doubles until the tail.
    pipeline = make((0, 1), (0, 2))
    outcome = simulate(pipeline, [Message(PAGE)], [WholeMessage(), EagerPulse(512)], True)
    assert [t.size_bytes for t in outcome.of_stage(1)] == [512, 1024, 2048, 4096, 512]
    assert outcome.latency_us[0] == pytest.approx(0.5 + 16)


def test_fixed_pulse__a_sink_moves_only_a_pulse():
    pipeline = make((0, 1), (0, 2))
    outcome = simulate(pipeline, [Message(1300)], [WholeMessage(), FixedPulse(512)], True)
    assert [t.size_bytes for t in outcome.of_stage(1)] == [512, 512, 276]


def test_eager__waits_for_the_threshold_but_not_for_the_tail():
    # Source slower than the sink: pulses of exactly minpulse, and the tail at once.
    pipeline = make((0, 2), (0, 1))
    outcome = simulate(pipeline, [Message(1200)], [WholeMessage(), EagerPulse(512)], True)
    assert [t.size_bytes for t in outcome.of_stage(1)] == [512, 512, 176]
    # The sink is busy with the second pulse, from 2.0 to 2.5 µs, when the tail is complete.
    assert outcome.latency_us[0] == pytest.approx(2.5 + 176 / 1024)


def test_whole_transfers__bytes_arrive_when_the_transfer_ends():
    pipeline = make((0, 1), (0, 1))
    late = simulate(pipeline, [Message(1024)], [WholeMessage(), EagerPulse(1)], False)
    assert late.of_stage(1)[0].start_us == pytest.approx(1.0)
    early = simulate(pipeline, [Message(1024)], [WholeMessage(), EagerPulse(512)], True)
    assert early.of_stage(1)[0].start_us == pytest.approx(0.5)
    # Bytes flow after the overhead, not during it.
    slow = simulate(make((3, 1), (0, 1)), [Message(1024)], [WholeMessage(), EagerPulse(512)], True)
    assert slow.of_stage(1)[0].start_us == pytest.approx(3.5)


@given(st.sampled_from([1024, 2048, 4096, 8192]), st.sampled_from([256, 384, 512, 1024]))
def test_eager__is_not_slower_than_fixed_pulses_on_the_alphastation(size, pulse):
    trapeze = load_shipped("trapeze")
    eager = pulse_latency_us(trapeze, size, "eager", [pulse])
    assert eager <= pulse_latency_us(trapeze, size, "fixed", [pulse]) + 1e-9


def test_burst__falls_back_to_whole_messages():
    # P5 Figure 3: small transfers at first, 8 KiB ones once the sinks are backlogged.
    trapeze = load_shipped("trapeze")
    burst = [Message(PAGE)] * 16
    eager = simulate(trapeze, burst, pulse_rules("eager", [512], 3), True)
    received = eager.of_stage(2)
    first = [t.size_bytes for t in received if t.message == 0]
    late = [t.size_bytes for t in received if t.message == 15]
    assert len(first) > 4
    assert late == [PAGE]
    whole = simulate(trapeze, burst, pulse_rules("store-and-forward", [1], 3), True)
    fixed = simulate(trapeze, burst, pulse_rules("fixed", [512], 3), True)
    # Low latency for the first, and the bandwidth of large transfers for the burst.
    assert eager.latency_us[0] < 0.6 * whole.latency_us[0]
    assert eager.complete_us[-1] < 1.01 * whole.complete_us[-1]
    assert fixed.complete_us[-1] > 1.2 * eager.complete_us[-1]


@pytest.mark.parametrize(("ratio", "speedup"), [(1, 3.0), (2, 2.0), (4, 1.5), (0.5, 2.5)])
def test_cut_through__speedup_by_bandwidth_ratio(ratio, speedup):
    # Store-and-forward 2/r + 1 over the slowest link's max(1/r, 1).
    assert cut_through_speedup(ratio) == pytest.approx(speedup, rel=0.01)


def test_cut_through__benefit_from_1_kib_on():
    trapeze = load_shipped("trapeze")
    for size in (256, 512):
        eager = pulse_latency_us(trapeze, size, "eager", [512])
        assert eager == pytest.approx(pulse_latency_us(trapeze, size, "store-and-forward"))
    gains = [
        1
        - pulse_latency_us(trapeze, size, "eager", [512])
        / pulse_latency_us(trapeze, size, "store-and-forward")
        for size in (1024, 2048, 4096, 8192)
    ]
    assert gains[0] > 0.05
    assert gains == sorted(gains)


def test_resource__one_transfer_at_a_time_and_the_last_stage_first():
    pipeline = Pipeline((Stage("in", 1, 0, resource="bus"), Stage("out", 1, 0, resource="bus")))
    outcome = simulate(pipeline, [Message(3)], [Sizes((1.0, 1.0, 1.0))] * 2)
    assert [t.stage for t in outcome.transfers] == [0, 1, 0, 1, 0, 1]
    assert outcome.latency_us == (6.0,)


def test_delay__does_not_occupy_the_stage():
    pipeline = Pipeline((Stage("wire", 1, 0, delay_us=100), Stage("host", 1, 0)))
    outcome = simulate(pipeline, [Message(3)], [Sizes((1.0, 1.0, 1.0))] * 2)
    assert [t.start_us for t in outcome.of_stage(0)] == [0, 1, 2]
    assert outcome.latency_us == (104.0,)


@pytest.mark.parametrize(
    ("messages", "rules", "message"),
    [
        ([], [WholeMessage()], "no messages"),
        ([Message(0)], [WholeMessage()], "at least 1 byte"),
        ([Message(5)], [], "0 rules for 1 stages"),
        ([Message(5)], [EagerPulse(0)], "a pulse of 0 bytes"),
        ([Message(5)], [Sizes((2.0, 2.0))], "fragments of 4 bytes for a message of 5"),
        ([Message(5, 3.0), Message(5, 1.0)], [WholeMessage()], "is ready before message"),
        ([Message(5, -1.0)], [WholeMessage()], "ready at -1.0 µs"),
        ([Message(5, float("nan"))], [WholeMessage()], "ready at nan µs"),
        ([Message(5, float("inf"))], [WholeMessage()], "ready at inf µs"),
        ([Message(5)], [EagerPulse(float("nan"))], "a pulse of nan bytes"),
        ([Message(1 << 40)], [FixedPulse(1)], "more than 2000000 transfers"),
        ([Message(5)] * 2_000_001, [WholeMessage()], "more than 2000000 transfers"),
    ],
)
def test_simulate__bad_input_is_refused(messages, rules, message):
    with pytest.raises(ValueError, match=message):
        simulate(make((1, 1)), messages, rules)
