"""Memory of other hosts, through the local carefuld or a queue of this program.

    import careful.memory

    h2 = careful.memory.connect("h2")
    with h2.create("table", 1 << 30, share={"h3": "r"}) as table:
        table.write(b"some bytes", offset=4096)
        print(table.read(4096, 10))

connect() returns a Host with blocking calls, for any number of threads. aconnect() returns an
AsyncHost with the same methods, awaited.

The host that lends memory needs a carefuld (`carefulctl up IFACE --lend 4GiB`). This host needs one
too (`carefulctl up`), or an interface whose queue this program may own (`ifname`). The memory
belongs to this host, not to the program: all programs here that may use careful share it.
`carefulctl help memory` has the rules.

Failures raise CarefulError, an OSError, as the subclass that fits: FileNotFoundError,
FileExistsError, PermissionError or ConnectionError. `filename` is HOST:NAME.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from careful.errors import CarefulError as CarefulError
from careful.memory.awaited import AsyncHost as AsyncHost
from careful.memory.awaited import AsyncPiece as AsyncPiece
from careful.memory.host import Host as Host
from careful.memory.host import Room as Room
from careful.memory.piece import Info as Info
from careful.memory.piece import Piece as Piece

if TYPE_CHECKING:
    from careful.control.options.config import Config


def connect(
    host: str,
    *,
    ifname: str | None = None,
    instance: str | None = None,
    config: Config | Path | str | None = None,
    timeout_s: float = 5.0,
) -> Host:
    """Connects to a host that lends memory.

    Args:
        host: as for careful.files.connect().
        ifname: an interface. This program then owns its queue, as after careful.open(), without a
            carefuld here. All connections over the queue share it until the last one is dropped.
        instance: as for careful.files.connect(); with ifname, as for careful.open().
        config: a configuration, or its file; by default the files that carefulctl reads.
        timeout_s: how long calls wait for a silent host, seconds; set by the first connection
            over a queue.

    Raises:
        ConnectionError: careful is not up here, or the host is unknown.
        PermissionError: only root may use this carefuld.
        CarefulError: the queue cannot be opened, as for careful.open().
    """
    from careful.control.instance import remote
    from careful.control.instance.memory_hosts import Hosts
    from careful.control.options import keys
    from careful.control.options.config import load
    from careful.memory import client
    from careful.node.options import options_of

    settings = load(config)
    name = instance or os.environ.get("CAREFUL_INSTANCE")
    if ifname is None:
        route, local = remote.route(host, name, settings, timeout_s)
        return Host(client.attached(route), route.address, route.host, Hosts.of(local, settings))
    name = name or ifname
    options = options_of(name, settings)
    known = Hosts.by_options(keys.in_effect(options), settings)
    owner = client.owning(ifname, name, options, timeout_s)
    return Host(owner, settings.resolve(host), host, known)


async def aconnect(host: str, **options: Any) -> AsyncHost:
    """Connects to a host; arguments and errors are those of connect()."""
    return AsyncHost(await asyncio.to_thread(connect, host, **options))
