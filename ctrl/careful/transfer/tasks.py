"""Runs jobs concurrently, and blocking work in threads; cancellation leaves none running."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from careful.errors import CarefulError

_CLEANUP_S = 1.0
#: Bytes that a thread reads or copies between two checks for Ctrl-C.
SLICE_BYTES = 64 << 20
_T = TypeVar("_T")
_I = TypeVar("_I")


async def all_of(*jobs: Coroutine[object, None, _T]) -> list[_T]:
    """Awaits all jobs and returns their results; the first failure cancels the others, and is
    raised when they have ended.
    """
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def each(
    items: Iterable[_I], width: int, work: Callable[[_I], Coroutine[object, None, None]]
) -> None:
    """Awaits work(item) of each item, `width` at a time; fails as all_of() does."""
    listed = list(items)
    todo = iter(listed)

    async def worker() -> None:
        for item in todo:
            await work(item)

    await all_of(*(worker() for _ in range(min(width, len(listed)))))


async def quietly(job: Awaitable[object]) -> None:
    """Awaits a clean-up for a bounded time; its failure must not hide the reason for it."""
    with suppress(CarefulError, TimeoutError):
        await asyncio.wait_for(job, _CLEANUP_S)


async def in_thread(work: Callable[[], _T], undo: Callable[[_T], None] | None = None) -> _T:
    """Runs blocking work in a thread; a cancellation takes effect only when the work has ended.

    Until then the work uses its files and memory. If a cancellation keeps the result from the
    caller, undo(result) is called.
    """
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        if future.exception() is None and undo is not None:
            undo(future.result())
        raise


async def in_slices(work: Callable[[_I], _T], items: Iterable[_I], nbytes: int) -> list[_T]:
    """Returns work(item) of each item, run in threads; a cancellation takes effect soon.

    nbytes: what one item reads or writes.
    """
    todo = list(items)
    count = max(1, SLICE_BYTES // max(1, nbytes))
    results: list[_T] = []
    for at in range(0, len(todo), count):
        items_slice = todo[at : at + count]
        results += await in_thread(partial(list, map(work, items_slice)))
    return results
