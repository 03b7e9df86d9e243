"""Holes: kept both ways, made from zeros, and in continued transfers."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import transfers
from careful._abi import lib
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.transfer.file import partial_file, resume
from careful.transfer.file.holes import Ranges, is_hole, local_extents, merged
from careful.transfer.options import Options, Progress
from careful.transfer.result import Result
from fake_daemon import FakeDaemon

MIB = 1 << 20
SILENT = Progress()


class Ends:
    """One file from one side to the other."""

    def __init__(self, way: str, route: Route, here: Path, there: Path) -> None:
        self.way, self.route = way, route
        self.source, self.target = (there, here) if way == "get" else (here, there)
        self.source, self.target = self.source / "f", self.target / "f"

    def once(self, options: Options, watch: Progress = SILENT) -> Result:
        if self.way == "get":
            return transfers.get(self.route, ["f"], str(self.target), False, options, watch)
        return transfers.put(self.route, [str(self.source)], "", False, options, watch)

    def run(self, options: Options) -> None:
        assert self.once(options).failures == []
        assert self.target.read_bytes() == self.source.read_bytes()

    @property
    def allocated(self) -> int:
        return self.target.stat().st_blocks * 512


@pytest.fixture(params=["get", "put"])
def ends(request: pytest.FixtureRequest, route: Route, daemon: FakeDaemon, tmp_path: Path) -> Ends:
    here = tmp_path / "here"
    here.mkdir()
    return Ends(request.param, route, here, daemon.root)


def with_holes(path: Path, nbytes: int = 8 * MIB) -> None:
    """Makes a file with data at the beginning and across two blocks, and a hole at the end."""
    with path.open("wb") as file:
        file.write(os.urandom(5000))
        file.seek(3 * MIB - 4096)
        file.write(os.urandom(8192))
        file.truncate(nbytes)
    if path.stat().st_blocks * 512 > MIB:
        pytest.skip("this file system has no holes")


@pytest.mark.parametrize("block", [64 * 1024, 16 * MIB])
def test_holes__stay_holes(ends: Ends, daemon: FakeDaemon, block: int) -> None:
    with_holes(ends.source)
    moved = 0

    def count(question: object) -> int:
        nonlocal moved
        op = getattr(question, "op", 0)
        if op in (lib.CAREFUL_IPC_GET, lib.CAREFUL_IPC_STORE):
            moved += getattr(question, "bytes", 0)
        return 0

    daemon.fault = count
    ends.run(Options(block_bytes=block))
    assert ends.allocated == ends.source.stat().st_blocks * 512
    assert moved < 100_000


def test_holes__interrupted(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C takes effect among many holes; not all of them are read."""
    block = 64 * 1024

    class CtrlC(Progress):
        seen = 0

        def present(self, nbytes: int) -> None:
            self.seen += nbytes > 0
            if self.seen == 20:
                os.kill(os.getpid(), signal.SIGINT)

    with ends.source.open("wb") as file:
        file.truncate(64 * MIB)
        for offset in range(0, 64 * MIB, 2 * block):
            os.pwrite(file.fileno(), b"x", offset)
    watch = CtrlC()
    with pytest.raises(KeyboardInterrupt):
        ends.once(Options(block_bytes=block), watch)
    assert 20 <= watch.seen < 100
    read: list[tuple[int, ...]] = []
    count = lambda *given: read.append(given) or partial_file.digest_of_range(*given)  # noqa: E731
    monkeypatch.setattr(resume, "digest_of_range", count)
    ends.run(Options(block_bytes=block))
    assert sum(offset // block % 2 for _, offset, _ in read) <= 2


def test_holes__in_a_small_file_and_a_file_of_one_hole(ends: Ends) -> None:
    with_holes(ends.source, 3 * MIB + 4096)
    os.truncate(ends.source, 40_000)
    ends.run(Options())
    with ends.source.open("wb") as file:
        file.truncate(5 * MIB)
    ends.run(Options(replace=True))
    assert ends.allocated == 0


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("other_block", [64 * 1024, 128 * 1024])
def test_holes__over_data_of_the_old_file(
    ends: Ends, daemon: FakeDaemon, sparse: bool, other_block: int
) -> None:
    """-c copies the old file first: a new hole must not keep its bytes."""
    with_holes(ends.source)
    old = bytearray(ends.source.read_bytes())
    old[MIB : 2 * MIB] = os.urandom(MIB)
    old[5 * MIB : 6 * MIB] = os.urandom(MIB)
    old[:10] = b"0123456789"
    ends.target.write_bytes(old)
    moves = 0

    def fault(question: object) -> int:
        nonlocal moves
        moves += getattr(question, "op", 0) in (lib.CAREFUL_IPC_GET, lib.CAREFUL_IPC_STORE)
        return -errno.ECONNREFUSED if moves else 0

    options = Options(replace=True, checksum=True, sparse=sparse, block_bytes=64 * 1024)
    daemon.fault = fault
    with contextlib.suppress(CarefulError):
        assert ends.once(options).failures
    assert moves
    assert ends.target.read_bytes() == old
    daemon.fault = lambda question: 0
    ends.run(replace(options, block_bytes=other_block))


def test_merged__covers_both() -> None:
    assert merged([(0, 5), (20, 5)], [(3, 4), (7, 1), (30, 1)]) == [(0, 8), (20, 5), (30, 1)]
    assert merged([(0, 50)], [(10, 5)]) == [(0, 50)]
    assert merged([], []) == []


def test_zeros__become_holes(ends: Ends) -> None:
    data = os.urandom(32 * 1024)
    ends.source.write_bytes(data + bytes(5 * MIB) + data + bytes(MIB))
    ends.run(Options())
    assert ends.allocated >= 6 * MIB
    ends.run(Options(replace=True, sparse=True, block_bytes=MIB))
    assert ends.allocated <= 4 * 32 * 1024


def test_ranges__parts_of_a_block() -> None:
    ranges = Ranges([(0, 10), (20, 30), (100, 5)])
    assert ranges(0, 10) == [(0, 10)]
    assert ranges(5, 20) == [(5, 5), (20, 5)]
    assert ranges(50, 50) == []
    assert ranges(0, 1000) == [(0, 10), (20, 30), (100, 5)]
    assert ranges(104, 10) == [(104, 1)]


def test_ranges__end_of_a_hole() -> None:
    ranges = Ranges([(0, 10), (20, 30), (100, 5)])
    found = [ranges.hole_end(offset, 200) for offset in (0, 9, 10, 19, 20, 50, 104, 105)]
    assert found == [0, 9, 20, 20, 20, 100, 104, 200]
    assert Ranges([]).hole_end(7, 9) == 9
    assert ranges.hole_end(60, 70) == 70


def test_is_hole(tmp_path: Path) -> None:
    with (tmp_path / "f").open("w+b") as file:
        file.truncate(3 * MIB)
        os.pwrite(file.fileno(), b"x", MIB)
        ranges = (0, MIB), (0, MIB + 1), (MIB, 1), (2 * MIB, MIB), (2 * MIB, MIB + 1)
        found = [is_hole(file.fileno(), *one) for one in ranges]
    if not found[0]:
        pytest.skip("this file system has no holes")
    assert found == [True, False, False, True, False]


def test_extents__of_a_file(tmp_path: Path) -> None:
    with_holes(tmp_path / "f")
    fd = os.open(tmp_path / "f", os.O_RDONLY)
    found = local_extents(fd, 8 * MIB)
    os.close(fd)
    assert found[0][0] == 0
    assert sum(size for _, size in found) <= 5000 + 8192 + 3 * 4096
    assert all(at + size <= 8 * MIB for at, size in found)


def test_holes__are_not_counted_as_moved(ends: Ends) -> None:
    with_holes(ends.source)
    report = ends.once(Options(block_bytes=64 * 1024))
    data = ends.source.stat().st_blocks * 512
    assert report.bytes == 8 * MIB
    assert data <= report.moved_bytes < data + 300_000
