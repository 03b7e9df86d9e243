"""The blocks that a file goes through a chain of hosts in, and the digests of its pieces.

Owns how long a block is (P1 section 3.2: a host that stores and forwards is a stage), and what of
a file is there already. Calls model.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import xxhash

from careful.model.planner import plan
from careful.model.stages import Pipeline, Stage
from careful.plan import Limits

#: Blocks of a hop under way: an answer waits behind as many that its host sends on, in the same
#: link, so of the link's time all but one of UNDER_WAY + 1 parts is used.
UNDER_WAY = 6
#: A piece has a digest; a block is one or more of them.
_PIECE_BYTES, _PIECES_MAX = 1 << 16, 1 << 16
#: A block is in memory as a whole.
_BLOCK_BYTES_MAX = 1 << 23


def piece_bytes(file_bytes: int) -> int:
    """Size of a file's pieces: 64 KiB, or twice as much until there are 65,536 at most."""
    size = _PIECE_BYTES
    while size * _PIECES_MAX < file_bytes:
        size *= 2
    return size


def digests(fd: int, file_bytes: int) -> list[str]:
    """XXH3 of each piece of an open file of so many bytes; those that are not there are left out.

    Raises:
        OSError: it cannot be read.
    """
    size = piece_bytes(file_bytes)
    there = min(os.fstat(fd).st_size, file_bytes)
    found = []
    for at in range(0, there, size):
        data = os.pread(fd, min(size, file_bytes - at), at)
        found.append(xxhash.xxh3_128_hexdigest(data))
    return found


@dataclass(frozen=True)
class Hop:
    """What a block takes from one host to the next.

    Attributes:
        g_us: its overhead, µs.
        G_us_per_KiB: of its bytes.
        note_us: until the next host knows that it is there, µs.
    """

    g_us: float
    G_us_per_KiB: float
    note_us: float

    @classmethod
    def by(cls, small: tuple[int, float], large: tuple[int, float], note_us: float) -> Hop:
        """From the sizes, bytes, and times, µs, of two blocks."""
        (less, least_us), (more, most_us) = small, large
        G = max(0.0, (most_us - least_us) / (more - less) * 1024)
        return cls(max(0.0, least_us - G * less / 1024), G, note_us)


@dataclass(frozen=True)
class Blocks:
    """How a file is cut.

    Attributes:
        file_bytes: its size.
        block_bytes: of each but the last; whole pieces.
        predicted_us: until the last host has the file, µs; None: not predicted.
    """

    file_bytes: int
    block_bytes: int
    predicted_us: float | None = None

    @property
    def count(self) -> int:
        """How many; of an empty file none."""
        return math.ceil(self.file_bytes / self.block_bytes)

    def range(self, number: int) -> tuple[int, int]:
        """Where a block begins, and its size, bytes."""
        at = number * self.block_bytes
        return at, min(self.block_bytes, self.file_bytes - at)

    def there(self, wanted: list[str], found: list[str]) -> set[int]:
        """The blocks all of whose pieces are there.

        Args:
            wanted: digests of the file's pieces.
            found: of those that a host has, from the first on.
        """
        size = piece_bytes(self.file_bytes)
        each = self.block_bytes // size
        equal = [mine == its for mine, its in zip(wanted, found, strict=False)]
        equal += [False] * (len(wanted) - len(equal))
        return {k for k in range(self.count) if all(equal[k * each : (k + 1) * each])}


def planned(file_bytes: int, hosts_count: int, hop: Hop | None) -> Blocks:
    """Blocks with which the last of so many hosts has the file first.

    Each hop is a stage. Of its overhead a block takes a part of the hop's time, for others are
    under way meanwhile; the rest, and the note to the next host, are a delay.

    Args:
        file_bytes: its size.
        hosts_count: how many hosts the file goes to.
        hop: what a block takes; None: not measured, each piece is a block.
    """
    size = piece_bytes(file_bytes)
    if hop is None or file_bytes <= size or hosts_count < 1:
        return Blocks(file_bytes, size)
    taken = hop.g_us / UNDER_WAY
    delay_us = hop.g_us - taken + hop.note_us
    stages = [
        Stage(f"hop {k}", taken, hop.G_us_per_KiB, delay_us=delay_us)
        for k in range(1, hosts_count + 1)
    ]
    limits = Limits(size, max(size, _BLOCK_BYTES_MAX))
    found = plan(Pipeline(tuple(stages)), file_bytes, "fixed", limits=limits)
    pieces = max(1, round(file_bytes / found.fragments_count / size))
    return Blocks(file_bytes, pieces * size, found.latency_us)
