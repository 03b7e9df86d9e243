"""`careful.files` on a directory: results and errors of calls, awaited or from any thread."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import pickle
import shutil
import subprocess
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from careful import files
from careful._abi import lib
from careful.control.instance import remote
from careful.daemon.route import Route
from careful.errors import CarefulError, Option
from careful.files import AsyncHost, Host, Progress, TransferError
from careful.transfer.folder import current_umask
from fake_daemon import FakeDaemon

CONTENT = bytes(range(256)) * 40_000


def run(route: Route, work: Callable[[AsyncHost], Any]) -> Any:
    """Returns the result of work(host) in an event loop."""

    async def main() -> Any:
        async with AsyncHost("h2", lambda: route) as host:
            return await work(host)

    return asyncio.run(main())


@contextmanager
def stuck(daemon: FakeDaemon, moves: int) -> Iterator[None]:
    """After this many moved blocks the daemon is silent until the `with` statement ends."""
    go_on, count = threading.Event(), itertools.count()

    def fault(question: Any) -> int:
        if question.op == lib.CAREFUL_IPC_GET and next(count) >= moves:
            assert go_on.wait(60)
        return 0

    daemon.fault = fault
    try:
        yield
    finally:
        go_on.set()
        daemon.fault = lambda question: 0


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "careful.files"]


def test_stat_ls_read(host: Host, export: Path) -> None:
    (export / "d").mkdir()
    (export / "d/a").write_bytes(CONTENT)
    found = host.stat("d/a")
    assert (found.bytes, found.is_file, found.mtime_ns) == (
        len(CONTENT),
        True,
        (export / "d/a").stat().st_mtime_ns,
    )
    assert host.stat(Path("/d")).is_dir
    assert [entry.name for entry in host.ls()] == ["d"]
    assert [entry.name for entry in host.ls(recursive=True)] == ["d", "d/a"]
    assert host.read("d/a") == CONTENT
    assert host.read("d/a", 255, 3) == b"\xff\x00\x01"
    assert host.read("d/a", len(CONTENT) - 1, 10) == b"\xff"
    assert host.read("d/a", len(CONTENT) + 1) == b""


def test_write__whole_files(host: Host, export: Path) -> None:
    assert host.write("a", CONTENT) == len(CONTENT)
    assert (export / "a").read_bytes() == CONTENT
    with pytest.raises(FileExistsError) as raised:
        host.write("a", b"other")
    assert raised.value.filename == "h2:a"
    assert host.write("a", memoryview(b"..other")[2:], replace=True, sync=False) == 5
    assert (export / "a").read_bytes() == b"other"
    assert host.write("empty", b"") == 0
    assert sorted(path.name for path in export.iterdir()) == ["a", "empty"]


def test_write__in_its_place(host: Host, export: Path) -> None:
    (export / "a").write_bytes(CONTENT)
    assert host.write("a", bytearray(b"there"), 5) == 5
    assert host.write("a", b"end", len(CONTENT) + 2) == 3
    assert (export / "a").read_bytes() == (CONTENT[:5] + b"there" + CONTENT[10:] + b"\0\0" + b"end")
    with pytest.raises(FileNotFoundError):
        host.write("no", b"x", 0)


def test_readinto(host: Host, export: Path) -> None:
    (export / "a").write_bytes(CONTENT)
    buffer = bytearray(len(CONTENT) + 5)
    assert host.readinto("a", buffer) == len(CONTENT)
    assert buffer == CONTENT + bytes(5)
    numbers = array("I", [0] * 100)
    assert host.readinto("a", memoryview(numbers)[10:20], 4) == 40
    assert numbers.tobytes()[40:80] == CONTENT[4:44]
    with pytest.raises(TypeError):
        host.readinto("a", b"fixed")  # type: ignore[arg-type]


def test_open__one_handle_for_many_reads(host: Host, daemon: FakeDaemon, export: Path) -> None:
    (export / "a").write_bytes(CONTENT)
    with host.open("a") as file:
        assert (file.name, file.nbytes, file.attr.bytes) == ("h2:a", len(CONTENT), len(CONTENT))
        before = len(daemon.asked)
        with ThreadPoolExecutor(8) as pool:
            parts = list(pool.map(lambda at: file.read_at(at * 1000, 1000), range(200)))
        assert b"".join(parts) == CONTENT[:200_000]
        assert set(daemon.asked[before:]) <= {lib.CAREFUL_IPC_GET, lib.CAREFUL_IPC_FILE_ADD}
        with pytest.raises(CarefulError, match='mode "r"'):
            file.write_at(b"x")
    assert daemon.handles == {}
    with pytest.raises(CarefulError, match="closed"):
        file.read_at()


@pytest.mark.parametrize("status", [0, -errno.EAGAIN, -errno.ECONNRESET, -errno.EOPNOTSUPP])
def test_read_ranges__by_few_questions(
    route: Route, daemon: FakeDaemon, export: Path, status: int
) -> None:
    """Files that do not fit one question are requested one by one."""
    (export / "a").write_bytes(CONTENT)
    asked: list[int] = []

    def fault(question: Any) -> int:
        asked.append(question.op)
        return status if question.op == lib.CAREFUL_IPC_GETS else 0

    daemon.fault = fault
    sizes = [0, 1, 4096, 65_536, 3 << 20]
    ranges = [(number * 997, sizes[number % 5] if number < 40 else 100) for number in range(600)]

    async def work(host: AsyncHost) -> list[bytes]:
        async with host.open("a") as file:
            return await file.read_ranges(ranges)

    found = run(route, work)
    assert found == [CONTENT[at : at + nbytes] for at, nbytes in ranges]
    few = asked.count(lib.CAREFUL_IPC_GETS)
    assert 3 <= few <= 40
    singles = asked.count(lib.CAREFUL_IPC_GET)
    assert singles > 500 if status else singles <= 32


def test_open__to_write(host: Host, daemon: FakeDaemon, export: Path) -> None:
    (export / "a").write_bytes(bytes(len(CONTENT)))
    with host.open("a", "r+") as file:
        with ThreadPoolExecutor(4) as pool:
            step = 1_000_000
            ranges = range(0, len(CONTENT), step)
            list(pool.map(lambda at: file.write_at(CONTENT[at : at + step], at), ranges))
        file.sync()
        assert file.read_at() == CONTENT
        file.write_at(b"more", file.nbytes)
        assert file.nbytes == len(CONTENT) + 4
        assert file.read_at(len(CONTENT)) == b"more"
    assert daemon.handles == {}
    assert (export / "a").read_bytes() == CONTENT + b"more"


def test_session__is_opened_again_after_a_reset(
    host: Host, daemon: FakeDaemon, export: Path
) -> None:
    """After a restart of the other carefuld one call fails, and the next one works."""
    (export / "a").write_bytes(CONTENT)
    host.stat("a")
    is_over = True

    def fault(question: Any) -> int:
        nonlocal is_over
        is_over = is_over and question.op != lib.CAREFUL_IPC_CONNECT
        return -errno.ECONNRESET if is_over and question.op == lib.CAREFUL_IPC_REQUEST else 0

    daemon.fault = fault
    with pytest.raises(ConnectionResetError):
        host.stat("a")
    assert host.stat("a").bytes == len(CONTENT)
    assert not is_over


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_open__continues_with_another_handle(
    host: Host, daemon: FakeDaemon, export: Path, mode: Any
) -> None:
    (export / "a").write_bytes(CONTENT)
    with host.open("a", mode) as file:
        daemon.handles.clear()  # the host began again
        assert file.read_at(10, 2) == CONTENT[10:12]
        if mode == "r+":
            file.write_at(b"x", 1)
            daemon.handles.clear()
            file.sync()
        (export / "b").write_bytes(CONTENT)
        (export / "b").replace(export / "a")
        assert file.read_at(1, 1) == (b"x" if mode == "r+" else b"\1")  # still open
        daemon.handles.clear()
        with pytest.raises(OSError, match="another file") as raised:
            file.read_at(10, 2)
        assert raised.value.errno == errno.ESTALE


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_open__a_handle_that_is_lost_each_time(
    host: Host, daemon: FakeDaemon, export: Path, mode: Any
) -> None:
    """The file exists; only the session ends."""
    (export / "a").write_bytes(CONTENT)

    def fault(question: Any) -> int:
        if question.op in (lib.CAREFUL_IPC_GET, lib.CAREFUL_IPC_STORE):
            daemon.handles.clear()
        return 0

    with host.open("a", mode) as file:
        daemon.fault = fault
        with pytest.raises(ConnectionError, match="the session was reset"):
            file.read_at(10, 2) if mode == "r" else file.write_at(b"x", 1)
        daemon.fault = lambda _: 0


def test_write__continues_with_another_handle(host: Host, daemon: FakeDaemon, export: Path) -> None:
    lost = [1, 1]

    def fault(question: Any) -> int:
        if question.op == lib.CAREFUL_IPC_STORE and lost:
            lost.pop()
            daemon.handles.clear()
        return 0

    daemon.fault = fault
    host.write("a", b"content")
    assert (export / "a").read_bytes() == b"content"
    assert lost == []


def test_mkdir_remove(host: Host, daemon: FakeDaemon, export: Path) -> None:
    host.mkdir("d")
    assert (export / "d").is_dir()
    assert (export / "d").stat().st_mode & 0o777 == 0o777 & ~current_umask()
    host.mkdir("d/private", 0o700)
    assert (export / "d/private").stat().st_mode & 0o777 == 0o700
    host.mkdir("x/y/z", parents=True)
    for _ in range(2):
        host.mkdir("x/y/z", parents=True, exist_ok=True)
    host.mkdir(".", exist_ok=True)
    (export / "x/y/z/file").write_bytes(b"")
    (export / "x/link").symlink_to("y")
    with pytest.raises(OSError, match="not empty") as raised:
        host.remove("x/y/z")
    assert raised.value.errno == errno.ENOTEMPTY
    for name in ("x/y/z/file", "x/y/z", "x/link", "x/y", "x"):
        host.remove(name)
    assert [path.name for path in export.iterdir()] == ["d"]
    assert daemon.handles == {}


def test_mkdir_remove__awaited(route: Route, export: Path) -> None:
    async def work(host: AsyncHost) -> None:
        await host.mkdir("a/b", parents=True)
        await host.mkdir("c")
        await host.remove("c")

    run(route, work)
    assert [str(path.relative_to(export)) for path in sorted(export.rglob("*"))] == ["a", "a/b"]


def test_verify(host: Host, export: Path, tmp_path: Path) -> None:
    for folder in (export / "t", tmp_path / "t"):
        folder.mkdir()
        (folder / "a").write_bytes(CONTENT)
        (folder / "b").write_bytes(b"equal")
    found = host.verify("t", tmp_path / "t", recursive=True)
    assert (found.files, found.differences) == (2, [])
    (tmp_path / "t/b").write_bytes(b"other")
    found = host.verify("t", tmp_path / "t", recursive=True, block_bytes=4096)
    assert [name for name, _ in found.differences] == ["h2:t/b"]
    with pytest.raises(IsADirectoryError):
        host.verify("t", tmp_path / "t")
    with pytest.raises(ValueError, match="block_bytes"):
        host.verify("t/a", tmp_path / "t/a", block_bytes=1)


def test_get_put__both_ways(host: Host, export: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(CONTENT)
    report = host.put(tmp_path / "a", "b")
    assert (report.files_count, report.bytes) == (1, len(CONTENT))
    assert (export / "b").read_bytes() == CONTENT
    assert host.put(tmp_path / "a", "b").equal == [(str(tmp_path / "a"), len(CONTENT))]
    report = host.get(["b"], tmp_path / "c")
    assert (tmp_path / "c").read_bytes() == CONTENT
    assert report.files[0].destination == str(tmp_path / "c")


def test_get_put__trees(host: Host, export: Path, tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"t/d{number % 3}").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"t/d{number % 3}/{number}").write_bytes(CONTENT[: number * 1000])
    assert host.put(tmp_path / "t", ".", recursive=True).files_count == 30
    assert (export / "t/d2/29").read_bytes() == CONTENT[:29_000]
    assert host.get("t/", tmp_path / "u", recursive=True).files_count == 30
    assert (tmp_path / "u/d2/29").read_bytes() == CONTENT[:29_000]


def test_options(host: Host, export: Path, tmp_path: Path) -> None:
    (export / "t/d").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "c.bin"):
        (export / "t" / name).write_bytes(CONTENT)
    os.utime(export / "t/a.txt", (1, 2))
    (export / "t/link").symlink_to("a.txt")
    here = tmp_path / "new/t"
    report = host.get("t", tmp_path / "new", make_path=True, archive=True, exclude=["*.bin"])
    assert {path.name for path in here.iterdir()} == {"a.txt", "b.txt", "d", "link"}
    assert (here / "a.txt").stat().st_mtime == 2
    assert report.links == 1
    (here / "extra").write_bytes(b"x")
    gone = host.get("t", tmp_path / "new", recursive=True, delete=True, dry_run=True, update=True)
    assert (here / "extra").exists()
    assert [Path(name).name for name in gone.deleted] == ["extra"]
    (here / "b.txt").write_bytes(CONTENT[:-1] + b"!")
    one = host.get("t/b.txt", here / "b.txt", checksum=True, block_bytes=1 << 20, digest="blake3")
    assert 0 < one.matched_bytes < one.bytes == len(CONTENT)
    assert one.files[0].is_blake3
    assert (here / "b.txt").read_bytes() == CONTENT


@pytest.mark.parametrize("is_get", [True, False])
def test_delete__guards(
    route: Route, export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_get: bool
) -> None:
    """With an unmounted disk at the source, delete=True must not empty the copy."""
    monkeypatch.setenv("CAREFUL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(remote, "route", lambda *_: (route, None))
    source, target = (export, tmp_path) if is_get else (tmp_path, export)
    disk, copy = source / "s/disk", target / "t/disk/x"
    disk.mkdir(parents=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "none", disk], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no tmpfs: {done.stderr.strip()}")
    with files.connect("h2") as host:
        ends = ("s/", tmp_path / "t") if is_get else (f"{tmp_path}/s/", "t")
        move = partial(host.get if is_get else host.put, *ends, recursive=True, replace=True)
        try:
            (disk / "x").write_bytes(b"x")
            move()
        finally:
            subprocess.run(["umount", disk], check=True)
        with pytest.raises(OSError, match="was a mount point the last time"):
            move(delete=True)
        assert copy.exists()
        disk.rmdir()
        shutil.rmtree(tmp_path / "state")
        with pytest.raises(OSError, match="2 names would be deleted, more than max_delete=1"):
            move(delete=True, max_delete=1)
        assert copy.exists()
        move(delete=True, max_delete=2)
        assert not copy.exists()


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (TypeError, {"force": True}),
        (TypeError, {"exclude": "*.bin"}),
        (ValueError, {"exclude": ["[z-a]"]}),
        (ValueError, {"digest": "md5"}),
        (ValueError, {"fsync": "never"}),
        (ValueError, {"block_bytes": 1}),
        (ValueError, {"block_bytes": 5000, "digest": "blake3"}),
        (ValueError, {"rate_limit_bytes_per_s": 0}),
        (ValueError, {"delete": True}),
        (ValueError, {"max_delete": 1}),
    ],
)
def test_options__invalid(
    host: Host, export: Path, tmp_path: Path, kind: type[Exception], given: Any
) -> None:
    (export / "a").write_bytes(b"a")
    for call in (host.get, host.put):
        with pytest.raises(kind):
            call("a", tmp_path / "b", **given)
    assert not (tmp_path / "b").exists()


def test_async__the_same(route: Route, export: Path, tmp_path: Path) -> None:
    (export / "a").write_bytes(CONTENT)

    async def work(host: AsyncHost) -> None:
        gets = (host.get("a", tmp_path / str(number)) for number in range(10))
        reports = await asyncio.gather(host.stat("a"), *gets)
        assert reports[0].bytes == len(CONTENT)
        assert [entry.name async for entry in host.ls()] == ["a"]
        assert await host.read("a", 1, 2) == b"\x01\x02"
        assert await host.put(tmp_path / "9", "b")

    run(route, work)
    assert (export / "b").read_bytes() == CONTENT
    assert all((tmp_path / str(number)).read_bytes() == CONTENT for number in range(10))


def test_await__connects(route: Route, export: Path) -> None:
    async def main() -> None:
        host = await AsyncHost("h2", lambda: route)
        assert [entry async for entry in host.ls()] == []
        await host.close()

    asyncio.run(main())


def test_host__inside_a_running_loop_and_off_the_main_thread(
    route: Route, export: Path, tmp_path: Path
) -> None:
    (export / "a").write_bytes(CONTENT)
    with Host(AsyncHost("h2", lambda: route)) as host:

        async def inside() -> int:
            return host.get("a", tmp_path / "inside").files_count

        assert asyncio.run(inside()) == 1
        assert asyncio.run(asyncio.wait_for(asyncio.to_thread(host.read, "a"), 30)) == CONTENT


def test_host__many_threads_at_once(host: Host, export: Path, tmp_path: Path) -> None:
    for number in range(12):
        (export / str(number)).write_bytes(CONTENT[number:])
    got: dict[int, bytes] = {}

    def work(number: int) -> None:
        host.get(str(number), tmp_path / str(number))
        got[number] = host.read(str(number))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert got == {number: CONTENT[number:] for number in range(12)}
    assert all((tmp_path / str(one)).read_bytes() == got[one] for one in got)


@pytest.mark.parametrize(
    ("call", "kind", "name"),
    [
        (lambda h, _: h.stat("no"), FileNotFoundError, "h2:no"),
        (lambda h, _: h.read("no/no"), FileNotFoundError, "h2:no/no"),
        (lambda h, _: h.ls("no"), FileNotFoundError, "h2:no"),
        (lambda h, t: h.get("no", t / "x"), FileNotFoundError, "h2:no"),
        (lambda h, t: h.get("no", t / "x", recursive=True), FileNotFoundError, "h2:no"),
        (lambda h, t: h.get("d", t / "x"), IsADirectoryError, "h2:d"),
        (lambda h, t: h.get("a", t / "differs"), FileExistsError, "differs"),
        (lambda h, t: h.get("a", t / "no/x"), FileNotFoundError, "no"),
        (lambda h, t: h.get("a", t / "differs/x"), NotADirectoryError, "differs"),
        (lambda h, t: h.put(t / "no", "x"), FileNotFoundError, "no"),
        (lambda h, t: h.put(t / "differs", "a"), FileExistsError, "h2:a"),
        (lambda h, _: h.mkdir("d"), FileExistsError, "h2:d"),
        (lambda h, _: h.mkdir("a", exist_ok=True), FileExistsError, "h2:a"),
        (lambda h, _: h.mkdir("."), FileExistsError, "h2:/"),
        (lambda h, _: h.mkdir("no/x"), FileNotFoundError, "h2:no"),
        (lambda h, _: h.mkdir("a/x"), NotADirectoryError, "h2:a"),
        (lambda h, _: h.mkdir("a/x/y", parents=True), NotADirectoryError, "h2:a"),
        (lambda h, _: h.remove("no"), FileNotFoundError, "h2:no"),
        (lambda h, _: h.remove("."), OSError, "h2:/"),
        (lambda h, _: h.stat("../x"), PermissionError, "h2:../x"),
        (lambda h, _: h.stat("a\0b"), ValueError, None),
        (lambda h, _: h.stat(b"a"), TypeError, None),
        (lambda h, _: h.read("a", -1), ValueError, None),
        (lambda h, _: h.stat("a" * 70_000), OSError, "h2:" + "a" * 70_000),
    ],
)
def test_errors__are_pythons(
    host: Host,
    export: Path,
    tmp_path: Path,
    call: Callable[[Host, Path], object],
    kind: type[Exception],
    name: str | None,
) -> None:
    (export / "a").write_bytes(b"a")
    (export / "d").mkdir()
    (tmp_path / "differs").write_bytes(b"differs")
    with pytest.raises(kind) as raised:
        call(host, tmp_path)
    if name is not None:
        assert isinstance(raised.value, CarefulError)
        expected = name if ":" in name else str(tmp_path / name)
        assert raised.value.filename == expected
        assert str(raised.value).startswith(expected)
    assert (tmp_path / "differs").read_bytes() == b"differs"
    assert not (tmp_path / "x").exists()


def test_errors__advise_keywords(host: Host, export: Path, tmp_path: Path) -> None:
    (export / "d").mkdir()
    (tmp_path / "a").write_bytes(b"a")
    host.put(tmp_path / "a", "a")
    (export / "a").write_bytes(b"b")
    calls: dict[str, Callable[[], object]] = {
        "recursive=True fetches it": lambda: host.get("d", tmp_path / "x"),
        "recursive=True compares it": lambda: host.verify("d", tmp_path),
        "replace=True replaces it": lambda: host.put(tmp_path / "a", "a"),
        "make_path=True makes it": lambda: host.get(["a"], f"{tmp_path}/no/"),
    }
    for advice, call in calls.items():
        with pytest.raises(CarefulError, match=f"; {advice}$") as raised:
            call()
        assert raised.value.strerror == raised.value.reason
    with pytest.raises(FileExistsError, match=r"; replace=True replaces it$"):
        host.write("a", b"a")


def test_errors__use_the_callers_name_of_an_option() -> None:
    """A name that looks like advice is not changed."""
    text = ("-f and -r: exists; ", Option.REPLACE, " replaces it")
    error = CarefulError(errno.EEXIST, text, "h2:-f replaces it")
    error.add(Option.AGAIN, " to resume")
    said = "exists; -f replaces it; run the same command to resume"
    assert str(error) == f"h2:-f replaces it: -f and -r: {said}"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    error.in_python()
    said = "exists; replace=True replaces it; make the same call to resume"
    assert str(error) == f"h2:-f replaces it: -f and -r: {said}"
    assert error.strerror == error.reason


def test_errors__a_tree_reports_all_at_once(host: Host, export: Path, tmp_path: Path) -> None:
    (export / "t").mkdir()
    for name in ("a", "b", "c"):
        (export / "t" / name).write_bytes(name.encode())
    (tmp_path / "t").mkdir()
    (tmp_path / "t/a").write_bytes(b"other")
    (tmp_path / "t/b").mkdir()
    with pytest.raises(TransferError) as raised:
        host.get("t", tmp_path, recursive=True)
    assert (tmp_path / "t/c").read_bytes() == b"c"
    assert {type(one).__mro__[2] for one in raised.value.errors} <= {
        FileExistsError,
        IsADirectoryError,
    }
    assert len(raised.value.errors) == 2
    assert raised.value.report.files_count == 1


def test_progress__in_the_calling_thread(host: Host, export: Path, tmp_path: Path) -> None:
    (export / "a").write_bytes(CONTENT)
    reported: list[Progress] = []
    here: set[threading.Thread] = set()

    def watch(progress: Progress) -> None:
        reported.append(progress)
        here.add(threading.current_thread())
        assert host.stat("a").is_file  # calls are allowed there

    host.get("a", tmp_path / "b", progress=watch)
    assert reported[-1] == Progress(1, 1, len(CONTENT), len(CONTENT), "h2:a")
    assert here == {threading.current_thread()}


def test_progress__its_exception_ends_the_transfer(
    host: Host, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    (export / "a").write_bytes(CONTENT)

    def watch(progress: Progress) -> None:
        if progress.files_expected:
            raise KeyError("enough")

    with stuck(daemon, 0), pytest.raises(KeyError, match="enough"):
        host.get("a", tmp_path / "b", progress=watch)
    assert not (tmp_path / "b").exists()
    while daemon.handles:  # it was stuck
        time.sleep(0.01)
    assert host.get("a", tmp_path / "b").files_count == 1
    assert (tmp_path / "b").read_bytes() == CONTENT


def test_close__ends_calls_and_the_thread(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    (export / "a").write_bytes(CONTENT)
    host = Host(AsyncHost("h2", lambda: route))
    assert len(threads()) == 1

    def watch(progress: Progress) -> None:
        if progress.files_expected:
            host.close()

    with stuck(daemon, 0), pytest.raises(ConnectionAbortedError, match="closed"):
        host.get("a", tmp_path / "b", progress=watch)
    host.close()
    assert threads() == []
    with pytest.raises(CarefulError, match="closed") as raised:
        host.stat("a")
    assert raised.value.errno == errno.EBADF


def test_forgotten__ends_its_thread(route: Route) -> None:
    host = Host(AsyncHost("h2", lambda: route))
    assert len(threads()) == 1
    del host
    assert threads() == []


def test_connection__is_opened_again(host: Host, daemon: FakeDaemon, export: Path) -> None:
    (export / "a").write_bytes(b"a")
    daemon.fault = lambda q: -errno.ETIMEDOUT if q.op == lib.CAREFUL_IPC_REQUEST else 0
    with pytest.raises(TimeoutError):
        host.stat("a")
    daemon.fault = lambda q: 0
    assert host.stat("a").bytes == 1
    assert len(daemon.connected) == 2
    daemon.stop()
    with pytest.raises(ConnectionError):
        host.stat("a")
    with pytest.raises(ConnectionError):
        host.stat("a")


def test_connect__refusals(route: Route, daemon: FakeDaemon) -> None:
    daemon.connect_status = -errno.ECONNREFUSED
    with pytest.raises(ConnectionRefusedError, match="h2: nobody answers"):
        Host(AsyncHost("h2", lambda: route))
    daemon.connect_status = -errno.ETIMEDOUT
    with pytest.raises(TimeoutError):
        Host(AsyncHost("h2", lambda: route))
    route.socket.unlink()
    with pytest.raises(ConnectionError, match="not running"):
        Host(AsyncHost("h2", lambda: route))
    assert threads() == []
