"""Communication patterns (P2 section 6.2): reads the traces that CAREFUL_EVENT_TRACE writes, and
computes the effect of windows sized to the pattern.

Times come from each host's own clock. Outstanding counts are right if the hosts share a clock (a
lab), or if their clocks agree to less than a message's time.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from careful.errors import CarefulError

Counts = npt.NDArray[np.int64]
Times = npt.NDArray[np.int64]

_HEAD = re.compile(
    r"# careful events 1: rank (\d+) of (\d+), window (\d+), receive buffers (\d+), "
    r"left out (\d+)\n"
)


@dataclass(frozen=True)
class Trace:
    """The trace of one node.

    Attributes:
        rank: the node's rank.
        nodes: P.
        window: W of its peers, buffers.
        receive_buffers: R.
        left_out: entries that did not fit in the trace.
        at_ns: time of each fragment.
        sent: True: the fragment was sent; False: it was consumed.
        node: rank of the other node.
        event: number of the event.
        nbytes: payload.
    """

    rank: int
    nodes: int
    window: int
    receive_buffers: int
    left_out: int
    at_ns: Times
    sent: npt.NDArray[np.bool_]
    node: Counts
    event: npt.NDArray[np.uint64]
    nbytes: Counts


@dataclass(frozen=True)
class Pair:
    """Statistics of the fragments from one node to another.

    Attributes:
        source, to: ranks.
        fragments: fragments sent.
        most: largest number outstanding (sent, not consumed) at a time.
        window: the window that the receiver grants now, the same for every peer.
        sized: the window if the receiver shared its buffers in proportion to `most`.
        closed: share of fragments that would have waited with `window`, if credits returned only
            when fragments are consumed.
        sized_closed: the same share with `sized`.
    """

    source: int
    to: int
    fragments: int
    most: int
    window: int
    sized: int
    closed: float
    sized_closed: float


def read(path: Path) -> Trace:
    """Reads one node's file. Raises CarefulError: the file is not a complete trace."""
    lines = path.read_text().splitlines(keepends=True)
    head = _HEAD.fullmatch(lines[0]) if lines else None
    if head is None:
        raise CarefulError(errno.EINVAL, "is not a trace of events, or was not closed", str(path))
    rank, nodes, window, buffers, left_out = map(int, head.groups())
    try:
        rows = [line.split() for line in lines[2:]]
        return Trace(
            rank,
            nodes,
            window,
            buffers,
            left_out,
            np.array([int(row[0]) for row in rows], np.int64),
            np.array([row[1] == "s" for row in rows], bool),
            np.array([int(row[2]) for row in rows], np.int64),
            np.array([int(row[3]) for row in rows], np.uint64),
            np.array([int(row[4]) for row in rows], np.int64),
        )
    except (IndexError, ValueError):
        raise CarefulError(errno.EINVAL, "is damaged", str(path)) from None


def read_all(directory: Path) -> list[Trace]:
    """Reads the files of the only group in a directory, ordered by rank. Raises CarefulError: there
    is no file, or the files are not those of one whole group.
    """
    traces = sorted(
        (read(one) for one in directory.glob("event-*.trace")), key=lambda one: one.rank
    )
    if not traces:
        raise CarefulError(errno.ENOENT, "no trace of events (event-*.trace)", str(directory))
    if [one.rank for one in traces] != list(range(traces[0].nodes)):
        ranks = ", ".join(str(one.rank) for one in traces)
        text = f"ranks {ranks} of a group of {traces[0].nodes}: one file of each is needed"
        raise CarefulError(errno.EINVAL, text, str(directory))
    return traces


def matrix(traces: Sequence[Trace]) -> tuple[Counts, Counts]:
    """Counts fragments, and bytes, from each node (row) to each node (column)."""
    count = np.zeros((len(traces), len(traces)), np.int64)
    nbytes = np.zeros_like(count)
    for one in traces:
        np.add.at(count[one.rank], one.node[one.sent], 1)
        np.add.at(nbytes[one.rank], one.node[one.sent], one.nbytes[one.sent])
    return count, nbytes


def pair_times(traces: Sequence[Trace], source: int, to: int) -> tuple[Times, Times]:
    """Returns the times at which fragments between two nodes were sent, and consumed, ns."""
    sender, receiver = traces[source], traces[to]
    sent = sender.at_ns[sender.sent & (sender.node == to)]
    consumed = receiver.at_ns[~receiver.sent & (receiver.node == source)]
    return sent, np.sort(consumed)


def outstanding(sent: Times, consumed: Times) -> Counts:
    """Returns, for each fragment, the count sent and not yet consumed, itself included."""
    consumed_before = np.searchsorted(consumed, sent, side="right")
    unconsumed: Counts = np.maximum(np.arange(1, len(sent) + 1) - consumed_before, 1).astype(
        np.int64
    )
    return unconsumed


def _closed_share(unconsumed: Counts, window: int) -> float:
    """Returns the share of fragments that wait: one credit must stay (P2 Theorem 1)."""
    return float(np.mean(unconsumed > window - 1)) if len(unconsumed) else 0.0


def pairs(traces: Sequence[Trace]) -> list[Pair]:
    """Computes the statistics of each pair that communicates."""
    statistics = []
    for to, receiver in enumerate(traces):
        waiting = {
            source: outstanding(*pair_times(traces, source, to))
            for source in range(len(traces))
            if source != to and np.any(traces[source].sent & (traces[source].node == to))
        }
        outstanding_max = {source: int(counts.max()) for source, counts in waiting.items()}
        total = sum(outstanding_max.values())
        for source, counts in waiting.items():
            sized = receiver.receive_buffers * outstanding_max[source] // total
            statistics.append(
                Pair(
                    source,
                    to,
                    len(counts),
                    outstanding_max[source],
                    receiver.window,
                    sized,
                    _closed_share(counts, receiver.window),
                    _closed_share(counts, sized),
                )
            )
    return statistics
