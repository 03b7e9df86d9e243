"""Each fault of faults.py once, at a random instant of two transfers."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

pytest.importorskip("careful._binding")

import faults
from lab import Lab


@pytest.fixture(scope="module")
def ground(lab_possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[faults.Ground]:
    """Three hosts that are up."""
    lab = Lab(hosts=3)
    try:
        one = faults.Ground(lab, tmp_path_factory.mktemp("faults"))
        yield one
        assert one.close() == [], "left behind"
    finally:
        lab.down()


@pytest.mark.parametrize("name", [name for name, one in faults.FAULTS.items() if not one.is_long])
def test_fault__all_is_well_afterwards(ground: faults.Ground, name: str) -> None:
    seed = random.SystemRandom().getrandbits(32)
    try:
        how, *_ = faults.play(ground, name, random.Random(seed))
    except Exception as error:
        error.add_note(f"tests/support/faults.py --rounds 1 --seed {seed} --faults '{name}'")
        raise
    assert how.startswith(("done", "failed: ")), seed
