"""Writes to a disk in the order of their ends, and the states that a power cut may leave.

Reads the log that QEMU's blklogwrites keeps, in the format of Linux's dm-log-writes
(drivers/md/dm-log-writes.c): a superblock, then for each write a sector with its place, and its
data. QEMU logs a write at its end, so a flush in the log covers all entries before it. A write that
ended during the flush counts as flushed, because the log does not show the flush's begin.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

MAGIC, VERSION = 0x6A736677736872, 1
SUPER = struct.Struct("<QQQI")  # magic, version, entries, bytes of a sector
ENTRY = struct.Struct("<QQQQ")  # sector, sectors, flags, bytes of private data
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8

#: Fates of writes without a later flush.
FATES = ("dropped", "kept", "some", "torn")


class Write(NamedTuple):
    """An entry: data at a sector; a flush has no sectors, a discard no data."""

    sector: int
    sectors: int
    flags: int
    at: int  # offset of its data in the log, bytes


class Log:
    """A finished log.

    Raises:
        ValueError: the file is no such log.
    """

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("rb")
        head = self._file.read(SUPER.size)
        if len(head) < SUPER.size:
            raise ValueError(f"{path}: no log: it is too short")
        magic, version, count, self.sector_bytes = SUPER.unpack(head)
        if (magic, version) != (MAGIC, VERSION):
            raise ValueError(f"{path}: no log of writes: {magic:#x}, version {version}")
        self.writes = list(self._read(count, os.fstat(self._file.fileno()).st_size))

    def _read(self, count: int, size: int) -> Iterator[Write]:
        """Returns the complete entries; the last one may be cut, because QEMU was killed."""
        at = self.sector_bytes
        for _ in range(count):
            self._file.seek(at)
            raw = self._file.read(ENTRY.size)
            if len(raw) < ENTRY.size:
                return
            sector, sectors, flags, _ = ENTRY.unpack(raw)
            at += self.sector_bytes
            one = Write(sector, 0 if flags & MARK else sectors, flags, at)
            if not flags & (DISCARD | MARK):
                at += sectors * self.sector_bytes
            if at > size:
                return
            yield one

    def data(self, one: Write) -> bytes:
        """Returns the written data; zeros for a discard, after which a disk may hold anything."""
        nbytes = one.sectors * self.sector_bytes
        if one.flags & DISCARD:
            return bytes(nbytes)
        self._file.seek(one.at)
        return self._file.read(nbytes)


class Disk:
    """A disk, and its certain contents at later and later instants.

    Args:
        log: of all writes to it.
        empty: the disk before the first write.
        image: a file for its certain contents.
        lies: chooses half of the flushes, which the disk ignores, or None.
    """

    def __init__(
        self, log: Log, empty: Path, image: Path, lies: random.Random | None = None
    ) -> None:
        self._log, self._image = log, image
        flushes = [k for k, one in enumerate(log.writes) if one.flags & FLUSH]
        self._flushes = [k for k in flushes if lies is None or lies.random() < 0.5]
        self._flushed = 0  # this many entries of the log are in the image
        _copy(empty, image)

    def cut(self, instant: int, fate: str, rng: random.Random, to: Path) -> int:
        """Writes the disk's state after a power cut; returns how many entries were not flushed.

        Args:
            instant: not before that of the previous call.
            fate: one of FATES. dropped, kept: no or all unflushed writes are there. some: a random
                half. torn: half of these, with only some sectors.
            rng: chooses.
            to: the file.
        """
        writes = self._log.writes[:instant]
        last = max((k for k in self._flushes if k < instant), default=-1) + 1
        with self._image.open("r+b") as file:
            for one in writes[self._flushed : last]:
                self._apply(file, one)
        self._flushed = max(self._flushed, last)
        _copy(self._image, to)
        unsure = [one for one in writes[last:] if one.sectors]
        with to.open("r+b") as file:
            for one in unsure:
                kept = one.flags & FUA or fate == "kept"
                kept = kept or (fate in ("some", "torn") and rng.random() < 0.5)
                if kept:
                    torn = fate == "torn" and not one.flags & FUA and rng.random() < 0.5
                    self._apply(file, one, rng if torn else None)
        return len(unsure)

    def _apply(self, file: IO[bytes], one: Write, rng: random.Random | None = None) -> None:
        """Writes an entry; with rng only some of its sectors."""
        size, data = self._log.sector_bytes, self._log.data(one)
        if rng is None:
            os.pwrite(file.fileno(), data, one.sector * size)
            return
        for k in range(one.sectors):
            if rng.random() < 0.5:
                piece = data[k * size : (k + 1) * size]
                os.pwrite(file.fileno(), piece, (one.sector + k) * size)


def _copy(image: Path, to: Path) -> None:
    """Copies with the same holes."""
    subprocess.run(["cp", "--sparse=always", image, to], check=True)
