"""The nodes of an experiment: one careful-p2 per host, which reads a command per line.

Owns the processes. If a node ends early, all nodes are ended and the error names that node.
"""

from __future__ import annotations

import errno
import json
import os
import select
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from careful import child
from careful.bench.experiments import Cell
from careful.bench.namespaces import Host
from careful.errors import CarefulError
from careful.jsonout import Json

PROGRAM = "careful-p2"
#: Time limits for nodes to find each other, and to end.
_JOIN_S, _END_S = 60.0, 10.0
#: Extra time, beyond the limit that the nodes keep, for all of them to report.
_MORE_S = 30.0
#: Time to wait for the other nodes after a failure. The node that failed first may report last.
_ALL_S = 2.0


class LateError(CarefulError):
    """An experiment did not end within its limit."""


class _Node:
    def __init__(self, host: Host, words: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [*host.prefix, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches this program only
        )
        assert self._process.stdin
        assert self._process.stdout
        self._in, self.out = self._process.stdin, self._process.stdout
        self._got = b""
        self.pid = self._process.pid
        self.lines: list[Json] = []
        self.ended = False

    def tell(self, line: str) -> None:
        with suppress(BrokenPipeError):
            self._in.write(line.encode() + b"\n")
            self._in.flush()

    def hear(self) -> None:
        data = os.read(self.out.fileno(), 65536)
        self.ended = not data
        *lines, self._got = (self._got + data).split(b"\n")
        self.lines += [json.loads(one) for one in lines]

    def close_input(self) -> None:
        with suppress(BrokenPipeError):
            self._in.close()

    def end(self, patience_s: float) -> int:
        return child.end(self._process, patience_s)


class Nodes:
    """A group of nodes that use one protocol.

    Args:
        hosts: one host per rank.
        protocol: "careful", "traditional", or "replicated": careful with one frame per node for a
            broadcast.
        wait: "adaptive", "spin" or "block" (`carefulctl up --wait`).
        tx_buffers: send buffers of each node.

    Raises:
        CarefulError: the nodes do not find each other.
    """

    def __init__(self, hosts: Sequence[Host], protocol: str, wait: str, tx_buffers: int) -> None:
        self._protocol = protocol
        self._nodes: list[_Node] = []
        self.fragment_bytes = 0
        addresses = [one.address for one in hosts]
        try:
            for rank, host in enumerate(hosts):
                program = host.program or child.program(PROGRAM)
                given = [host.interface, str(rank), protocol, wait, str(tx_buffers)]
                self._nodes.append(_Node(host, [program, *given, *addresses]))
            ready = self._answers(time.monotonic() + _JOIN_S)
            self.fragment_bytes = int(ready[0]["fragment_bytes"])
        except BaseException:
            self.close(0.0)
            raise

    @property
    def pids(self) -> list[int]:
        return [one.pid for one in self._nodes]

    def run(self, cell: Cell, limit_s: float) -> list[Json]:
        """Runs an experiment once and returns each node's answer. Raises LateError: the experiment
        did not end in time; these nodes cannot be used again. Raises CarefulError: a node failed.
        """
        for one in self._nodes:
            one.tell(f"{cell.line} {round(limit_s * 1000)}")
        return self._answers(time.monotonic() + 2 * limit_s + _MORE_S)

    def _answers(self, end: float) -> list[Json]:
        while any(not one.lines for one in self._nodes):
            if any(one.ended or any("error" in line for line in one.lines) for one in self._nodes):
                end = min(end, time.monotonic() + _ALL_S)
            if not self._hear(end):
                break
        found = [one.lines.pop(0) if one.lines else {} for one in self._nodes]
        if any("took_ns" not in one and "ready" not in one for one in found):
            raise self._failure(found)
        return found

    def _hear(self, end: float) -> bool:
        """Reads output of some nodes. Returns False if time is up or no node can still answer."""
        silent = {one.out.fileno(): one for one in self._nodes if not one.lines and not one.ended}
        left_s = end - time.monotonic()
        if not silent or left_s <= 0:
            return False
        ready, _, _ = select.select(list(silent), [], [], min(left_s, _ALL_S))
        for fd in ready:
            silent[fd].hear()
        return True

    def _failure(self, found: Sequence[Json]) -> CarefulError:
        """Returns the error to raise. It names the node that failed; a killed node counts first."""
        said = {rank: str(one["error"]) for rank, one in enumerate(found) if "error" in one}
        gone = [rank for rank, one in enumerate(self._nodes) if one.ended and rank not in said]
        if not gone and said and all("in time" in text for text in said.values()):
            return LateError(errno.ETIME, "it did not end in time", self._name())
        if not said and not gone:
            return CarefulError(errno.ETIMEDOUT, "a node says nothing", self._name())
        self.close(0.0)
        if gone:
            why = f"node {gone[0]} {_ending(self._status[gone[0]])}"
        else:
            rank = min(said, key=lambda one: _told(one, said[one]))
            why = said[rank] if said[rank].startswith("node ") else f"node {rank}: {said[rank]}"
        return CarefulError(errno.ECANCELED, why, self._name())

    def _name(self) -> str:
        return f"{len(self._nodes)} nodes, {self._protocol}"

    def close(self, patience_s: float = _END_S) -> None:
        """Ends the nodes. A second call does nothing."""
        for one in self._nodes:
            one.close_input()
        self._status = [one.end(patience_s) for one in self._nodes]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(_END_S if kind is None else 0.5)


def _told(rank: int, text: str) -> tuple[bool, bool]:
    """Returns a sort key: nodes that blame others, or only report ECANCELED, come last."""
    another = text.startswith("node ") and not text.startswith(f"node {rank}:")
    return text.endswith(os.strerror(errno.ECANCELED)), another


def _ending(status: int) -> str:
    if status < 0:
        return f"was ended by signal {-status}"
    return f"ended by itself (status {status})"
