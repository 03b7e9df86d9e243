"""A piece of another host's memory: its description, and its bytes."""

from __future__ import annotations

import errno
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from careful._abi import Buffer, CData, lib, unpack
from careful.control.memory_hosts import Hosts, access_of
from careful.errors import CarefulError
from careful.memory.client import Client, move

#: A part of a piece: its offset, and the buffer that it is read into or written from.
Part = tuple[int, Buffer]


@dataclass(frozen=True)
class Info:
    """A piece as its host describes it.

    Attributes:
        name: of the piece.
        nbytes: its size.
        access: "r" or "rw": what this host may do.
        owner: the host that made it, by name if it has one here.
        mine: whether this host made it.
        number: ascends with each piece of the host.
        page_bytes: size of its pages there.
    """

    name: str
    nbytes: int
    access: str
    owner: str
    mine: bool
    number: int
    page_bytes: int


def info_of(raw: bytes, name: str, hosts: Hosts) -> Info:
    """Returns what a struct careful_memory_piece says."""
    said = unpack("careful_memory_piece", raw)
    return Info(
        name,
        said["bytes"],
        access_of(said["access"]),
        hosts.name(said["owner.by"], bytes(said["owner.id"])),
        bool(said["owner.access"]),
        said["number"],
        said["page_bytes"],
    )


class Piece:
    """An open piece of a host's memory; made by Host.create() and Host.open().

    Any thread may call its methods, several at a time. If the session ends, the next call opens the
    piece again. `with` closes it at the end; the memory stays at its host.

    Attributes:
        info: what the host said about it.
    """

    def __init__(self, client: Client, remote: CData, info: Info, host: str) -> None:
        self._client, self._remote, self.info = client, remote, info
        self._what = f"{host}:{info.name}"
        self._end = weakref.finalize(self, lib.careful_memory_close, remote)

    def __repr__(self) -> str:
        state = "" if self._end.alive else ", closed"
        return f"<Piece {self._what} of {self.nbytes} bytes{state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """Returns HOST:NAME."""
        return self._what

    @property
    def nbytes(self) -> int:
        """Returns its size."""
        return self.info.nbytes

    def close(self) -> None:
        """Closes the piece; its memory stays at the host."""
        self._end()

    def _move(self, parts: Sequence[Part], flags: int) -> int:
        if not self._end.alive:
            raise CarefulError(errno.EBADF, "is closed", self._what)
        return move(self._remote, parts, flags, self._what)

    def read_into(self, buffer: Buffer, offset: int = 0) -> int:
        """Reads as many bytes as a buffer holds; returns their number.

        Args:
            buffer: writable and contiguous.
            offset: where in the piece, bytes.

        Raises:
            ConnectionError: the host does not answer.
            CarefulError: the range ends beyond the piece (ERANGE), or the piece is gone (ESTALE).
        """
        return self.readv([(offset, buffer)])

    def read(self, offset: int, nbytes: int) -> bytes:
        """Returns bytes of the piece; raises as read_into()."""
        buffer = bytearray(nbytes)
        self.read_into(buffer, offset)
        return bytes(buffer)

    def write(self, data: Buffer, offset: int = 0) -> int:
        """Writes a buffer into the piece; returns its bytes. They are in place at the host then.

        Raises as read_into(); PermissionError if the piece is read-only here.
        """
        return self.writev([(offset, data)])

    def readv(self, parts: Sequence[Part], *, ordered: bool = False) -> int:
        """Reads several parts at once; returns the number of bytes.

        Args:
            parts: offsets in the piece, and the buffers that they are read into.
            ordered: whether each part is complete before the next begins; else they arrive in any
                order, which is faster.

        Raises as read_into(). After a failure, any part may have been read.
        """
        return self._move(parts, lib.CAREFUL_MEMORY_ORDERED if ordered else 0)

    def writev(self, parts: Sequence[Part], *, ordered: bool = False) -> int:
        """Writes several parts at once; arguments and errors are as for readv()."""
        flags = lib.CAREFUL_MEMORY_ORDERED if ordered else 0
        return self._move(parts, flags | lib.CAREFUL_MEMORY_STORE)
