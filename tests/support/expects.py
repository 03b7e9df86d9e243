"""Expectations of programs that tests start on hosts of a lab, without pytest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from careful.errors import CarefulError


@contextmanager
def raises(kind: type[BaseException], *said: str) -> Iterator[list[Any]]:
    """Expects the block to raise this exception with these words; the list gets it."""
    caught: list[Any] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"no {kind.__name__}"
    assert all(one in str(caught[0]) for one in said), repr(caught[0])


@contextmanager
def fails(number: int, *said: str) -> Iterator[list[Any]]:
    """Expects the block to raise CarefulError with this errno and these words."""
    with raises(CarefulError, *said) as caught:
        yield caught
    assert isinstance(caught[0], OSError)
    assert caught[0].errno == number, repr(caught[0])


@asynccontextmanager
async def beside_ticks(more_than: int) -> AsyncIterator[None]:
    """Expects another task, which wakes each millisecond, to run more often than this meanwhile."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    beside = asyncio.create_task(tick())
    yield
    beside.cancel()
    assert ticks > more_than
