"""An instance that a Python program owns: `careful.open()`.

Owns handlers, peers and regions, and what of C's news concerns which of them.
Frames move and callbacks run inside poll() and wait(), and in nothing else but
what is said to wait.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from careful._abi import enum_names, ffi, lib
from careful.control import status
from careful.control.config import Config, UpOptions, load, matches
from careful.errors import CarefulError, check
from careful.node.engine import Engine
from careful.node.message import Handler, Message
from careful.node.peer import Peer
from careful.node.region import Region

#: Options that concern carefuld, not an instance.
_NOT_OURS = ("cpu", "export")
_ENUMS = {
    "xdp": ("xdp_mode", "careful_xdp_mode", "CAREFUL_XDP_"),
    "wait": ("wait_mode", "careful_wait_mode", "CAREFUL_WAIT_"),
}


def _field(ifname: str, name: str, value: Any) -> tuple[str, Any]:
    """Field of struct careful_options, and its value, of an option that is given."""
    if not matches(value, get_type_hints(UpOptions)[name]):
        raise TypeError(f"{name} = {value!r}: that is of the wrong type")
    if name in _ENUMS:
        field, enum, prefix = _ENUMS[name]
        names = {name: number for number, name in enum_names(enum, prefix).items()}
        if value not in names:
            text = f"{name} = {value!r}: one of {', '.join(names)}"
            raise CarefulError(errno.EINVAL, text, ifname)
        return field, names[value]
    if isinstance(value, int) and not 0 <= value < 1 << 32:
        raise CarefulError(errno.EINVAL, f"{name} = {value}: 0 to 2^32 - 1", ifname)
    return name, value


def _options(ifname: str, instance: str, options: UpOptions) -> dict[str, Any]:
    """Fields of struct careful_options."""
    found: dict[str, Any] = {"ifname": ifname, "instance": instance}
    for option in fields(options):
        value = getattr(options, option.name)
        if value is not None and option.name not in _NOT_OURS:
            field, number = _field(ifname, option.name, value)
            found[field] = number
    return found


class Node:
    """One NIC queue, owned by this program and used by the thread that opened it.

    Made by careful.open(), whose arguments it takes. `with` closes it at the end. A child
    of fork() has no part in it.

    Attributes:
        ifname: the interface.
        instance: its name on this machine.
        config: the configuration, for the names of nodes.
    """

    def __init__(
        self,
        ifname: str,
        instance: str | None = None,
        config: Config | Path | str | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(ifname, str):
            raise TypeError(f"an interface is named by a str, not {type(ifname).__name__}")
        if wrong := [name for name in _NOT_OURS if name in options]:
            raise TypeError(f"{wrong[0]} is an option of carefuld")
        if isinstance(config, Config):
            self.config = config
        else:
            self.config = load(Path(config) if config else None)
        self.ifname = ifname
        self.instance = instance or os.environ.get("CAREFUL_INSTANCE") or ifname
        given = UpOptions(**options).over(self.config.options(self.instance))
        self._handlers: dict[int, Handler] = {}
        self._peers: dict[int, Peer] = {}
        self._regions: dict[int, Region] = {}
        self._engine = Engine(_options(ifname, self.instance, given))
        self._engine.owner = ffi.new_handle(self)
        lib.careful_peer_watch(self._engine.pointer, lib.on_peer, self._engine.owner)

    def __repr__(self) -> str:
        return f"<Node {self.ifname}, {'closed' if self._engine.closed else 'open'}>"

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all sessions and give the queue back; operations end with ECANCELED.

        Raises:
            RuntimeError: called by a handler, or in another thread.
        """
        self._engine.close()
        for region in self._regions.values():
            region._try_remove()
        self._regions.clear()
        for peer in self._peers.values():
            peer._forget()
        self._peers.clear()
        self._handlers.clear()
        self._engine.owner = None
        for operation in list(self._engine.operations):
            operation._fail(errno.ECANCELED, "the instance was closed")
        self._engine.raise_errors()

    def poll(self) -> int:
        """One round: receive, send, run handlers; returns how many frames came.

        Raises:
            BaseException: what a handler or callback raised; several as a group.
        """
        return self._engine.poll()

    def wait(self, timeout_s: float | None = None, fd: int = -1) -> int:
        """Poll until frames came, a handler or callback ran, `fd` is readable, or time is over.

        Args:
            timeout_s: how long at most, seconds; None: for as long as it takes.
            fd: a descriptor that others make readable; -1: none.

        Returns:
            How many frames came.

        Raises:
            BaseException: as poll().
        """
        return self._engine.wait(timeout_s, fd)

    def handle(self, number: int, handler: Handler | None) -> None:
        """Set what runs for requests, and completed stores, that name a number.

        What it returns is the reply: a Reply, a buffer, or None for an empty one. What
        it raises fails the request there, with its errno if it is an OSError and EIO
        if not, and is raised here by the poll or wait that it ran in.

        Args:
            number: 0 to 127.
            handler: called with a Message; None: there is none.

        Raises:
            TypeError: nothing to call.
            ValueError: the number is not an application's.
        """
        if handler is not None and not callable(handler):
            raise TypeError(f"handler {number}: {handler!r} cannot be called")
        if not 0 <= number < lib.CAREFUL_HANDLERS_APP:
            raise ValueError(f"handler {number}: 0 to {lib.CAREFUL_HANDLERS_APP - 1}")
        function, user = (lib.on_message, self._engine.owner) if handler else (ffi.NULL, ffi.NULL)
        rc = lib.careful_handle(self._engine.pointer, number, function, user)
        check(rc, self.ifname)
        if handler is None:
            self._handlers.pop(number, None)
        else:
            self._handlers[number] = handler

    def register(self, what: Any, access: str = "rw", peer: Peer | None = None) -> Region:
        """Let peers get from, or store to, memory or a part of a file.

        Args:
            what: an object with a contiguous buffer (bytearray, mmap, a NumPy array
                ...), a FileRange, or an open file. Held until the region's remove().
            access: "r" (peers get), "w" (peers store) or "rw".
            peer: the only one that may, until its session ends; None: all.

        Raises:
            TypeError, ValueError, BufferError: it has no such buffer.
            CarefulError: all regions are in use, or the peer's session has ended.
        """
        index = int(lib.CAREFUL_ANY_PEER) if peer is None else peer._in_use()
        region = Region(self._engine, what, access, index)
        self._regions = {key: one for key, one in self._regions.items() if one.memory is not None}
        self._regions[region.key] = region
        return region

    def connect(self, host: str, timeout_s: float = 5.0) -> Peer:
        """A session with a host; polls until there is one.

        Args:
            host: a name of the configuration's [nodes]; or a name that the system
                knows or an address, with an optional port.
            timeout_s: how long to try, seconds.

        Raises:
            CarefulError: unknown, unreachable, silent, of another version, or all
                windows are taken, here or there.
        """
        address = self.config.resolve(host)
        peer = self._peer(self._begin(address.sockaddr(), host))
        peer.name = host
        settled = ("up", "stalled", "failed", "none")
        self._engine.wait_until(lambda: peer.state in settled, timeout_s)
        state, error = peer.state, peer.error
        if state in ("up", "stalled"):
            return peer
        if state == "connecting":
            peer.close()
        raise CarefulError(error or errno.ETIMEDOUT, "", host)

    def _begin(self, sockaddr: bytes, host: str) -> int:
        raw = ffi.new("struct sockaddr_storage *")
        ffi.memmove(raw, sockaddr, len(sockaddr))
        args = (ffi.cast("struct sockaddr *", raw), ffi.sizeof("struct sockaddr_storage"))
        rc = self._engine.run(lib.careful_peer, *args)
        if rc == -errno.EADDRINUSE:
            for failed in [one for one in self._peers.values() if one.state == "failed"]:
                failed.close()
            rc = self._engine.run(lib.careful_peer, *args)
        return check(rc, host)

    @property
    def peers(self) -> list[Peer]:
        """Those we have, or try to have, a session with."""
        return [self._peers[index] for index in sorted(self._peers)]

    def counters(self) -> dict[str, int]:
        """What was counted so far, by name; nothing is lost if lost_frames is 0."""
        return status.counters(self._info())

    def info(self) -> dict[str, Any]:
        """What is in effect, as in `carefulctl status --json`: XDP mode, copy or zero-copy,
        the window and what bounds it, buffers, port, how it waits.
        """
        return status.in_effect(self._info())

    def _info(self) -> Any:
        info = ffi.new("struct careful_info *")
        check(lib.careful_info(self._engine.pointer, info), self.ifname)
        return info

    def _peer(self, index: int) -> Peer:
        if index not in self._peers:
            self._peers[index] = Peer(self._engine, index)
        return self._peers[index]

    def _on_peer(self, index: int, state: int) -> None:
        """C: a peer's state has changed."""
        self._engine.heard()
        try:
            if state in (lib.CAREFUL_PEER_NONE, lib.CAREFUL_PEER_FAILED):
                self._drop_regions(index)
            if state != lib.CAREFUL_PEER_NONE:
                self._peer(index)
            elif index in self._peers:
                self._peers.pop(index)._forget()
        except BaseException as error:
            self._engine.failed(error)

    def _drop_regions(self, index: int) -> None:
        """What only this peer could reach is of no use to the slot's next owner."""
        for region in [one for one in self._regions.values() if one._peer == index]:
            with suppress(CarefulError):
                region.remove()

    def _on_message(self, raw: Any) -> None:
        """C: a request, or a store that is in its place."""
        self._engine.heard()
        message = None
        try:
            handler = self._handlers[raw.handler]
            message = Message(
                self._engine, raw, self._peer(raw.peer), self._regions.get(raw.region)
            )
            message._answer(handler(message))
        except BaseException as error:
            self._engine.failed(error)
            self._fail(message, error)
        finally:
            if message is not None:
                message._over()

    def _fail(self, message: Message | None, error: BaseException) -> None:
        """Tell the peer that a handler failed."""
        number = error.errno if isinstance(error, OSError) else None
        try:
            if message is not None:
                message._fail(number or errno.EIO)
        except Exception as second:
            self._engine.failed(second)
