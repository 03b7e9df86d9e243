"""Signatures of careful files, to compare with messages (P4 Figure 11): a program's file reads.

Owns an open file of the host, and the memory that its bytes go to. For a read, the program asks
carefuld, and carefuld asks the host; the reply follows the bytes. Python issues the reads, so this
layer has a large processor overhead.
"""

from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Sequence

import numpy as np

from careful._abi import lib, pack
from careful.daemon.client import Answer
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.measure.probes.session import Session
from careful.measure.statistics.sample import Bursts

#: Bytes of a read, equal to a message over TCP.
READ_BYTES = 64
#: Most reads under way.
_CAPACITY = 24
#: Like in carefuld, no burst begins after _QUESTION_S, and none lasts longer than _BURST_S.
_QUESTION_S, _BURST_S = lib.CAREFUL_SIGNATURE_MS / 1e3, lib.CAREFUL_BURST_MS / 1e3


class FilesLayer(Session):
    """Reads of the first bytes of a file that a host exports, by its path there.

    Raises CarefulError: there is no such file, or it is too short.
    """

    name = "careful files"
    capacity = _CAPACITY

    def __init__(self, path: str, route: Route) -> None:
        self._path = path
        super().__init__(route)

    def _prepare(self) -> None:
        what = f"{self.host}:{self._path}"
        raw = os.fsencode(self._path)
        attempt = int.from_bytes(os.urandom(4), "little"), int.from_bytes(os.urandom(4), "little")
        opened = self._client.call(
            lib.CAREFUL_IPC_REQUEST,
            what,
            peer=self._peer,
            handler=lib.CAREFUL_BLOCK_OPEN,
            args=[0, 0, *attempt],
            payload=pack("careful_block_open", path_bytes=len(raw)) + raw,
        )
        self._handle = opened.args[0]
        self._failed = 0
        self._poll = select.poll()
        self._poll.register(self._client.fileno(), select.POLLIN)
        memory = os.memfd_create("careful-logp", os.MFD_CLOEXEC)
        try:
            os.ftruncate(memory, READ_BYTES)
            self._file = self._add_target(memory)
        finally:
            os.close(memory)
        self._issue()
        self._wait(0, time.monotonic() + _BURST_S)
        if self._failed:
            text = f"reading {READ_BYTES} bytes failed: is the file shorter?"
            raise CarefulError(self._failed, text, what)

    def _add_target(self, fd: int) -> int:
        answers: list[Answer] = []
        self._client.submit(lib.CAREFUL_IPC_FILE_ADD, answers.append, fd=fd)
        self._wait(0, time.monotonic() + _BURST_S)
        return answers[0].check(self.host).file

    def _issue(self) -> None:
        self._client.submit(
            lib.CAREFUL_IPC_GET,
            self._check_read,
            peer=self._peer,
            region=self._handle,
            bytes=READ_BYTES,
            file=self._file,
            handler=lib.CAREFUL_HANDLERS,
        )

    def _check_read(self, answer: Answer) -> None:
        if answer.status < 0 or answer.nbytes != READ_BYTES:
            self._failed = self._failed or -answer.status or errno.ENODATA

    def _wait(self, outstanding: int, deadline_s: float) -> None:
        while self._client.in_flight > outstanding:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not self._poll.poll(left_s * 1e3):
                raise CarefulError(errno.ETIMEDOUT, "the host does not answer reads", self.host)
            self._client.receive()

    def bursts(self, marks: Sequence[int], compute_us: float, count: int) -> Bursts:
        return self._repeated(lambda: self._bursts(marks, compute_us, count))

    def _bursts(self, marks: Sequence[int], compute_us: float, count: int) -> Bursts:
        until = time.monotonic() + _QUESTION_S
        bursts = [self._burst(marks, compute_us)]
        while len(bursts) < count and time.monotonic() < until:
            bursts.append(self._burst(marks, compute_us))
        elapsed, computed, done = (np.array(column) / 1e3 for column in zip(*bursts, strict=True))
        return Bursts(np.asarray(marks, dtype=np.float64), elapsed, computed, done, 0 * done)

    def _burst(self, marks: Sequence[int], compute_us: float) -> tuple[list[int], list[int], int]:
        """Makes one burst; returns time and computation at each mark, and the whole time, ns."""
        deadline_s = time.monotonic() + _BURST_S
        elapsed: list[int] = []
        computing: list[int] = []
        wanted, computed = set(marks), 0
        began = time.perf_counter_ns()
        for number in range(1, marks[-1] + 1):
            self._wait(self.capacity - 1, deadline_s)
            self._issue()
            self._client.receive()
            if compute_us:
                computed += _compute(compute_us)
            if number in wanted:
                elapsed.append(time.perf_counter_ns() - began)
                computing.append(computed)
        self._wait(0, deadline_s)
        if self._failed:
            raise CarefulError(self._failed, "reading failed", f"{self.host}:{self._path}")
        return elapsed, computing, time.perf_counter_ns() - began


def _compute(us: float) -> int:
    """Computes for a time; returns the actual time, ns."""
    began = time.perf_counter_ns()
    while (passed := time.perf_counter_ns() - began) < us * 1e3:
        pass
    return passed
