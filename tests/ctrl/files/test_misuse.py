"""Misuse of `careful.files`, and ends in the middle of calls."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fake_daemon
import pytest
from careful import files
from careful._abi import lib
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.files import AsyncFile, AsyncHost, Host, Progress, TransferError
from fake_daemon import FakeDaemon

CONTENT = bytes(range(256)) * 4_000
BLOCK = 1 << 16


@contextmanager
def stuck(daemon: FakeDaemon, op: int, after: int = 0) -> Iterator[threading.Event]:
    """After this many questions of a kind the daemon is silent until the `with` ends.

    Yields an event that is set when it is silent.
    """
    go_on, here, left = threading.Event(), threading.Event(), iter(range(after))

    def fault(question: Any) -> int:
        if question.op == op and next(left, None) is None:
            here.set()
            assert go_on.wait(60)
        return 0

    daemon.fault = fault
    try:
        yield here
    finally:
        go_on.set()
        daemon.fault = lambda question: 0


def settled(daemon: FakeDaemon) -> None:
    """Waits until the daemon has no open handle."""
    end = time.monotonic() + 30
    while daemon.handles:
        assert time.monotonic() < end, daemon.handles
        time.sleep(0.01)


def partials(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.endswith(".part")]


def test_closed__every_call_reports_it(host: Host, export: Path, tmp_path: Path) -> None:
    (export / "a").write_bytes(CONTENT)
    file, written = host.open("a"), host.open("a", "r+")
    written.write_at(b"x")
    pages = host.ls()
    host.close()
    for call in (
        lambda: host.stat("a"),
        lambda: next(pages),
        lambda: host.read("a"),
        lambda: host.open("a"),
        lambda: host.get("a", tmp_path / "b"),
        lambda: host.verify("a", tmp_path / "b"),
        file.read_at,
        written.close,  # durability cannot be confirmed
    ):
        with pytest.raises(CarefulError, match="closed") as raised:
            call()
        assert raised.value.errno == errno.EBADF
    file.close()
    host.close()
    assert repr(host) == "<Host h2, closed>"


def test_closed__by_several_threads(route: Route, export: Path) -> None:
    (export / "a").write_bytes(CONTENT)
    host = Host(AsyncHost("h2", lambda: route))
    ended: list[BaseException | None] = []

    def work() -> None:
        try:
            for _ in range(100):
                host.read("a")
            host.close()
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert len(ended) == 4
    assert all(
        one is None or (isinstance(one, CarefulError) and "closed" in str(one)) for one in ended
    )


def test_file__forgotten(host: Host, daemon: FakeDaemon, export: Path) -> None:
    (export / "a").write_bytes(CONTENT)
    file = host.open("a")
    assert len(daemon.handles) == 1
    with pytest.warns(ResourceWarning, match="h2:a> was not closed"):  # noqa: PT031
        del file
        gc.collect()
    settled(daemon)
    with pytest.raises(ValueError, match="mode 'w'"):
        host.open("a", "w")  # type: ignore[arg-type]


def test_file__keeps_its_host_connected(route: Route, daemon: FakeDaemon, export: Path) -> None:
    (export / "a").write_bytes(CONTENT)
    file = Host(AsyncHost("h2", lambda: route)).open("a")
    gc.collect()
    assert file.read_at(1, 2) == b"\1\2"
    file.close()


def test_host__forgotten_or_never_connected_leaves_nothing(
    route: Route, daemon: FakeDaemon, export: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (export / "a").write_bytes(CONTENT)
    threads = threading.active_count()
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())

    def forgotten() -> None:
        assert Host(AsyncHost("h2", lambda: route)).read("a", 1, 2) == b"\1\2"

    def refused() -> None:
        with pytest.raises(ConnectionError):
            Host(AsyncHost("h2", lambda: route))

    for call in (forgotten, refused):
        if call is refused:
            daemon.connect_status = -errno.ECONNREFUSED
        for _ in range(3):
            call()
            gc.collect()
            end = time.monotonic() + 30  # the daemon has one of each connection, too
            while (now := sum(1 for _ in Path("/proc/self/fd").iterdir())) > before:
                assert time.monotonic() < end, (call, now, before)
                time.sleep(0.01)
    assert threading.active_count() == threads
    assert caplog.text == ""  # asyncio has no complaint


def test_size__beyond_the_largest_file(
    host: Host, export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lying host does not cause an OverflowError."""
    (export / "a").write_bytes(CONTENT)
    honest = fake_daemon.attr_bytes((export / "a").stat())
    size = len(CONTENT).to_bytes(8, "big")
    assert honest.count(size) >= 1
    lie = honest.replace(size, (1 << 63).to_bytes(8, "big"), 1)
    monkeypatch.setattr(fake_daemon, "attr_bytes", lambda _: lie)
    for call in (host.stat, host.read):
        with pytest.raises(CarefulError, match=f"h2:a: the peer reports a file of {1 << 63} bytes"):
            call("a")


