"""Hosts and pieces for an event loop: the calls run in threads of the loop's executor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar

from careful.memory.host import Host
from careful.memory.piece import Info, Piece

_B = TypeVar("_B")
_T = TypeVar("_T")
_P = ParamSpec("_P")


class _Awaited(Generic[_B]):
    def __init__(self, blocking: _B) -> None:
        self._blocking = blocking

    def __repr__(self) -> str:
        return repr(self._blocking).replace("<", "<Async", 1)


def _awaited(
    method: Callable[Concatenate[_B, _P], _T],
) -> Callable[Concatenate[_Awaited[_B], _P], Coroutine[object, None, _T]]:
    """Returns a method that runs another in a thread. Cancellation does not stop the thread."""

    @wraps(method)
    async def call(self: _Awaited[_B], /, *args: _P.args, **named: _P.kwargs) -> _T:
        return await asyncio.to_thread(method, self._blocking, *args, **named)

    return call


class AsyncPiece(_Awaited[Piece]):
    """A Piece whose methods are awaited; made by AsyncHost."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def info(self) -> Info:
        """Returns the host's description of the piece."""
        return self._blocking.info

    @property
    def nbytes(self) -> int:
        """Returns its size."""
        return self._blocking.nbytes

    close = _awaited(Piece.close)
    read_into = _awaited(Piece.read_into)
    read = _awaited(Piece.read)
    write = _awaited(Piece.write)
    readv = _awaited(Piece.readv)
    map = _awaited(Piece.map)
    flush = _awaited(Piece.flush)
    prefetch = _awaited(Piece.prefetch)
    writev = _awaited(Piece.writev)
    wait = _awaited(Piece.wait)


class AsyncHost(_Awaited[Host]):
    """A Host whose methods are awaited; made by careful.memory.aconnect()."""

    @property
    def name(self) -> str:
        """Returns the host's name in errors."""
        return self._blocking.name

    async def create(
        self, name: str, nbytes: int, *, share: Mapping[str, str] | None = None
    ) -> AsyncPiece:
        """Makes a piece and opens it, like Host.create()."""
        return AsyncPiece(await asyncio.to_thread(self._blocking.create, name, nbytes, share=share))

    async def open(self, name: str, *, owner: str = "") -> AsyncPiece:
        """Opens a piece, like Host.open()."""
        return AsyncPiece(await asyncio.to_thread(self._blocking.open, name, owner=owner))

    delete = _awaited(Host.delete)
    stat = _awaited(Host.stat)
    room = _awaited(Host.room)
    list = _awaited(Host.list)
