"""The blocks of `fleet put`: their plan, and which count as present."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from careful.fleet.blocks import UNDER_WAY, Blocks, Hop, digests, piece_bytes, plan_blocks
from careful.model import Pipeline, Stage, plan

#: 100 Mbit/s, and 2 ms of overhead.
HOP = Hop(2000.0, 82.0, 3000.0)


def test_piece_bytes__at_most_65536_of_them() -> None:
    assert piece_bytes(0) == piece_bytes(1 << 32) == 1 << 16
    assert piece_bytes((1 << 32) + 1) == 1 << 17


def test_hop__from_two_blocks() -> None:
    hop = Hop.from_times((65536, 2000 + 64 * 82.0), (4 * 65536, 2000 + 256 * 82.0), 3000.0)
    assert (round(hop.g_us), round(hop.G_us_per_KiB)) == (2000, 82)
    assert Hop.from_times((65536, 9.0), (262144, 8.0), 0.0).G_us_per_KiB == 0  # disturbed


def test_planned__whole_pieces_near_the_model_s_best() -> None:
    nbytes = 100 << 20
    found = plan_blocks(nbytes, 8, HOP)
    taken = 2000 / UNDER_WAY
    stages = tuple(Stage(f"{k}", taken, 82.0, delay_us=5000 - taken) for k in range(8))
    best = plan(Pipeline(stages), nbytes, "fixed")
    assert found.block_bytes % piece_bytes(nbytes) == 0
    assert found.block_bytes == pytest.approx(nbytes / best.fragments_count, rel=0.1)
    assert found.predicted_us == pytest.approx(best.latency_us, rel=0.01)
    # The chain of eight takes little more than one link.
    one_us = 82.0 * nbytes / 1024
    assert one_us < found.predicted_us < 1.2 * one_us
    assert plan_blocks(nbytes, 2, HOP).block_bytes > found.block_bytes
    assert (1 << 22) < plan_blocks(nbytes, 1, HOP).block_bytes <= 1 << 23  # no more at once


def test_planned__small_files_go_by_pieces() -> None:
    assert plan_blocks(0, 8, HOP) == Blocks(0, 65536)
    assert plan_blocks(0, 8, HOP).count == 0
    assert plan_blocks(65537, 8, None).count == 2
    assert plan_blocks(65537, 8, None).range(1) == (65536, 1)


def test_there__blocks_with_equal_pieces(tmp_path: Path) -> None:
    data = os.urandom(6 * 65536 + 10)
    whole, part = tmp_path / "whole", tmp_path / "part"
    whole.write_bytes(data)
    other = bytes([data[2 * 65536] ^ 1])
    part.write_bytes(data[: 2 * 65536] + other + data[2 * 65536 + 1 : 5 * 65536])

    def digests_of(path: Path) -> list[str]:
        fd = os.open(path, os.O_RDONLY)
        try:
            return digests(fd, len(data))
        finally:
            os.close(fd)

    blocks = Blocks(len(data), 2 * 65536)
    assert blocks.count == 4
    assert blocks.blocks_present(digests_of(whole), digests_of(part)) == {0}
    assert blocks.blocks_present(digests_of(whole), digests_of(whole)) == {0, 1, 2, 3}
    assert blocks.blocks_present(digests_of(whole), []) == set()
