"""`carefulctl bench` with real engines: every cell has a value, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from careful.bench.experiments import PROTOCOLS, TABLES, Cell
from careful.bench.namespaces import NamespaceHosts
from careful.bench.nodes import Nodes
from careful.bench.rounds import Plan
from careful.errors import CarefulError
from careful.event import jacobi

pytestmark = [pytest.mark.lab, pytest.mark.timeout(500)]
CTL = Path(sys.executable).with_name("carefulctl")


class Bench:
    """The command, with a mark in its processes' environment."""

    def __init__(self) -> None:
        self.mark = f"bench-{uuid.uuid4().hex[:12]}"
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> subprocess.Popen[str]:
        environment = os.environ | {"CAREFUL_INSTANCE": self.mark}
        self._started.append(
            subprocess.Popen(
                [CTL, "bench", *words],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return self._started[-1]

    def running(self, *names: str) -> list[int]:
        """Returns its processes, or those with these names."""
        found = []
        for path in Path("/proc").iterdir():
            if not path.name.isdigit():
                continue
            try:
                ours = f"CAREFUL_INSTANCE={self.mark}".encode() in (path / "environ").read_bytes()
                if ours and (not names or (path / "comm").read_text().strip() in names):
                    found.append(int(path.name))
            except OSError:  # it ended meanwhile
                continue
        return sorted(found)

    def wait_for_nodes(self, count: int) -> list[int]:
        """Waits until this many nodes run."""
        end = time.monotonic() + 200
        while len(found := self.running("careful-p2")) < count:
            assert time.monotonic() < end, "no nodes"
            time.sleep(0.05)
        return found

    def assert_gone(self) -> None:
        """Checks that no process, pin or lock is left; orphans may need a moment."""
        end = time.monotonic() + 60
        while self.running() and time.monotonic() < end:
            time.sleep(0.05)
        assert self.running() == []
        for place in ("/run/careful", "/sys/fs/bpf/careful"):
            assert list(Path(place).glob(f"*{self.mark}*")) == []

    def close(self) -> None:
        for one in self._started:
            one.kill()
            one.communicate()


@pytest.fixture
def bench(lab_possible: None) -> Iterator[Bench]:
    one = Bench()
    yield one
    one.close()


def test_bench__quick_gives_every_cell(bench: Bench, tmp_path: Path) -> None:
    kept, plot = tmp_path / "kept.json", tmp_path / "plot.png"
    command = bench.start("--quick", "--output", str(kept), "--plot", str(plot), "--timeout", "60")
    out, err = command.communicate(timeout=400)
    assert (command.returncode, err) == (0, "")
    found: dict[str, Any] = json.loads(kept.read_text())
    wanted = Plan(tuple(TABLES), (1, 2, 4, 8)).cells()
    assert len(found["cells"]) == len(wanted)
    for one in found["cells"]:
        for protocol in PROTOCOLS:
            result = one[protocol]
            values = result[f"values_{TABLES[one['table']].unit}"]
            assert len(values) == one["nodes"] or result["late"]
            assert all(value > 0 for value in values)
        assert not one["careful"]["late"]
        assert one["frames"] >= 1 or one["nodes"] == 1
    for table in TABLES.values():
        assert table.title in out
    assert plot.stat().st_size > 10000
    bench.assert_gone()
    again = bench.start("--from", str(kept))
    assert again.communicate(timeout=120) == (out, "")


def test_jacobi__its_plate_is_that_of_the_example(lab_possible: None) -> None:
    """Each node compares its rows with one node's result; here all rows are compared with
    jacobi.py's.
    """
    with NamespaceHosts(3, 9000) as made, Nodes(made.hosts, "careful", "block", 64) as nodes:
        for size in (8, 33):
            answers = nodes.run(Cell("jacobi", 3, size, False, 40), 60)
            points = jacobi.serial(size, 40)[1:-1, 1:-1]
            assert sum(one["sum"] for one in answers) == pytest.approx(points.sum(), rel=1e-12)
        with pytest.raises(CarefulError, match=r"node \d: Invalid argument"):
            nodes.run(Cell("jacobi", 3, 2, False, 40), 60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_bench__leaves_nothing_when_it_is_ended(bench: Bench, number: signal.Signals) -> None:
    command = bench.start("--rounds", "1000", "--nodes", "2", "--table", "latency")
    bench.wait_for_nodes(2)
    command.send_signal(number)
    _, err = command.communicate(timeout=400)
    if number == signal.SIGINT:
        assert (command.returncode, err) == (130, "carefulctl: interrupted\n")
    else:
        assert command.returncode == -number
    bench.assert_gone()


def test_bench__a_node_that_is_killed_is_named(bench: Bench) -> None:
    command = bench.start("--rounds", "1000", "--nodes", "4", "--table", "flood")
    bench.wait_for_nodes(4)
    end = time.monotonic() + 200
    while command.poll() is None and time.monotonic() < end:  # a node that was done is not missed
        for pid in bench.running("careful-p2")[-1:]:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
    out, err = command.communicate(timeout=60)
    assert command.returncode == 1
    assert out == ""
    assert err.startswith("carefulctl: ")
    assert "was ended by signal 9" in err
    assert len(err.splitlines()) == 1
    bench.assert_gone()
