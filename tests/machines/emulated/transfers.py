"""Makes transfers to a disk in sequence, and checks its contents after a power cut.

Two machines run this file as a program. h1 has the disk, gets from h2, and asks h2 to put to it.
Outside the disk's file system, h1 records how many transfers were reported complete. On the host,
`powercut` asks this file for a disk's required contents. The machines' clocks drift apart: each
is set in the middle of transfers, and h2's is faster.

Usage: transfers.py COUNT, on h2; then transfers.py COUNT DEVICE, on h1. Both export PLACE/src, and
PLACE/disk to write.
"""

from __future__ import annotations

import mmap
import os
import random
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, NamedTuple

#: The folder of all files, in the machine and outside.
PLACE = Path("/tmp/careful-powercut")
SOURCES, DISK = PLACE / "src", PLACE / "disk"
#: Bytes at the device's end, behind the file system.
MARKS_BYTES = 1 << 20
MARK = b"careful: complete "
SECTOR_BYTES = 512
FILE_BYTES_MAX, SMALL_BYTES_MAX = 12 << 20, 64 << 10
#: Files have several blocks, so that a transfer can continue in the middle of one.
BLOCK_BYTES = "128KiB"
#: A low rate, so that there are writes before the end.
RATE = "1MiB"
#: Time of the first source, ns since 1970; each further one is a second later. Fixed times keep
#: sources equal outside the machines.
MTIME_NS = 1_700_000_000_000_000_000
_DAY_S = 86_400
#: Offsets of the hosts' clocks in each quarter of the transfers, seconds.
AHEAD_S = {
    "h1": (0, 40 * _DAY_S, 40 * _DAY_S - 3_600, -20 * _DAY_S),
    "h2": (0, -30 * _DAY_S, -30 * _DAY_S, 15 * _DAY_S),
}
#: Time from a transfer's start to the setting of a clock, seconds.
STEP_AFTER_S = 1.0
#: The port on which h2 receives commands.
PORT = 7070
#: Longest time until a machine listens, seconds.
LISTENS_S = 300.0


class Transfer(NamedTuple):
    """A `get` by h1 or a `put` by h2 of a file or a tree; `again`: it replaces an earlier file."""

    number: int
    get: bool
    tree: bool
    again: bool
    name: str

    @property
    def host(self) -> str:
        """Returns the host that runs the command."""
        return "h1" if self.get else "h2"

    @property
    def update(self) -> bool:
        """Reports whether the transfer compares sizes and times (-u), the same for all transfers of
        a name.
        """
        return int(self.name.removeprefix("file").removeprefix("tree")) // 4 % 2 == 1

    @property
    def mtime_ns(self) -> int:
        """Returns its sources' time."""
        return MTIME_NS + self.number * 1_000_000_000

    @property
    def source(self) -> Path:
        """Below SOURCES."""
        return Path(str(self.number), self.name)

    @property
    def target(self) -> Path:
        """Below DISK."""
        return Path("here" if self.get else "there", self.name)

    def contents(self) -> Iterator[tuple[Path, bytes]]:
        """Returns each file's fixed contents by its name relative to the source."""
        rng = random.Random(self.number)
        if not self.tree:
            yield Path(), rng.randbytes(int(FILE_BYTES_MAX * rng.random() ** 2))
            return
        for k in range(rng.randrange(3, 20)):
            yield Path(f"d{k % 3}", f"f{k}"), rng.randbytes(rng.randrange(SMALL_BYTES_MAX))

    def argv(self) -> list[str]:
        """Returns the arguments of carefulctl."""
        options = ["-r"] * self.tree + ["-u" if self.update else "-f"] * (self.again or self.update)
        options += ["-q", "--block-bytes", BLOCK_BYTES, "--rate-limit", RATE]
        of = "/" * self.tree  # the contents of the folder
        if self.get:
            source = f"h2:{Path(SOURCES.name, self.source)}{of}"
            return ["get", *options, source, str(DISK / self.target)]
        target = f"h1:{Path(DISK.name, self.target)}"
        return ["put", *options, f"{SOURCES / self.source}{of}", target]


def transfers(count: int) -> list[Transfer]:
    """Returns gets and puts, files and trees in turn; each third file replaces an earlier one."""
    found: list[Transfer] = []
    for k in range(count):
        get, tree = k % 2 == 0, k % 4 >= 2
        files = [one.name for one in found if one.get == get and not one.tree]
        again = not tree and k % 3 == 0 and bool(files)
        name = files[k % len(files)] if again else f"{'tree' if tree else 'file'}{k}"
        found.append(Transfer(k, get, tree, again, name))
    return found


def make_sources(all_of: list[Transfer]) -> None:
    """Makes all sources below SOURCES."""
    for one in all_of:
        for path, data in one.contents():
            file = SOURCES / one.source / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            os.utime(file, ns=(one.mtime_ns, one.mtime_ns))


