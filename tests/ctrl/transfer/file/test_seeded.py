"""-c with an old file that changes between its comparison and its copy."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transfers
from careful._abi import lib
from careful.daemon.route import Route
from careful.transfer.file import move as moving
from careful.transfer.options import Options, Progress
from fake_daemon import MOVES, FakeDaemon

BLOCK = 4096
DATA = random.Random(3).randbytes(8 * BLOCK + 100)
OPTIONS = Options(block_bytes=BLOCK, replace=True, checksum=True)


def changed(*blocks: int) -> bytes:
    """Returns the contents with a changed first byte in some blocks."""
    data = bytearray(DATA)
    for index in blocks:
        data[index * BLOCK] ^= 1
    return bytes(data)


class Ends(transfers.OneFile):
    """A source; an old file at the target with one different block; and the moved blocks."""

    def __init__(self, way: str, route: Route, daemon: FakeDaemon, tmp_path: Path) -> None:
        super().__init__(way, route, daemon, tmp_path, DATA)
        self.target.write_bytes(changed(1))
        self.moved: list[int] = []

    def write(self, data: bytes, in_place: bool) -> None:
        """Replaces the old file."""
        if in_place:
            with self.target.open("r+b") as file:
                file.write(data)
                file.truncate()
            return
        new = self.target.with_name("new")
        new.write_bytes(data)
        new.replace(self.target)

    def run(self) -> Any:
        return self.move(OPTIONS, Progress())


@pytest.fixture(params=["get", "put"])
def ends(request: pytest.FixtureRequest, route: Route, daemon: FakeDaemon, tmp_path: Path) -> Ends:
    return Ends(request.param, route, daemon, tmp_path)


def between(ends: Ends, monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Calls change() between the old file's comparison and its copy."""
    copy, compared = moving.copy_into, False

    async def copy_into(*told: Any) -> None:
        change()
        await copy(*told)

    def fault(question: Any) -> int:
        nonlocal compared
        if question.op in MOVES and question.region_off < len(DATA):
            ends.moved.append(question.region_off // BLOCK)
        if question.op != lib.CAREFUL_IPC_REQUEST or ends.is_get:
            return 0
        if question.handler == lib.CAREFUL_BLOCK_OPEN and compared:  # the new file
            change()
        compared = compared or question.handler == lib.CAREFUL_BLOCK_DIGEST
        return 0

    monkeypatch.setattr(moving, "copy_into", copy_into)
    ends.daemon.fault = fault


@pytest.mark.parametrize("in_place", [True, False], ids=["written", "replaced"])
@pytest.mark.parametrize("cut", [False, True])
def test_seeded__another_old_file(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, in_place: bool, cut: bool
) -> None:
    now = changed(1, 3, 8)[: 5 * BLOCK + 7 if cut else None]
    between(ends, monkeypatch, lambda: ends.write(now, in_place))
    report = ends.run()
    assert not report.failures
    assert ends.target.read_bytes() == DATA
    opened_before = ends.is_get and not in_place
    bad = [1] if opened_before else [1, 3, 5, 6, 7, 8] if cut else [1, 3, 8]
    assert sorted(ends.moved) == bad
    assert report.matched_bytes == len(DATA) - sum(len(DATA[i * BLOCK :][:BLOCK]) for i in bad)


def test_seeded__the_old_file_is_truncated_meanwhile(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    between(ends, monkeypatch, lambda: ends.write(changed(*range(9)), True))
    report = ends.run()
    assert (report.failures, report.matched_bytes, report.resumed_bytes) == ([], 0, 0)
    assert ends.target.read_bytes() == DATA
    assert sorted(ends.moved) == list(range(9))


def test_seeded__equal_is_not_copied(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    ends.target.write_bytes(DATA)
    inode = ends.target.stat().st_ino
    between(ends, monkeypatch, lambda: pytest.fail("it is copied"))
    # A sync would look like a request of the copy.
    assert not ends.move(replace(OPTIONS, fsync="none"), Progress()).failures
    assert (ends.target.stat().st_ino, ends.moved) == (inode, [])
