"""How long a measurement of the controller holds the path, in virtual time."""

from __future__ import annotations

import pytest
from careful.measure.outside.blackbox import BlackBox
from careful.measure.outside.quick import Glance, Options
from careful.tuning.instance_path import CLOSELY
from fake_exchange import GAM, FakeExchange

#: tuning.md states it: a train holds the path for this long, or for the time of four frames.
HELD_US, FRAMES = 4000.0, 4
#: Frames take so many times as long as on GAM.
SCALES = (0.01, 0.1, 1.0, 10.0)


@pytest.mark.parametrize("quick", [False, True], ids=["closely", "quickly"])
@pytest.mark.parametrize("scale", SCALES)
def test_measurement__holds_the_path_for_so_long_at_most(quick: bool, scale: float) -> None:
    stages = tuple((g * scale, G * scale) for g, G in GAM)
    path = FakeExchange(stages, delay_us=500 * scale, jitter_us=0.1 * scale)
    path.train_max = 400
    clock = lambda: path.now_us / 1e6  # noqa: E731
    if quick:
        Glance(path, clock=clock, sleep=path.sleep).figures()
    else:
        BlackBox(path, CLOSELY, clock=clock, sleep=path.sleep).run()
    frame_us = max(g + G * path.payload_max_bytes / 1024 for g, G in stages)
    assert len(path.held_us) > 4
    assert max(path.held_us) <= max(HELD_US, FRAMES * frame_us)
    # It holds the path for no more than its share of all the time.
    share = Options().share if quick else CLOSELY.share
    assert path.busy_us <= 1.01 * share * path.now_us


def test_measurement__pauses_in_between() -> None:
    """A pause follows each train and each size's round trips, in proportion."""
    path = FakeExchange(jitter_us=0.0)
    pauses: list[tuple[float, float]] = []
    busy_us = 0.0

    def sleep(seconds: float) -> None:
        nonlocal busy_us
        pauses.append((path.busy_us - busy_us, seconds * 1e6))
        busy_us = path.busy_us
        path.sleep(seconds)

    BlackBox(path, CLOSELY, clock=lambda: path.now_us / 1e6, sleep=sleep).run()
    assert len(pauses) > 20
    assert all(pause >= 0.99 * 3 * busy for busy, pause in pauses)
