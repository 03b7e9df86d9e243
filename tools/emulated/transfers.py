"""Transfers onto one disk, one after the other, and what must be on it whenever power fails.

The same on both sides: in the machine this file is a program, which makes the transfers and notes
on the disk, behind its file system, how many were reported complete. Outside, tools/powercut asks
what a disk must hold. Half of the way the clock is set back by an hour.

Usage: transfers.py COUNT DEVICE, on a lab's h1 whose h2 exports PLACE/src, and PLACE/disk to write.
"""

from __future__ import annotations

import mmap
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: Where everything is, in the machine and outside.
PLACE = Path("/tmp/careful-powercut")
SOURCES, DISK = PLACE / "src", PLACE / "disk"
#: So much of the device's end is not the file system's.
MARKS_BYTES = 1 << 20
MARK = b"careful: complete "
SECTOR_BYTES = 512
FILE_BYTES_MAX, SMALL_BYTES_MAX = 12 << 20, 64 << 10
#: Files have several blocks, so that a transfer can go on in the middle of one.
BLOCK_BYTES = "128KiB"
#: So that there is time for writes before the end.
RATE = "1MiB"
#: Of all sources, or one would seem to have changed outside the machine; ns since 1970.
MTIME_NS = 1_700_000_000_000_000_000


class Transfer(NamedTuple):
    """A `get` or a `put` of a file or a tree; `again`: it replaces an earlier file."""

    number: int
    get: bool
    tree: bool
    again: bool
    name: str

    @property
    def source(self) -> Path:
        """Below SOURCES."""
        return Path(str(self.number), self.name)

    @property
    def target(self) -> Path:
        """Below DISK."""
        return Path("here" if self.get else "there", self.name)

    def contents(self) -> Iterator[tuple[Path, bytes]]:
        """Each file, relative to the source, and what is in it: always the same."""
        rng = random.Random(self.number)
        if not self.tree:
            yield Path(), rng.randbytes(int(FILE_BYTES_MAX * rng.random() ** 2))
            return
        for k in range(rng.randrange(3, 20)):
            yield Path(f"d{k % 3}", f"f{k}"), rng.randbytes(rng.randrange(SMALL_BYTES_MAX))

    def argv(self) -> list[str]:
        """Arguments of carefulctl."""
        options = ["-r"] * self.tree + ["-f"] * self.again
        options += ["-q", "--block-bytes", BLOCK_BYTES, "--rate-limit", RATE]
        of = "/" * self.tree  # what is in it
        if self.get:
            source = f"h2:{Path(SOURCES.name, self.source)}{of}"
            return ["get", *options, source, str(DISK / self.target)]
        target = f"h2:{Path(DISK.name, self.target)}"
        return ["put", *options, f"{SOURCES / self.source}{of}", target]


def transfers(count: int) -> list[Transfer]:
    """So many: gets and puts, files and trees in turn; each third file replaces an earlier one."""
    found: list[Transfer] = []
    for k in range(count):
        get, tree = k % 2 == 0, k % 4 >= 2
        files = [one.name for one in found if one.get == get and not one.tree]
        again = not tree and k % 3 == 0 and bool(files)
        name = files[k % len(files)] if again else f"{'tree' if tree else 'file'}{k}"
        found.append(Transfer(k, get, tree, again, name))
    return found


def make_sources(all_of: list[Transfer]) -> None:
    """All of them below SOURCES."""
    for one in all_of:
        for path, data in one.contents():
            file = SOURCES / one.source / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            os.utime(file, ns=(MTIME_NS, MTIME_NS))


def faults(all_of: list[Transfer], complete: int) -> list[str]:
    """What is wrong with what is below DISK, if so many transfers were reported complete.

    The next one may have been under way, or complete and not reported yet.
    """
    may: dict[Path, list[bytes]] = {}
    must: set[Path] = set()
    for one in all_of[: complete + 1]:
        for path, data in one.contents():
            file = one.target / path
            if one.number < complete:
                may[file] = [data]
                must.add(file)
            else:
                may.setdefault(file, []).append(data)
    wrong = []
    there = {one.relative_to(DISK) for one in DISK.rglob("*") if not one.is_dir()}
    for file in sorted(there):
        if is_part(file):
            continue
        if file not in may:
            wrong.append(f"{file}: nobody wrote it")
        elif (DISK / file).read_bytes() not in may[file]:
            wrong.append(f"{file}: damaged, or half of it")
    return wrong + [f"{file}: missing, and was reported complete" for file in sorted(must - there)]


def is_part(file: Path) -> bool:
    """Whether it is what an interrupted transfer left."""
    return file.name.startswith(".") and file.name.endswith(".part")


def marked(data: bytes) -> int:
    """The number in a mark."""
    return int(data.removeprefix(MARK).rstrip(b"\0"))


class Marks:
    """Notes on a device, behind its file system. They flush nothing, or a flush that careful
    leaves out would not be missed.
    """

    def __init__(self, device: str) -> None:
        self._file = os.open(device, os.O_RDWR | os.O_DIRECT)
        self._at = os.lseek(self._file, 0, os.SEEK_END) - MARKS_BYTES
        self._sector = mmap.mmap(-1, mmap.PAGESIZE)  # O_DIRECT wants it aligned

    def note(self, complete: int) -> None:
        """So many transfers were reported complete."""
        self._sector[:SECTOR_BYTES] = (MARK + str(complete).encode()).ljust(SECTOR_BYTES, b"\0")
        os.pwrite(self._file, memoryview(self._sector)[:SECTOR_BYTES], self._at)


def transfer(one: Transfer) -> None:
    """Make it, as `carefulctl` would; a process of its own, for it may end it."""
    child = os.fork()
    if not child:
        from careful.cli.start import main

        sys.argv = ["carefulctl", *one.argv()]
        main()
        sys.exit()
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(f"transfers.py: {one} failed: {status}")


def main() -> None:
    """Make them all; the number of each is printed when it is complete and marked."""
    count, device = int(sys.argv[1]), sys.argv[2]
    import careful.cli.start  # noqa: F401 - children have it then

    all_of = transfers(count)
    marks = Marks(device)
    marks.note(0)
    for one in all_of:
        if one.number == count // 2:
            time.clock_settime(time.CLOCK_REALTIME, time.time() - 3600)
        transfer(one)
        marks.note(one.number + 1)
        print(one.number, flush=True)


if __name__ == "__main__":
    main()
