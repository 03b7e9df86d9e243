"""Nodes whose programs answer as the test wants: the error names the failed node."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from careful.bench.experiments import Cell
from careful.bench.namespaces import Host
from careful.bench.nodes import LateError, Nodes
from careful.bench.rounds import Results, run_cells
from careful.errors import CarefulError

CELL = Cell("latency", 2, 1, False, 10)
#: Prints that it is ready, then answers lines as its first argument says. Others are careful-p2's.
FAKE = """
import os, signal, sys
case = sys.argv[1]
print('{"ready": true, "fragment_bytes": 3700}', flush=True)
for line in sys.stdin:
    if case == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif case == "late" or (case == "late first" and " 7 " in line):
        print('{"error": "did not end in time: limit"}', flush=True)
        raise SystemExit(1)
    elif case == "broken":
        print('{"error": "node 1: Connection reset by peer"}', flush=True)
        raise SystemExit(1)
    elif case == "canceled":
        print('{"error": "node 0: Operation canceled"}', flush=True)
        raise SystemExit(1)
    elif case == "wrong":
        print('{"error": "jacobi: wrong"}', flush=True)
        raise SystemExit(1)
    elif case != "waits":
        print('{"took_ns": 40000, "user_us": 3, "system_us": 5, "frames": 1}', flush=True)
    else:
        sys.stdin.read()
"""


ANSWER = {"took_ns": 40000, "user_us": 3, "system_us": 5, "frames": 1}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "fake.py"
    path.write_text(FAKE)
    return path


def hosts(program: Path, *cases: str) -> list[Host]:
    return [Host((sys.executable, str(program), one), f"10.0.0.{one}") for one in cases]


def nodes(program: Path, *cases: str) -> Nodes:
    return Nodes(hosts(program, *cases), "careful", "block", 64)


def test_nodes__answer(program: Path) -> None:
    with nodes(program, "well", "well") as group:
        assert group.fragment_bytes == 3700
        for _ in range(3):
            assert group.run(CELL, 60) == [ANSWER] * 2


@pytest.mark.parametrize(
    ("cases", "said"),
    [
        (("broken", "killed"), "2 nodes, careful: node 1 was ended by signal 9"),
        (("killed", "waits"), "2 nodes, careful: node 0 was ended by signal 9"),
        (("broken", "waits"), "2 nodes, careful: node 1: Connection reset by peer"),
        (("canceled", "broken"), "2 nodes, careful: node 1: Connection reset by peer"),
        (("broken", "wrong"), "2 nodes, careful: node 1: jacobi: wrong"),
    ],
)
def test_nodes__the_failed_node_is_named(program: Path, cases: tuple[str, ...], said: str) -> None:
    with nodes(program, *cases) as group, pytest.raises(CarefulError) as caught:
        group.run(CELL, 60)
    assert str(caught.value) == said
    assert not isinstance(caught.value, LateError)
    assert not [pid for pid in group.pids if Path(f"/proc/{pid}").exists()]


def test_nodes__all_late(program: Path) -> None:
    with nodes(program, "late", "late") as group, pytest.raises(LateError):
        group.run(CELL, 60)


def test_run_cells__continues_after_a_cell_that_does_not_end(program: Path) -> None:
    """New nodes run the remaining cells; later rounds leave that cell out."""
    wanted = [CELL, Cell("latency", 2, 7, False, 10), Cell("latency", 2, 8, False, 10)]
    found = Results(wanted)

    def start() -> Nodes:
        return nodes(program, "late first", "late first")

    assert list(run_cells(found, wanted, "careful", start, 60)) == wanted
    assert list(run_cells(found, wanted, "careful", start, 60)) == [wanted[0], wanted[2]]
    results = [found.results[one, "careful"] for one in wanted]
    assert [one.late for one in results] == [0, 1, 0]
    assert [one.values for one in results] == [[2.0] * 4, [], [2.0] * 4]
    assert [(one.user_us, one.system_us) for one in results] == [(12, 20), (0, 0), (12, 20)]
    assert found.frames == {wanted[0]: 1, wanted[2]: 1}