def faults(all_of: list[Transfer], complete: int) -> list[str]:
    """Returns the faults below DISK after this many reported transfers.

    The next transfer may have been under way, or complete and not yet reported.
    """
    may: dict[Path, list[tuple[bytes, int]]] = {}  # contents; and the time, unless it is 0
    must: set[Path] = set()
    for one in all_of[: complete + 1]:
        for path, data in one.contents():
            file, version = one.target / path, (data, one.mtime_ns * one.update)
            if one.number < complete:
                may[file] = [version]
                must.add(file)
            else:
                may.setdefault(file, []).append(version)
    wrong = []
    exists = {one.relative_to(DISK) for one in DISK.rglob("*") if not one.is_dir()}
    for file in sorted(exists):
        if is_part(file):
            continue
        data, mtime_ns = (DISK / file).read_bytes(), (DISK / file).stat().st_mtime_ns
        times = [time_ns for other, time_ns in may.get(file, ()) if other == data]
        if file not in may:
            wrong.append(f"{file}: nobody wrote it")
        elif not times:
            wrong.append(f"{file}: damaged, or half of it")
        elif not any(time_ns in (0, mtime_ns) for time_ns in times):
            wrong.append(f"{file}: has another time")
    return wrong + [f"{file}: missing, and was reported complete" for file in sorted(must - exists)]


def quarter(number: int, count: int) -> int:
    """Returns the index in AHEAD_S after this many of all transfers."""
    return sum(number >= k * count // 4 for k in (1, 2, 3))


def step_s(host: str, number: int, count: int) -> int:
    """Returns the step of a host's clock in the middle of a transfer, seconds, or 0."""
    now, before = (AHEAD_S[host][quarter(k, count)] for k in (number, max(number - 1, 0)))
    return now - before


def is_part(file: Path) -> bool:
    """Reports whether the file is left from an interrupted transfer."""
    return file.name.startswith(".") and file.name.endswith(".part")


def marked(data: bytes) -> int:
    """Returns the number in a mark."""
    return int(data.removeprefix(MARK).rstrip(b"\0"))


class Marks:
    """Records on a device, behind its file system. They flush nothing, since that would hide a
    missing flush of careful.
    """

    def __init__(self, device: str) -> None:
        self._file = os.open(device, os.O_RDWR | os.O_DIRECT)
        self._at = os.lseek(self._file, 0, os.SEEK_END) - MARKS_BYTES
        self._sector = mmap.mmap(-1, mmap.PAGESIZE)  # aligned for O_DIRECT

    def note(self, complete: int) -> None:
        """Records that this many transfers were reported complete."""
        self._sector[:SECTOR_BYTES] = (MARK + str(complete).encode()).ljust(SECTOR_BYTES, b"\0")
        os.pwrite(self._file, memoryview(self._sector)[:SECTOR_BYTES], self._at)


def begin(one: Transfer) -> int:
    """Begins a transfer in a new process, which it may end. Returns the process."""
    child = os.fork()
    if not child:
        from careful.cli.start import main

        sys.argv = ["carefulctl", *one.argv()]
        main()
        sys.exit()
    return child


def end(child: int, one: Transfer) -> None:
    """Waits for the process of a transfer."""
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(f"transfers.py: {one} failed: {status}")


def set_clock(host: str, number: int, count: int) -> None:
    """Sets the clock if it is due."""
    if seconds := step_s(host, number, count):
        time.sleep(STEP_AFTER_S)
        time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)


def ask(lines: IO[str], number: int) -> None:
    """Sends h2 the number of a transfer that begins."""
    print(number, file=lines, flush=True)


def wait(lines: IO[str]) -> None:
    """Waits until h2 reports a transfer's end, or for a get that its clock is set."""
    if not lines.readline():
        sys.exit("transfers.py: h2 is gone")


def connected() -> socket.socket:
    until = time.monotonic() + LISTENS_S
    while True:
        try:
            return socket.create_connection(("10.77.0.2", PORT))
        except OSError:
            if time.monotonic() > until:
                raise
        time.sleep(0.5)


def serve(all_of: list[Transfer]) -> None:
    """Makes h2's transfers on request."""
    with socket.create_server(("10.77.0.2", PORT)) as server:
        connection, _ = server.accept()
    with closing(connection), connection.makefile("rw") as lines:
        for line in lines:
            one = all_of[int(line)]
            child = 0 if one.get else begin(one)
            set_clock("h2", one.number, len(all_of))
            if child:
                end(child, one)
            print("done", file=lines, flush=True)


def make(all_of: list[Transfer], marks: Marks, lines: IO[str]) -> None:
    """Makes all transfers; prints each number when the transfer is complete and marked."""
    marks.note(0)
    for one in all_of:
        ask(lines, one.number)
        child = begin(one) if one.get else 0
        set_clock("h1", one.number, len(all_of))
        if child:
            end(child, one)
        wait(lines)
        marks.note(one.number + 1)
        print(one.number, flush=True)


def main() -> None:
    count, *device = sys.argv[1:]
    import careful.cli.start  # noqa: F401 - for child processes

    all_of = transfers(int(count))
    if not device:
        serve(all_of)
        return
    with closing(connected()) as connection, connection.makefile("rw") as lines:
        make(all_of, Marks(device[0]), lines)


if __name__ == "__main__":
    main()
