"""Files and trees interrupted at a few random instants; interrupts.py does many."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("careful._binding")

from hosts import Host
from interrupts import VICTIMS, Arena, Round, draw
from lab import Lab

pytestmark = pytest.mark.skipif(shutil.which("carefuld") is None, reason="carefuld is not built")


@pytest.fixture(scope="module")
def arena(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """Two hosts that are up."""
    folder = tmp_path_factory.mktemp("arena")
    made = [Host(lab, name, Path(folder)) for name in lab.hosts]
    for host in made:
        host.up()
    yield Arena(*made)
    for host in made:
        host.ctl("down", "eth1", check=False)


@pytest.mark.parametrize("number", range(2 * len(VICTIMS)))
def test_interrupts__the_same_command_goes_on(arena: Arena, number: int) -> None:
    """Eight seeded rounds: each victim, each way."""
    arena.play(draw(number, random.Random(7000 + number)))


@pytest.mark.parametrize("way", ["get", "put"])
def test_interrupts__late_in_a_tree(arena: Arena, way: str) -> None:
    """Late enough that something is there for certain: the limit makes a run take seconds."""
    case = Round(way, "tree", ("command SIGKILL",), (1.0,))
    arena.limited(case)
