"""Jobs side by side, and work that blocks: in threads, so that the event loop does not wait.

Owns what a cancellation means for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from careful.errors import CarefulError

_CLEANUP_S = 1.0
#: Read or copied by a thread before Ctrl-C is looked at again, bytes.
SLICE_BYTES = 64 << 20
_T = TypeVar("_T")
_I = TypeVar("_I")


async def all_of(*jobs: Coroutine[object, None, None]) -> None:
    """Await all; the first failure ends the others, and is raised when they have ended."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def quietly(job: Coroutine[object, None, object]) -> None:
    """Await a clean-up that must not hide what made it necessary, for a bounded time."""
    with suppress(CarefulError, TimeoutError):
        await asyncio.wait_for(job, _CLEANUP_S)


async def in_thread(work: Callable[[], _T], undo: Callable[[_T], None] | None = None) -> _T:
    """Run what blocks in a thread; cancellations take effect when it has ended.

    However many there are: what it works on is let go of after that.

    Args:
        work: what blocks.
        undo: called with what work() returned, if a cancellation keeps it from the caller.
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
    """Run what blocks in a thread for each item; a cancellation takes effect soon.

    Args:
        work: of one item.
        items: in order.
        nbytes: that one reads or writes.

    Returns:
        What each gave.
    """
    todo = list(items)
    count = max(1, SLICE_BYTES // max(1, nbytes))
    found: list[_T] = []
    for at in range(0, len(todo), count):
        part = todo[at : at + count]
        found += await in_thread(partial(list, map(work, part)))
    return found
