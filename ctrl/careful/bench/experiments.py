"""P2's experiments (section 6.1): the cells of its tables, and what a node's time means in each.

Owns how much of each is run. Calls nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

PROTOCOLS = ("traditional", "careful")
#: Send buffers of an instance: all that a flood sends is kept by the traditional protocol.
TX_BUFFERS = 1024


@dataclass(frozen=True)
class Table:
    """One of P2's tables.

    Attributes:
        name: as careful-p2 and tests/sim/test_sim_p2.c have it.
        title: what it is, with P2's number.
        unit: of its values.
        words: payloads, words of 4 bytes.
        fragments: of a message, by nodes; none: a message is one payload.
        messages: flood: messages of each node. Else what 1000 hops, or so many messages are.
        lower: whether less is better.
    """

    name: str
    title: str
    unit: str
    words: tuple[int, ...]
    messages: int
    fragments: Mapping[int, int] = field(default_factory=dict)
    lower: bool = True


LATENCY = Table(
    "latency",
    "Table 1: latency of a hop around a ring",
    "us",
    (1, 1000, 2000),
    1000,
)
THROUGHPUT = Table(
    "throughput",
    "Table 2: throughput of all links of a chain",
    "Mbit_per_s",
    (1, 200, 1000, 2000),
    3000,
    lower=False,
)
FLOOD = Table(
    "flood",
    "Table 3: flooding, 10 messages of so many fragments outstanding",
    "ms",
    (1, 1000, 2000),
    10,
    {2: 16, 4: 8, 8: 4},
)
TABLES = {one.name: one for one in (LATENCY, THROUGHPUT, FLOOD)}


@dataclass(frozen=True)
class Cell:
    """A cell of a table, for either protocol.

    Attributes:
        table: its name.
        nodes: P.
        words: payload of a message, or of a fragment of a flood.
        processing: whether each word is written before it is sent, and read when it came.
        count: rounds of the ring, or messages.
        fragments: of each message.
    """

    table: str
    nodes: int
    words: int
    processing: bool
    count: int
    fragments: int = 1

    @property
    def line(self) -> str:
        """What careful-p2 is told, but for the limit."""
        number = int(self.processing)
        return f"{self.table} {self.words} {self.count} {self.fragments} {number}"

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.table}, P = {self.nodes}, {self.words} words" + (
            ", processing" if self.processing else ""
        )

    def value(self, took_ns: float) -> float:
        """A node's time, in the unit of its table: µs, Mbit/s or ms (P2 section 6.1)."""
        if self.table == "latency":
            return took_ns / 1e3 / (self.count * self.nodes)
        if self.table == "throughput":
            return self.count * self.words * 32e3 * (self.nodes - 1) / took_ns
        return took_ns / 1e6


def _count(table: Table, nodes: int, scale: float) -> int:
    """Rounds or messages of a run; a flood's are P2's."""
    if table is FLOOD:
        return table.messages
    whole = table.messages // nodes if table is LATENCY else table.messages
    return max(int(whole * scale), 5)


def cells(tables: Sequence[str], nodes: int, scale: float = 1.0) -> Iterator[Cell]:
    """The cells of so many nodes.

    Args:
        tables: names of those that are wanted.
        nodes: P.
        scale: 1: runs as long as they are meant to be; less: as much shorter.
    """
    for name in tables:
        table = TABLES[name]
        for words in table.words:
            for processing in (False, True):
                count = _count(table, nodes, scale)
                fragments = table.fragments.get(nodes, 1)
                yield Cell(name, nodes, words, processing, count, fragments)
