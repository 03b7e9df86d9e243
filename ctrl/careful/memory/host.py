"""A host that lends memory: its pieces, and how much it lends."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from careful._abi import lib, sizeof, unpack
from careful.address import Address
from careful.control.memory_hosts import Hosts
from careful.errors import shown
from careful.memory.client import Client, Remote, broken
from careful.memory.piece import Info, Piece, info_of

_PIECE_BYTES = sizeof("careful_memory_piece")
#: Most pieces in a list; a host has fewer.
_LISTED_MAX = 1 << 16


@dataclass(frozen=True)
class Room:
    """How much memory a host lends.

    Attributes:
        nbytes: to all hosts.
        free: not lent now.
        mine, mine_most: lent to this host, and the most that may be.
        pieces, pieces_most: the number of this host's pieces, and the most.
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
        client: reaches it.
        address: of the host.
        name: its name in errors.
        hosts: names its owners.
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
            name: of the piece; it may equal a name of another owner.
            nbytes: its size.
            share: hosts that may use it, too: name, address or public key -> "r" or "rw"; "*"
                stands for every host.

        Raises:
            FileExistsError: this host has a piece of that name there.
            ConnectionError: the host does not answer.
            CarefulError: it lends no memory (ENOSYS), or less (EDQUOT, ENOSPC).
        """
        what = f"{self.name}:{shown(name)}"
        ask = self._hosts.ask(name, "", nbytes, share)
        attempt = struct.unpack("=II", os.urandom(8))
        self._client.ask(self._remote.about(what), lib.CAREFUL_MEMORY_CREATE, ask, attempt)
        return self.open(name)

    def open(self, name: str, *, owner: str = "") -> Piece:
        """Opens a piece of this host, or one that another host shares with it.

        Args:
            name: of the piece.
            owner: the host that made it; by default this one, else the only host that shares that
                name.

        Raises:
            FileNotFoundError: there is none, or it is not shared with this host.
            ConnectionError: the host does not answer.
        """
        remote = self._remote.about(f"{self.name}:{shown(name)}")
        ask = self._hosts.ask(name, owner)
        raw, opened = self._client.open(remote, ask)
        return Piece(self._client, opened, info_of(raw, name, self._hosts), remote, ask)

    def delete(self, name: str) -> None:
        """Frees a piece of this host; all who have it open lose it.

        Raises:
            FileNotFoundError: this host has no piece of that name there.
        """
        remote = self._remote.about(f"{self.name}:{shown(name)}")
        self._client.ask(remote, lib.CAREFUL_MEMORY_DELETE, self._hosts.ask(name))

    def stat(self, name: str, *, owner: str = "") -> Info:
        """Describes a piece without opening it; arguments and errors are as for open()."""
        remote = self._remote.about(f"{self.name}:{shown(name)}")
        said = self._client.ask(remote, lib.CAREFUL_MEMORY_STAT, self._hosts.ask(name, owner))
        if len(said.payload) < _PIECE_BYTES:
            raise broken(remote.what)
        return info_of(said.payload, name, self._hosts)

    def room(self) -> Room:
        """Returns how much memory the host lends, and how much of that this host has."""
        said = self._client.ask(self._remote, lib.CAREFUL_MEMORY_STAT)
        if len(said.payload) < sizeof("careful_memory_room"):
            raise broken(self.name)
        got = unpack("careful_memory_room", said.payload)
        keep_s = got.pop("keep_ms") / 1000
        del got["pad"]
        return Room(got.pop("bytes"), keep_s=keep_s, **got)

    def list(self) -> Sequence[Info]:
        """Returns the pieces that this host may open: its own, and those shared with it."""
        found: list[Info] = []
        more = 1
        while more and len(found) < _LISTED_MAX:
            last = found[-1].number if found else 0
            said = self._client.ask(self._remote, lib.CAREFUL_MEMORY_LIST, b"", (last,))
            page = self._page(said.payload)
            if any(one.number <= last for one in page) or (said.args[0] and not page):
                raise broken(self.name)
            found += page
            more = said.args[0]
        return found

    def _page(self, raw: bytes) -> Sequence[Info]:
        found, at = [], 0
        while at < len(raw):
            head = raw[at : at + _PIECE_BYTES]
            if len(head) < _PIECE_BYTES:
                raise broken(self.name)
            end = at + _PIECE_BYTES + unpack("careful_memory_piece", head)["name_bytes"]
            if end > len(raw):
                raise broken(self.name)
            name = raw[at + _PIECE_BYTES : end].decode(errors="backslashreplace")
            found.append(info_of(head, name, self._hosts))
            at = (end + 7) // 8 * 8
        return found
