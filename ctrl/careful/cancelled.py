"""Runs asynchronous work that signals cancel, so that it cleans up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import TypeVar

from careful.errors import EndedBySignal

_T = TypeVar("_T")


def run(work: Coroutine[object, None, _T]) -> _T:
    """Runs work to its end, or to a signal, which cancels the work.

    Raises:
        EndedBySignal: SIGTERM or SIGHUP came, and was not ignored when we started.
        KeyboardInterrupt: SIGINT came.
    """
    received: list[int] = []
    found: list[_T] = []

    async def guarded() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def end(number: int) -> None:
            received.append(number)
            task.cancel()

        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # ignored under nohup
                loop.add_signal_handler(number, end, number)
        found.append(await work)

    try:
        # The result is not returned: asyncio.run() ends with signal.getsignal(), which formats the
        # handler, its task and the task's result. For 10,000 files this took 15 ms.
        asyncio.run(guarded())
    except asyncio.CancelledError:
        if received:
            raise EndedBySignal(received[0]) from None
        raise
    return found[0]
