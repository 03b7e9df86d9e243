"""Answers of a host that lies about the memory that it lends."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from careful._abi import pack
from careful.control.instance.memory_hosts import Hosts
from careful.control.options.config import Config
from careful.errors import CarefulError
from careful.memory import Host
from careful.memory.client import Answer, Remote


def piece(number: int = 1, name: bytes = b"name", name_bytes: int | None = None) -> bytes:
    """Returns an entry of a list, which may lie about the length of its name."""
    length = len(name) if name_bytes is None else name_bytes
    head = pack("careful_memory_piece", bytes=4096, number=number, access=3, name_bytes=length)
    return (head + name).ljust((len(head) + len(name) + 7) // 8 * 8, b"\0")


def host(*answers: tuple[int, bytes]) -> Host:
    """Returns a host that gives these answers in turn: the first word and the payload."""
    left = iter(answers)

    class Client:
        def ask(self, *_: Any) -> Answer:
            word, payload = next(left)
            return Answer((word, 0, 0, 0), payload)

    made = Host.__new__(Host)
    made.name, made._hosts, made._client = "h2", Hosts(Config(), None), Client()  # type: ignore
    made._remote = Remote(bytes(16), "h2")
    return made


@pytest.mark.parametrize(
    "answers",
    [
        [(0, piece()[:-1][:63])],
        [(0, piece() + b"x")],
        [(0, piece(name_bytes=100))],
        [(0, piece(name_bytes=(1 << 32) - 1))],
        [(1, b"")],
        [(1, piece(3)), (1, piece(3))],
        [(1, piece(3)), (0, piece(2))],
        [(0, piece(0))],
    ],
    ids=["short", "rest", "long", "huge", "endless", "again", "backward", "zero"],
)
def test_list__is_malformed(answers: list[tuple[int, bytes]]) -> None:
    with pytest.raises(CarefulError) as caught:
        host(*answers).list()
    assert caught.value.errno == errno.EPROTO


def test_list__names_are_text() -> None:
    """An honest list of two answers; a name that is no UTF-8 stays visible."""
    found = host((1, piece(1, b"a")), (0, piece(2, b"\xff"))).list()
    assert [one.name for one in found] == ["a", "\\xff"]


@pytest.mark.parametrize("call", [Host.room, lambda host: host.stat("name")], ids=["room", "stat"])
def test_description__is_short(call: Callable[[Host], object]) -> None:
    for nbytes in (0, 1, 47):
        with pytest.raises(CarefulError) as caught:
            call(host((0, bytes(nbytes))))
        assert caught.value.errno == errno.EPROTO
