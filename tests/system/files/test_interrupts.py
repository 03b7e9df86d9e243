"""Files and trees interrupted at a few random instants; interrupts.py makes many."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hosts import Host, finish, wait_for
from interrupts import Arena, Round, draw


@pytest.fixture(scope="module")
def arena(shared_pair: tuple[Host, Host]) -> Arena:
    """Yields two hosts that are up, with the files to move."""
    return Arena(*shared_pair)


@pytest.mark.parametrize(
    ("number", "kind"), [(0, "file"), (5, "several"), (2, "file"), (7, "file")]
)
def test_interrupts__the_same_command_goes_on(arena: Arena, number: int, kind: str) -> None:
    """Random rounds with each victim in both directions."""
    arena.play(replace(draw(number, random.Random(number)), kind=kind))


@pytest.mark.parametrize(("way", "kind"), [("get", "tree"), ("put", "archive")])
def test_interrupts__received_blocks_do_not_move_again(arena: Arena, way: str, kind: str) -> None:
    """The transfer is so slow that only some files are complete when the command is killed."""
    case = Round(way, kind, (), ())
    arena.clear(case)
    job = arena.one.start(*arena.command(case), "--rate-limit", "1MiB")
    target = arena.target(case)

    def some() -> bool:
        return len(list(target.glob("folder */f*"))) >= 100 or job.poll() is not None

    wait_for(some, "first files")
    assert job.poll() is None, finish(job)
    job.kill()
    finish(job)
    assert arena.go_on(case, ["killed"]) > 0
