"""An A/B's verdict on samples with known truth."""

from __future__ import annotations

import math
import random

import pytest
from careful.tuning.verify import MESSAGES_MAX, MESSAGES_MIN, Arm, Counts, Trial


def block(random_: random.Random, count: int, mean_us: float, sd_us: float) -> Counts:
    took = [int(1000 * max(1.0, random_.gauss(mean_us, sd_us))) for _ in range(count)]
    return Counts(count, sum(took), sum(one * one for one in took))


def trial(seed: int, gain: float, blocks: int, size: int = 10, drift: float = 0.0) -> str:
    """Returns the verdict on two arms whose means are 100 and 100 - gain µs; drift: of blocks,
    µs."""
    random_ = random.Random(seed)
    one, said = Trial(), "undecided"
    for _ in range(blocks):
        for arm, mean in ((one.a, 100.0), (one.b, 100.0 - gain)):
            arm.add(block(random_, size, mean + random_.gauss(0, drift), 20))
        if one.has_verdict:
            said = one.verdict().what
    return said


def test_counts__mean_and_variance() -> None:
    one = Counts(3, 6000, 1000**2 + 2000**2 + 3000**2)
    assert one.mean_us == 2
    assert one.variance_us2 == pytest.approx(1.0)
    assert math.isnan(Counts().mean_us)
    assert Counts(1, 5, 25).variance_us2 == 0


def test_counts__since() -> None:
    before, after = Counts(2, 30, 500), Counts(5, 90, 2000)
    assert after.since(before) == Counts(3, 60, 1500)
    assert before.since(after) == before, "the counters began anew"


@pytest.mark.parametrize(("gain", "said"), [(20.0, "held"), (-20.0, "not held")])
def test_trial__a_clear_difference(gain: float, said: str) -> None:
    assert all(trial(seed, gain, blocks=40) == said for seed in range(20))


def test_trial__too_few_messages_give_no_verdict() -> None:
    one = Trial()
    for arm, mean in ((one.a, 100.0), (one.b, 1.0)):
        arm.add(block(random.Random(1), MESSAGES_MIN - 1, mean, 1))
    verdict = one.verdict()
    assert verdict.what == "undecided"
    assert verdict.gain is None
    assert (
        verdict.summary()
        == f"not verified: {MESSAGES_MIN - 1} messages of the {MESSAGES_MIN} that are needed"
    )


def test_trial__no_difference_seldom_holds() -> None:
    """Repeated looks must not find a difference by chance: at most 5 %."""
    blocks = MESSAGES_MAX // 10 + 1
    said = [trial(seed, 0.0, blocks) for seed in range(40)]
    assert "undecided" not in said
    assert said.count("held") <= 4


def test_trial__blocks_that_differ_count_as_one_message_each() -> None:
    """Messages of a block share the path's state, so they are not independent."""
    said = [trial(seed, 0.0, blocks=8, size=100, drift=30.0) for seed in range(100)]
    assert said.count("held") <= 10


def held_up(random_: random.Random, mean_us: float) -> Counts:
    """Returns ten messages; one in a hundred took twenty times as long, on average."""
    took = [max(1.0, random_.gauss(mean_us, mean_us * 0.15)) for _ in range(10)]
    took = [one + (random_.random() < 0.01) * random_.expovariate(1 / 2000) for one in took]
    ns = [int(1000 * one) for one in took]
    return Counts(10, sum(ns), sum(one * one for one in ns))


@pytest.mark.parametrize(
    ("gain", "least", "most"), [(0.1, 29, 30), (0.03, 25, 30), (0.0, 0, 2), (-0.03, 0, 0)]
)
def test_trial__a_few_delayed_messages_do_not_decide(gain: float, least: int, most: int) -> None:
    """By the mean of all messages only 14 of 30 gains of 10 % would hold, and no gain of 3 %."""
    held = 0
    for seed in range(30):
        random_, one = random.Random(seed), Trial()
        while not one.has_verdict:
            one.a.add(held_up(random_, 100.0))
            one.b.add(held_up(random_, 100.0 * (1 - gain)))
        held += one.verdict().what == "held"
    assert least <= held <= most


def test_middle__of_blocks_that_differ_in_size() -> None:
    """The quarters count messages, so a larger block is left out partly."""
    arm = Arm()
    for count, mean_us in ((10, 50), (30, 100), (40, 200), (20, 1000)):
        arm.add(Counts(count, count * mean_us * 1000, count * mean_us**2 * 10**6))
    found = arm.middle()
    assert found.value == pytest.approx((15 * 100 + 35 * 200) / 50)
    assert found.se > 0
    assert found.dof == 1


def test_trial__a_decision_stays() -> None:
    one, random_ = Trial(), random.Random(1)
    for _ in range(10):
        one.a.add(block(random_, 10, 100, 1))
        one.b.add(block(random_, 10, 50, 1))
    first = one.verdict()
    assert first.what == "held"
    assert first.gain is not None
    one.b.add(block(random_, 1000, 500, 1))
    assert one.verdict() == first
    assert first.as_dict()["gain_low_us"] > 45


def test_arm__an_empty_block_is_ignored() -> None:
    arm = Arm()
    arm.add(Counts())
    assert not arm.blocks
