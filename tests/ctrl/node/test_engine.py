"""An engine's waits and backlog without a device: this test fakes a few functions of C."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import careful
import pytest
from careful._abi import ffi
from careful.address import resolve
from careful.errors import CarefulError
from careful.node import engine as engine_module
from careful.node import message as message_module
from careful.node import opening
from careful.node import peer as peer_module
from careful.node.engine import Engine
from careful.node.loop import Driver
from careful.node.memory import Span
from careful.node.message import Message, Reply
from careful.node.node import Node
from careful.node.operation import Operation
from careful.node.peer import Peer


class Fake(Engine):
    """C has room on command, and runs one function of `polls` per poll."""

    def __init__(self) -> None:
        self.polls: list[Callable[[], object]] = []
        self.room, self.asked, self.frames = 0, 0, 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(opening, "lib", SimpleNamespace(careful_attach=self._attach))
            super().__init__({"path": "/nowhere"}, "eth9")

    def _attach(self, _options: Any, found: Any, _error: Any) -> int:
        found[0] = ffi.cast("struct careful *", 1)
        return 0

    def wait_c(self, _pointer: Any, _timeout_ms: int, _fd: int) -> int:
        if self.polls:
            self.polls.pop(0)()
        elif not self.frames:
            raise AssertionError("nothing comes, and it still waits")
        return self.frames

    def start(self, *_: Any) -> int:
        self.asked += 1
        self.room -= 1
        return 0 if self.room >= 0 else -errno.EAGAIN


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    one = Fake()
    monkeypatch.setattr(engine_module, "lib", SimpleNamespace(careful_wait=one.wait_c))
    one.on_error = reraise
    yield one
    one._pointer = None
    engine_module._open.discard(one)


def reraise(error: Exception, _where: str) -> None:
    raise error


def peer_of(engine: Engine) -> Peer:
    peer = Peer.__new__(Peer)
    peer._engine, peer._is_detached, peer.index, peer.name = engine, False, 3, "h2"
    peer.failed = peer.lost_operation = False
    return peer


def begin(engine: Fake, target: bytearray) -> Operation:
    """Begins a get that finds no room; while it waits another callback raises."""
    engine.room = 0
    peer = peer_of(engine)
    with pytest.raises(KeyError, match="another's"):
        peer.begin(engine.start, Span(target, "w"))
    return next(iter(engine.operations), Operation(engine, peer))


def test_begin__another_callback_raises_after_begin(engine: Fake) -> None:
    """C has the operation's handle and buffer, so both are held until its end."""

    def room_and_error() -> None:
        engine.room = 1
        engine.report_failure(KeyError("another's"), "a callback")

    engine.polls = [lambda: None, room_and_error]
    target = bytearray(4)
    operation = begin(engine, target)
    assert engine.operations == {operation}
    assert operation.handle is not None
    with pytest.raises(BufferError):
        target.extend(b"resized")
    raw = ffi.new("struct careful_result *")
    ffi.from_handle(operation.handle)._on_done(raw)
    assert operation.result().nbytes == 0
    assert engine.operations == set()
    target.extend(b"resized")


def test_begin__another_callback_raises_before_begin(engine: Fake) -> None:
    """The operation never begins, so its buffer is free."""
    engine.polls = [lambda: engine.report_failure(KeyError("another's"), "a callback")]
    target = bytearray(4)
    begin(engine, target)
    assert engine.operations == set()
    target.extend(b"resized")
    engine.room, asked = 9, engine.asked
    engine.wait(0)
    assert engine.asked == asked
    assert engine.begin("another", engine.start, bool) == 0
    assert engine.asked == asked + 1


@pytest.mark.parametrize("error", [OverflowError, TypeError])
def test_begin__buffers_that_c_cannot_use_hold_nothing(
    engine: Fake, error: type[Exception]
) -> None:
    """For example a negative offset, or a float as a handler's number."""

    def refused(*_: Any) -> int:
        raise error("no such number")

    target = bytearray(4)
    with pytest.raises(error):
        peer_of(engine).begin(refused, Span(target, "w"))
    assert engine.operations == set()
    target.extend(b"resized")


