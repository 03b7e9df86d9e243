"""The rounds of a benchmark: in each, both protocols run every cell once, in turn.

Owns the order, what a cell costs at most, and which did not end. Calls nodes and experiments.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from careful.bench.experiments import PROTOCOLS, TABLES, Cell, cells
from careful.bench.ground import Host
from careful.bench.nodes import LateError, Nodes


@dataclass
class Result:
    """What a cell gave for one protocol.

    Attributes:
        values: a value of each node and round: 5P of them in P2, in the table's unit.
        late: times that it did not end in time; it is not tried again.
        user_us: CPU time of all nodes' programs, the engine's polling included.
        system_us: the kernel's for them, which moves frames between veth devices as well.
    """

    values: list[float] = field(default_factory=list)
    late: int = 0
    user_us: int = 0
    system_us: int = 0

    @property
    def mean(self) -> float | None:
        """The arithmetic mean, as P2 has it; None: there is no value."""
        return sum(self.values) / len(self.values) if self.values else None


@dataclass(frozen=True)
class Plan:
    """What is to be run.

    Attributes:
        tables: their names.
        nodes: each P.
        rounds: how often.
        scale: of the runs' lengths.
        limit_s: of a run.
    """

    tables: tuple[str, ...]
    nodes: tuple[int, ...]
    rounds: int = 5
    scale: float = 1.0
    limit_s: float = 20.0

    def cells(self) -> list[Cell]:
        """All of them, by P."""
        return [one for nodes in self.nodes for one in cells(self.tables, nodes, self.scale)]


class Found:
    """Everything that was measured.

    Attributes:
        results: by cell and protocol.
        frames: that a payload takes, by cell; both protocols have the same.
    """

    def __init__(self, wanted: Sequence[Cell]) -> None:
        self.results = {(one, protocol): Result() for one in wanted for protocol in PROTOCOLS}
        self.frames: dict[Cell, int] = {}


def waiting(nodes: int) -> str:
    """How nodes of this machine wait: where each has a CPU as careful does by itself."""
    return "adaptive" if nodes <= (os.cpu_count() or 1) else "block"


def run(plan: Plan, hosts: Sequence[Host], wait: str, tell: Callable[[str], None]) -> Found:
    """Run a plan.

    Args:
        plan: what.
        hosts: as many as the largest P at least.
        wait: how nodes wait: adaptive, spin or block; "": as suits this machine's CPUs.
        tell: is told what is under way.

    Raises:
        CarefulError: a node failed.
    """
    found = Found(plan.cells())
    for number in range(plan.rounds):
        order = PROTOCOLS if number % 2 else PROTOCOLS[::-1]
        for (nodes, tx_buffers, replicated), group in groupby(plan.cells(), key=_instances):
            wanted = list(group)
            for protocol in order:
                how = wait or waiting(nodes)
                part = Part(hosts[:nodes], protocol, how, tx_buffers, plan.limit_s, replicated)
                where = f"round {number + 1} of {plan.rounds}, {protocol}"
                for cell in part.play(found, wanted):
                    tell(f"{where}: {cell.name}")
    return found


def _instances(cell: Cell) -> tuple[int, int, bool]:
    """Returns what tells groups of nodes apart: size, send buffers, broadcasts."""
    table = TABLES[cell.table]
    return cell.nodes, table.tx_buffers, table.replicated


@dataclass(frozen=True)
class Part:
    """What one protocol does in a round on so many nodes."""

    hosts: Sequence[Host]
    protocol: str
    wait: str
    tx_buffers: int
    limit_s: float
    replicated: bool = False

    def play(self, found: Found, wanted: Sequence[Cell]) -> Iterator[Cell]:
        """Run cells one after another, each told of before it begins.

        Nodes that one of them was too much for are started again for the next.
        """
        word = "replicated" if self.replicated and self.protocol == "careful" else self.protocol
        todo = [one for one in wanted if not found.results[one, self.protocol].late]
        while todo:
            with Nodes(self.hosts, word, self.wait, self.tx_buffers) as nodes:
                while todo:
                    cell = todo.pop(0)
                    yield cell
                    result = found.results[cell, self.protocol]
                    try:
                        answers = nodes.run(cell, self.limit_s)
                    except LateError:
                        result.late += 1
                        break
                    for one in answers:
                        result.values.append(cell.value(one["took_ns"]))
                        result.user_us += one["user_us"]
                        result.system_us += one["system_us"]
                    found.frames[cell] = int(answers[0]["frames"])
