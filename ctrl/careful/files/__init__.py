"""Files of other hosts, as the local carefuld reaches them.

    import careful.files

    with careful.files.connect("h2") as h2:
        print([entry.name for entry in h2.ls("data")])
        head = h2.read("data/big", 0, 4096)
        h2.get("data/big", "big")
        h2.put("results", "data/", recursive=True)

connect() returns a Host. Any number of threads may use it, even while an event loop runs in them; a
call returns when it is done. aconnect() returns an AsyncHost with the same methods, awaited:

    async with careful.files.aconnect("h2") as h2:
        await asyncio.gather(*(h2.get(name, name) for name in ("a", "b", "c")))

Both need a carefuld here (`carefulctl up`) and one at the host that exports a directory; the host's
paths are relative to the export. A Host runs an AsyncHost in an event loop in a thread of its own.

Failures raise CarefulError, an OSError. The error is also a FileNotFoundError, PermissionError,
FileExistsError, IsADirectoryError, NotADirectoryError, TimeoutError or ConnectionError, if one of
these fits; `filename` is HOST:PATH or a local path. If a connection has ended, the next call makes
a new one.

Sizes and offsets are in bytes; times are in ns since 1970 if a name ends in _ns, else in seconds.
Each connection runs four transfers at once; more wait. A host lets all programs of one machine
together keep 128 of its files open.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from careful.errors import CarefulError, LossError
from careful.files.blocking import File, Host
from careful.files.file import AsyncFile
from careful.files.host import AsyncHost, TransferError
from careful.files.options import Progress, TransferOptions
from careful.transfer.options import FileResult
from careful.transfer.protocol.entries import Attr, Entry
from careful.transfer.result import Result
from careful.transfer.run.verify import Verified

if TYPE_CHECKING:
    from careful.control.options.config import Config

__all__ = [
    "AsyncFile",
    "AsyncHost",
    "Attr",
    "CarefulError",
    "Entry",
    "File",
    "FileResult",
    "Host",
    "LossError",
    "Progress",
    "Result",
    "TransferError",
    "TransferOptions",
    "Verified",
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
    """Connects to a host, for any thread.

    Args:
        host: a name in [nodes] of the configuration, a name that the system resolves, or an
            address, with :PORT if the host uses another port.
        instance: which carefuld of this machine; by default CAREFUL_INSTANCE, or the one on
            the interface that leads to the host.
        config: a configuration, or its file; by default the files that carefulctl reads.
        timeout_s: how long to wait for the host, and how long it may be silent later, seconds.

    Raises:
        ConnectionError: careful is not up on both hosts, or the host is unknown.
        PermissionError: only root may use this carefuld.
        TimeoutError: the host does not answer.
    """
    return Host(aconnect(host, instance=instance, config=config, timeout_s=timeout_s))


def aconnect(
    host: str,
    *,
    instance: str | None = None,
    config: Config | Path | str | None = None,
    timeout_s: float = 5.0,
) -> AsyncHost:
    """Connects to a host, for one event loop: use `async with` on the result, or await it.

    Arguments and errors are those of connect().
    """
    from careful.control.instance import remote
    from careful.control.options.config import load
    from careful.control.state.mounts import Mounts

    settings = load(config)
    name = instance or os.environ.get("CAREFUL_INSTANCE")
    find_route = lambda: remote.route(host, name, settings, timeout_s)[0]  # noqa: E731
    return AsyncHost(host, find_route, Mounts(settings))
