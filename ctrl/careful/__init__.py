"""careful: a kernel-bypass transport for files and memory in a rack.

A program can own a NIC queue itself, without carefuld, and exchange requests, replies,
stores and gets with other programs. A server on host h2:

    import careful

    with careful.open("eth1") as node:
        table = node.register(bytearray(1 << 20))
        node.handle(1, lambda message: table)
        node.handle(2, lambda message: message.payload.upper())
        while True:
            node.wait()

A client on host h1:

    import careful

    with careful.open("eth1") as node:
        h2 = node.connect("h2")
        print(h2.request(2, b"hello").result().payload)
        table = h2.region(h2.request(1).result().payload)
        table.store(b"some bytes", offset=4096).result()
        part = bytearray(10)
        table.get(part, offset=4096).result()
        print(part)

If carefuld runs, careful.attach() returns a node that shares carefuld's queue with other programs;
`carefulctl status` names each program.

Frames move and handlers run only inside Node.poll(), Node.wait(), Node.connect() and
Operation.result(), in the thread that opened the node. With `async with`, they do so in rounds of
the event loop, operations are awaited, and handlers may be coroutines. A failure outside the
program raises CarefulError, an OSError. Its text says what failed and, if possible, what to do. The
error also belongs to Python's class for it (TimeoutError, ConnectionError, FileNotFoundError ...).

A handler's exception goes to Node.on_error, which logs it, and to the client, as RemoteError; the
server continues.

A node has room for 4,096 unfinished operations over all peers. Among these, 192 stores, and 768
requests and gets, may wait for credits. The next operation waits for room: in a call, which polls
meanwhile; in a handler or an event loop, without blocking the program.

If a program does not poll for stall_ms, its peers end the session; the next operation begins a new
one. Operations under way when a session ends fail with ECONNRESET, a ConnectionResetError: they may
have run.

careful.files reads, writes and copies files of hosts on which a carefuld runs, and needs no queue
of its own. `carefulctl help python` has examples of both, and of an event loop.

careful.event is for the nodes of a parallel program, which send to each other and to all, in
step: `carefulctl help events`.

careful.model computes how to cut messages; it needs no privilege and no network.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's, without importing it: carefulctl handles Ctrl-C only later
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, Unpack

    from careful.control.options.config import Config
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
    from careful.node.options import AttachOptions, OpenOptions

__version__ = "0.3.0"
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
    "attach",
]


def open(  # noqa: A001 (as in os.open)
    ifname: str,
    instance: str | None = None,
    config: Config | Path | str | None = None,
    **options: Unpack[OpenOptions],
) -> Node:
    """Opens a NIC queue with an instance of libcareful in this program. Needs root.

    Args:
        ifname: the interface.
        instance: its name on this machine; by default CAREFUL_INSTANCE, or ifname.
        config: a configuration, or its file; by default the files that carefulctl reads. [nodes]
            has names for Node.connect(); [up] and [instance.NAME] have defaults of the options.
        options: those of `carefulctl up`. Queue: queue (0), queues (used together, a node each: 1).
            Buffers: peers (windows that share the receive buffers: 8), rx_buffers (a power of two:
            512), tx_buffers (512), reserve (receive buffers for large messages: 0), file_writes
            ("engine", "workers").
            Network: name (for peers), port (51966), xdp ("auto", "native", "generic"),
            require_zerocopy (False), protocol ("careful", "traditional"). Times: wait
            ("adaptive", "spin", "block"), spin_us (spin time of adaptive: 50), sync_ms (silence
            before a peer is asked: 200), stall_ms (silence before a peer counts as
            gone: 30000). Keys: keys (a directory; "none"; /etc/careful/keys, if this host has a
            key there), seal ("off"). Loss: repair ("on", "off").

    Raises:
        CarefulError: no such interface, it is down, no permission, another program has
            the queue, the instance's name or the interface, or an option has a bad value;
            the text says what to do.
        TypeError: no such option.
    """
    from careful.node import Node  # the binding: callers that want only the model need not have it

    return Node(ifname, instance, config, **options)


def attach(
    instance: str | None = None,
    config: Config | Path | str | None = None,
    **options: Unpack[AttachOptions],
) -> Node:
    """Shares the queue of the running carefuld with other programs.

    Needs root, or the group of `carefulctl up --group`. The node is like that of open(), except: a
    handler's number belongs to one program; Peer.close() ends this program's operations and leaves
    the session to the others; 128 operations may be under way. A program that reads nothing for
    30 s is stalled: requests for it fail with ETIMEDOUT. When carefuld ends, operations end with
    ECONNRESET, and every call raises ENOTCONN.

    Args:
        instance: which carefuld; by default CAREFUL_INSTANCE, or the only one here.
        config: as for open().
        options: name (for `carefulctl status`; by default the program's file), memory_bytes
            (for memory(): 16 MiB), wait ("adaptive", "spin", "block"), spin_us (spin time of
            adaptive: 50).

    Raises:
        CarefulError: no carefuld runs, or the choice is ambiguous; no permission; it is full,
            or of another release; or an option has a bad value.
        TypeError: no such option.
    """
    from careful.node import Node

    return Node.attached(instance, config, options)


def __getattr__(name: str) -> Any:
    if name == "connect":
        raise AttributeError("no connect() here: use careful.attach() or careful.files.connect()")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from careful import node

    return getattr(node, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
