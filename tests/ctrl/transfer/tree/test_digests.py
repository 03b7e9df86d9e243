"""Small files compared by digests, many in a message (-c), and files that cannot be compared so."""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transfers
from careful._abi import lib
from careful.daemon.route import Route
from careful.errors import CarefulError, from_os
from careful.transfer.options import Options, Progress
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import LocalTree, RemoteTree
from careful.transfer.result import Result
from careful.transfer.tree.digests import equal_small
from careful.transfer.tree.outcome import Outcome
from careful.transfer.tree.scan import scan_local
from compare import assert_equal
from fake_daemon import FakeDaemon

CHECKSUM = Options(preserve=True, fsync="none", checksum=True, replace=True)
COUNT = 30


class Ends:
    """Small files, equal at both ends except two; and a file without a counterpart."""

    def __init__(self, way: str, route: Route, daemon: FakeDaemon, here: Path) -> None:
        self.way, self.route, self.daemon = way, route, daemon
        self.source, self.target = (daemon.root, here) if way == "get" else (here, daemon.root)
        self.source, self.target = self.source / "tree", self.target / "tree"
        for top in (self.source, self.target):
            for index in range(COUNT):
                path = top / f"d{index % 3}" / f"f{index}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(bytes([index]) * index * 100)
        (self.source / "d1/f1").write_bytes(b"x" * 100)
        (self.source / "d2/f2").write_bytes(b"x" * 9000)
        (self.source / "d0/new").write_bytes(b"x")
        self.digests = 0

        def watch(question: Any) -> int:
            asks = question.op == lib.CAREFUL_IPC_REQUEST
            self.digests += asks and question.handler == lib.CAREFUL_BLOCK_DIGEST
            return 0

        daemon.fault = watch

    def run(self, options: Options) -> Any:
        if self.way == "get":
            here = str(self.target.parent)
            return transfers.get(self.route, ["tree"], here, True, options, Progress())
        return transfers.put(self.route, [str(self.source)], "", True, options, Progress())


@pytest.fixture(params=["get", "put"])
def ends(request: pytest.FixtureRequest, route: Route, daemon: FakeDaemon, tmp_path: Path) -> Ends:
    (tmp_path / "here").mkdir()
    return Ends(request.param, route, daemon, tmp_path / "here")


def _counts(report: Any) -> tuple[Any, int, int, int, int]:
    return (
        report.failures,
        report.files_count,
        len(report.equal),
        report.moved_bytes,
        sum(nbytes for _, nbytes in report.equal),
    )


#: The _counts() of a run: only the three files that differ move.
EXPECTED = ([], 3, COUNT - 2, 9101, 100 * sum(range(COUNT)) - 300)


@pytest.mark.parametrize("dry_run", [False, True])
def test_checksum__small_files(ends: Ends, dry_run: bool) -> None:
    """No file is compared by itself, equal or not."""
    assert _counts(ends.run(replace(CHECKSUM, dry_run=dry_run))) == EXPECTED
    assert ends.digests == 0
    assert ((ends.target / "d0/new").exists()) is not dry_run
    if not dry_run:
        assert_equal(ends.source, ends.target)


def test_checksum__blocks_of_small_files(ends: Ends) -> None:
    """If a block is smaller than the file, a part of the file may still be equal."""
    data = bytearray(ends.source.joinpath("d2/f29").read_bytes() * 10)
    ends.target.joinpath("d2/f29").write_bytes(data)
    data[0] ^= 1
    ends.source.joinpath("d2/f29").write_bytes(data)
    report = ends.run(replace(CHECKSUM, block_bytes=4096))
    assert (report.failures, report.files_count) == ([], 4)
    assert report.matched_bytes == len(data) - 4096
    assert_equal(ends.source, ends.target)


@pytest.mark.parametrize("status", [errno.EINVAL, errno.EIO])
def test_checksum__one_by_one(ends: Ends, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """If the peer cannot answer a batch, each file is compared by itself."""
    run = RemoteTree.run

    async def refusing(tree: RemoteTree, items: bytes, flags: int) -> bytes:
        if next(batch.parse(items)).op != lib.CAREFUL_ITEM_DIGEST:
            return await run(tree, items, flags)
        if status == errno.EIO:
            raise CarefulError(status, "", "t")
        return batch.joined([one._replace(status=status) for one in batch.parse(items)])

    monkeypatch.setattr(RemoteTree, "run", refusing)
    assert _counts(ends.run(CHECKSUM)) == EXPECTED
    assert ends.digests == COUNT - 2  # except the empty file and one of another size
    assert_equal(ends.source, ends.target)


def test_equal_small__files_that_changed_meanwhile_get_no_answer(tmp_path: Path) -> None:
    """A file that changed since its listing (too large, gone, another kind) gets no answer."""
    for top in (tmp_path / "a", tmp_path / "b"):
        top.mkdir()
        for name in ("same", "empty", "other", "longer", "large", "gone", "kind", "link"):
            (top / name).write_bytes(b"" if name == "empty" else b"x")
    source, target = LocalTree(str(tmp_path / "a")), LocalTree(str(tmp_path / "b"))
    files = [one for one in scan_local(str(tmp_path / "a")) if one.attr.is_file]
    (tmp_path / "b/other").write_bytes(b"y")
    (tmp_path / "b/longer").write_bytes(b"xx")
    (tmp_path / "b/large").write_bytes(bytes(batch.SMALL_BYTES + 1))
    (tmp_path / "a/gone").unlink()
    (tmp_path / "b/kind").unlink()
    (tmp_path / "b/kind").mkdir()
    (tmp_path / "b/link").unlink()
    (tmp_path / "b/link").symlink_to("same")
    assert asyncio.run(equal_small(source, target, files)) == {
        "same": True,
        "empty": True,
        "other": False,
        "longer": False,
    }
    for tree in (source, target):
        tree.close()


def test_sink__a_name_like_a_connections() -> None:
    """A file system without its server gives ENOTCONN, which is only that name's failure."""
    sink = Outcome(Options(), Progress(), Result())
    sink.fail_errno("d", errno.ENOTCONN)
    sink.fail_errno("e", errno.ENODEV)
    sink.fail("g", from_os(OSError(errno.ENOTCONN, "not connected"), "g"))
    assert sink.report.failures.pop() == ("g", "g: not connected")
    assert sink.report.failures == [
        ("d", f"d: {os.strerror(errno.ENOTCONN)}"),
        ("e", f"e: {os.strerror(errno.ENODEV)}"),
    ]
    with pytest.raises(CarefulError):
        sink.fail("f", CarefulError(errno.ENOTCONN, "", "f"))


@pytest.mark.parametrize("outlasts", [False, True])
def test_sink__a_session_that_is_reset_again_and_again(outlasts: bool) -> None:
    """The peer's carefuld may restart soon; a transfer with `outlasts` continues with the same
    file.
    """
    sink = Outcome(Options(outlasts=outlasts), Progress(), Result())
    error = CarefulError(errno.ECONNRESET, "", "f")
    if outlasts:
        with pytest.raises(CarefulError):
            sink.fail("f", error)
        assert not sink.report.failures
    else:
        sink.fail("f", error)
        assert [name for name, _ in sink.report.failures] == ["f"]
