"""get and put on a directory: files, remains and messages."""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import transfers
import xxhash
from careful._abi import lib
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.transfer.file.partial_file import digest_of_blocks
from careful.transfer.options import Options, Progress
from fake_daemon import DiedError, FakeDaemon


def get(
    route: Route, sources: list[str], target: Path, recursive: bool = False, **more: Any
) -> Any:
    options = Options(**({"block_bytes": 4096} | more))
    return transfers.get(route, sources, str(target), recursive, options, Progress())


def put(
    route: Route, sources: Sequence[str | Path], target: str, recursive: bool = False, **more: Any
) -> Any:
    options = Options(**({"block_bytes": 4096} | more))
    return transfers.put(route, [str(s) for s in sources], target, recursive, options, Progress())


def content(nbytes: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(nbytes)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("nbytes", [0, 1, 4095, 4096, 4097, 100_000])
def test_get__sizes(route: Route, export: Path, tmp_path: Path, nbytes: int) -> None:
    (export / "a").write_bytes(content(nbytes))
    (export / "a").chmod(0o640)
    report = get(route, ["a"], tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == content(nbytes)
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o640
    blocks = [content(nbytes)[at : at + 4096] for at in range(0, nbytes, 4096)]
    assert report.files[0].digest == digest_of_blocks(map(xxhash.xxh3_64_intdigest, blocks))
    assert report.bytes == nbytes
    assert not report.failures


@pytest.mark.parametrize("nbytes", [0, 1, 4096, 100_000])
def test_put__sizes(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path, nbytes: int
) -> None:
    (tmp_path / "b").write_bytes(content(nbytes))
    (tmp_path / "b").chmod(0o755)
    report = put(route, [tmp_path / "b"], "a")
    assert (export / "a").read_bytes() == content(nbytes)
    assert (export / "a").stat().st_mode & 0o777 == 0o755
    assert report.bytes == nbytes
    assert not daemon.handles


def test_get_put__same_digest(route: Route, export: Path, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(content(50_000))
    sent = put(route, [tmp_path / "b"], "a")
    fetched = get(route, ["a"], tmp_path / "c")
    assert sent.files[0].digest == fetched.files[0].digest


def test_get__several_blocks_in_flight(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    (export / "a").write_bytes(content(1 << 20))

    def slow(question: Any) -> int:
        time.sleep(0.002)
        return 0

    daemon.fault = slow
    get(route, ["a"], tmp_path / "b", blocks_in_flight=8)
    assert 4 <= daemon.in_flight_max <= 8


def test_request__asked_again_while_the_peer_has_no_room(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    (export / "a").write_bytes(content(10_000))
    refused: dict[int, int] = {}

    def fault(question: Any) -> int:
        if question.op != lib.CAREFUL_IPC_REQUEST:
            return 0
        refused[question.handler] = refused.get(question.handler, 0) + 1
        return -errno.EAGAIN if refused[question.handler] <= 3 else 0

    daemon.fault = fault
    get(route, ["a"], tmp_path / "b")
    put(route, [tmp_path / "b"], "c")
    assert (export / "c").read_bytes() == content(10_000)
    assert min(refused.values()) > 3


def test_get__without_digest(route: Route, export: Path, tmp_path: Path) -> None:
    (export / "a").write_bytes(content(10_000))
    report = get(route, ["a"], tmp_path / "b", digest=False)
    assert report.files[0].digest is None
    assert (tmp_path / "b").read_bytes() == content(10_000)


# --- a session that breaks, a block that is damaged


@pytest.mark.parametrize("code", [errno.ECONNRESET, errno.EBADMSG])
@pytest.mark.parametrize("how", ["get", "put"])
def test_retry__every_third_operation_fails(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path, how: str, code: int
) -> None:
    data = content(100_000)
    count = 0

    def fault(question: Any) -> int:
        nonlocal count
        if question.op not in (lib.CAREFUL_IPC_GET, lib.CAREFUL_IPC_STORE):
            return 0
        count += 1
        return -code if count % 3 == 0 else 0

    daemon.fault = fault
    if how == "get":
        (export / "a").write_bytes(data)
        report = get(route, ["a"], tmp_path / "b", block_bytes=16384)
        assert (tmp_path / "b").read_bytes() == data
    else:
        (tmp_path / "b").write_bytes(data)
        report = put(route, [tmp_path / "b"], "a", block_bytes=16384)
        assert (export / "a").read_bytes() == data
    blocks = [data[at : at + 16384] for at in range(0, len(data), 16384)]
    assert report.files[0].digest == digest_of_blocks(map(xxhash.xxh3_64_intdigest, blocks))
    assert report.retries > 0


def test_retry__gives_up(route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path) -> None:
    (export / "a").write_bytes(content(10_000))
    daemon.fault = lambda q: -errno.EBADMSG if q.op == lib.CAREFUL_IPC_GET else 0
    report = get(route, ["a"], tmp_path / "b")
    assert report.failures == [("h2:a", "h2:a: the data's digest does not match")]
    assert names(tmp_path) == ["export", "export/a", "sock"]


@pytest.mark.parametrize(
    "handler",
    [
        lib.CAREFUL_BLOCK_OPEN,
        lib.CAREFUL_BLOCK_COMMIT,
        lib.CAREFUL_BLOCK_MKDIR,
        lib.CAREFUL_BLOCK_BATCH,
    ],
)
def test_request__reset_after_it_ran(
    route: Route, daemon: FakeDaemon, tmp_path: Path, export: Path, handler: int
) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t/b").write_bytes(b"x")
    (tmp_path / "t/large").write_bytes(bytes(100_000))
    first = True

    def fault(question: Any) -> int:
        nonlocal first
        if question.op == lib.CAREFUL_IPC_REQUEST and question.handler == handler and first:
            first = False
            daemon.answers_lost += 1
        return 0

    daemon.fault = fault
    assert not put(route, [f"{tmp_path}/t/"], "a", recursive=True).failures
    assert not first
    assert (export / "a/b").read_bytes() == b"x"
    assert names(export) == ["a", "a/b", "a/large"]
    assert not daemon.handles


# --- names


def test_get__into_directory(route: Route, export: Path, tmp_path: Path) -> None:
    (export / "x").mkdir()
    (export / "x/a").write_bytes(b"1")
    (export / "x/b").write_bytes(b"2")
    (tmp_path / "to").mkdir()
    get(route, ["x/a", "/x/b"], tmp_path / "to")
    assert names(tmp_path / "to") == ["a", "b"]


def test_get__several_need_a_directory(route: Route, export: Path, tmp_path: Path) -> None:
    with pytest.raises(CarefulError, match="to: no such directory; --mkpath makes it"):
        get(route, ["a", "b"], tmp_path / "to")
    with pytest.raises(CarefulError, match="h2:to: no such directory"):
        put(route, [tmp_path / "a", tmp_path / "b"], "to")
    (tmp_path / "to").write_bytes(b"")
    with pytest.raises(CarefulError, match=r"is not a directory \(several sources"):
        get(route, ["a", "b"], tmp_path / "to")


def test_get__exists(route: Route, export: Path, tmp_path: Path) -> None:
    (export / "a").write_bytes(b"new")
    (tmp_path / "b").write_bytes(b"old")
    report = get(route, ["a"], tmp_path / "b")
    assert "exists and differs; -f replaces it" in report.failures[0][1]
    assert (tmp_path / "b").read_bytes() == b"old"
    assert not get(route, ["a"], tmp_path / "b", replace=True).failures
    assert (tmp_path / "b").read_bytes() == b"new"


def test_get__appears_meanwhile(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    (export / "a").write_bytes(b"new")

    def fault(question: Any) -> int:
        if question.op == lib.CAREFUL_IPC_GET:
            (tmp_path / "b").write_bytes(b"old")
        return 0

    daemon.fault = fault
    assert "exists; -f replaces it" in get(route, ["a"], tmp_path / "b").failures[0][1]
    assert (tmp_path / "b").read_bytes() == b"old"


def test_put__exists(route: Route, export: Path, tmp_path: Path) -> None:
    (export / "a").write_bytes(b"old")
    (tmp_path / "b").write_bytes(b"new")
    failures = put(route, [tmp_path / "b"], "a").failures
    assert "h2:a: exists and differs; -f replaces it" in failures[0][1]
    assert (export / "a").read_bytes() == b"old"
    assert not put(route, [tmp_path / "b"], "a", replace=True).failures
    assert (export / "a").read_bytes() == b"new"


def test_get__longest_name(route: Route, export: Path, tmp_path: Path) -> None:
    name = "ä" * 127 + "x"
    (export / name).write_bytes(b"1")
    get(route, [name], tmp_path / name)
    assert (tmp_path / name).read_bytes() == b"1"


def test_get__undecodable_name(route: Route, export: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\n")
    (export / name).write_bytes(b"1")
    report = get(route, ["."], tmp_path / "to", recursive=True)
    assert (tmp_path / "to" / name).read_bytes() == b"1"
    assert report.files[0].source == r"h2:\udcff\n"


# --- sources that change, or cannot be read


def test_get__shrinks(route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path) -> None:
    (export / "a").write_bytes(content(20_000))

    def fault(question: Any) -> int:
        if question.op == lib.CAREFUL_IPC_GET:
            os.truncate(export / "a", 5000)
        return 0

    daemon.fault = fault
    assert "shrank while it was being read" in get(route, ["a"], tmp_path / "b").failures[0][1]
    assert names(tmp_path) == ["export", "export/a", "sock"]
    assert not daemon.handles


def test_get__missing(route: Route, export: Path, tmp_path: Path) -> None:
    assert get(route, ["no"], tmp_path / "b").failures == [
        ("h2:no", "h2:no: No such file or directory")
    ]


def test_get__escape(route: Route, export: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"1")
    report = get(route, ["../secret"], tmp_path / "b")
    assert "Permission denied" in report.failures[0][1]


def test_put__read_only(tmp_path: Path, export: Path, daemon: FakeDaemon, route: Route) -> None:
    daemon.writable = False
    (tmp_path / "b").write_bytes(b"1")
    assert "read-only" in put(route, [tmp_path / "b"], "a").failures[0][1]


def test_put__missing(tmp_path: Path, route: Route) -> None:
    report = put(route, [tmp_path / "no"], "a")
    assert report.failures[0][1].endswith("no: No such file or directory")


def test_get__full_disk(
    route: Route, export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (export / "a").write_bytes(b"1" * 5000)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)  # on a disk
    monkeypatch.setattr(os, "fstatvfs", full)  # in memory
    report = get(route, ["a"], tmp_path / "b")
    assert report.failures[0][1].endswith("b: No space left on device")
    assert names(tmp_path) == ["export", "export/a", "sock"]


# --- trees


def make_tree(top: Path, files: int) -> None:
    for number in range(files):
        folder = top / f"d{number % 7}" / f"e{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}").write_bytes(content(number * 13 % 9000, number))
    (top / "empty").mkdir()


def same(a: Path, b: Path) -> None:
    assert names(a) == names(b)
    for name in names(a):
        if (a / name).is_file():
            assert (a / name).read_bytes() == (b / name).read_bytes(), name


def test_get_tree__round_trip(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    make_tree(export / "t", 100)
    report = get(route, ["t/"], tmp_path / "to", recursive=True)
    same(export / "t", tmp_path / "to")
    assert len(report.files) == 100
    report = put(route, [f"{tmp_path}/to/"], "back", recursive=True)
    same(export / "t", export / "back")
    assert len(report.files) == 100
    assert not daemon.handles


def test_get_tree__into_existing_directory(route: Route, export: Path, tmp_path: Path) -> None:
    make_tree(export / "t", 3)
    (tmp_path / "to").mkdir()
    get(route, ["t"], tmp_path / "to", recursive=True)
    same(export / "t", tmp_path / "to/t")


def test_get_tree__needs_r(route: Route, export: Path, tmp_path: Path) -> None:
    (export / "t").mkdir()
    assert "is a directory; -r" in get(route, ["t"], tmp_path / "to").failures[0][1]


def test_get_tree__a_failed_file_stops_no_other(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    make_tree(export / "t", 20)
    (export / "t/d0/e0/f0").write_bytes(bytes(100_000))
    bad = (export / "t/d0/e0/f0").stat().st_ino

    def fault(question: Any) -> int:
        handle = daemon.handles.get(question.args[0])
        if question.op == lib.CAREFUL_IPC_REQUEST and handle is not None:
            return -errno.EIO if os.fstat(handle.fd).st_ino == bad else 0
        return 0

    daemon.fault = fault
    report = get(route, ["t"], tmp_path / "to", recursive=True)
    assert [name for name, _ in report.failures] == ["h2:t/d0/e0/f0"]
    assert len(report.files) == 19


def test_get_tree__symlinks_are_skipped(route: Route, export: Path, tmp_path: Path) -> None:
    make_tree(export / "t", 2)
    (export / "t/link").symlink_to("d0")
    report = get(route, ["t"], tmp_path / "to", recursive=True)
    assert report.skipped == [("h2:t/link", "symlink")]
    assert not report.failures
    (tmp_path / "to/t/link").symlink_to("d0")
    report = put(route, [tmp_path / "to/t"], "back", recursive=True)
    assert report.skipped == [(f"{tmp_path}/to/t/link", "symlink")]


def test_get_tree__read_only_directory(route: Route, export: Path, tmp_path: Path) -> None:
    (export / "t/d").mkdir(parents=True)
    (export / "t/d/f").write_bytes(b"1")
    (export / "t/d").chmod(0o555)
    assert not get(route, ["t"], tmp_path / "to", recursive=True).failures
    assert (tmp_path / "to/t/d").stat().st_mode & 0o777 == 0o555


def test_get_tree__a_file_in_place_of_a_directory(
    route: Route, export: Path, tmp_path: Path
) -> None:
    make_tree(export / "t", 8)
    (tmp_path / "to").mkdir()
    (tmp_path / "to/t").mkdir()
    (tmp_path / "to/t/d0").write_bytes(b"in the way")
    report = get(route, ["t"], tmp_path / "to", recursive=True)
    assert [name for name, _ in report.failures] == ["h2:t/d0"]
    assert len(report.files) == 6


def test_get_tree__thousand_small_files(route: Route, export: Path, tmp_path: Path) -> None:
    make_tree(export / "t", 1000)
    report = get(route, ["t/"], tmp_path / "to", recursive=True, block_bytes=1 << 20)
    assert len(report.files) == 1000
    assert report.seconds < 5  # 2 s is expected of an idle machine
    same(export / "t", tmp_path / "to")


def test_get__daemon_ends(route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path) -> None:
    (export / "a").write_bytes(content(1 << 20))

    def fault(question: Any) -> int:
        if question.op == lib.CAREFUL_IPC_GET:
            raise DiedError
        return 0

    daemon.fault = fault
    with pytest.raises(CarefulError, match="carefuld of test: carefuld ended"):
        get(route, ["a"], tmp_path / "b")
    assert not (tmp_path / "b").exists()
    assert not list(tmp_path.glob(".*.part"))


def test_get__no_session(route: Route, daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.connect_status = -errno.ETIMEDOUT
    with pytest.raises(CarefulError, match="h2: no answer in time"):
        get(route, ["a"], tmp_path / "b")
