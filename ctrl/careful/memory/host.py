"""A host that lends memory: its pieces, and how much it lends."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from careful._abi import lib, sizeof, unpack
from careful.address import Address
from careful.control.instance.memory_hosts import Hosts
from careful.errors import shown
from careful.memory.client import Client, Remote, malformed
from careful.memory.piece import Info, Piece, info_of

_PIECE_BYTES = sizeof("careful_memory_piece")
#: Bounds the list of a hostile host.
_LISTED_MAX = 1 << 16


@dataclass(frozen=True)
class Room:
    """How much memory a host lends.

    Attributes:
        nbytes: to all hosts.
        free: not lent now.
        mine, mine_most: lent to this host, and the limit.
        pieces, pieces_most: the number of this host's pieces, and the limit.
        keep_s: how long pieces stay after their owner's session ended, seconds.
    """

    nbytes: int
    free: int
    mine: int
    mine_most: int
    pieces: int
    pieces_most: int
    keep_s: float


class Host:
    """A host that lends memory, for any thread; made by careful.memory.connect().

    Args:
        client: sends the requests.
        address: of the host.
        name: its name in errors.
        hosts: names of the owners of pieces.
    """

    def __init__(self, client: Client, address: Address, name: str, hosts: Hosts) -> None:
        self.name = name
        self._hosts = hosts
        self._client = client
        self._remote = Remote(address.sockaddr(), name)

    def __repr__(self) -> str:
        return f"<Host {self.name}>"

    def create(self, name: str, nbytes: int, *, share: Mapping[str, str] | None = None) -> Piece:
        """Makes a piece of zeros at the host, and opens it.

        Args:
            name: of the piece; another owner may use the same name.
            nbytes: its size.
            share: other hosts that may use it: name, address or public key -> "r" or "rw"; "*"
                is every host.

        Raises:
            FileExistsError: this host has a piece of that name there.
            ConnectionError: the host does not answer.
            CarefulError: it lends no memory (ENOSYS), or less (EDQUOT, ENOSPC).
        """
        ask = self._hosts.ask(name, "", nbytes, share)
        attempt = struct.unpack("=II", os.urandom(8))
        self._client.ask(self._of_piece(name), lib.CAREFUL_MEMORY_CREATE, ask, attempt)
        return self.open(name)

    def open(self, name: str, *, owner: str = "") -> Piece:
        """Opens a piece of this host, or one that another host shares with it.

        Args:
            name: of the piece.
            owner: the host that made it; by default this host, or the only host that shares a
                piece of that name.

        Raises:
            FileNotFoundError: there is none, or it is not shared with this host.
            ConnectionError: the host does not answer.
        """
        remote = self._of_piece(name)
        ask = self._hosts.ask(name, owner)
        raw, pointer = self._client.open(remote, ask)
        return Piece(self._client, pointer, info_of(raw, name, self._hosts), remote, ask)

    def delete(self, name: str) -> None:
        """Frees a piece of this host, also for those who have it open.

        Raises:
            FileNotFoundError: this host has no piece of that name there.
        """
        self._client.ask(self._of_piece(name), lib.CAREFUL_MEMORY_DELETE, self._hosts.ask(name))

    def stat(self, name: str, *, owner: str = "") -> Info:
        """Describes a piece without opening it; arguments and errors are as for open()."""
        remote = self._of_piece(name)
        answer = self._client.ask(remote, lib.CAREFUL_MEMORY_STAT, self._hosts.ask(name, owner))
        if len(answer.payload) < _PIECE_BYTES:
            raise malformed(remote.subject)
        return info_of(answer.payload, name, self._hosts)

    def room(self) -> Room:
        """Returns how much memory the host lends, and how much of that this host has."""
        answer = self._client.ask(self._remote, lib.CAREFUL_MEMORY_STAT)
        if len(answer.payload) < sizeof("careful_memory_room"):
            raise malformed(self.name)
        fields = unpack("careful_memory_room", answer.payload)
        keep_s = fields.pop("keep_ms") / 1000
        del fields["pad"]
        return Room(fields.pop("bytes"), keep_s=keep_s, **fields)

    def list(self) -> Sequence[Info]:
        """Returns the pieces that this host may open: its own, and those shared with it."""
        pieces: list[Info] = []
        more = 1
        while more and len(pieces) < _LISTED_MAX:
            last = pieces[-1].number if pieces else 0
            answer = self._client.ask(self._remote, lib.CAREFUL_MEMORY_LIST, b"", (last,))
            page = self._page(answer.payload)
            more = answer.args[0]
            if any(piece.number <= last for piece in page) or (more and not page):
                raise malformed(self.name)
            pieces += page
        return pieces

    def _page(self, raw: bytes) -> Sequence[Info]:
        pieces, start = [], 0
        while start < len(raw):
            head = raw[start : start + _PIECE_BYTES]
            if len(head) < _PIECE_BYTES:
                raise malformed(self.name)
            end = start + _PIECE_BYTES + unpack("careful_memory_piece", head)["name_bytes"]
            if end > len(raw):
                raise malformed(self.name)
            name = raw[start + _PIECE_BYTES : end].decode(errors="backslashreplace")
            pieces.append(info_of(head, name, self._hosts))
            start = (end + 7) // 8 * 8
        return pieces

    def _of_piece(self, name: str) -> Remote:
        return self._remote.about(f"{self.name}:{shown(name)}")
