"""The store's threshold: figures from live writes, and the policy in virtual time."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from careful.model import load_shipped
from careful.model.eager import written_us
from careful.plan import class_of
from careful.tuning import settings, store_model
from careful.tuning.controller.policy import Controller
from careful.tuning.controller.store_watch import StoreWatch
from careful.tuning.propose import store_table, worth
from careful.tuning.settings import STORE, Pulse
from careful.tuning.state import PathState
from careful.tuning.store_model import Arrivals, Totals, fit, is_another_store
from careful.tuning.verify import Counts
from live_path import LivePath, Stream, ToFile, run, told, written

GAM = load_shipped("gam")
BYTES = 65536
CLASS = class_of(BYTES)
ITEM = STORE + CLASS
FRAMES = 26
CAME_US = 8000.0
#: P1 section 5.5's disk, and an almost free one.
DISK, MEMORY = (4000.0, 200.0), (8.0, 0.3)
UNTUNED = Pulse(65536)


def to_file(cost: tuple[float, float] = DISK, nbytes: int = BYTES, every_s: float = 0.03) -> ToFile:
    frames = max(1, nbytes * FRAMES // BYTES)
    return ToFile(nbytes, every_s, frames, CAME_US * nbytes / BYTES, lambda _: cost)


def path(*files: ToFile, **more: object) -> LivePath:
    return LivePath(lambda _: GAM, [], files=list(files), **more)  # type: ignore[arg-type]


def controller(on: LivePath, state: PathState | None = None) -> Controller:
    return Controller(on, state or PathState({}), on.clock, seed=1)


def least_us(stream: ToFile, at: float) -> float:
    """Returns the best latency over all thresholds of whole frames."""
    size = stream.message_bytes / stream.frames
    return min(written(stream, at, Pulse(int(k * size)))[0] for k in range(1, stream.frames + 1))


def loss(on: LivePath, stream: ToFile) -> float:
    took_us = written(stream, on.now, on.pulse(class_of(stream.message_bytes)))[0]
    return took_us / least_us(stream, on.now) - 1


def seen(*writes: tuple[int, float], noise: float = 0.1, count: int = 40) -> Totals:
    """Returns counts of writes by size and time, of messages of 64 KiB."""
    rand = random.Random(1)
    found = {}
    for nbytes, us in writes:
        total = Counts()
        for _ in range(count):
            ns = int(us * 1000 * rand.gauss(1, noise))
            total += Counts(1, ns, ns * ns)
        found[class_of(nbytes)] = (nbytes * count, total)
    came = Arrivals(count, FRAMES * count, BYTES * count, int(CAME_US * 1000) * count)
    return Totals({CLASS: came}, found)


def took_us(nbytes: int, cost: tuple[float, float]) -> float:
    return cost[0] + cost[1] * nbytes / 1024


@pytest.mark.parametrize("g_us", [0.0, 37.0])
def test_written_us__threshold_0_is_one_frame(g_us: float) -> None:
    # Like `tune set --minpulse-bytes 0`; the least write is a frame.
    size = BYTES // 16
    one_by_one = [written_us(BYTES, 16, CAME_US, least, g_us, 1e-4) for least in (1, size)]
    assert [written_us(BYTES, 16, CAME_US, 0, g_us, 1e-4)] * 2 == one_by_one


def test_fit__g_and_G_of_a_store() -> None:
    sizes = (4096, 20000, 65536)
    found = fit(seen(*((size, took_us(size, DISK)) for size in sizes)))
    assert found
    assert found.told_apart
    figures = found.figures()
    assert figures["g_low_us"] < DISK[0] < figures["g_high_us"]
    assert figures["G_low_us_per_KiB"] < DISK[1] < figures["G_high_us_per_KiB"]
    assert found.g_us == pytest.approx(DISK[0], rel=0.1)


def test_fit__one_write_size_does_not_separate_g_from_G() -> None:
    found = fit(seen((65536, took_us(65536, DISK))))
    assert found
    assert not found.told_apart
    (row,) = store_table(found, [*[Pulse(0)] * STORE, *[UNTUNED] * STORE])
    assert "does not separate g from G" in row.why_not
    assert fit(Totals()) is None


def test_table__a_disk_wants_blocks() -> None:
    """P1 section 5.5: neither frame by frame nor all at once."""
    found = fit(seen(*((size, took_us(size, DISK)) for size in (4096, 65536))))
    assert found
    now = [*[UNTUNED] * STORE, *[UNTUNED] * STORE]
    (row,) = worth(store_table(found, now)).values()
    assert row.index == ITEM
    assert isinstance(row.best, Pulse)
    assert 2 * BYTES / FRAMES < row.best.store_bytes < BYTES / 2
    stream = to_file()
    gain = written(stream, 0, UNTUNED)[0] - written(stream, 0, row.best)[0]
    assert row.gain_us.low <= gain <= row.gain_us.high
    assert written(stream, 0, row.best)[0] <= 1.02 * least_us(stream, 0)
    now[ITEM] = row.best
    assert not worth(store_table(found, now))


def test_another__only_beyond_errors() -> None:
    sizes = (4096, 65536)
    known = fit(seen(*((size, took_us(size, DISK)) for size in sizes)))
    assert known
    assert not is_another_store(known, seen((8192, took_us(8192, DISK)), count=15))
    assert is_another_store(known, seen((8192, 2 * took_us(8192, DISK)), count=15))
    assert not is_another_store(known, seen((8192, 1.1 * took_us(8192, DISK)), count=15))


def test_table__avoids_a_threshold_that_is_best_by_a_hair() -> None:
    """Writes of four frames end just when the last frame comes; writes of five lose little."""
    costs = (84000.0, 3933.0)
    found = fit(seen(*((size, took_us(size, costs)) for size in (4096, 16384, 65536)), noise=0.01))
    assert found
    came = Arrivals(40, 18 * 40, BYTES * 40, 40 * 163_400_000)
    store = replace(found, came={CLASS: came})
    stream = ToFile(BYTES, 1.0, 18, 163_400.0, lambda _: costs)
    later = replace(stream, came_us=1.04 * stream.came_us)
    best = store.best(CLASS)
    assert written(stream, 0, best)[0] < 1.03 * least_us(stream, 0)
    assert written(later, 0, best)[0] < 1.03 * least_us(later, 0)
    edge = Pulse(7 * BYTES // 36)
    assert written(later, 0, edge)[0] > 1.1 * written(stream, 0, edge)[0]


def test_watch__a_counter_that_restarts() -> None:
    watch = StoreWatch()
    assert not watch.look(seen((65536, 5000.0), count=400), 0.0)
    assert watch.look(seen((65536, 5000.0), count=30), 1.0) == "first"


def test_auto__finds_and_keeps_a_disks_threshold() -> None:
    stream = to_file()
    on = path(stream)
    one = controller(on)
    run(one, on, 30)
    assert loss(on, stream) < 0.03
    kept = next(each for each in one.state.decisions if each["what"] == "kept")
    (decided,) = (each for each in kept["classes"] if each.get("sink") == "store")
    assert decided["class"] == CLASS
    assert decided["ab"]["gain_low_us"] > 0
    assert "to files" in decided["ab"]["measures"]
    assert decided["before"] == {"store_bytes": UNTUNED.store_bytes}
    # The exploration of other writes is over.
    assert on.pulse(CLASS - 1) == UNTUNED
    assert not one.state.on_trial


def test_auto__memory_needs_nothing() -> None:
    on = path(to_file(MEMORY), noise=0.3)
    one = controller(on)
    run(one, on, 150)
    assert on.pulse(CLASS) == UNTUNED or not told(one, "kept")
    changed = [each for each in one.state.decisions if each["what"] == "changed"]
    assert not any(row.get("sink") for each in changed for row in each["classes"])


@pytest.mark.parametrize("every_s", [0.005, 0.1])
def test_auto__a_slow_disk_appears(every_s: float) -> None:
    """Answered within 2 s of traffic, or 30 messages an arm, whichever is later."""
    at = 1000.0 + 40
    stream = ToFile(BYTES, every_s, FRAMES, CAME_US, lambda now: DISK if now > at else MEMORY)
    on = path(stream)
    one = controller(on)
    run(one, on, at - on.now)
    while not told(one, "store changed"):
        on.advance(one.step())
        assert on.now - at < 30
    assert on.now - at < 2 or on.now - at < 60 * every_s
    run(one, on, 60)
    assert loss(on, stream) < 0.03


def test_auto__a_slow_disk_that_is_replaced() -> None:
    at = 1000.0 + 40
    stream = ToFile(BYTES, 0.02, FRAMES, CAME_US, lambda now: MEMORY if now > at else (500, 20.0))
    on = path(stream)
    one = controller(on)
    run(one, on, at - on.now)
    run(one, on, 120)
    assert told(one, "store changed")
    assert loss(on, stream) < 0.05


def test_auto__one_change_in_ten_minutes_while_the_store_is_the_same() -> None:
    on = LivePath(
        lambda _: GAM, [Stream(4096, 0.1)], files=[to_file(), to_file(nbytes=8192)], noise=0.4
    )
    one = controller(on)
    run(one, on, 900)
    changed = told(one, "changed")
    # The first settings of a path and of a store do not count as changes.
    assert 1 <= len(changed) <= 3
    assert all(b - a >= 600 for a, b in pairwise(changed[1:]))


def test_auto__a_store_that_is_seen_during_an_ab() -> None:
    """The store is answered at the end of the A/B; plans wait for their ten minutes."""
    stream = to_file(every_s=0.1)
    on = LivePath(lambda _: GAM, [Stream(4096, 0.3)], files=[stream], noise=0.1)
    one = controller(on)
    while not one.trying:
        on.advance(one.step())
    assert ITEM not in one.state.on_trial
    run(one, on, 100)
    assert loss(on, stream) < 0.03
    plans, files = (
        [each for each in one.state.decisions if each["what"] == "changed"][k] for k in (0, 1)
    )
    assert not any("sink" in each for each in plans["classes"])
    assert all("sink" in each for each in files["classes"])


def test_auto__a_mix_of_sizes_into_a_very_slow_disk() -> None:
    """With a few messages a second of seven sizes each threshold is found within three minutes."""
    disk = (84000.0, 3933.0)
    sizes = [1024 << k for k in range(7)]
    files = [ToFile(size, 1.5, max(1, size // 3640), 2.5 * size, lambda _: disk) for size in sizes]
    on = path(*files, noise=0.03)
    one = controller(on)
    run(one, on, 60)
    first = told(one, "changed")[-1]
    assert first - 1000.0 < 30
    run(one, on, 120)
    assert all(loss(on, stream) < 0.05 for stream in files)
    kept = [each for each in one.state.decisions if each["what"] == "kept"]
    assert {CLASS} <= {row["class"] for each in kept for row in each["classes"]}
    assert all(each["at_s"] - first < 160 for each in kept)


def test_auto__by_hand_stays() -> None:
    on = path(to_file(), pinned={ITEM})
    one = controller(on)
    run(one, on, 60)
    assert on.pulse(CLASS) == UNTUNED


def test_auto__a_wrong_prediction_is_undone() -> None:
    """Messages do not wait for writes, so smaller writes gain nothing."""

    class Other(LivePath):
        def _count(self, item: int, took_us: float) -> None:
            super()._count(item, 20000.0 if item >= STORE else took_us)

    on = Other(lambda _: GAM, [], files=[to_file()])
    one = controller(on)
    run(one, on, 300)
    assert told(one, "undone")
    assert on.pulse(CLASS) == UNTUNED


def test_auto__ended_during_an_exploration() -> None:
    """The next controller puts back the plan in effect."""
    on = path(to_file())
    kept: list[dict[str, object]] = []
    state = PathState({})
    one = Controller(on, state, on.clock, save=lambda: kept.append(state.as_dict()), seed=1)
    run(one, on, 20)
    saved = next(each for each in kept if str(ITEM) in each["put_back"])  # type: ignore[operator]
    other = path(to_file(), now=on.now)
    other.settle({ITEM: Pulse(BYTES // 8)})
    later = controller(other, PathState.from_dict(saved))
    assert other.pulse(CLASS) == UNTUNED
    run(later, other, 30)
    assert loss(other, to_file()) < 0.03


def test_auto__interrupted_during_an_exploration() -> None:
    """The controller itself puts back what it wrote for a moment."""
    on = path(to_file())
    state = PathState({})
    one = controller(on, state)
    wait = on.wait

    def until_explored(seconds: float) -> None:
        if state.put_back:
            raise KeyboardInterrupt
        wait(seconds)

    on.wait = until_explored  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        run(one, on, 20)
    assert on.pulse(CLASS) == UNTUNED
    assert not state.put_back


def kept_of(on: LivePath, seconds: float) -> PathState:
    """Returns the file of a controller that has ended."""
    one = controller(on)
    run(one, on, seconds)
    one.close()
    return PathState.from_dict(json.loads(json.dumps(one.state.as_dict())))


def test_returned__a_store_is_known() -> None:
    """Its threshold is in effect at once; nothing is explored, or changed, a second time."""
    on = path(to_file())
    state = kept_of(on, 60)
    threshold, changed = on.pulse(CLASS), len(changes(state))
    assert threshold != UNTUNED
    other = path(to_file(), now=on.now)
    later = Controller(other, state, other.clock, seed=1, returned=True)
    assert other.pulse(CLASS) == threshold
    known = store_model.store_from_dict(later.state.store)
    assert known
    assert known.g_us == pytest.approx(DISK[0], rel=0.2)
    run(later, other, 60)
    assert {effect[ITEM] for _, effect in other.effects} == {threshold}
    assert len(changes(later.state)) == changed
    assert not told(later, "store changed")


def changes(state: PathState) -> list[dict[str, object]]:
    return [each for each in state.decisions if each["what"] == "changed"]


def test_returned__to_another_store() -> None:
    """The traffic shows that the path changed, and the controller answers that."""
    on = path(to_file())
    state = kept_of(on, 60)
    stream = to_file((400.0, 20.0))
    other = path(stream, now=on.now)
    later = Controller(other, state, other.clock, seed=1, returned=True)
    run(later, other, 120)
    assert told(later, "store changed")
    assert loss(other, stream) < 0.05


def test_kept__foreign_files_are_ignored() -> None:
    found = fit(seen(*((size, took_us(size, DISK)) for size in (4096, 65536))))
    assert found
    whole = json.loads(json.dumps(found.as_dict()))
    assert store_model.store_from_dict(whole) == found
    came = whole["came"]
    wrong = ({"g_us": None}, {"draws": []}, {"draws": [[1.0]]}, {"came": {"99": came[str(CLASS)]}})
    wrong = (*wrong, {"G_us_per_byte": float("nan")}, {"came": {}}, {"came": {"3": {"count": 1}}})
    for each in wrong:
        assert store_model.store_from_dict({**whole, **each}) is None, each
    assert store_model.store_from_dict(None) is None


def test_items__do_not_meet_those_of_plans() -> None:
    assert STORE == 16
    assert settings.Pulse(5).as_dict() == {"store_bytes": 5}
