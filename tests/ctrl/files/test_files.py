"""`careful.files` against a directory: what calls return and raise, awaited or from any thread."""

from __future__ import annotations

import asyncio
import errno
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from careful._abi import lib
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.files import AsyncHost, Host, Progress, TransferError
from fake_daemon import FakeDaemon

CONTENT = bytes(range(256)) * 40_000


@pytest.fixture
def host(route: Route) -> Iterator[Host]:
    """A Host of the export."""
    with Host(AsyncHost(lambda: route)) as one:
        yield one


def run(route: Route, work: Callable[[AsyncHost], Any]) -> Any:
    """What work(host) gives in an event loop."""

    async def main() -> Any:
        async with AsyncHost(lambda: route) as host:
            return await work(host)

    return asyncio.run(main())


@contextmanager
def stuck(daemon: FakeDaemon, moves: int) -> Iterator[None]:
    """From so many moved blocks on, the daemon answers nothing until the end of this."""
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
        host = await AsyncHost(lambda: route)
        assert [entry async for entry in host.ls()] == []
        await host.close()

    asyncio.run(main())


def test_host__inside_a_running_loop_and_off_the_main_thread(
    route: Route, export: Path, tmp_path: Path
) -> None:
    (export / "a").write_bytes(CONTENT)
    with Host(AsyncHost(lambda: route)) as host:

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
        (lambda h, _: list(h.ls("no")), FileNotFoundError, "h2:no"),
        (lambda h, t: h.get("no", t / "x"), FileNotFoundError, "h2:no"),
        (lambda h, t: h.get("no", t / "x", recursive=True), FileNotFoundError, "h2:no"),
        (lambda h, t: h.get("d", t / "x"), IsADirectoryError, "h2:d"),
        (lambda h, t: h.get("a", t / "differs"), FileExistsError, "differs"),
        (lambda h, t: h.get("a", t / "no/x"), FileNotFoundError, "no/x"),
        (lambda h, t: h.get("a", t / "differs/x"), NotADirectoryError, "differs/x"),
        (lambda h, t: h.put(t / "no", "x"), FileNotFoundError, "no"),
        (lambda h, t: h.put(t / "differs", "a"), FileExistsError, "h2:a"),
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


def test_errors__of_a_tree_are_together(host: Host, export: Path, tmp_path: Path) -> None:
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
    told: list[Progress] = []
    here: set[threading.Thread] = set()

    def watch(progress: Progress) -> None:
        told.append(progress)
        here.add(threading.current_thread())
        assert host.stat("a").is_file  # calls are free there

    host.get("a", tmp_path / "b", progress=watch)
    assert told[-1] == Progress(1, 1, len(CONTENT), len(CONTENT), "h2:a")
    assert here == {threading.current_thread()}


def test_progress__what_it_raises_ends_the_transfer(
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
    host = Host(AsyncHost(lambda: route))
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
    host = Host(AsyncHost(lambda: route))
    assert len(threads()) == 1
    del host
    assert threads() == []


def test_connection__is_made_anew(host: Host, daemon: FakeDaemon, export: Path) -> None:
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
        Host(AsyncHost(lambda: route))
    daemon.connect_status = -errno.ETIMEDOUT
    with pytest.raises(TimeoutError):
        Host(AsyncHost(lambda: route))
    route.socket.unlink()
    with pytest.raises(ConnectionError, match="not running"):
        Host(AsyncHost(lambda: route))
    assert threads() == []
