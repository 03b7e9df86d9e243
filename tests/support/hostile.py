"""A server that lies to its clients: names, kinds, sizes and contents.

It speaks the block service's protocol without a directory, so its answers need not agree.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from pathlib import Path
from typing import Any, NamedTuple

import xxhash
from careful._abi import lib, pack, sizeof, unpack
from careful.transfer.protocol.batch import Item, packed_attr, parse
from careful.transfer.protocol.entries import Attr
from fake_daemon import Answer, FakeDaemon, Handle

_KINDS = {stat.S_IFDIR: lib.CAREFUL_ITEM_DIRECTORY, stat.S_IFLNK: lib.CAREFUL_ITEM_SYMLINK}


class Told(NamedTuple):
    """One entry of a listing.

    Attributes:
        name: as claimed.
        mode: with type bits.
        data: contents of a file; target of a symlink.
        bytes: the claimed size; -1: the contents'.
        inode, nlink: as claimed.
        allocated: claimed bytes on disk; -1: its size.
        error: why it is unreadable, in a listing.
    """

    name: str
    mode: int = stat.S_IFREG | 0o644
    data: bytes = b""
    bytes: int = -1
    inode: int = 7
    nlink: int = 1
    allocated: int = -1
    error: int = 0

    @property
    def attr(self) -> Attr:
        """Returns its claimed attributes."""
        size = len(self.data) if self.bytes < 0 else self.bytes
        allocated = size if self.allocated < 0 else self.allocated
        return Attr(self.mode, self.nlink, 0, 0, size, 0, 0, self.inode, 1, allocated)


def folder(name: str, inode: int = 7) -> Told:
    """A directory."""
    return Told(name, stat.S_IFDIR | 0o755, inode=inode)


def link(name: str, target: str | Path) -> Told:
    """A symlink."""
    return Told(name, stat.S_IFLNK | 0o777, os.fsencode(target))


class HostileDaemon(FakeDaemon):
    """Claims the entries of `told`.

    Attributes:
        top: STAT's answer for ".".
        told: path of a directory -> its claimed entries, which READ and OPEN find.
        listing_bytes: claimed size of a listing; 0: the true one.
        extents: claimed extents of any file, one at a time; []: the true ones.
    """

    def __init__(self, place: Path, root: Path, serve: bool = True) -> None:
        self.top = folder(".")
        self.told: dict[str, list[Told]] = {}
        self.listing_bytes = 0
        self.extents: list[tuple[int, int]] = []
        self._opened: dict[int, Told] = {}
        super().__init__(place, root, serve=serve)

    def _find(self, path: str) -> Told:
        if path == ".":
            return self.top
        for base, entries in self.told.items():
            for one in entries:
                if posixpath.normpath(f"{base}/{one.name}") == path:
                    return one
        raise OSError(errno.ENOENT, path)

    def _run(self, handler: int, args: list[int], payload: bytes) -> Answer:
        if handler == lib.CAREFUL_BLOCK_STAT:
            return Answer(payload=packed_attr(self._find(os.fsdecode(payload)).attr))
        if handler == lib.CAREFUL_BLOCK_LIST:
            return self._tell(self.told.get(os.fsdecode(payload), []))
        if handler == lib.CAREFUL_BLOCK_BATCH:
            return self._answer_batch(args, unpack("careful_block_batch", payload))
        if handler == lib.CAREFUL_BLOCK_OPEN:
            fields = unpack("careful_block_open", payload)
            return self._open(os.fsdecode(payload[sizeof("careful_block_open") :]), fields)
        answer = super()._run(handler, args, payload)
        if handler == lib.CAREFUL_BLOCK_CLOSE and args[0] in self._opened:
            answer.payload = packed_attr(self._opened.pop(args[0]).attr)
        return answer

    def _open(self, path: str, fields: dict[str, Any]) -> Answer:
        fd = os.memfd_create("hostile")
        if fields["flags"] & lib.CAREFUL_BLOCK_SCRATCH:
            os.ftruncate(fd, fields["bytes"])
            handle = Handle(fd)
            handle.path = Path(path)
            return Answer(args=[self._add(handle), 0, 0, 0])
        one = self._find(path)
        os.write(fd, one.data)
        key = self._add(Handle(fd))
        self._opened[key] = one
        return Answer(args=[key, 0, 0, 0], payload=packed_attr(one.attr))

    def _extents(self, fd: int, fields: dict[str, Any]) -> Answer:
        """Returns extents in turn, then begins again."""
        if not self.extents:
            return super()._extents(fd, fields)
        begin, size = self.extents.pop(0)
        end = begin + size if self.extents else fields["offset"] + fields["bytes"]
        payload = begin.to_bytes(8, "big") + size.to_bytes(8, "big")
        return Answer(args=[1, end >> 32, end & 0xFFFFFFFF, 0], payload=payload)

    def _tell(self, entries: list[Told]) -> Answer:
        records = bytearray()
        for one in entries:
            name = os.fsencode(one.name)
            target = one.data if stat.S_ISLNK(one.mode) else b""
            fields = {f"attr.{key}": value for key, value in one.attr._asdict().items()}
            fields |= {"name_bytes": len(name), "target_bytes": len(target), "error": one.error}
            record = pack("careful_block_entry", **fields) + name + target
            records += record + bytes(-len(record) % 8)
        fd = os.memfd_create("listing")
        os.write(fd, records)
        size = self.listing_bytes or len(records)
        os.ftruncate(fd, size)
        return Answer(args=[self._add(Handle(fd)), size >> 32, size & 0xFFFFFFFF, 0])

    def _answer_batch(self, args: list[int], fields: dict[str, Any]) -> Answer:
        scratch = self.handles[args[0]]
        answers = [
            self._item(str(scratch.path), item)
            for item in parse(os.pread(scratch.fd, fields["bytes"], 0))
        ]
        packed = b"".join(item.packed() for item in answers)
        fd = os.memfd_create("answer")
        os.write(fd, packed)
        return Answer(args=[self._add(Handle(fd)), 0, len(packed), 0])

    def _item(self, base: str, item: Item) -> Item:
        try:
            one = self._find(posixpath.normpath(f"{base}/{os.fsdecode(item.name)}"))
        except OSError as error:
            return Item(item.op, item.name, status=error.errno or errno.EIO)
        kind = _KINDS.get(stat.S_IFMT(one.mode), lib.CAREFUL_ITEM_FILE)
        if stat.S_ISREG(one.mode):
            digest = xxhash.xxh3_64_intdigest(one.data)
            return Item(kind, item.name, packed_attr(one.attr), data=one.data, digest=digest)
        return Item(kind, item.name, packed_attr(one.attr), text=one.data)
