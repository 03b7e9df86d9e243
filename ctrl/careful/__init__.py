"""careful: a kernel-bypass transport for networks that do not lose frames.

A program can own a NIC queue itself, without carefuld, and exchange requests, replies,
stores and gets with others that do. On host h2, one that serves:

    import careful

    with careful.open("eth1") as node:
        table = node.register(bytearray(1 << 20))
        node.handle(1, lambda message: table)
        node.handle(2, lambda message: message.payload.upper())
        while True:
            node.wait()

On host h1, one that asks:

    import careful

    with careful.open("eth1") as node:
        h2 = node.connect("h2")
        print(h2.request(2, b"hello").result().payload)
        table = h2.region(h2.request(1).result().payload)
        table.store(b"some bytes", offset=4096).result()
        part = bytearray(10)
        table.get(part, offset=4096).result()
        print(part)

The same in an event loop, where operations are awaited and handlers may be coroutines:

    import asyncio, careful

    async def ask():
        async with careful.open("eth1") as node:
            h2 = await node.aconnect("h2")
            print((await h2.request(2, b"hello")).payload)

    asyncio.run(ask())

Beside a carefuld, and other programs, careful.connect() gives such a node: it has no queue of its
own, but a share of carefuld's, and each program is named in `carefulctl status`.

Nothing happens behind the program's back: frames move, and handlers run, inside
Node.poll(), Node.wait(), Node.connect() and Operation.result(), in the thread that opened
the node; with `async with`, in rounds of the event loop. What fails for a reason outside the
program raises CarefulError, an OSError whose text says what failed on what, and where
possible what to do, and which is of Python's own class for that, too (TimeoutError,
ConnectionError, FileNotFoundError ...).

A handler's exception goes to Node.on_error, which logs it, and to the client, as
RemoteError; the server goes on.

Of all peers together a node has room for 4,096 operations without their end; of these 192
stores, and 768 requests and gets that wait for credits. One more waits for room: in the
call, which polls meanwhile; in a handler or an event loop, beside the program.

A session that ended in a pause (who does not poll for stall_ms is given up by its peers) is
begun anew by the next operation. What was on its way when a session ended fails with
ECONNRESET, a ConnectionResetError: it may have run.

careful.files reads, writes and copies files of hosts on which a carefuld runs; it needs no queue
of this program's own. `carefulctl help python` has examples of both.

careful.event is for the nodes of a parallel program, which send to each other and to all, in
step: `carefulctl help events`.

careful.model computes how messages are best cut; it needs no privilege and no network.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's, without importing it: carefulctl hears Ctrl-C after this file
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from careful.control.config import Config
    from careful.node import (
        CarefulError,
        FileRange,
        LateReply,
        Message,
        Node,
        Operation,
        Outgoing,
        Peer,
        Region,
        RemoteError,
        RemoteRegion,
        Reply,
        Result,
    )

__version__ = "0.2.0"
__all__ = [
    "CarefulError",
    "FileRange",
    "LateReply",
    "Message",
    "Node",
    "Operation",
    "Outgoing",
    "Peer",
    "Region",
    "RemoteError",
    "RemoteRegion",
    "Reply",
    "Result",
    "connect",
    "open",
]


def open(  # noqa: A001 (as in os.open)
    ifname: str,
    instance: str | None = None,
    config: Config | Path | str | None = None,
    **options: Any,
) -> Node:
    """Own a NIC queue: an instance of libcareful in this program. Needs root.

    Args:
        ifname: the interface.
        instance: its name on this machine; by default CAREFUL_INSTANCE, or ifname.
        config: a configuration, or the file that holds it; by default the files that
            carefulctl reads: its [nodes] are names for Node.connect(), its [up] and
            [instance.NAME] are defaults of the options.
        options: those of `carefulctl up`: name (what peers call us), peers (windows
            that the receive buffers are divided into: 8), queue (0), port (51966),
            rx_buffers (a power of two: 512), tx_buffers (512), reserve (of the receive
            buffers, for large messages: 0), xdp ("auto", "native", "generic"),
            require_zerocopy (False), wait ("adaptive", "spin", "block"), protocol
            ("careful", "traditional"), spin_us (adaptive: how long to spin: 50), sync_ms
            (silence before a peer is asked: 200), stall_ms (silence before it counts as
            gone: 30000), keys (a directory; "none"; /etc/careful/keys, if this host has a key
            there), seal ("off"), repair ("on", "off"), file_writes ("engine", "workers").

    Raises:
        CarefulError: no such interface, it is down, no permission, another program has
            the queue, the instance's name or the interface, or an option cannot be;
            the text says what to do.
        TypeError: no such option.
    """
    from careful.node import Node  # the binding: not for whoever wants the model alone

    return Node(ifname, instance, config, **options)


def connect(
    instance: str | None = None, config: Config | Path | str | None = None, **options: Any
) -> Node:
    """Share the interface of the carefuld that runs, beside other programs. Needs root, or the
    group of `carefulctl up --group`.

    A node as open() gives it, but: a handler's number is one program's; Peer.close() ends what this
    program has on its way, and leaves the session to the others; 128 operations may be on their
    way. A program that reads nothing for 30 s is stalled: requests for it fail with ETIMEDOUT. When
    carefuld ends, operations end with ECONNRESET, and every call raises ENOTCONN.

    Args:
        instance: which carefuld; by default CAREFUL_INSTANCE, or the only one here.
        config: as for open().
        options: name (what `carefulctl status` calls the program: its file's), memory_bytes
            (that memory() can give: 16 MiB), wait ("adaptive", "spin", "block"), spin_us
            (adaptive: how long to spin: 50).

    Raises:
        CarefulError: no carefuld runs, or it is not clear which; no permission; it serves as
            many clients as it can, is of another release, or an option cannot be.
        TypeError: no such option.
    """
    from careful.node import Node

    return Node.attached(instance, config, **options)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from careful import node

    return getattr(node, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
