"""test_event.py runs this on each host: CASE RANK NODES. Fails with an AssertionError."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import careful
import numpy as np
from careful import event as events_of
from careful.control.instance import maps
from careful.control.plans import tune_entry
from careful.errors import CarefulError
from careful.event import Events, Status, jacobi

sys.path.append(str(Path(__file__).resolve().parents[2] / "support"))

from expects import beside_ticks, fails, raises

HOSTS = [f"h{number + 1}" for number in range(int(sys.argv[3]))]


def crowd(events: Events) -> None:
    """All-to-all messages of one fragment and of many, from any node and from a named one."""
    mine = np.arange(10, dtype=np.float64) + 100 * events.rank
    events.send(mine, 1, crowd=True)
    seen = set()
    for number in range(1, events.nodes):
        theirs = np.zeros(10)
        got = events.receive(1, into=theirs, timeout_s=30)
        assert got.data is theirs
        assert got.event_done == (number == events.nodes - 1)
        assert np.array_equal(theirs, np.arange(10) + 100 * got.source)
        seen.add(got.source)
    assert seen == set(range(events.nodes)) - {events.rank}
    large = np.random.default_rng(events.rank).random((40, 300))
    events.send(large, 2, crowd=True)
    for rank in sorted(seen):
        theirs = np.zeros((40, 300))
        got = events.receive(2, rank, into=theirs, timeout_s=30)
        assert got.nbytes == theirs.nbytes == 96000
        assert np.array_equal(theirs, np.random.default_rng(rank).random((40, 300)))


def planned(events: Events) -> None:
    """A message follows the plan of its size: 1000 bytes leave in four fragments of 250."""
    instance = os.environ["CAREFUL_INSTANCE"]
    settings = tune_entry.change(fragment_bytes=250)
    with tune_entry.one_writer(maps.pins(instance)), maps.tune_map(instance) as entries:
        tune_entry.apply(entries, tune_entry.all_slots(), settings)
    after, before = (events.rank + 1) % events.nodes, (events.rank - 1) % events.nodes
    events.send(bytes(range(250)) * 4, 1, after)
    for number in range(4):
        got = events.receive_fragment(1, before, timeout_s=30)
        assert (got.offset, bytes(got.data)) == (250 * number, bytes(range(250)))
    assert got.status == Status.EVENT_DONE


def fragments(events: Events) -> None:
    """A ring: each node passes fragments on to the next."""
    after, before = (events.rank + 1) % events.nodes, (events.rank - 1) % events.nodes
    most = events.fragment_bytes
    assert most > 1000
    for number in range(3):
        data = bytes([events.rank + number]) * (most - number)
        events.send_fragment(data, 5, after, last=number == 2, large=True)
    for number in range(3):
        got = events.receive_fragment(5, before, timeout_s=30)
        assert got.source == before
        assert got.data == bytes([before + number]) * (most - number)
        assert got.status == (Status.EVENT_DONE if number == 2 else Status.MORE)
    with fails(errno.EILSEQ, "ascending"):
        events.send(b"", 4, after)
    with fails(errno.EILSEQ):
        events.receive(5)
    with fails(errno.ENOENT, "no such node"):
        events.send(b"", 6, events.nodes)
    with fails(errno.ENOENT):
        events.receive(6, -1)
    with fails(errno.EMSGSIZE, "fragment_bytes"):
        events.send_fragment(bytes(most + 1), 6, after)
    with fails(errno.ETIMEDOUT):
        events.receive(6, timeout_s=0.1)
    events.send(b"word", 7, after)
    small = bytearray(3)
    with raises(ValueError, "a message of 4 bytes does not fit into a buffer of 3"):
        events.receive(7, into=small, timeout_s=30)
    jacobi.meet(events, 8)


def window(events: Events) -> None:
    """Sends more than a window to all before any is received; received data is copied out."""
    count = 80
    for number in range(count):
        events.send(np.full(4, number + 1000 * events.rank), number, crowd=True, timeout_s=30)
    for number in range(count):
        for _ in range(events.nodes - 1):
            got = events.receive(number, timeout_s=30)
            assert np.all(np.frombuffer(got.data, np.int64) == number + 1000 * got.source)


def again(events: Events) -> None:
    """Calls that end in the middle of a message are repeated: each byte arrives once."""
    # More than the others hold before they receive: 128 receive buffers, and as many copies.
    nbytes = 1_400_000  # fixed: fragment_bytes grows when a node leaves
    large = [np.arange(rank, rank + nbytes).astype(np.uint8) for rank in range(events.nodes)]
    mine, into = large[events.rank], np.zeros(nbytes, np.uint8)
    others = set(range(events.nodes)) - {events.rank}

    def ended(call: Any) -> Any:
        try:
            return call()
        except CarefulError as error:
            if error.errno not in (errno.ETIMEDOUT, errno.ENOBUFS):
                raise
            return None

    def send() -> bool:
        events.send(mine, 1, crowd=True, timeout_s=0.01)
        return True

    def receive() -> Any:
        # From any node and from a named one; a message continues in another buffer.
        source, target = ((None, into), (next(iter(others)), None))[tries % 2]
        return events.receive(1, source, into=target, timeout_s=0.002)

    sent, tries = None, 0
    while not sent and not events._outgoing.mixes_messages(1, None):
        sent = ended(send)
    if not sent:
        print("in the middle")
        with fails(errno.EBADMSG, "another length"):
            events.send(mine[1:], 1, crowd=True)
        with fails(errno.EBADMSG, "another length or crowd"):
            events.send(mine, 1)
        with fails(errno.EILSEQ):
            events.send(mine, 1, next(iter(others)), crowd=True)
        with fails(errno.EILSEQ):
            events.send_fragment(b"", 1, crowd=True, large=True)
    while others or not sent:
        sent, tries = sent or ended(send), tries + 1
        got = ended(receive) if others else None
        if got is not None:
            assert got.nbytes == len(got.data) == nbytes
            assert np.array_equal(np.frombuffer(got.data, np.uint8), large[got.source])
            others.remove(got.source)
    assert not events._incoming
    few = 30_000
    events.send(mine[:few], 2, (events.rank + 1) % events.nodes, timeout_s=30)
    for room in (3, few - 1, few - 1):
        with raises(ValueError, f"does not fit into a buffer of {room}"):
            events.receive(2, into=bytearray(room), timeout_s=30)
    got = events.receive(2, into=into, timeout_s=30)
    assert got.nbytes == few
    assert np.array_equal(into[:few], large[got.source][:few])


def flood_bound(events: Events) -> None:
    """No node receives until told to: the error names the lack, and the program continues."""
    count, received, reported = 400, 0, 0

    def receive_until(number: int) -> None:
        nonlocal received
        while received < number:
            for _ in range(events.nodes - 1):
                assert events.receive(received, timeout_s=30).data == bytes([received % 251])
            received += 1

    def refused(number: int) -> CarefulError | None:
        try:
            events.send(bytes([number % 251]), number, crowd=True, timeout_s=30)
        except CarefulError as error:
            return error
        return None

    for number in range(count):
        # Refused again if the others, who continued, fill the room before they receive themselves.
        while (refusal := refused(number)) is not None:
            assert refusal.errno == errno.ENOBUFS, repr(refusal)
            assert "receive, then send again" in str(refusal)
            assert number > 64
            reported += 1
            receive_until(number)
    receive_until(count)
    print("told" if reported else "not told")


def killed(events: Events) -> None:
    """A node dies in the middle of an event; the others get an error that names it."""
    jacobi.meet(events, 1)
    if events.rank == 1:
        events.send_fragment(b"half", 2, last=False)
        with fails(errno.ETIMEDOUT):  # polls meanwhile
            events.receive(2, 0, timeout_s=0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    assert events.receive_fragment(2, 1, timeout_s=30).status == Status.MORE
    began = time.monotonic()
    with raises(CarefulError, "node 1 (h2)") as caught:
        # From another, innocent node.
        events.receive(2, 2 - events.rank, timeout_s=60)
    assert caught[0].errno != errno.ETIMEDOUT
    assert time.monotonic() - began < 40


def exception(events: Events) -> None:
    """An exception that leaves the block fails the group."""
    if events.rank == 2:
        while not events.receive(1, timeout_s=30).event_done:
            pass
        raise FileNotFoundError(errno.ENOENT, "its input")
    events.send(b"", 1, 2, crowd=True)
    with fails(errno.ENOENT, "node 2 (h3)"):
        events.receive(2, timeout_s=30)


def leaves(events: Events) -> None:
    """A node that is done leaves; nobody waits for it."""
    jacobi.meet(events, 1)
    if events.rank == 0:
        return
    with fails(errno.ENOMSG, "all messages of this event have arrived"):
        events.receive(2, 0, timeout_s=30)
    with fails(errno.EPIPE, "has left"):
        events.send(b"", 2, 0)
    other = 3 - events.rank
    events.send(b"on", 3, other)
    assert events.receive(3, timeout_s=30).data == b"on"


def heat(events: Events) -> None:
    """P2 section 6.1, to the last bit."""
    event = 0
    for size, iterations in ((8, 30), (17, 20), (600, 3)):
        _, whole = jacobi.run(events, size, iterations, event)
        event += 2 * iterations + 2
        if whole is not None:
            alone = jacobi.serial(size, iterations)
            assert whole.tobytes() == alone.tobytes()
            assert 0 < whole[size // 2, size // 2] < 100 or iterations < size // 2


async def loop(events: Events) -> None:
    """The same calls in an event loop, next to another task."""
    await left(events, 0)
    async with beside_ticks(0):
        for number in range(1, 20):
            await events.asend(np.full(3000, number, np.int32), number, crowd=True)
            for _ in range(events.nodes - 1):
                got = await events.areceive(number)
                assert np.all(np.frombuffer(got.data, np.int32) == number)
        await left(events, 20)
        await asyncio.sleep(0.01)
        await cancelled(events)


async def left(events: Events, number: int) -> None:
    """A task is cancelled just when its message has left: the repeated call returns.

    The first message waits for the other nodes, a later one leaves at once.
    """
    task = asyncio.ensure_future(events.asend(b"", number, crowd=True))
    note = events._outgoing.note

    def noted(*args: Any) -> None:
        note(*args)
        task.cancel()

    events._outgoing.note = noted
    with raises(asyncio.CancelledError):
        await task
    events._outgoing.note = note
    await events.asend(b"", number, crowd=True)
    with fails(errno.EILSEQ, "ascending"):
        await events.asend(b"", number, crowd=True)
    for _ in range(events.nodes - 1):
        await events.areceive(number)


async def cancelled(events: Events) -> None:
    """Tasks are cancelled in the middle of a message and begun again."""
    # Several times the buffers of the receiver, so the sender waits several times.
    nbytes = 3_500_000
    mine = np.full(nbytes, events.rank, np.uint8)
    after, ends = (events.rank + 1) % events.nodes, 0

    async def until_done(make: Any) -> Any:
        nonlocal ends
        while True:
            task = asyncio.ensure_future(make())
            for _ in range(1 if ends < 3 else 20):  # 1: cancelled as soon as it waits
                await asyncio.sleep(0)
            task.cancel()
            try:
                return await task
            except asyncio.CancelledError:
                ends += 1

    _, got = await asyncio.gather(
        until_done(lambda: events.asend(mine, 100, after)),
        until_done(lambda: events.areceive(100)),
    )
    assert ends > 2
    assert got.nbytes == len(got.data) == nbytes
    assert np.all(np.frombuffer(got.data, np.uint8) == got.source)
    assert got.source == (events.rank - 1) % events.nodes


async def in_loop(rank: int) -> None:
    async with careful.open("eth1", peers=max(len(HOSTS) - 1, 1), rx_buffers=128) as node:
        with await events_of.ajoin(node, HOSTS, rank) as events:
            await loop(events)


def main() -> int:
    case, rank = sys.argv[1], int(sys.argv[2])
    if case == "loop":
        asyncio.run(in_loop(rank), debug=False)
        return 0
    function: Any = globals()[case]
    options = {"rx_buffers": 128} if case in ("window", "flood_bound", "again") else {}
    with careful.open("eth1", peers=max(len(HOSTS) - 1, 1), stall_ms=5000, **options) as node:
        try:
            with events_of.join(node, HOSTS, rank) as events:
                function(events)
        except FileNotFoundError as error:
            if case != "exception" or error.strerror != "its input":
                raise
        assert not [one for one in node.peers if one._info().buffers_kept]
    return 0


if __name__ == "__main__":
    sys.exit(main())
