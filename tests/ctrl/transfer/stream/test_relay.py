"""`carefulctl cp`: a file from one peer to another through this host, and within one peer."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from careful._abi import lib
from careful.address import resolve
from careful.cli.running import run
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.transfer.file.partial_file import digest_of, digest_of_blocks
from careful.transfer.options import Options, Progress
from careful.transfer.protocol.block import BlockClient
from careful.transfer.result import Result
from careful.transfer.run.session import connected
from careful.transfer.stream.relay import copy
from fake_daemon import MOVES, FakeDaemon

BLOCK = 4096
#: More than the pipe between both ends holds.
DATA = os.urandom(BLOCK * 200 + 99)
OPTIONS = Options(block_bytes=BLOCK, blocks_in_flight=4)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[FakeDaemon]:
    """The carefuld whose peer receives the file."""
    folder = tmp_path / "other"
    (folder / "export").mkdir(parents=True)
    one = FakeDaemon(folder, folder / "export")
    yield one
    one.stop()


def across(route: Route, other: FakeDaemon, target: str, options: Options = OPTIONS) -> Result:
    to = Route(other.path, "other", resolve("10.0.0.3"), "h3")

    async def work(source: BlockClient) -> Result:
        async with connected(to) as peer:
            return await copy(source, peer, ("f", target), options, Progress())

    return run(route, work)


def within(route: Route, target: str, options: Options = OPTIONS) -> Result:
    return run(route, lambda peer: copy(peer, peer, ("f", target), options, Progress()))


@pytest.mark.parametrize("size", [0, 1, BLOCK, len(DATA)])
def test_across__bytes_mode_and_time(
    route: Route, export: Path, daemon: FakeDaemon, other: FakeDaemon, size: int
) -> None:
    (export / "f").write_bytes(DATA[:size])
    (export / "f").chmod(0o640)
    os.utime(export / "f", ns=(1, 5_000_000_000))
    report = across(route, other, "g", replace(OPTIONS, preserve=True))
    made = other.root / "g"
    assert made.read_bytes() == DATA[:size]
    assert made.stat().st_mode & 0o777 == 0o640
    assert made.stat().st_mtime_ns == 5_000_000_000
    assert (report.bytes, report.files_count) == (size, 1)
    assert [path.name for path in other.root.iterdir()] == ["g"]
    assert not daemon.handles
    assert not other.handles


def test_across__a_directory_gets_the_file_under_its_name(
    route: Route, export: Path, other: FakeDaemon
) -> None:
    (export / "f").write_bytes(DATA)
    (other.root / "d").mkdir()
    for target, made in (("", "f"), ("d", "d/f"), ("d/", "d/f"), ("d/g", "d/g")):
        across(route, other, target, replace(OPTIONS, replace=True))
        assert (other.root / made).read_bytes() == DATA
        (other.root / made).unlink()
    with pytest.raises(CarefulError, match="h3:no: is not a directory"):
        across(route, other, "no/")


def test_across__an_existing_file_stays_without_force(
    route: Route, export: Path, other: FakeDaemon
) -> None:
    (export / "f").write_bytes(DATA)
    (other.root / "g").write_bytes(b"old")
    with pytest.raises(CarefulError, match="exists"):
        across(route, other, "g")
    assert (other.root / "g").read_bytes() == b"old"
    across(route, other, "g", replace(OPTIONS, replace=True))
    assert (other.root / "g").read_bytes() == DATA


@pytest.mark.parametrize("which", ["source", "target"])
def test_across__a_failure_at_either_end_leaves_nothing(
    route: Route, export: Path, daemon: FakeDaemon, other: FakeDaemon, which: str
) -> None:
    (export / "f").write_bytes(DATA)
    moved = []

    def fault(question: Any) -> int:
        moved.extend([question.op] if question.op in MOVES else [])
        return -errno.EIO if len(moved) > 20 and question.op in MOVES else 0

    (daemon if which == "source" else other).fault = fault
    with pytest.raises(CarefulError) as failed:
        across(route, other, "g")
    assert failed.value.errno == errno.EIO
    assert not list(other.root.iterdir())
    assert not daemon.handles
    assert not other.handles


def test_across__a_source_that_changes_is_refused(
    route: Route, export: Path, other: FakeDaemon
) -> None:
    (export / "f").write_bytes(DATA)

    def fault(question: Any) -> int:
        if question.op == lib.CAREFUL_IPC_STORE:
            os.utime(export / "f", ns=(1, 1))
        return 0

    other.fault = fault
    with pytest.raises(CarefulError) as failed:
        across(route, other, "g")
    assert failed.value.errno == errno.ESTALE
    assert not list(other.root.iterdir())


def test_within__the_peer_copies_and_no_data_moves(
    route: Route, export: Path, daemon: FakeDaemon
) -> None:
    (export / "f").write_bytes(DATA)
    asked: list[int] = []
    daemon.fault = lambda question: asked.append(question.op) or 0  # type: ignore[func-returns-value]
    report = within(route, "g")
    assert (export / "g").read_bytes() == DATA
    assert report.bytes == len(DATA)
    blocks = [DATA[at : at + BLOCK] for at in range(0, len(DATA), BLOCK)]
    assert report.singles[0].digest == digest_of_blocks(map(digest_of, blocks))
    assert asked
    assert not {*asked} & {*MOVES}
    assert not daemon.handles
    with pytest.raises(CarefulError, match="exists"):
        within(route, "g")


def test_within__a_copy_that_differs_is_refused(
    route: Route, export: Path, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    (export / "f").write_bytes(DATA)
    found = iter([[1, 2], [1, 3]])

    async def digests(*_: object, **__: object) -> list[int]:
        return next(found)

    monkeypatch.setattr(BlockClient, "digests", digests)
    with pytest.raises(CarefulError, match="h2:g: the copy differs"):
        within(route, "g")
    assert [path.name for path in export.iterdir()] == ["f"]
    assert not daemon.handles


def test_within__an_old_server_is_reported(route: Route, export: Path, daemon: FakeDaemon) -> None:
    """An old server would ignore the flag and make a file of zeros."""
    (export / "f").write_bytes(DATA)
    daemon.copies = False
    with pytest.raises(CarefulError, match="h2: its careful is too old to copy"):
        within(route, "g")
    assert [path.name for path in export.iterdir()] == ["f"]
    assert not daemon.handles


def test_within__directories_are_refused(route: Route, export: Path) -> None:
    (export / "f").mkdir()
    with pytest.raises(CarefulError, match=r"h2:f: .*single files"):
        within(route, "g")
