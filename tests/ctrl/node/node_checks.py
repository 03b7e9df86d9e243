"""What the cases of node_traffic.py and node_life.py look at, and how."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from careful.errors import CarefulError
from careful.node import Peer, RemoteRegion
from node_handlers import Handlers
from node_server import NBYTES

WANTED = np.arange(NBYTES, dtype=np.uint8)
HOST = sys.argv[2] if len(sys.argv) > 2 else "h2"


@contextmanager
def raises(kind: type[BaseException], *said: str) -> Iterator[list[Any]]:
    """What stands in it raises this, and says that; the list gets it."""
    caught: list[Any] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"no {kind.__name__}"
    assert all(one in str(caught[0]) for one in said), repr(caught[0])


@contextmanager
def fails(number: int, *said: str) -> Iterator[list[Any]]:
    """What stands in it raises CarefulError with this errno, and says that."""
    with raises(CarefulError, *said) as caught:
        yield caught
    assert isinstance(caught[0], OSError)
    assert caught[0].errno == number, repr(caught[0])


def regions_of(peer: Peer) -> list[RemoteRegion]:
    """Its array, its blank one, and its file."""
    handles = peer.request(Handlers.REGIONS).result(30).payload
    return [peer.region(handles[at : at + 16]) for at in range(0, len(handles), 16)]


def report(peer: Peer) -> list[Any]:
    found: list[Any] = json.loads(peer.request(Handlers.REPORT).result(30).payload)
    return found


@contextmanager
def said_by_log() -> Iterator[io.StringIO]:
    """What is logged meanwhile."""
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    logging.getLogger("careful.node").addHandler(handler)
    yield heard
    logging.getLogger("careful.node").removeHandler(handler)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
