"""The rounds of a benchmark: in each round both protocols run every cell once, in turn."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

from careful.bench.experiments import PROTOCOLS, TABLES, Cell, cells
from careful.bench.namespaces import Host
from careful.bench.nodes import LateError, Nodes


@dataclass
class Result:
    """Results of a cell for one protocol.

    Attributes:
        values: one value per node and round (5P in P2), in the table's unit.
        late: runs that did not end in time; the cell is not run again after the first.
        user_us: CPU time of all nodes' programs, with the engine's polling.
        system_us: kernel CPU time of the same programs, which includes moving frames between veths.
    """

    values: list[float] = field(default_factory=list)
    late: int = 0
    user_us: int = 0
    system_us: int = 0

    @property
    def mean(self) -> float | None:
        """Returns the arithmetic mean, like P2's; None: there is no value."""
        return sum(self.values) / len(self.values) if self.values else None


@dataclass(frozen=True)
class Plan:
    """The cells to run, and how often.

    Attributes:
        tables: names of the tables.
        nodes: the numbers of nodes to run with (P2's P).
        rounds: number of rounds.
        scale: factor of a run's length.
        limit_s: time limit of a run.
    """

    tables: tuple[str, ...]
    nodes: tuple[int, ...]
    rounds: int = 5
    scale: float = 1.0
    limit_s: float = 20.0

    def cells(self) -> list[Cell]:
        return [one for nodes in self.nodes for one in cells(self.tables, nodes, self.scale)]


class Results:
    """All results of a benchmark.

    Attributes:
        results: by cell and protocol.
        frames: frames per payload, by cell; the same for both protocols.
    """

    def __init__(self, wanted: Sequence[Cell]) -> None:
        self.results = {(one, protocol): Result() for one in wanted for protocol in PROTOCOLS}
        self.frames: dict[Cell, int] = {}


def waiting(nodes: int) -> str:
    """Returns the wait mode for nodes of this machine: adaptive if each node has a CPU."""
    return "adaptive" if nodes <= (os.cpu_count() or 1) else "block"


def run(plan: Plan, hosts: Sequence[Host], wait: str, report: Callable[[str], None]) -> Results:
    """Runs a plan. Raises CarefulError: a node failed.

    Args:
        plan: the cells and rounds.
        hosts: at least as many as the largest P.
        wait: "adaptive", "spin" or "block"; "": chosen from the number of CPUs.
        report: called with a line of text before each run.
    """
    results = Results(plan.cells())
    for number in range(plan.rounds):
        order = PROTOCOLS if number % 2 else PROTOCOLS[::-1]
        for (nodes, tx_buffers, replicated), group in groupby(plan.cells(), key=_instance_key):
            group_cells = list(group)
            for protocol in order:
                spoken = "replicated" if replicated and protocol == "careful" else protocol
                start = partial(Nodes, hosts[:nodes], spoken, wait or waiting(nodes), tx_buffers)
                text = f"round {number + 1} of {plan.rounds}, {protocol}"
                for cell in run_cells(results, group_cells, protocol, start, plan.limit_s):
                    report(f"{text}: {cell.name}")
    return results


def _instance_key(cell: Cell) -> tuple[int, int, bool]:
    table = TABLES[cell.table]
    return cell.nodes, table.tx_buffers, table.replicated


def run_cells(
    results: Results,
    cells: Sequence[Cell],
    protocol: str,
    start: Callable[[], Nodes],
    limit_s: float,
) -> Iterator[Cell]:
    """Runs the cells of a round one after another; yields each cell before its run. After a late
    run, the remaining cells get new nodes.
    """
    todo = [one for one in cells if not results.results[one, protocol].late]
    while todo:
        with start() as nodes:
            while todo:
                cell = todo.pop(0)
                yield cell
                result = results.results[cell, protocol]
                try:
                    answers = nodes.run(cell, limit_s)
                except LateError:
                    result.late += 1
                    break
                for answer in answers:
                    result.values.append(cell.value(answer["took_ns"]))
                    result.user_us += answer["user_us"]
                    result.system_us += answer["system_us"]
                results.frames[cell] = int(answers[0]["frames"])
