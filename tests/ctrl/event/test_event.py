"""`careful.event` on three hosts: each case runs one program on all of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from lab import Lab

pytestmark = pytest.mark.lab

PROGRAM = Path(__file__).with_name("event_program.py")


@pytest.fixture(scope="module")
def three(lab_possible: None) -> Iterator[Lab]:
    one = Lab(hosts=3)
    yield one
    one.down()


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, errors = process.communicate(timeout=90)
    return process.returncode, out + errors


def run(lab: Lab, case: str, nodes: int = 3) -> list[tuple[int, str]]:
    started = [
        lab.start(host, sys.executable, "-X", "dev", PROGRAM, case, str(rank), str(nodes))
        for rank, host in enumerate(lab.hosts[:nodes])
    ]
    return [finish(one) for one in started]


@pytest.fixture(scope="module")
def eight(lab_possible: None) -> Iterator[Lab]:
    one = Lab(hosts=8)
    yield one
    one.down()


@pytest.mark.parametrize("nodes", [1, 2, 8])
def test_heat__with_any_number_of_nodes(eight: Lab, nodes: int) -> None:
    assert run(eight, "heat", nodes) == [(0, "")] * nodes


@pytest.mark.parametrize(
    "case", ["crowd", "fragments", "planned", "window", "exception", "leaves", "heat", "loop"]
)
def test_three_nodes__case(three: Lab, case: str) -> None:
    assert run(three, case) == [(0, "")] * 3


def test_three_nodes__the_bound_of_copying_out(three: Lab) -> None:
    ends = run(three, "flood_bound")
    assert {status for status, _ in ends} == {0}, ends
    assert "told\n" in [said for _, said in ends]


def test_three_nodes__calls_that_are_repeated(three: Lab) -> None:
    ends = run(three, "again")
    assert {status for status, _ in ends} == {0}, ends
    assert "in the middle\n" in [said for _, said in ends]


def test_three_nodes__one_is_killed(three: Lab) -> None:
    first, second, third = run(three, "killed")
    assert first == (0, "")
    assert second[0] == -9
    assert third == (0, "")


def test_jacobi__its_command_line(three: Lab, tmp_path: Path) -> None:
    """The command confirms that the bits are the same; its trace can be shown."""
    argv = [sys.executable, "-m", "careful.event.jacobi", "eth1", "--hosts", "h1,h2,h3"]
    more = ["--size", "24", "--iterations", "200", "--check"]
    note = ["env", f"CAREFUL_EVENT_TRACE={tmp_path}"]
    started = [
        three.start(host, *note, *argv, "--rank", str(rank), *more)
        for rank, host in enumerate(three.hosts)
    ]
    ends = [finish(one) for one in started]
    assert [status for status, _ in ends] == [0, 0, 0], ends
    assert "the same as one node's result, to the last bit" in ends[0][1]
    from careful.event import trace

    count, _ = trace.matrix(trace.read_all(tmp_path))
    # A row to each neighbour in each iteration; meeting is all-to-all, gathering all-to-one.
    assert np.array_equal(count, [[0, 201, 1], [202, 0, 201], [2, 201, 0]])
    done = three.run(
        "h1", "carefulctl", "trace", "events", str(tmp_path), "--plot", str(tmp_path / "who.svg")
    )
    assert "6 of 6 pairs talk" in done.stdout
    assert "who sends to whom" in (tmp_path / "who.svg").read_text()