def test_backlog__hidden_by_an_interrupt_begins_once(engine: Fake) -> None:
    """C may have begun the operation when the interrupt came."""
    begun = []

    def start() -> int:
        begun.append(engine.inside)
        if len(begun) == 1:
            return -errno.EAGAIN
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.begin("queue", start, bool)
    engine.wait(0)
    assert len(begun) == 2


def test_answer__waits_for_room_and_goes_first(
    engine: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler runs while nothing can be sent: its answer is neither lost nor changed."""
    reported: list[tuple[int, bytes]] = []
    heard: list[str] = []
    engine.on_error = lambda error, where: heard.append(f"{where}: {error}")

    def reply(_pointer: Any, _to: Any, status: int, _args: Any, payload: Any, _n: int) -> int:
        rc = engine.start()
        if rc == 0:
            reported.append((status, bytes(ffi.buffer(payload))))
        return rc

    names = SimpleNamespace(careful_reply_late=reply, careful_reply_name=lambda *_: None)
    monkeypatch.setattr(message_module, "lib", names)
    monkeypatch.setattr(Peer, "payload_bytes", 1000)
    peer, told_first = peer_of(engine), []
    with_driver = SimpleNamespace(wake=lambda: None)
    engine.driver = with_driver  # type: ignore[assignment]
    assert engine.begin(peer, lambda: told_first.append(len(reported)) or engine.start(), bool) == 0
    raw, text = ffi.new("struct careful_message *"), bytearray(b"first")

    def handlers() -> None:
        Message(engine, raw, peer, None).answer(text, "one")
        Message(engine, raw, peer, None).fail(ValueError("its own"), "two")
        late = Message(engine, raw, peer, None)
        late.later()
        late.fail(ValueError("its own"), "three")
        text[:] = b"later"

    engine.polls = [handlers]
    engine.wait(0)
    assert reported == []
    engine.room = 2
    engine.wait(0)
    assert reported == [(0, b"first"), (errno.EIO, b"ValueError: its own")]
    engine.room = 9
    engine.wait(0)
    assert reported[2:] == [(errno.EIO, b"ValueError: its own")]
    assert told_first[-1] == 3  # requests went behind the answers
    assert heard == []
    assert engine._backlog == {}


def test_answer__few_wait_for_a_peer_without_room(
    engine: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = SimpleNamespace(
        careful_reply_late=lambda *_: engine.start(), careful_reply_name=lambda *_: None
    )
    monkeypatch.setattr(message_module, "lib", names)
    monkeypatch.setattr(message_module, "_WAITING_MAX", 2)
    engine.driver = SimpleNamespace(wake=lambda: None)  # type: ignore[assignment]
    raw = ffi.new("struct careful_message *")
    one, other = peer_of(engine), peer_of(engine)

    def answer(peer: Peer) -> None:
        Message(engine, raw, peer, None).answer(b"", "handler")

    answer(one)
    answer(one)
    with pytest.raises(CarefulError, match="messages wait to be sent"):
        answer(one)
    answer(other)
    engine.room = 9
    engine.wait(0)
    answer(one)
    assert engine.room == 5
    assert engine._backlog == {}


def test_wait__ends_when_a_waiting_operation_begins(engine: Fake) -> None:
    """A one-way request has no answer; the waiting caller learns that it has left."""
    engine.frames = 0
    engine.polls = [lambda: None, lambda: setattr(engine, "room", 1)]
    assert engine.begin("queue", engine.start, bool) == 0
    assert engine.asked == 3


def test_loop__a_condition_that_raises_ends_its_own_wait(engine: Fake) -> None:
    """For example, a group is closed while a task receives; other waits still end."""

    def closed() -> bool:
        raise RuntimeError("the group was closed")

    async def run() -> None:
        engine.frames = 1
        engine.wait_fds = lambda: ([], 1.0)  # type: ignore[method-assign]
        driver = Driver(engine, 0.0)
        first = asyncio.ensure_future(driver.until(closed))
        second = asyncio.ensure_future(driver.until(lambda: True))
        with pytest.raises(RuntimeError, match="closed"):
            await asyncio.wait_for(first, 30)
        assert await asyncio.wait_for(second, 30)
        driver.stop()

    asyncio.run(run())


@pytest.mark.parametrize("status", [4096, 1 << 20, -4096])
def test_answer__a_status_that_a_reply_cannot_carry_fails(
    engine: Fake, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """A reply has 12 bits for the status: 4096 would become a success."""
    names = SimpleNamespace(careful_reply_name=lambda *_: None)
    monkeypatch.setattr(message_module, "lib", names)
    message = Message(engine, ffi.new("struct careful_message *"), peer_of(engine), None)
    with pytest.raises(
        ValueError, match=f"status {status} must be 0, or a positive errno below 4096"
    ):
        message.answer(Reply(status=status), "handler 1")


def test_renew__is_tried_again_after_a_failure(
    engine: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session ended in a pause, and the link was down at the next operation."""
    answers = [-errno.ENETUNREACH, -errno.ENETUNREACH, 3]
    names = SimpleNamespace(careful_peer=lambda *_: answers.pop(0), on_done=None)
    monkeypatch.setattr(peer_module, "lib", names)
    peer = peer_of(engine)
    peer.address = resolve("10.0.0.2")
    peer.failed, engine.room = True, 1
    for _ in range(2):
        with pytest.raises(CarefulError, match="no route"):
            peer.begin(engine.start, None)
    assert engine.operations == set()
    operation = peer.begin(engine.start, None)
    assert (engine.operations, answers, peer.failed) == ({operation}, [], False)


def test_loop__close_ends_a_waiting_task(
    engine: Fake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For example serve_forever() of one task, while another closes the node."""

    async def run() -> None:
        engine.wait_fds = lambda: ([], 1.0)  # type: ignore[method-assign]
        engine.driver = driver = Driver(engine, 0.0)
        first, second = (asyncio.ensure_future(driver.until(lambda: False)) for _ in range(2))
        await asyncio.sleep(0)
        engine.close()
        second.cancel()
        with pytest.raises(CarefulError, match="eth9: is closed"):
            await asyncio.wait_for(first, 30)
        with pytest.raises(CarefulError, match="eth9: is closed"):
            await asyncio.wait_for(driver.until(lambda: False), 30)

    names = SimpleNamespace(careful_wait=engine.wait_c, careful_close=lambda _: None)
    monkeypatch.setattr(engine_module, "lib", names)
    asyncio.run(run())
    assert caplog.text == ""


def test_handler__whose_task_is_cancelled_answers(
    engine: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task it awaits is cancelled: the client must not wait for ever."""
    reported: list[tuple[int, bytes]] = []

    def reply(_pointer: Any, _to: Any, status: int, _args: Any, payload: Any, _n: int) -> int:
        reported.append((status, bytes(ffi.buffer(payload))))
        return 0

    names = SimpleNamespace(careful_reply_late=reply, careful_reply_name=lambda *_: None)
    monkeypatch.setattr(message_module, "lib", names)
    monkeypatch.setattr(Peer, "payload_bytes", 1000)
    node = Node.__new__(Node)
    node._engine = engine
    raw = ffi.new("struct careful_message *")

    async def run() -> None:
        engine.wait_fds = lambda: ([], 1.0)  # type: ignore[method-assign]
        engine.driver = driver = Driver(engine, 0.0)
        work = asyncio.ensure_future(asyncio.sleep(30))
        message = Message(engine, raw, peer_of(engine), None)

        async def handler() -> None:
            await work

        node._answer_later(message, handler(), "handler 1")
        await asyncio.sleep(0.01)
        work.cancel()
        await asyncio.sleep(0.01)
        assert driver._tasks == set()
        driver.stop()

    asyncio.run(run())
    assert reported == [(errno.EIO, b"CancelledError: ")]


def test_names__a_star_import_leaves_open_alone() -> None:
    """careful.open() would replace the built-in open()."""
    assert "attach" in careful.__all__
    assert "open" not in careful.__all__
    with pytest.raises(AttributeError, match=r"careful\.attach\(\)"):
        _ = careful.connect
