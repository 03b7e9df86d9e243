"""Memory of other hosts, as the local carefuld reaches it.

    import careful.memory

    h2 = careful.memory.connect("h2")
    with h2.create("table", 1 << 30, share={"h3": "r"}) as table:
        table.write(b"some bytes", offset=4096)
        print(table.read(4096, 10))

connect() returns a Host, whose calls return when they are done. Any number of threads may use it.
aconnect() returns an AsyncHost with the same methods, awaited.

Both need a carefuld here (`carefulctl up`), and one at the host that lends memory (`carefulctl up
IFACE --lend 4GiB`). The memory belongs to this host, not to the program: all programs here that may
use careful share it. `carefulctl help memory` has the rules.

Failures raise CarefulError, an OSError. It is also a FileNotFoundError, FileExistsError,
PermissionError or ConnectionError, if one of these fits; `filename` is HOST:NAME.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from careful.errors import CarefulError
from careful.memory.awaited import AsyncHost, AsyncPiece
from careful.memory.host import Host, Room
from careful.memory.piece import Info, Piece

if TYPE_CHECKING:
    from careful.control.config import Config

__all__ = [
    "AsyncHost",
    "AsyncPiece",
    "CarefulError",
    "Host",
    "Info",
    "Piece",
    "Room",
    "aconnect",
    "connect",
]


def connect(
    host: str,
    *,
    instance: str | None = None,
    config: Config | Path | str | None = None,
    timeout_s: float = 5.0,
) -> Host:
    """Connects to a host that lends memory; arguments are those of careful.files.connect().

    Raises:
        ConnectionError: careful is not up here, or the host is unknown.
        PermissionError: only root may use this carefuld.
    """
    from careful.control import remote
    from careful.control.config import load
    from careful.control.memory_hosts import Hosts

    settings = load(config)
    name = instance or os.environ.get("CAREFUL_INSTANCE")
    way, one = remote.route(host, name, settings, timeout_s)
    return Host(way, Hosts.of(one, settings))


async def aconnect(
    host: str,
    *,
    instance: str | None = None,
    config: Config | Path | str | None = None,
    timeout_s: float = 5.0,
) -> AsyncHost:
    """Connects to a host; arguments and errors are those of connect()."""
    made = await asyncio.to_thread(
        connect, host, instance=instance, config=config, timeout_s=timeout_s
    )
    return AsyncHost(made)
