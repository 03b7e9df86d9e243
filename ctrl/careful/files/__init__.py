"""Files of other hosts, as the local carefuld reaches them.

    import careful.files

    with careful.files.connect("h2") as h2:
        print([entry.name for entry in h2.ls("data")])
        head = h2.read("data/big", 0, 4096)
        h2.get("data/big", "big")
        h2.put("results", "data/", recursive=True)

connect() returns a Host, which any thread may use, several at a time, also while an event loop
runs in it; a call returns when it is done. aconnect() returns an AsyncHost, whose methods are the
same, awaited:

    async with careful.files.aconnect("h2") as h2:
        await asyncio.gather(*(h2.get(name, name) for name in ("a", "b", "c")))

Both need a carefuld here (`carefulctl up`) and one there that exports a directory; paths of the
host are below that. There is one implementation, AsyncHost; a Host runs one in an event loop in
a thread of its own, so that it works the same wherever it is called.

What fails raises CarefulError, an OSError: a FileNotFoundError, PermissionError,
FileExistsError, IsADirectoryError, NotADirectoryError, TimeoutError or ConnectionError, where
Python has one for it, with the name of the file, HOST:PATH or a local path, in `filename`.
A connection that ended is made anew by the next call.

Sizes and offsets are in bytes, times in ns since 1970 where a name ends in _ns, else in seconds.
Of the transfers of a connection four run at once, and others wait. A host lets all programs of
a machine together have 128 of its files open.
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
    from careful.control.config import Config

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
    """Connect to a host, for any thread.

    Args:
        host: a name in [nodes] of the configuration, one that the system resolves, or an
            address, with :PORT if that is not ours.
        instance: which carefuld of this machine; by default CAREFUL_INSTANCE, or the one on
            the interface that leads to the host.
        config: a configuration, or the file that holds it; by default the files that
            carefulctl reads.
        timeout_s: how long to wait for the host, and how long it may be silent then, seconds.

    Raises:
        ConnectionError: careful is not up here or there, or the host is unknown.
        PermissionError: carefuld is for root alone.
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
    """Connect to a host, for one event loop: `async with` what this returns, or await it.

    Its arguments, and what is then raised, are connect()'s.
    """
    from careful.control import remote
    from careful.control.config import Config, load
    from careful.control.mounts import Mounts

    settings = config if isinstance(config, Config) else load(Path(config) if config else None)
    name = instance or os.environ.get("CAREFUL_INSTANCE")
    way = lambda: remote.route(host, name, settings, timeout_s)[0]  # noqa: E731
    return AsyncHost(host, way, Mounts(settings))
