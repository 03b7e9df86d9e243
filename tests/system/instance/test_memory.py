"""carefuld's memory does not depend on the amount of data."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hosts import MIB, Host, wait_for

#: The promise: UMEM, the copy-out pool, and this.
MORE = 32 * MIB


def resident(pid: int) -> int:
    """Returns a process's peak of private memory, without hugepages."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def promised(status: dict[str, Any]) -> int:
    """Returns the bytes that a carefuld may hold."""
    umem = 0 if status["hugepages"] else status["umem_bytes"]
    return int(umem + status["copyout_buffers"] * status["buffer_bytes"] + MORE)


def holes(path: Path, nbytes: int) -> Path:
    """Makes a file that needs no disk space."""
    with path.open("wb") as file:
        os.truncate(file.fileno(), nbytes)
    return path


Move = Callable[[Host, Host, int], object]


def get(a: Host, b: Host, nbytes: int) -> object:
    """Fetch a file."""
    source = holes(b.export / "source", nbytes)
    return a.ctl("get", "-f", f"{b.name}:{source.name}", a.own / "copy")


def put(a: Host, b: Host, nbytes: int) -> object:
    """Send a file."""
    return a.ctl("put", "-f", holes(a.own / "source", nbytes), f"{b.name}:copy")


@pytest.mark.parametrize("move", [get, put])
def test_memory__does_not_grow_with_a_transfer(pair: tuple[Host, Host], move: Move) -> None:
    a, b = pair
    move(a, b, 16 * MIB)
    small = [resident(host.pid) for host in pair]
    move(a, b, 512 * MIB)
    for host, before in zip(pair, small, strict=True):
        status = host.assert_nothing_lost()
        after = resident(host.pid)
        assert after <= promised(status), f"{after} bytes resident"
        # The blocks in flight are the same as for a small file.
        assert after - before < 4 * MIB
        # The sender keeps no data of a frame after its completion.
        wait_for(lambda host=host: not host.status()["counters"]["tx_buffers_held"], "completion")