def test_loops__a_host_belongs_to_one_at_a_time(route: Route, export: Path) -> None:
    async def made() -> AsyncHost:
        return await AsyncHost("h2", lambda: route)

    host = asyncio.run(made())

    async def stat() -> object:
        return await host.stat("a")

    with pytest.raises(RuntimeError, match="h2 belongs to another event loop"):
        asyncio.run(stat())


def test_fork__the_child_cannot_use_the_connection(
    host: Host, daemon: FakeDaemon, export: Path
) -> None:
    (export / "a").write_bytes(CONTENT)
    file = host.open("a")
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            reported = b""
            for call in (lambda: host.stat("a"), file.read_at, lambda: next(host.ls())):
                try:
                    call()
                    reported += b"went; "
                except RuntimeError as error:
                    reported += b"process; " if "process that made it" in str(error) else b"other; "
            file.close()  # as `with` does where the child leaves its block
            host.close()
            os.write(write, reported)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"process; " * 3
    assert os.waitpid(child, 0)[1] == 0
    assert file.read_at(1, 2) == b"\1\2"
    file.close()
    assert host.stat("a").bytes == len(CONTENT)


def test_fork__a_child_holds_no_connection(host: Host, daemon: FakeDaemon, export: Path) -> None:
    (export / "a").write_bytes(CONTENT)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    try:
        file = host.open("a")
        host.close()
        settled(daemon)  # it saw the end of the connection
        file.close()
    finally:
        os.write(write, b"x")
        os.waitpid(child, 0)


