"""How long a command waits for an ended carefuld, and for which errors it does not wait."""

from __future__ import annotations

import errno
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from careful.cli import running
from careful.cli.running import Outlasting
from careful.errors import CarefulError, LossError
from careful.render.files.progress import Lines

GONE = CarefulError(errno.ENOTCONN, "carefuld ended", "carefuld of eth1")
NOT_UP = CarefulError(errno.ENOENT, "careful is not up")


class Clock:
    """A clock that advances only by sleeps."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        patch.setattr(time, "monotonic", lambda: self.now)
        patch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds


def begun(patience_s: float = 60) -> Outlasting:
    one = Outlasting(patience_s)
    one.begun = True
    return one


def test_wait__lasts_as_given_and_raises_the_first_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, one = Clock(monkeypatch), begun()
    assert one.wait(GONE)
    while clock.now < 160:
        assert not one.wait(NOT_UP, is_way=True)
    with pytest.raises(CarefulError) as caught:
        one.wait(NOT_UP, is_way=True)
    assert caught.value is GONE
    assert clock.now == pytest.approx(160)


def test_wait__a_carefuld_that_begins_is_waited_for_and_another_release_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Clock(monkeypatch)
    one = begun()
    one.wait(GONE)
    assert not one.wait(CarefulError(errno.EBUSY, "belongs to process 7"), is_way=True)
    with pytest.raises(CarefulError, match="another release"):
        one.wait(CarefulError(errno.EPROTO, "carefuld is from another release"), is_way=True)


def test_wait__begins_again_after_data_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, one = Clock(monkeypatch), begun()
    one.wait(GONE)
    clock.now += 59
    assert one.wait(GONE, has_moved=True)
    clock.now += 59
    assert not one.wait(GONE)


def test_wait__a_session_that_only_repeats_itself_is_no_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, one, progress = Clock(monkeypatch), begun(), Lines()

    def repeat() -> None:
        for _ in range(20):  # the same bytes come and are lost each time
            progress.moved(100)
            one.wait(GONE, progress.has_moved)
            progress.again()
            clock.now += 9

    with pytest.raises(CarefulError):
        repeat()
    assert 160 <= clock.now < 180
    progress.moved(100)
    progress.present(1)
    assert progress.has_moved


@pytest.mark.parametrize(
    ("one", "error"),
    [
        (begun(0), GONE),
        (Outlasting(60), GONE),
        (begun(), CarefulError(errno.ENOENT, "", "h2:file")),
        (begun(), CarefulError(errno.ENOSPC, "", "file")),
        (begun(), LossError(errno.ECONNRESET)),
    ],
    ids=["not asked for", "no connection yet", "no such file", "disk full", "a loss"],
)
def test_wait__not_after_other_ends(
    one: Outlasting, error: CarefulError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_LOOK_S", 0.0)
    with pytest.raises(CarefulError) as caught:
        one.wait(error)
    assert caught.value is error


def test_run__results_are_not_formatted(monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio.run() would format the task's result, which may be a list of a million files."""

    formatted = []

    class Found:
        def __repr__(self) -> str:
            formatted.append(self)
            return ""

    @asynccontextmanager
    async def connected(route: Any) -> AsyncIterator[None]:
        yield None

    async def work(peer: Any) -> Found:
        return Found()

    monkeypatch.setattr(running, "connected", connected)
    assert isinstance(running.run(None, work), Found)  # type: ignore[arg-type]
    assert not formatted
