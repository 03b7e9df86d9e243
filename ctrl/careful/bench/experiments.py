"""P2's experiments (section 6.1): the cells of its tables, and how times become values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

PROTOCOLS = ("traditional", "careful")
#: Send buffers of an instance. The traditional protocol keeps every frame of a flood.
TX_BUFFERS = 1024
#: A message of P2's largest payload needs three frames; one more is reserved for window updates.
ONE_TX_BUFFER = 4


@dataclass(frozen=True)
class Table:
    """One of P2's tables.

    Attributes:
        name: the name on the command line.
        experiment: the name that careful-p2 and tests/sim/papers/test_sim_p2.c use.
        title: for people, with P2's number.
        unit: of the values.
        nodes: the numbers of nodes to run with (P2's P).
        sizes: payloads in words of 4 bytes; rows of the grid for Jacobi.
        messages: messages, hops or iterations of a run.
        fragments: fragments of a message, by P; empty: a message is one payload.
        processing: runs both without and with processing.
        tx_buffers: send buffers of an instance.
        paper_unit: unit of P2's values, if it differs.
        more_is_better: larger values are better.
        replicated: careful sends a broadcast as one frame per node, like the traditional protocol.
    """

    name: str
    experiment: str
    title: str
    unit: str
    nodes: tuple[int, ...]
    sizes: tuple[int, ...]
    messages: int
    fragments: Mapping[int, int] = field(default_factory=dict)
    processing: bool = True
    tx_buffers: int = TX_BUFFERS
    paper_unit: str = ""
    more_is_better: bool = False
    replicated: bool = False


LATENCY = Table(
    "latency",
    "latency",
    "Table 1: latency of a hop around a ring",
    "us",
    (2, 4, 8),
    (1, 1000, 2000),
    messages=1000,
)
THROUGHPUT = Table(
    "throughput",
    "throughput",
    "Table 2: throughput of all links of a chain",
    "Mbit_per_s",
    (2, 4, 8),
    (1, 200, 1000, 2000),
    messages=3000,
    more_is_better=True,
)
ONE_BUFFER = Table(
    "one-buffer",
    "throughput",
    "One send buffer: time a message (section 6.1)",
    "us",
    (2,),
    (2000,),
    messages=1000,
    processing=False,
    tx_buffers=ONE_TX_BUFFER,
)
FLOOD = Table(
    "flood",
    "flood",
    "Table 3: flooding, 10 messages of 16, 8 and 4 fragments outstanding",
    "ms",
    (2, 4, 8),
    (1, 1000, 2000),
    messages=10,
    fragments={2: 16, 4: 8, 8: 4},
)
JACOBI = Table(
    "jacobi",
    "jacobi",
    "Table 4: Jacobi, an iteration",
    "us",
    (1, 2, 4, 8),
    (8, 16, 32, 64, 256, 1024),
    messages=1000,
    processing=False,
    paper_unit="s",
)
#: With 2 nodes a broadcast is one frame under both protocols.
REPLICATED = replace(
    FLOOD,
    name="replicated",
    title="Table 3 replicated: careful's broadcasts go in a frame for each node, too",
    nodes=(4, 8),
    replicated=True,
)
#: Larger grids than P2's run fewer iterations, so that a run computes about as many rows.
_GRID_MAX = 64
TABLES = {one.name: one for one in (LATENCY, THROUGHPUT, ONE_BUFFER, FLOOD, REPLICATED, JACOBI)}


@dataclass(frozen=True)
class Cell:
    """A cell of a table, for either protocol.

    Attributes:
        table: name of the table.
        nodes: P.
        size: words of a message or of a flood's fragment; rows of a grid.
        processing: each word is written before the send and read after the receive.
        count: rounds of the ring, messages or iterations.
        fragments: fragments of a message.
    """

    table: str
    nodes: int
    size: int
    processing: bool
    count: int
    fragments: int = 1

    @property
    def experiment(self) -> str:
        return TABLES[self.table].experiment

    @property
    def line(self) -> str:
        words = (self.experiment, self.size, self.count, self.fragments)
        return " ".join(map(str, (*words, int(self.processing))))

    @property
    def name(self) -> str:
        size = f"{self.size} x {self.size}" if self.table == "jacobi" else f"{self.size} words"
        text = f"{self.table}, P = {self.nodes}, {size}"
        return text + ", processing" * self.processing

    def value(self, took_ns: float) -> float:
        """Returns a node's time in the unit of its table: µs, Mbit/s or ms (P2 section 6.1).

        Rounds to six digits, so that the stored value equals the printed one.
        """
        if self.experiment == "latency":
            value = took_ns / 1e3 / (self.count * self.nodes)
        elif self.table == "throughput":  # one-buffer, of the same experiment, reports a time
            value = self.count * self.size * 32e3 * (self.nodes - 1) / took_ns
        elif self.experiment == "flood":
            value = took_ns / 1e6
        else:
            value = took_ns / 1e3 / self.count
        return float(f"{value:.6g}")


def _count(table: Table, nodes: int, size: int, scale: float) -> int:
    if table.experiment == "flood":
        return table.messages
    messages = table.messages // nodes if table is LATENCY else table.messages
    if table is JACOBI and size > _GRID_MAX:
        messages = messages * _GRID_MAX // size
    return max(int(messages * scale), 5)


def cells(tables: Sequence[str], nodes: int, scale: float = 1.0) -> Iterator[Cell]:
    """Yields the cells for P nodes; cells that can share instances are adjacent.

    tables: their names. nodes: P. scale: factor of a run's length; 1 is full length.
    """
    tables_ = [TABLES[name] for name in tables if nodes in TABLES[name].nodes]
    for table in sorted(tables_, key=lambda one: (one.replicated, one.tx_buffers)):
        for size in table.sizes:
            for processing in (False, True) if table.processing else (False,):
                count = _count(table, nodes, size, scale)
                fragments = table.fragments.get(nodes, 1)
                yield Cell(table.name, nodes, size, processing, count, fragments)
