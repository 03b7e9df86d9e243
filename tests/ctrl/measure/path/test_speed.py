"""What `carefulctl speed` sends suits the path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from careful.measure.path import speed
from careful.measure.statistics.sample import Bursts


@dataclass
class Link:
    """A layer over a link of a known rate."""

    name: str
    capacity: int
    block_us: float

    def bursts(self, marks: Sequence[int], compute_us: float, count: int) -> Bursts:
        done = np.full(3, self.block_us)
        done[0] *= 30  # it woke the other end
        return Bursts(np.asarray(marks, float), done[:, None], done[:, None], done, done)


@pytest.mark.parametrize(
    ("block_us", "nbytes", "name"),
    [
        (20, 1 << 20, "stream, 1 MiB"),  # 3 Gbit/s
        (36e3, 64 << 10, "stream, 64 KiB"),  # README's lab of hops: 1 MiB takes 4.6 s
        (2e6, 8 << 10, "stream, 8 KiB"),
    ],
)
def test_kinds__a_stream_suits_the_path(block_us: float, nbytes: int, name: str) -> None:
    """A block of 1 MiB over 2 Mbit/s lasted longer than carefuld waits."""
    *others, stream = speed.kinds(lambda kind: Link(kind.name, 1, block_us))
    assert [one.nbytes for one in others] == [64, 8192]
    assert (stream.nbytes, stream.name, stream.is_rate) == (nbytes, name, True)
