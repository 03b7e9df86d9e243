"""An instance that a Python program owns: `careful.open()`.

Routes C's callbacks to handlers, peers and regions. Frames move and callbacks run only inside
poll(), wait() and calls documented to wait; in an event loop, loop.py polls.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import math
import os
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Unpack

from careful._abi import CData, ffi, lib
from careful.address import Address
from careful.closing import Closing
from careful.control.instance import choice, records
from careful.control.options.config import Config, load
from careful.errors import CarefulError, check
from careful.node.engine import Engine, ErrorHook
from careful.node.loop import Driver
from careful.node.message import Handler, LateReply, Message, failure_reply
from careful.node.options import AttachOptions, OpenOptions, attach_fields, fields_of, options_of
from careful.node.outgoing import Outgoing
from careful.node.peer import Peer
from careful.node.region import Region

#: States of a peer that end the wait in connect().
_FINAL_STATES = ("up", "stalled", "failed", "none")
#: How long an answer waits between two attempts if there is no room, seconds.
_RETRY_S = 0.001


def _with_session(peer: Peer) -> Peer:
    """Returns the peer if it has a session. Raises CarefulError: it has none."""
    state, error = peer.state, peer.error
    if state in ("up", "stalled"):
        return peer
    if state == "connecting":
        peer.close()
    raise CarefulError(error or errno.ETIMEDOUT, "", peer.name)


class Node(Closing):
    """One NIC queue, owned by this program and used by the thread that opened it.

    careful.open() makes a node from these arguments. careful.attach() makes a node whose queue
    belongs to a carefuld. `with` closes the node at the end. `async with` also polls it in the
    running event loop, so that operations can be awaited and handlers can be coroutine functions. A
    child of fork() cannot use the node.

    Attributes:
        ifname: the interface.
        instance: its name on this machine.
        config: the configuration with the names of nodes.
    """

    def __init__(
        self,
        ifname: str,
        instance: str | None = None,
        config: Config | Path | str | None = None,
        **options: Unpack[OpenOptions],
    ) -> None:
        if not isinstance(ifname, str):
            raise TypeError(f"an interface must be a str, not {type(ifname).__name__}")
        self.config = load(config)
        self.ifname = ifname
        self.instance = instance or os.environ.get("CAREFUL_INSTANCE") or ifname
        up_options = options_of(self.instance, self.config, options)
        self._start(Engine(fields_of(ifname, self.instance, up_options)))

    @classmethod
    def attached(
        cls, instance: str | None, config: Config | Path | str | None, options: AttachOptions
    ) -> Node:
        """Returns a node that shares a carefuld's queue; for the arguments see careful.attach().
        Raises CarefulError or TypeError: as careful.attach().
        """
        node = cls.__new__(cls)
        node.config = load(config)
        running = choice.choose(instance or os.environ.get("CAREFUL_INSTANCE"))
        node.instance = running.name
        node.ifname = running.ifname or running.name
        name = f"carefuld of {running.name}"
        node._start(Engine(attach_fields(str(running.socket), name, **options), name))
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

    async def __aenter__(self) -> Node:
        info = records.in_effect(self._info())
        spins = {"spin": math.inf, "block": 0.0, "adaptive": info.spin_us / 1e6}
        self._engine.driver = Driver(self._engine, spins[info.wait])
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @property
    def on_error(self) -> ErrorHook:
        """Returns the function that gets the exception of a handler or done-callback, and its name.

        By default, exceptions are logged (logging, "careful.node") and the node continues. The poll
        or wait raises an exception of the hook itself, and any KeyboardInterrupt or SystemExit.
        """
        return self._engine.on_error

    @on_error.setter
    def on_error(self, hook: ErrorHook) -> None:
        self._engine.on_error = hook

    def close(self) -> None:
        """Ends all sessions and releases the queue; operations end with ECANCELED. Raises
        RuntimeError: called by a handler, or in another thread. Raises BufferError: a view of a
        message's payload exists.
        """
        self._engine.close()
        for region in self._regions.values():
            region.try_remove()
        self._regions.clear()
        for peer in self._peers.values():
            peer.detach()
        self._peers.clear()
        self._handlers.clear()
        self._engine.owner = None
        for operation in list(self._engine.operations):
            operation.fail(errno.ECANCELED, "the instance was closed")
        self._engine.raise_errors()

    def release_buffers(self) -> None:
        """Releases registered memory; C no longer uses it."""
        for region in self._regions.values():
            region.release_buffers()
        self._regions.clear()

    def poll(self) -> int:
        """Receives, sends and runs handlers once; returns the number of frames received. Raises
        CarefulError: the interface is gone (ENODEV). Raises BaseException: an interrupt in a
        handler, or an exception of on_error.
        """
        return self._engine.poll()

    def wait(self, timeout_s: float | None = None, fd: int = -1) -> int:
        """Polls until a frame arrives, a handler or callback runs, `fd` is readable, or time is
        over; returns the number of frames received.

        Args:
            timeout_s: the longest wait, seconds; None: no limit.
            fd: a descriptor to watch; -1: none.

        Raises:
            As poll().
        """
        return self._engine.wait(timeout_s, fd)

    def wait_fds(self) -> tuple[list[int], float]:
        """Returns the descriptors that a program's own event loop waits for before each poll().

        Returns:
            Descriptors, and the longest wait in seconds. Ask again before each wait.
        """
        return self._engine.wait_fds()

    async def serve_forever(self) -> None:
        """Waits until this is cancelled; `async with` polls. Raises CarefulError: the interface is
        gone (ENODEV).
        """
        await self._engine.in_loop().until(lambda: False)

    def handle(self, number: int, handler: Handler | None, *, stores: bool = False) -> None:
        """Sets the handler of requests with a number.

        The handler's return value is the reply: a Reply, a buffer, one of our Regions, or None for
        an empty reply. If the handler raises, on_error gets the exception and the request fails at
        the peer with RemoteError: the errno of an OSError or else EIO, and the class and text.
        Raises TypeError: `handler` cannot be called. Raises ValueError: the number is not an
        application's.

        Args:
            number: 0 to 127.
            handler: called with a Message; in an event loop, may be a coroutine function.
                None: removes the handler.
            stores: also run the handler for complete stores that name the number.
        """
        if handler is not None and not callable(handler):
            raise TypeError(f"handler {number}: {handler!r} cannot be called")
        if not 0 <= number < lib.CAREFUL_HANDLERS_APP:
            raise ValueError(f"handler {number} must be from 0 to {lib.CAREFUL_HANDLERS_APP - 1}")
        function, user = (lib.on_message, self._engine.owner) if handler else (ffi.NULL, ffi.NULL)
        rc = lib.careful_handle(self._engine.pointer, number, function, user)
        text = "another program has this handler" if rc == -errno.EBUSY else ""
        check(rc, f"{self.ifname}: handler {number}", text)
        store_handler = (function, user) if stores else (ffi.NULL, ffi.NULL)
        check(lib.careful_handle_store(self._engine.pointer, number, *store_handler), self.ifname)
        if handler is None:
            self._handlers.pop(number, None)
        else:
            self._handlers[number] = handler

    def memory(self, nbytes: int) -> memoryview:
        """Returns zeroed memory that any node can register.

        A node of careful.attach() shares the memory with carefuld, so peers' stores and gets are
        not copied on this host. The memory belongs to the program while the program runs. Raises
        CarefulError: there is not enough memory (ENOMEM). Raises ValueError: 0 bytes, or fewer.
        """
        if nbytes <= 0:
            raise ValueError(f"nbytes {nbytes} must be at least 1")
        base = ffi.new("void **")
        rc = lib.careful_memory(self._engine.pointer, nbytes, base)
        check(rc, self.ifname, "no free piece of that size is left (memory_bytes)")
        return memoryview(ffi.buffer(base[0], nbytes)).cast("B")

    def outgoing(self) -> Outgoing:
        """Returns a message to build in a send buffer of the device, which sends it without a
        copy.

        With careful.attach(), carefuld copies the message from shared memory; at most 64 at a time.
        Raises CarefulError: messages use a quarter of the send buffers, or none is free (EAGAIN).
        """
        return Outgoing(self._engine)

    def register(self, what: object, access: str = "rw", peer: Peer | None = None) -> Region:
        """Lets peers get from, or store to, memory or a part of a file. Raises TypeError,
        ValueError, BufferError: there is no such buffer. Raises CarefulError: all regions are in
        use, or the peer's session has ended.

        Args:
            what: an object with a contiguous buffer (bytearray, mmap, a NumPy array
                ...), a FileRange, or an open file. Held until the region's remove().
            access: "r" (peers get), "w" (peers store) or "rw".
            peer: the only peer with access, until its session ends; None: all peers.
        """
        index = int(lib.CAREFUL_ANY_PEER) if peer is None else peer.in_use()
        region = Region(self._engine, what, access, index)
        self._regions = {key: one for key, one in self._regions.items() if one.memory is not None}
        self._regions[region.key] = region
        return region

    def connect(self, host: str, timeout_s: float = 5.0) -> Peer:
        """Opens a session with a host; polls until the session is up. Raises CarefulError: the host
        is unknown, unreachable, silent or of another version, or no window is free at one end.

        Args:
            host: a name in the configuration's [nodes]; or a name that the system
                knows or an address, with an optional port.
            timeout_s: how long to try, seconds.
        """
        peer = self._start_session(self.config.resolve(host), host)
        self._engine.wait_until(lambda: peer.state in _FINAL_STATES, timeout_s)
        return _with_session(peer)

    async def aconnect(self, host: str, timeout_s: float = 5.0) -> Peer:
        """Does connect() in an event loop."""
        driver = self._engine.in_loop()
        loop = asyncio.get_running_loop()
        address = await loop.run_in_executor(None, self.config.resolve, host)
        peer = self._start_session(address, host)
        await driver.until(lambda: peer.state in _FINAL_STATES, timeout_s)
        return _with_session(peer)

    def _start_session(self, address: Address, host: str) -> Peer:
        peer = self._peer(self._open_slot(address.sockaddr(), host))
        peer.name = host
        return peer

    def _open_slot(self, sockaddr: bytes, host: str) -> int:
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
        """Returns the peers with a session, or with one on its way."""
        return [self._peers[index] for index in sorted(self._peers)]

    def counters(self) -> dict[str, int]:
        """Returns the counters by name; if lost_frames is 0, no loss ended an epoch."""
        return records.counters(self._info())

    def info(self) -> dict[str, object]:
        """Returns what is in effect, as `carefulctl status --json`: XDP mode, copy or zero-copy,
        window and its bound, buffers, port, and how it waits.
        """
        return dict(vars(records.in_effect(self._info())))

    def _info(self) -> CData:
        info = ffi.new("struct careful_info *")
        check(lib.careful_info(self._engine.pointer, info), self.ifname)
        return info

    def _peer(self, index: int) -> Peer:
        if index not in self._peers:
            self._peers[index] = Peer(self._engine, index)
        return self._peers[index]

    def _on_peer(self, index: int, state: int) -> None:
        self._engine.count_event()
        try:
            if state in (lib.CAREFUL_PEER_NONE, lib.CAREFUL_PEER_FAILED):
                self._drop_regions(index)
            if state == lib.CAREFUL_PEER_NONE:
                if index in self._peers:
                    self._peers.pop(index).detach()
                return
            peer = self._peer(index)
            peer.failed = state == lib.CAREFUL_PEER_FAILED
            if state == lib.CAREFUL_PEER_UP:
                peer.lost_operation = False
        except BaseException as error:
            self._engine.report_failure(error, f"a change of peer {index}")

    def _drop_regions(self, index: int) -> None:
        """Removes the regions that only this peer could reach; the slot's next owner must not."""
        for region in [one for one in self._regions.values() if one.only == index]:
            with suppress(CarefulError):
                region.remove()

    def _on_message(self, raw: CData) -> None:
        self._engine.count_event()
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
            self._engine.report_failure(error, where)
            self._fail(message, error, where)
        finally:
            if message is not None:
                message.drop()

    def _fail(self, message: Message | None, error: BaseException, where: str) -> None:
        try:
            if message is not None:
                message.fail(error, where)
        except Exception as send_error:
            self._engine.report_failure(send_error, where)

    def _answer_later(
        self, message: Message, work: Coroutine[object, None, object], where: str
    ) -> None:
        driver = self._engine.driver
        if driver is None:
            work.close()
            raise TypeError("a coroutine function can handle messages only in an event loop")
        late_reply = None if message.region else message.later()
        driver.task(self._run(work, message.peer, late_reply, where))

    async def _run(
        self,
        work: Coroutine[object, None, object],
        peer: Peer,
        late_reply: LateReply | None,
        where: str,
    ) -> None:
        try:
            await self._send_answer(late_reply, await work)
        except Exception as error:
            self._engine.report_failure(error, where)
            with suppress(CarefulError):
                await self._send_answer(late_reply, failure_reply(error, peer))
        except BaseException as error:  # this task, or one that it awaited, was cancelled
            with suppress(CarefulError, RuntimeError):
                if late_reply is not None and not late_reply.sent:
                    late_reply.send_with_room(failure_reply(error, peer), where)
            raise

    async def _send_answer(self, late_reply: LateReply | None, answer: object) -> None:
        """Answers when there is room; the peer that asked may be gone."""
        while late_reply is not None and not late_reply.sent:
            try:
                late_reply.send(answer)
            except BlockingIOError:
                await self._engine.in_loop().until(lambda: False, _RETRY_S)
            except ConnectionError:
                return