def test_cancelled__get_keeps_received_blocks(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    (export / "a").write_bytes(CONTENT)
    how: Any = {"block_bytes": BLOCK, "blocks_in_flight": 1}

    async def main() -> None:
        async with AsyncHost("h2", lambda: route) as host:
            with stuck(daemon, lib.CAREFUL_IPC_GET, after=3) as here:
                task = asyncio.create_task(host.get("a", tmp_path / "b", **how))
                await asyncio.to_thread(here.wait)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await asyncio.to_thread(settled, daemon)
            assert len(partials(tmp_path)) == 1
            assert not (tmp_path / "b").exists()
            report = await host.get("a", tmp_path / "b", **how)
            assert report.resumed_bytes == 3 * BLOCK

    asyncio.run(main())
    assert (tmp_path / "b").read_bytes() == CONTENT
    assert partials(tmp_path) == []


@pytest.mark.parametrize("op", [lib.CAREFUL_IPC_REQUEST, lib.CAREFUL_IPC_GET])
def test_cancelled__reads_leave_nothing(
    route: Route, daemon: FakeDaemon, export: Path, op: int
) -> None:
    (export / "a").write_bytes(CONTENT)
    works = {
        "read": lambda host: host.read("a"),
        "readinto": lambda host: host.readinto("a", bytearray(10_000)),
        "ls": lambda host: anext(host.ls()),
    }

    async def main() -> None:
        async with AsyncHost("h2", lambda: route) as host:
            await host.read("a")
            for work in works.values():
                for _ in range(10):  # more than there are parts of memory
                    with stuck(daemon, op) as here:
                        task = asyncio.ensure_future(work(host))
                        await asyncio.to_thread(here.wait)
                        task.cancel()
                        await asyncio.wait([task])
                        assert task.cancelled()
                    await asyncio.to_thread(settled, daemon)
            assert await asyncio.wait_for(host.read("a"), 30) == CONTENT

    asyncio.run(main())


def test_many__never_block_the_loop(route: Route, daemon: FakeDaemon, export: Path) -> None:
    (export / "a").write_bytes(CONTENT)

    async def main() -> None:
        async with AsyncHost("h2", lambda: route) as host:
            with stuck(daemon, lib.CAREFUL_IPC_REQUEST):
                tasks = [asyncio.create_task(host.stat("a")) for _ in range(1000)]
                for _ in range(5):
                    await asyncio.sleep(0.01)  # carefuld takes 256 at a time
                assert not any(task.done() for task in tasks)
            assert {one.bytes for one in await asyncio.gather(*tasks)} == {len(CONTENT)}

    asyncio.run(asyncio.wait_for(main(), 20))


def test_lost__in_the_middle(host: Host, daemon: FakeDaemon, export: Path, tmp_path: Path) -> None:
    (export / "a").write_bytes(CONTENT)
    how: Any = {"block_bytes": BLOCK, "blocks_in_flight": 1}
    daemon.moves((BLOCK,), deadly=4)
    with pytest.raises(ConnectionError, match="carefuld ended"):
        host.get("a", tmp_path / "b", **how)
    daemon.fault = lambda question: 0
    assert len(partials(tmp_path)) == 1
    assert host.get("a", tmp_path / "b", **how).resumed_bytes == 3 * BLOCK
    assert (tmp_path / "b").read_bytes() == CONTENT


def test_lost__under_an_open_file(host: Host, daemon: FakeDaemon, export: Path) -> None:
    (export / "a").write_bytes(CONTENT)
    with host.open("a") as file:
        daemon.moves((10,), deadly=1)
        with pytest.raises(ConnectionError, match="carefuld ended"):
            file.read_at(0, 10)
        daemon.fault = lambda question: 0
        assert file.read_at(0, 10) == CONTENT[:10]
        daemon.stop()
        with pytest.raises(ConnectionError):
            file.read_at(0, 10)


def test_progress__may_call_and_may_raise_in_a_loop(
    route: Route, export: Path, tmp_path: Path
) -> None:
    (export / "a").write_bytes(CONTENT)

    async def main() -> None:
        async with AsyncHost("h2", lambda: route) as host:
            stats = []

            def watch(progress: Progress) -> None:
                stats.append(asyncio.ensure_future(host.stat("a")))
                if len(stats) == 3:
                    raise KeyError("enough")

            with pytest.raises(KeyError, match="enough"):
                await host.get("a", tmp_path / "b", progress=watch, block_bytes=BLOCK)
            assert [one.bytes for one in await asyncio.gather(*stats)] == [len(CONTENT)] * 3

    asyncio.run(main())


def test_errors__cross_processes(host: Host, export: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        host.stat("no")
    again = pickle.loads(pickle.dumps(missing.value))
    assert (type(again), again.filename, str(again)) == (
        type(missing.value),
        "h2:no",
        str(missing.value),
    )
    (export / "t").mkdir()
    for name in ("a", "b", "c"):
        (export / "t" / name).write_bytes(name.encode())
    (tmp_path / "t").mkdir()
    (tmp_path / "t/a").write_bytes(b"other")
    with pytest.raises(TransferError) as some:
        host.get("t", tmp_path, recursive=True)
    whole = pickle.loads(pickle.dumps(some.value))
    assert [str(one) for one in whole.errors] == [str(one) for one in some.value.errors]
    assert whole.report.files_count == 2


def test_async_file__is_awaited_or_entered(route: Route, export: Path) -> None:
    (export / "a").write_bytes(CONTENT)

    async def main() -> None:
        async with AsyncHost("h2", lambda: route) as host:
            file = host.open("a")
            assert isinstance(file, AsyncFile)
            assert await file.read_at(1, 1) == b"\1"  # it opens itself
            await file.close()
            file = await host.open("a")
            assert file.nbytes == len(CONTENT)
            await file.close()
            with pytest.raises(FileNotFoundError):
                await host.open("no")

    asyncio.run(main())


def test_public_names__are_documented() -> None:
    for name in files.__all__:
        assert getattr(files, name).__doc__, name
    for kind in (files.Host, files.AsyncHost, files.File, files.AsyncFile):
        calls = {name: one for name, one in vars(kind).items() if not name.startswith("_")}
        assert [name for name, one in calls.items() if not one.__doc__] == []
    awaited_only = {
        "aconnect",
        "connected",
        "is_link",
        "opened",
        "pages",
    }
    assert {*dir(files.AsyncHost)} - {*dir(files.Host)} - awaited_only <= {
        "__aenter__",
        "__aexit__",
        "__await__",
        "_connections",
        "_move",
    }
