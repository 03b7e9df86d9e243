"""Batches of small files with failures, both ways."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transfers
from careful._abi import lib
from careful.daemon.route import Route
from careful.transfer.file.journal import is_partial
from careful.transfer.options import Options, Progress
from careful.transfer.protocol import batch
from careful.transfer.tree import small_files
from compare import assert_equal
from fake_daemon import Answer, FakeDaemon

PLAIN = Options(preserve=True, fsync="none")


class Names(Progress):
    """Keeps the names of finished files."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.retries = 0

    def retried(self) -> None:
        self.retries += 1

    def finished(self, name: str) -> None:
        self.names.append(name)

    def finished_all(self, count: int, names: Callable[[], Iterable[str]]) -> None:
        found = list(names())
        assert len(found) == count
        self.names += found


class Ends:
    """A tree of small files, and its target."""

    def __init__(self, way: str, route: Route, here: Path, there: Path) -> None:
        self.way, self.route = way, route
        self.source, self.target = (there, here) if way == "get" else (here, there)
        self.source, self.target = self.source / "tree", self.target / "tree"
        for index in range(20):
            path = self.source / f"d{index % 3}" / f"f{index}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes([index]) * index * 100)
        self.watch = Names()

    def run(self, options: Options = PLAIN) -> Any:
        if self.way == "get":
            target = str(self.target.parent)
            return transfers.get(self.route, ["tree"], target, True, options, self.watch)
        return transfers.put(self.route, [str(self.source)], "", True, options, self.watch)


@pytest.fixture(params=["get", "put"])
def ends(
    request: pytest.FixtureRequest,
    route: Route,
    daemon: FakeDaemon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Ends:
    monkeypatch.setattr(batch, "COUNT", 4)  # so that there are several batches
    here = tmp_path / "here"
    here.mkdir()
    return Ends(request.param, route, here, daemon.root)


def refusing(code: int, times: int, handler: int, after: int = 0) -> Callable[[Any], int]:
    """Returns a fault that refuses `times` of these requests, after the first `after` ones."""
    seen = 0

    def fault(question: Any) -> int:
        nonlocal seen
        seen += question.op == lib.CAREFUL_IPC_REQUEST and question.handler == handler
        refused = seen > after and question.op == lib.CAREFUL_IPC_REQUEST
        return -code if refused and question.handler == handler and seen <= after + times else 0

    return fault


def test_small_files__progress_names_each_file(ends: Ends) -> None:
    report = ends.run()
    assert_equal(ends.source, ends.target)
    assert (report.failures, report.files_count, report.bytes) == ([], 20, 19_000)
    found = {Path(one.source).name: one for one in report.files}
    assert sorted(found) == sorted(f"f{index}" for index in range(20))
    assert all(Path(one.source).name == Path(one.destination).name for one in report.files)
    assert found["f7"].bytes == 700
    assert found["f7"].digest not in (None, found["f8"].digest)
    assert sorted(ends.watch.names) == sorted(one.source for one in report.files)
    again = ends.run(replace(PLAIN, replace=True, digest=False))
    assert [one.digest for one in again.files] == [None] * 20


def test_small_files__existing_files_are_kept(ends: Ends) -> None:
    (ends.target / "d1").mkdir(parents=True)
    (ends.target / "d1/f4").write_text("mine")
    report = ends.run()
    assert [Path(name).name for name, _ in report.failures] == ["f4"]
    assert "exists and differs" in report.failures[0][1]
    assert (ends.target / "d1/f4").read_text() == "mine"
    assert report.files_count == 19
    assert len(ends.watch.names) == 20
    ends.run(replace(PLAIN, replace=True))
    assert_equal(ends.source, ends.target)


def test_small_files__no_directory_for_some(ends: Ends) -> None:
    ends.target.mkdir()
    (ends.target / "d1").write_text("in the way")
    report = ends.run()
    assert [Path(name).name for name, _ in report.failures] == ["d1"]
    assert report.files_count == 13
    assert sorted(path.name for path in ends.target.iterdir()) == ["d0", "d1", "d2"]


@pytest.mark.parametrize("times", [1, 3])
def test_small_files__others_have_the_peer_s_memory(
    ends: Ends, daemon: FakeDaemon, times: int
) -> None:
    daemon.fault = refusing(errno.EMFILE, times, lib.CAREFUL_BLOCK_OPEN)
    report = ends.run()
    assert report.failures == []
    assert_equal(ends.source, ends.target)


@pytest.mark.parametrize("code", [errno.EOVERFLOW, errno.EMFILE])
def test_small_files__a_batch_that_does_not_fit(ends: Ends, daemon: FakeDaemon, code: int) -> None:
    ends.run()  # the directories
    after = int(ends.way == "put")  # the batch of directories
    daemon.fault = refusing(code, 2, lib.CAREFUL_BLOCK_BATCH, after)
    report = ends.run(replace(PLAIN, replace=True))
    assert (report.failures, report.files_count) == ([], 20)
    assert_equal(ends.source, ends.target)


def test_put__a_large_file_is_in_no_batch(
    route: Route, daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = Ends("put", route, tmp_path / "here", daemon.root)
    monkeypatch.setattr(small_files, "ITEMS_BYTES", 4000)
    report = ends.run()
    assert (report.failures, report.files_count) == ([], 20)
    assert_equal(ends.source, ends.target)


def test_get__names_that_were_not_asked_for(
    route: Route, daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer answers with another file's name: no file of the batch is made."""
    remote = daemon.root / "tree"
    remote.mkdir()
    (remote / "a").write_bytes(b"x")
    original = FakeDaemon._batch

    def renaming(self: FakeDaemon, args: list[int], fields: dict[str, Any]) -> Answer:
        answer = original(self, args, fields)
        fd = self.handles[answer.args[0]].fd
        os.pwrite(fd, b"b", 104)
        return answer

    monkeypatch.setattr(FakeDaemon, "_batch", renaming)
    local = tmp_path / "here"
    local.mkdir()
    report = transfers.get(route, ["tree"], str(local), True, PLAIN, Progress())
    assert [text for _, text in report.failures if "is malformed" in text]
    made = [path for path in local.rglob("*") if not is_partial(path.name)]
    assert made == [local / "tree"]


@pytest.mark.parametrize("handler", [None, lib.CAREFUL_BLOCK_BATCH])
def test_small_files__retries_are_counted(
    ends: Ends, daemon: FakeDaemon, handler: int | None
) -> None:
    """Retries of pieces of a batch, and of batches."""
    lost: list[int] = []

    def fault(question: Any) -> int:
        moves = question.op in (lib.CAREFUL_IPC_GET, lib.CAREFUL_IPC_STORE)
        asks = question.op == lib.CAREFUL_IPC_REQUEST and question.handler == handler
        if (moves if handler is None else asks) and len(lost) < 3:
            lost.append(question.op)
            return -errno.ECONNRESET
        return 0

    daemon.fault = fault
    report = ends.run()
    assert (report.failures, len(lost)) == ([], 3)
    assert report.retries == ends.watch.retries == 3
    assert_equal(ends.source, ends.target)
