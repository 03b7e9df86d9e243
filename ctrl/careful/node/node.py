"""An instance that a Python program owns: `careful.open()`.

Owns handlers, peers and regions, and what of C's news concerns which of them.
Frames move and callbacks run inside poll() and wait(), and in nothing else but
what is said to wait; in an event loop, in the rounds that loop.py plans.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import math
import os
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from careful._abi import CData, ffi, lib
from careful.address import Address
from careful.control import instances, status
from careful.control.config import Config, load
from careful.control.up_options import UpOptions
from careful.errors import CarefulError, check
from careful.node.engine import Engine, ErrorHook
from careful.node.loop import Driver
from careful.node.message import Handler, LateReply, Message, failure
from careful.node.options import NOT_OURS, attach_fields, fields_of
from careful.node.outgoing import Outgoing
from careful.node.peer import Peer
from careful.node.region import Region

#: States of a peer in which connect() has its answer.
_SETTLED = ("up", "stalled", "failed", "none")
#: How long an answer waits before it is tried again, where too many wait, seconds.
_ROOM_S = 0.001


def _connected(peer: Peer) -> Peer:
    """It, if it is.

    Raises:
        CarefulError: it is not.
    """
    state, error = peer.state, peer.error
    if state in ("up", "stalled"):
        return peer
    if state == "connecting":
        peer.close()
    raise CarefulError(error or errno.ETIMEDOUT, "", peer.name)


def _loaded(config: Config | Path | str | None) -> Config:
    if isinstance(config, Config):
        return config
    return load(Path(config) if config else None)


class Node:
    """One NIC queue, owned by this program and used by the thread that opened it.

    Made by careful.open(), whose arguments it takes; or by careful.connect(), and then its queue
    is a carefuld's. `with` closes it at the end. `async with`
    does so as well, and polls it in the running event loop meanwhile: then operations can be
    awaited, and handlers be coroutine functions. A child of fork() has no part in it.

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
        if wrong := [name for name in NOT_OURS if name in options]:
            raise TypeError(f"{wrong[0]} is an option of carefuld")
        self.config = _loaded(config)
        self.ifname = ifname
        self.instance = instance or os.environ.get("CAREFUL_INSTANCE") or ifname
        given = UpOptions(**options).over(self.config.options(self.instance))
        if isinstance(given.seal, str):
            given = replace(given, seal=self.config.sealed(given.seal))
        self._start(Engine(fields_of(ifname, self.instance, given)))

    @classmethod
    def attached(
        cls,
        instance: str | None = None,
        config: Config | Path | str | None = None,
        **options: Any,
    ) -> Node:
        """A node that shares the queue of a carefuld: careful.connect(), whose arguments these are.

        Raises:
            CarefulError, TypeError: as careful.connect().
        """
        node = cls.__new__(cls)
        node.config = _loaded(config)
        found = instances.choose(instance or os.environ.get("CAREFUL_INSTANCE"))
        node.instance = found.name
        node.ifname = found.ifname or found.name
        what = f"carefuld of {found.name}"
        node._start(Engine(attach_fields(str(found.socket), what, **options), what))
        return node

    def _start(self, engine: Engine) -> None:
        self._handlers: dict[int, Handler] = {}
        self._peers: dict[int, Peer] = {}
        self._regions: dict[int, Region] = {}
        self._engine = engine
        self._engine.owner = ffi.new_handle(self)
        lib.careful_peer_watch(self._engine.pointer, lib.on_peer, self._engine.owner)

    def __repr__(self) -> str:
        return f"<Node {self.ifname}, {'closed' if self._engine.closed else 'open'}>"

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Node:
        info = status.in_effect(self._info())
        spins = {"spin": math.inf, "block": 0.0, "adaptive": info.spin_us / 1e6}
        self._engine.driver = Driver(self._engine, spins[info.wait])
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @property
    def on_error(self) -> ErrorHook:
        """What is called when a handler or a done-callback raised: the exception, and where.

        By default that is logged (logging, "careful.node"), and the node goes on. What this
        raises itself, and what is no Exception (KeyboardInterrupt, SystemExit), is raised by
        the poll or wait in which it happened.
        """
        return self._engine.on_error

    @on_error.setter
    def on_error(self, hook: ErrorHook) -> None:
        self._engine.on_error = hook

    def close(self) -> None:
        """End all sessions and give the queue back; operations end with ECANCELED.

        Raises:
            RuntimeError: called by a handler, or in another thread.
            BufferError: something sees the payload of a message that is being built.
        """
        self._engine.close()
        for region in self._regions.values():
            region.try_remove()
        self._regions.clear()
        for peer in self._peers.values():
            peer.forget()
        self._peers.clear()
        self._handlers.clear()
        self._engine.owner = None
        for operation in list(self._engine.operations):
            operation.fail(errno.ECANCELED, "the instance was closed")
        self._engine.raise_errors()

    def let_go(self) -> None:
        """Release what was registered; C has nothing of it any more."""
        for region in self._regions.values():
            region.let_go()
        self._regions.clear()

    def poll(self) -> int:
        """One round: receive, send, run handlers; returns how many frames came.

        Raises:
            CarefulError: the interface is gone (ENODEV).
            BaseException: an interrupt in a handler; what on_error raised.
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
            As poll().
        """
        return self._engine.wait(timeout_s, fd)

    def wait_fds(self) -> tuple[list[int], float]:
        """For an event loop of one's own: poll() when one of these is readable, or in time.

        Returns:
            Descriptors, and how long to wait for them at most, seconds. Ask again each time.
        """
        return self._engine.wait_fds()

    async def serve_forever(self) -> None:
        """Stay until this is cancelled; `async with` polls.

        Raises:
            CarefulError: the interface is gone (ENODEV).
        """
        await self._engine.in_loop().until(lambda: False)

    def handle(self, number: int, handler: Handler | None, *, stores: bool = False) -> None:
        """Set what runs for requests that name a number.

        What it returns is the reply: a Reply, a buffer, a Region of ours, or None for an
        empty one. An exception in it goes to on_error here, and fails the request there with
        RemoteError: the errno if it is an OSError, EIO if not, its class and its text.

        Args:
            number: 0 to 127.
            handler: called with a Message; in an event loop, it may be a coroutine function.
                None: there is none.
            stores: it also runs for stores that name the number, once they are in their place.

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
        taken = "another program has this handler" if rc == -errno.EBUSY else ""
        check(rc, f"{self.ifname}: handler {number}", taken)
        of_stores = (function, user) if stores else (ffi.NULL, ffi.NULL)
        check(lib.careful_handle_store(self._engine.pointer, number, *of_stores), self.ifname)
        if handler is None:
            self._handlers.pop(number, None)
        else:
            self._handlers[number] = handler

    def memory(self, nbytes: int) -> memoryview:
        """Memory, zeroed, that can be registered however the node was made.

        That of careful.connect() is shared with carefuld: what peers do with it, and stores and
        gets of it, are not copied here. It is the program's until that ends.

        Raises:
            CarefulError: there is not so much (ENOMEM).
            ValueError: 0 bytes, or fewer.
        """
        if nbytes <= 0:
            raise ValueError(f"{nbytes} bytes of memory")
        base = ffi.new("void **")
        rc = lib.careful_memory(self._engine.pointer, nbytes, base)
        check(rc, self.ifname, "no such piece of it is free (memory_bytes)")
        return memoryview(ffi.buffer(base[0], nbytes)).cast("B")

    def outgoing(self) -> Outgoing:
        """A message to be built in a send buffer of the device, from where it is sent.

        Of careful.connect(): in memory from which carefuld copies it there; 64 at a time.

        Raises:
            CarefulError: a quarter of the send buffers is used so, or none is free (EAGAIN).
        """
        return Outgoing(self._engine)

    def register(self, what: object, access: str = "rw", peer: Peer | None = None) -> Region:
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
        index = int(lib.CAREFUL_ANY_PEER) if peer is None else peer.in_use()
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
        peer = self._connecting(self.config.resolve(host), host)
        self._engine.wait_until(lambda: peer.state in _SETTLED, timeout_s)
        return _connected(peer)

    async def aconnect(self, host: str, timeout_s: float = 5.0) -> Peer:
        """As connect(), in an event loop."""
        driver = self._engine.in_loop()
        loop = asyncio.get_running_loop()
        address = await loop.run_in_executor(None, self.config.resolve, host)
        peer = self._connecting(address, host)
        await driver.until(lambda: peer.state in _SETTLED, timeout_s)
        return _connected(peer)

    def _connecting(self, address: Address, host: str) -> Peer:
        peer = self._peer(self._begin(address.sockaddr(), host))
        peer.name = host
        return peer

    def _begin(self, sockaddr: bytes, host: str) -> int:
        raw = ffi.new("struct sockaddr_storage *")
        ffi.memmove(raw, sockaddr, len(sockaddr))
        args = (ffi.cast("struct sockaddr *", raw), ffi.sizeof("struct sockaddr_storage"))
        rc = self._engine.run(lib.careful_peer, *args)
        if rc in (-errno.EADDRINUSE, -errno.EAGAIN):
            for failed in [one for one in self._peers.values() if one.state == "failed"]:
                failed.close()
            rc = self._engine.run(lib.careful_peer, *args)
        return check(-errno.EADDRINUSE if rc == -errno.EAGAIN else rc, host)

    @property
    def peers(self) -> list[Peer]:
        """Those we have, or try to have, a session with."""
        return [self._peers[index] for index in sorted(self._peers)]

    def counters(self) -> dict[str, int]:
        """What was counted so far, by name; nothing is lost if lost_frames is 0."""
        return status.counters(self._info())

    def info(self) -> dict[str, object]:
        """What is in effect, as in `carefulctl status --json`: XDP mode, copy or zero-copy,
        the window and what bounds it, buffers, port, how it waits.
        """
        return dict(vars(status.in_effect(self._info())))

    def _info(self) -> CData:
        info = ffi.new("struct careful_info *")
        check(lib.careful_info(self._engine.pointer, info), self.ifname)
        return info

    def _peer(self, index: int) -> Peer:
        if index not in self._peers:
            self._peers[index] = Peer(self._engine, index)
        return self._peers[index]

    def _on_peer(self, index: int, state: int) -> None:
        self._engine.heard()
        try:
            if state in (lib.CAREFUL_PEER_NONE, lib.CAREFUL_PEER_FAILED):
                self._drop_regions(index)
            if state == lib.CAREFUL_PEER_NONE:
                if index in self._peers:
                    self._peers.pop(index).forget()
                return
            peer = self._peer(index)
            peer.failed = state == lib.CAREFUL_PEER_FAILED
            if state == lib.CAREFUL_PEER_UP:
                peer.lost_operation = False
        except BaseException as error:
            self._engine.failed(error, f"a change of peer {index}")

    def _drop_regions(self, index: int) -> None:
        """Removes regions that only this peer could reach; the next owner cannot use them."""
        for region in [one for one in self._regions.values() if one.only == index]:
            with suppress(CarefulError):
                region.remove()

    def _on_message(self, raw: CData) -> None:
        self._engine.heard()
        message = None
        where = f"handler {raw.handler}"
        try:
            peer = self._peer(raw.peer)
            where += f", asked by {peer.name},"
            handler = self._handlers[raw.handler]
            message = Message(self._engine, raw, peer, self._regions.get(raw.region))
            value = handler(message)
            if inspect.iscoroutine(value):
                self._answer_later(message, value, where)
            else:
                message.answer(value, where)
        except BaseException as error:
            self._engine.failed(error, where)
            self._fail(message, error, where)
        finally:
            if message is not None:
                message.over()

    def _fail(self, message: Message | None, error: BaseException, where: str) -> None:
        try:
            if message is not None:
                message.fail(error, where)
        except Exception as second:
            self._engine.failed(second, where)

    def _answer_later(
        self, message: Message, work: Coroutine[object, None, object], where: str
    ) -> None:
        """Run what a coroutine function returned; what that returns is the answer."""
        driver = self._engine.driver
        if driver is None:
            work.close()
            raise TypeError("a coroutine function handles messages in an event loop alone")
        late = None if message.region else message.later()
        driver.task(self._run(work, message.peer, late, where))

    async def _run(
        self, work: Coroutine[object, None, object], peer: Peer, late: LateReply | None, where: str
    ) -> None:
        try:
            await self._give(late, await work)
        except Exception as error:
            self._engine.failed(error, where)
            with suppress(CarefulError):
                await self._give(late, failure(error, peer))
        except BaseException as error:  # a task that it awaited was cancelled, or this one
            with suppress(CarefulError, RuntimeError):
                if late is not None and not late.sent:
                    late.send_with_room(failure(error, peer), where)
            raise

    async def _give(self, late: LateReply | None, answer: object) -> None:
        """Answer, when there is room for it; who asked may be gone."""
        while late is not None and not late.sent:
            try:
                late.send(answer)
            except BlockingIOError:
                await self._engine.in_loop().until(lambda: False, _ROOM_S)
            except ConnectionError:
                return
