"""The nodes of an experiment: one careful-p2 per host, which reads a command per line.

If a node ends early, all nodes are ended and the error names that node.
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
#: Time limits for nodes to find each other, and to end, seconds.
_JOIN_S, _END_S = 60.0, 10.0
#: Time for all nodes to report after the limit that they keep, seconds.
_REPORT_S = 30.0
#: Time to wait for the other nodes after a failure, seconds: the first to fail may report last.
_OTHERS_S = 2.0


class LateError(CarefulError):
    """An experiment did not end within its limit."""


class _Node:
    def __init__(self, host: Host, words: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [*host.prefix, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must reach this program only
        )
        assert self._process.stdin
        assert self._process.stdout
        self._in, self.out = self._process.stdin, self._process.stdout
        self._partial_line = b""
        self.pid = self._process.pid
        self.lines: list[Json] = []
        self.has_ended = False

    def send(self, line: str) -> None:
        with suppress(BrokenPipeError):
            self._in.write(line.encode() + b"\n")
            self._in.flush()

    def receive(self) -> None:
        data = os.read(self.out.fileno(), 65536)
        self.has_ended = not data
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        self.lines += [json.loads(one) for one in lines]

    def close_input(self) -> None:
        with suppress(BrokenPipeError):
            self._in.close()

    def end(self, timeout_s: float) -> int:
        return child.end(self._process, timeout_s)


class Nodes:
    """A group of nodes that use one protocol. Raises CarefulError: they do not find each other.

    Args:
        hosts: one host per rank.
        protocol: "careful", "traditional", or "replicated": careful with one frame per node for a
            broadcast.
        wait: "adaptive", "spin" or "block" (`carefulctl up --wait`).
        tx_buffers: send buffers of each node.
    """

    def __init__(self, hosts: Sequence[Host], protocol: str, wait: str, tx_buffers: int) -> None:
        self._protocol = protocol
        self._nodes: list[_Node] = []
        self.fragment_bytes = 0
        addresses = [one.address for one in hosts]
        try:
            for rank, host in enumerate(hosts):
                program = host.program or child.program(PROGRAM)
                arguments = [host.interface, str(rank), protocol, wait, str(tx_buffers)]
                self._nodes.append(_Node(host, [program, *arguments, *addresses]))
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
            one.send(f"{cell.line} {round(limit_s * 1000)}")
        return self._answers(time.monotonic() + 2 * limit_s + _REPORT_S)

    def _answers(self, deadline: float) -> list[Json]:
        while any(not one.lines for one in self._nodes):
            if any(
                one.has_ended or any("error" in line for line in one.lines) for one in self._nodes
            ):
                deadline = min(deadline, time.monotonic() + _OTHERS_S)
            if not self._receive(deadline):
                break
        answers = [one.lines.pop(0) if one.lines else {} for one in self._nodes]
        if any("took_ns" not in one and "ready" not in one for one in answers):
            raise self._failure(answers)
        return answers

    def _receive(self, deadline: float) -> bool:
        """Reads output of some nodes; returns False if time is up or no node can still answer."""
        silent = {
            one.out.fileno(): one for one in self._nodes if not one.lines and not one.has_ended
        }
        left_s = deadline - time.monotonic()
        if not silent or left_s <= 0:
            return False
        ready, _, _ = select.select(list(silent), [], [], min(left_s, _OTHERS_S))
        for fd in ready:
            silent[fd].receive()
        return True

    def _failure(self, answers: Sequence[Json]) -> CarefulError:
        """Returns the error to raise, which names the failed node; a killed node counts first."""
        errors = {rank: str(one["error"]) for rank, one in enumerate(answers) if "error" in one}
        ended = [
            rank for rank, one in enumerate(self._nodes) if one.has_ended and rank not in errors
        ]
        if not ended and errors and all("in time" in text for text in errors.values()):
            return LateError(errno.ETIME, "it did not end in time", self._name())
        if not errors and not ended:
            return CarefulError(errno.ETIMEDOUT, "a node does not answer", self._name())
        self.close(0.0)
        if ended:
            reason = f"node {ended[0]} {_end_text(self._status[ended[0]])}"
        else:
            rank = min(errors, key=lambda one: _blame_rank(one, errors[one]))
            reason = (
                errors[rank] if errors[rank].startswith("node ") else f"node {rank}: {errors[rank]}"
            )
        return CarefulError(errno.ECANCELED, reason, self._name())

    def _name(self) -> str:
        return f"{len(self._nodes)} nodes, {self._protocol}"

    def close(self, timeout_s: float = _END_S) -> None:
        """Ends the nodes. A second call does nothing."""
        for one in self._nodes:
            one.close_input()
        self._status = [one.end(timeout_s) for one in self._nodes]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(_END_S if kind is None else 0.5)


def _blame_rank(rank: int, text: str) -> tuple[bool, bool]:
    """Returns a sort key: nodes that blame others, or only report ECANCELED, come last."""
    blames_another = text.startswith("node ") and not text.startswith(f"node {rank}:")
    return text.endswith(os.strerror(errno.ECANCELED)), blames_another


def _end_text(status: int) -> str:
    if status < 0:
        return f"was ended by signal {-status}"
    return f"ended by itself (status {status})"
