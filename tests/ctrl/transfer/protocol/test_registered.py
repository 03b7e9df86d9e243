"""Files registered with carefuld are removed again, whatever happens."""

from __future__ import annotations

import asyncio
import errno
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import transfers
from careful._abi import lib
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.transfer.file.journal import FOOTER_BYTES
from careful.transfer.options import Options, Progress
from careful.transfer.run.session import connected, get, put
from fake_daemon import MOVES, FakeDaemon

DATA = bytes(1000)


def fail(op: int, question: Any) -> int:
    return -errno.EIO if question.op == op else 0


def test_partials__more_that_cannot_be_read_than_files_can_be_registered(
    route: Route, daemon: FakeDaemon, export: Path
) -> None:
    count = lib.CAREFUL_IPC_FILES + 6
    for index in range(count):
        (export / f".a.careful-{index:016x}.part").write_bytes(DATA)

    def fault(question: Any) -> int:
        # The listing arrives; reads of the files do not.
        return -errno.EIO if question.bytes == FOOTER_BYTES else 0

    daemon.fault = fault
    found = transfers.partials(route, ".", True)
    assert [one.state for one in found] == ["removed"] * count
    assert not list(export.iterdir())


@pytest.mark.parametrize("op", MOVES)
def test_read_write__failed(route: Route, daemon: FakeDaemon, export: Path, op: int) -> None:
    (export / "a").write_bytes(DATA)
    daemon.fault = partial(fail, op)

    async def run() -> None:
        async with connected(route) as remote:
            handle, _ = await remote.open("a")
            is_read = op == lib.CAREFUL_IPC_GET
            move = remote.read if is_read else remote.write
            what: Any = len(DATA) if is_read else DATA
            for _ in range(lib.CAREFUL_IPC_FILES + 1):
                with pytest.raises(CarefulError, match="Input/output error"):
                    await move(handle, 0, what, "a")
            await remote.close(handle, "a")
            assert daemon.files_now == 0

    asyncio.run(run())


@pytest.mark.parametrize("fetch", [True, False])
def test_holes__extents_fail(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path, fetch: bool
) -> None:
    """A failure between the registration and the first block removes the file, too."""
    source = (export if fetch else tmp_path) / "a"
    with source.open("wb") as file:
        file.truncate(1 << 20)
        file.seek((1 << 20) - 10)
        file.write(b"end")

    def fault(question: Any) -> int:
        is_extents = question.handler == lib.CAREFUL_BLOCK_EXTENTS
        return -errno.EIO if question.op == lib.CAREFUL_IPC_REQUEST and is_extents else 0

    daemon.fault = fault

    async def run() -> None:
        async with connected(route) as remote:
            paths = ["a"] if fetch else [str(source)]
            target = str(tmp_path / "b") if fetch else "b"
            move = get if fetch else put
            report = await move(remote, paths, target, False, Options(), Progress())
            assert len(report.failures) == 1
            await remote.stat("a" if fetch else ".")  # after all that went before
            assert daemon.files_now == 0

    asyncio.run(run())


def test_add_file__cancelled(route: Route, daemon: FakeDaemon, export: Path) -> None:
    """The caller is cancelled before the answer arrives."""
    (export / "a").write_bytes(DATA)

    async def run() -> None:
        async with connected(route) as remote:
            handle, _ = await remote.open("a")
            for _ in range(3):
                task = asyncio.create_task(remote.read(handle, 0, len(DATA), "a"))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert await remote.read(handle, 0, len(DATA), "a") == DATA
            await remote.close(handle, "a")
            assert daemon.files_now == 0

    asyncio.run(run())
