"""The pace of transfers: --rate-limit, --jobs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import transfers
from careful._abi import lib
from careful.daemon.route import Route
from careful.transfer import pace
from careful.transfer.file.journal import is_partial
from careful.transfer.options import Options, Progress
from fake_daemon import FakeDaemon

BLOCK = 4096


def test_rate_limit__of_all_pieces_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a fake clock the bytes before each instant stay below the rate."""
    now, taken = 0.0, 0
    limit = pace.RateLimit(1_000_000)

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    clock = SimpleNamespace(time=lambda: now)
    monkeypatch.setattr(
        pace, "asyncio", SimpleNamespace(get_running_loop=lambda: clock, sleep=sleep)
    )

    async def take() -> None:
        nonlocal taken
        for size in (limit.piece_bytes, 10, 300_000, limit.piece_bytes) * 5:
            await limit.take(size)
            assert taken <= now * 1_000_000 + 1
            taken += size

    asyncio.run(take())
    assert limit.piece_bytes <= 100_000
    assert now == pytest.approx((taken - limit.piece_bytes) / 1_000_000)


@pytest.mark.parametrize(("block_bytes", "most"), [(2_000_000, 1), (400_000, 2), (100_000, 10)])
def test_rate_limit__blocks_under_way(block_bytes: int, most: int) -> None:
    """At most the bytes of a second, or one operation, are under way, in the order of requests."""
    limit = pace.RateLimit(1_000_000)
    begun: list[int] = []
    under_way, seen = 0, 0

    async def move(number: int) -> None:
        nonlocal under_way, seen
        async with limit.block(block_bytes):
            begun.append(number)
            under_way += 1
            seen = max(seen, under_way)
            for _ in range(3):
                await asyncio.sleep(0)
            under_way -= 1

    async def run() -> None:
        await asyncio.gather(*map(move, range(40)))

    asyncio.run(run())
    assert seen == most
    assert begun == list(range(40))


@pytest.mark.parametrize("way", ["get", "put"])
@pytest.mark.parametrize("looks", [False, True])
def test_rate_limit__of_small_files(
    route: Route, export: Path, tmp_path: Path, way: str, looks: bool, monkeypatch: Any
) -> None:
    """A batch has no more bytes than may arrive at once, except for a larger file."""
    taken: list[int] = []

    async def take(limit: pace.RateLimit, nbytes: int) -> None:
        taken.append(nbytes)

    monkeypatch.setattr(pace.RateLimit, "take", take)
    source = (export if way == "get" else tmp_path) / "t"
    source.mkdir()
    sizes = [2048] * 40 + [50_000]
    for index, size in enumerate(sizes):
        (source / f"f{index}").write_bytes(bytes(size))
    limit = pace.RateLimit(100_000)
    options = Options(fsync="none", limit=limit, update=looks, replace=looks)
    if way == "get":
        report = transfers.get(route, ["t"], str(tmp_path), True, options, Progress())
    else:
        report = transfers.put(route, [str(source)], "", True, options, Progress())
    assert (report.failures, report.files_count) == ([], len(sizes))
    assert sum(taken) == sum(sizes)
    assert sorted(taken)[-1] == 50_000
    assert sorted(taken)[-2] <= limit.piece_bytes < 10_000


@pytest.mark.parametrize("way", ["get", "put"])
@pytest.mark.parametrize("jobs", [1, 3])
def test_jobs__files_in_flight(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path, way: str, jobs: int
) -> None:
    source = (export if way == "get" else tmp_path) / "tree"
    source.mkdir()
    for index in range(8):
        (source / str(index)).write_bytes(os.urandom(17 * BLOCK))
    open_files: set[int] = set()

    def fault(question: Any) -> int:
        if question.op in (lib.CAREFUL_IPC_GET, lib.CAREFUL_IPC_STORE):
            files = [one for one in daemon.handles.values() if one.base < 0]
            marks = [one for one in files if one.path is not None and is_partial(one.path.name)]
            open_files.add(len(files) - len(marks))
        return 0

    daemon.fault = fault
    options = Options(block_bytes=16 * BLOCK, files_in_flight=jobs, fsync="none")
    if way == "get":
        report = transfers.get(route, ["tree"], str(tmp_path), True, options, Progress())
    else:
        report = transfers.put(route, [str(source)], "", True, options, Progress())
    assert len(report.files) == 8
    assert max(open_files) == jobs
