"""Probes of pathchar: what the kernel says of a send that is about an earlier one."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

import pytest
from careful.errors import CarefulError
from careful.measure.probe import Answer, Prober


class Marked:
    """A socket whose next sends fail, as once after an answer that nobody waits for."""

    def __init__(self, real: socket.socket, fails: int) -> None:
        self._real, self.fails, self.sends = real, fails, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def sendto(self, data: bytes, to: tuple[str, int]) -> int:
        """Fail, with nothing in the error queue; or send."""
        self.sends += 1
        if self.sends <= self.fails:
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        return self._real.sendto(data, to)


def marked(prober: Prober, fails: int) -> Marked:
    """Put one in the place of a prober's socket."""
    one = Marked(prober._socket, fails)
    prober._socket = one  # type: ignore[assignment]
    return one


def test_probe__a_late_answer_fails_none() -> None:
    with Prober("127.0.0.1") as prober:
        one = marked(prober, 1)
        assert prober.probe(64, 100, 5).answer is Answer.REACHED
        assert one.sends == 2


def test_probe__no_way_is_said() -> None:
    with Prober("127.0.0.1") as prober:
        marked(prober, 100)
        with pytest.raises(CarefulError) as error:
            prober.probe(64, 100, 5)
        assert error.value.errno == errno.EHOSTUNREACH
