"""Handles that the peer has lost are opened again while the file exists."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transfers
from careful._abi import lib
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.transfer.options import Options, Progress
from careful.transfer.stream.local_end import Span
from fake_daemon import FakeDaemon

NBYTES = 100_000
DATA = random.Random(1).randbytes(NBYTES)


def lose(daemon: FakeDaemon, op: int, every: int, also: Callable[[], object] | None = None) -> None:
    """Makes the peer forget the handle at every n-th block; also() runs then."""
    count = 0

    def fault(question: Any) -> int:
        nonlocal count
        if question.op != op or question.region_off >= NBYTES:
            return 0
        count += 1
        if count % every == 0 and question.region in daemon.handles:
            os.close(daemon.handles.pop(question.region).fd)
            if also is not None:
                also()
        return 0

    daemon.fault = fault


def lose_at(daemon: FakeDaemon, handler: int) -> None:
    """Makes the peer forget the handle of the first such request."""
    todo = [handler]

    def fault(question: Any) -> int:
        if question.op == lib.CAREFUL_IPC_REQUEST and question.handler in todo:
            todo.clear()
            os.close(daemon.handles.pop(question.args[0]).fd)
        return 0

    daemon.fault = fault


def get(route: Route, target: Path, **more: Any) -> Any:
    options = Options(**({"block_bytes": 4096} | more))
    return transfers.get(route, ["a"], str(target), False, options, Progress())


def put(route: Route, source: Path, **more: Any) -> Any:
    options = Options(**({"block_bytes": 4096} | more))
    return transfers.put(route, [str(source)], "a", False, options, Progress())


def failure(report: Any) -> str:
    """Returns the error of the one file that failed."""
    [(_, text)] = report.failures
    return str(text)


def test_get__handle_lost_three_times(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    (export / "a").write_bytes(DATA)
    lose(daemon, lib.CAREFUL_IPC_GET, 9)
    report = get(route, tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == DATA
    assert report.files[0].retries >= 2
    assert not daemon.handles


def test_put__handle_lost_three_times(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    (tmp_path / "b").write_bytes(DATA)
    lose(daemon, lib.CAREFUL_IPC_STORE, 9)
    report = put(route, tmp_path / "b")
    assert (export / "a").read_bytes() == DATA
    assert report.files[0].retries >= 2
    assert [path.name for path in export.iterdir()] == ["a"]
    assert not daemon.handles


@pytest.mark.parametrize("fetch", [True, False])
def test_lost_each_time__ends(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path, fetch: bool
) -> None:
    (export / "a").write_bytes(DATA)
    (tmp_path / "c").write_bytes(DATA)
    lose(daemon, lib.CAREFUL_IPC_GET if fetch else lib.CAREFUL_IPC_STORE, 1)
    end = get(route, tmp_path / "b") if fetch else put(route, tmp_path / "c", replace=True)
    assert "the session was reset" in failure(end)  # the file is there
    assert not (tmp_path / "b").exists()
    assert not daemon.handles


def test_get__source_gone(route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path) -> None:
    (export / "a").write_bytes(DATA)
    lose(daemon, lib.CAREFUL_IPC_GET, 9, (export / "a").unlink)
    assert failure(get(route, tmp_path / "b")).startswith("h2:a: No such file")
    assert not (tmp_path / "b").exists()


def test_list__handle_lost(route: Route, daemon: FakeDaemon, export: Path) -> None:
    """A listing is repeated, but not for ever."""
    (export / "a").write_bytes(DATA)
    lose(daemon, lib.CAREFUL_IPC_GET, 2)
    assert [one.name for one in transfers.listing(route, "", False)] == ["a"]
    assert [one.name for one in transfers.listing(route, "", False)] == ["a"]
    lose(daemon, lib.CAREFUL_IPC_GET, 1)
    with pytest.raises(CarefulError) as caught:
        transfers.listing(route, "", False)
    assert caught.value.errno == errno.ECONNRESET
    assert not daemon.handles


def test_get__another_source(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    (export / "a").write_bytes(DATA)
    (export / "c").write_bytes(DATA)
    lose(daemon, lib.CAREFUL_IPC_GET, 9, lambda: (export / "c").replace(export / "a"))
    assert "changed while" in failure(get(route, tmp_path / "b"))
    assert not (tmp_path / "b").exists()


def test_put__partial_file_gone(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    (tmp_path / "b").write_bytes(DATA)

    def away() -> None:
        for path in export.glob(".careful-*"):
            path.unlink()

    lose(daemon, lib.CAREFUL_IPC_STORE, 9, away)
    assert "partial file is gone" in failure(put(route, tmp_path / "b"))
    assert not list(export.iterdir())


def test_put__one_block(route: Route, daemon: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(DATA)
    lose(daemon, lib.CAREFUL_IPC_STORE, 1)
    assert "send the file again" in failure(put(route, tmp_path / "b", block_bytes=1 << 20))


def test_put__in_place(route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path) -> None:
    """A file written in place continues, and is synced once more."""
    (export / "a").write_bytes(bytes(4096) + DATA[::-1])
    (tmp_path / "b").write_bytes(DATA)
    lose(daemon, lib.CAREFUL_IPC_STORE, 9)
    options = Options(block_bytes=4096, replace=True)
    files = [str(tmp_path / "b")]
    report = transfers.put(route, files, "a", False, options, Progress(), Span(at=4096))
    assert (export / "a").read_bytes() == bytes(4096) + DATA
    assert report.files[0].retries >= 2
    assert not daemon.handles


def test_put__in_place_and_replaced(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    (export / "a").write_bytes(DATA)
    (tmp_path / "b").write_bytes(DATA)
    (export / "c").write_bytes(b"another")
    lose(daemon, lib.CAREFUL_IPC_STORE, 9, lambda: (export / "c").replace(export / "a"))
    options = Options(block_bytes=4096, replace=True)
    with pytest.raises(CarefulError, match="changed while"):
        transfers.put(route, [str(tmp_path / "b")], "a", False, options, Progress(), Span(at=0))
    assert (export / "a").read_bytes() == b"another"


@pytest.mark.parametrize("source", ["a", "null:"])
def test_get__onto_a_file_in_its_place(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path, source: str
) -> None:
    (export / "a").write_bytes(DATA)
    (tmp_path / "b").write_bytes(bytes(range(256)) * (NBYTES // 256 + 1))
    lose(daemon, lib.CAREFUL_IPC_GET, 9)
    options = Options(block_bytes=4096, replace=True)
    span = Span(nbytes=NBYTES, at=0)
    transfers.get(route, [source], str(tmp_path / "b"), False, options, Progress(), span)
    expected = DATA if source == "a" else bytes(NBYTES)
    assert (tmp_path / "b").read_bytes()[:NBYTES] == expected
    assert not daemon.handles


def test_put__stream(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    """A stream cannot continue: its data has no name by which to find it."""
    (tmp_path / "b").write_bytes(DATA)
    lose(daemon, lib.CAREFUL_IPC_STORE, 9)
    with (tmp_path / "b").open("rb") as source:
        monkeypatch.setattr("sys.stdin", source)
        with pytest.raises(CarefulError, match="send the file again"):
            transfers.put(route, ["-"], "a", False, Options(block_bytes=4096), Progress())
    assert not (export / "a").exists()


def test_put__handle_lost_at_the_commit(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    (tmp_path / "b").write_bytes(DATA)
    lose_at(daemon, lib.CAREFUL_BLOCK_COMMIT)
    assert not put(route, tmp_path / "b").failures
    assert (export / "a").read_bytes() == DATA
    assert [path.name for path in export.iterdir()] == ["a"]
    assert not daemon.handles


@pytest.mark.parametrize("fetch", [True, False])
def test_blake3__handle_lost_at_the_digest(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path, fetch: bool
) -> None:
    source, target = (export / "a", tmp_path / "b") if fetch else (tmp_path / "b", export / "a")
    source.write_bytes(DATA)
    lose_at(daemon, lib.CAREFUL_BLOCK_DIGEST)
    report = (get if fetch else put)(route, tmp_path / "b", blake3=True)
    assert not report.failures
    assert target.read_bytes() == DATA
    assert not daemon.handles
