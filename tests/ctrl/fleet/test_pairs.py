"""All pairs in turns: each once, no host twice in a turn, no more turns than it takes."""

from __future__ import annotations

from itertools import permutations

import pytest
from careful.fleet.pairs import turns


@pytest.mark.parametrize("count", range(2, 12))
def test_turns__each_pair_once_and_no_host_twice_in_a_turn(count: int) -> None:
    found = turns(range(count))
    assert sorted(pair for turn in found for pair in turn) == list(permutations(range(count), 2))
    for turn in found:
        parts = [host for pair in turn for host in pair]
        assert len(parts) == len(set(parts))
    assert len(found) == 2 * (count - 1 + count % 2)


def test_turns__one_host_has_none() -> None:
    assert turns(["a"]) == []
