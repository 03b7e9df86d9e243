"""The blocks in which a file passes through a chain of hosts, and the digests of its pieces.

The length of a block follows from P1 section 3.2: a host that stores and forwards is a stage.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import xxhash

from careful.model.planner import plan
from careful.model.stages import Pipeline, Stage
from careful.plan import Limits

#: Blocks in flight on a hop. An answer waits behind the blocks that its host sends on over the same
#: link, so UNDER_WAY of UNDER_WAY + 1 parts of the link's time are used.
UNDER_WAY = 6
#: Each piece has a digest; a block is one or more pieces.
_PIECE_BYTES, _PIECES_MAX = 1 << 16, 1 << 16
#: The largest block, bytes: blocks are held in memory as a whole.
_BLOCK_BYTES_MAX = 1 << 23


def piece_bytes(file_bytes: int) -> int:
    """Returns the size of a file's pieces: 64 KiB, doubled until there are at most 65,536."""
    size = _PIECE_BYTES
    while size * _PIECES_MAX < file_bytes:
        size *= 2
    return size


def digests(fd: int, file_bytes: int) -> list[str]:
    """Returns the XXH3 of each piece of an open file of this size; missing pieces are left out."""
    size = piece_bytes(file_bytes)
    present_bytes = min(os.fstat(fd).st_size, file_bytes)
    digests_ = []
    for at in range(0, present_bytes, size):
        data = os.pread(fd, min(size, file_bytes - at), at)
        digests_.append(xxhash.xxh3_128_hexdigest(data))
    return digests_


@dataclass(frozen=True)
class Hop:
    """Cost of a block from one host to the next.

    Attributes:
        g_us: overhead of a block, µs.
        G_us_per_KiB: of its bytes.
        note_us: until the next host knows that the block has arrived, µs.
    """

    g_us: float
    G_us_per_KiB: float
    note_us: float

    @classmethod
    def from_times(cls, small: tuple[int, float], large: tuple[int, float], note_us: float) -> Hop:
        """Computes the cost from the (bytes, µs) of two blocks."""
        (small_bytes, small_us), (large_bytes, large_us) = small, large
        G = max(0.0, (large_us - small_us) / (large_bytes - small_bytes) * 1024)
        return cls(max(0.0, small_us - G * small_bytes / 1024), G, note_us)


@dataclass(frozen=True)
class Blocks:
    """The blocks of a file.

    Attributes:
        file_bytes: its size.
        block_bytes: of each block but the last; whole pieces.
        predicted_us: until the last host has the file, µs; None: not predicted.
    """

    file_bytes: int
    block_bytes: int
    predicted_us: float | None = None

    @property
    def count(self) -> int:
        return math.ceil(self.file_bytes / self.block_bytes)

    def range(self, number: int) -> tuple[int, int]:
        """Returns the offset of a block and its size, bytes."""
        at = number * self.block_bytes
        return at, min(self.block_bytes, self.file_bytes - at)

    def blocks_present(self, wanted: list[str], present: list[str]) -> set[int]:
        """Returns the blocks whose pieces are all present.

        wanted: digests of the file's pieces. present: of a host's pieces, from the first on.
        """
        size = piece_bytes(self.file_bytes)
        pieces_per_block = self.block_bytes // size
        equal = [
            wanted_digest == present_digest
            for wanted_digest, present_digest in zip(wanted, present, strict=False)
        ]
        equal += [False] * (len(wanted) - len(equal))
        return {
            k
            for k in range(self.count)
            if all(equal[k * pieces_per_block : (k + 1) * pieces_per_block])
        }


def plan_blocks(file_bytes: int, hosts_count: int, hop: Hop | None) -> Blocks:
    """Returns the blocks of the size with which the last host has the whole file earliest.

    Each hop is a stage. Only a part of the hop's overhead occupies the hop, since other blocks are
    in flight; the rest, and the note to the next host, are a delay.

    hosts_count: hosts that the file goes to. hop: cost of a block; None: not measured, so each
    piece is a block.
    """
    size = piece_bytes(file_bytes)
    if hop is None or file_bytes <= size or hosts_count < 1:
        return Blocks(file_bytes, size)
    busy_us = hop.g_us / UNDER_WAY
    delay_us = hop.g_us - busy_us + hop.note_us
    stages = [
        Stage(f"hop {k}", busy_us, hop.G_us_per_KiB, delay_us=delay_us)
        for k in range(1, hosts_count + 1)
    ]
    limits = Limits(size, max(size, _BLOCK_BYTES_MAX))
    best = plan(Pipeline(tuple(stages)), file_bytes, "fixed", limits=limits)
    pieces = max(1, round(file_bytes / best.fragments_count / size))
    return Blocks(file_bytes, pieces * size, best.latency_us)
