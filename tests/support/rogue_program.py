"""A program that misbehaves next to other programs of its carefuld.

    rogue_program.py SOCKET PEER MISDEED [HANDLER]

Attaches like any program (ipc.h), and then writes into the rings what no library would. Repeats a
misdeed until SIGTERM, and prints the counts as JSON. It begins with the line `begun`. Its starter
watches the other programs.

`rubbish` and `changing` have a second process that writes all the time into memory that carefuld
reads, also between two of its reads.
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import random
import select
import signal
import socket
import struct
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from careful._abi import ffi, layout, lib, sizeof

ASKS, TOLD = int(lib.CAREFUL_RING_ASKS), int(lib.CAREFUL_RING_NOTES)
OPERATIONS = int(lib.CAREFUL_RING_OPERATIONS)
AREA, ENTRY, PAYLOAD = sizeof("careful_area"), sizeof("careful_ring_entry"), 4096
PAYLOADS = (AREA + (ASKS + TOLD) * ENTRY + 4095) // 4096 * 4096
REQUEST, GET = int(lib.CAREFUL_RING_REQUEST), int(lib.CAREFUL_RING_GET)
STORE, REPLY = int(lib.CAREFUL_RING_STORE), int(lib.CAREFUL_RING_REPLY)
OFFSETS = {one.name: (one.offset, one.item_bytes) for one in layout("careful_ring_entry")}
MEMORY_BYTES = 1 << 20
#: Handlers of the other host: one returns its region's key, one answers, one never answers.
TABLE, ANSWERS, NEVER = 101, 102, 103
ANSWER_S = 60.0
rng = random.Random(21)


class Ended(Exception):  # noqa: N818
    """carefuld has disconnected this program."""


class Program:
    """An attached program that handles its rings itself."""

    def __init__(self, path: str, peer: str, name: bytes) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(ANSWER_S)
        self.socket.connect(path)
        fds = array("i")
        self._ask(lib.CAREFUL_IPC_ATTACH, name, bytes=MEMORY_BYTES)
        data, control, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(4))
        if not control:
            raise Ended(data)
        fds.frombytes(control[0][2])
        self.map = mmap.mmap(fds[0], 0)
        os.close(fds[0])
        self.area = ffi.cast("struct careful_area *", ffi.from_buffer(self.map))
        self.asks = ffi.cast("struct careful_ring_entry *", ffi.from_buffer(self.map) + AREA)
        self.put = 0
        address = struct.pack("=H", socket.AF_INET) + struct.pack(">H", lib.CAREFUL_PORT_DEFAULT)
        address += socket.inet_aton(peer) + bytes(8)
        self.peer = self.asked(lib.CAREFUL_IPC_PEER_BEGIN, address).peer
        until = time.monotonic() + ANSWER_S
        while self._state() != lib.CAREFUL_PEER_UP:
            assert time.monotonic() < until
            time.sleep(0.01)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _state(self) -> int:
        answer = self.asked(lib.CAREFUL_IPC_PEER_INFO, peer=self.peer)
        found = ffi.from_buffer("struct careful_ipc_peer *", answer.payload)
        return int(found.info.state)

    def _ask(self, op: int, payload: bytes, **fields: Any) -> None:
        head = ffi.new("struct careful_ipc *", {"op": op, "id": 1, **fields})
        head.version, head.payload_bytes = lib.CAREFUL_IPC_VERSION, len(payload)
        self.socket.send(bytes(ffi.buffer(head)) + payload)

    def asked(self, op: int, payload: bytes = b"", **fields: Any) -> Any:
        """Sends a question. Returns the answer's header, and keeps its payload."""
        self._ask(op, payload, **fields)
        while True:
            data = self.socket.recv(1 << 17)
            if not data:
                raise Ended
            head = ffi.new("struct careful_ipc *")
            ffi.memmove(head, data, sizeof("careful_ipc"))
            if head.op == op:
                break
        if head.status:
            raise OSError(-head.status, os.strerror(-head.status))
        return type("Answer", (), {"peer": head.peer, "payload": data[sizeof("careful_ipc") :]})

    def entry(self, at: int, kind: int, **fields: Any) -> None:
        """Writes an entry without publishing it."""
        values = {"kind": kind, "peer": self.peer, "id": 1 + at, **fields}
        self.asks[at % ASKS] = ffi.new("struct careful_ring_entry *", values)[0]

    def publish(self, n: int = 1) -> None:
        """Publishes the next entries, and wakes carefuld."""
        self.put = (self.put + n) & 0xFFFFFFFF
        self.area.asks_put.value = self.put
        if self.area.asks_asleep.value:
            self.area.asks_asleep.value = 0
            with contextlib.suppress(OSError):
                self._ask(lib.CAREFUL_IPC_BELL, b"")

    def room(self) -> int:
        """Returns the ring's free entries, according to carefuld."""
        return max(0, ASKS - (self.put - int(self.area.asks_taken.value) & 0xFFFFFFFF))

    def ended(self) -> bool:
        """Reports whether carefuld has disconnected this program."""
        if not select.select([self.socket], [], [], 0)[0]:
            return False
        try:
            return not self.socket.recv(1 << 17)
        except OSError:
            return True

    def table(self) -> int:
        """Returns the key of the other host's region."""
        self.entry(self.put, REQUEST, handler=TABLE)
        before = self.area.notes_put.value
        self.publish()
        until = time.monotonic() + ANSWER_S
        while self.area.notes_put.value == before:
            assert time.monotonic() < until
            time.sleep(0.001)
        at = before % TOLD
        self.area.notes_taken.value = self.area.notes_put.value
        return int.from_bytes(self.map[PAYLOADS + (ASKS + at) * PAYLOAD :][:4], "big")


def scribbles(program: Program, places: list[tuple[int, int]]) -> int:
    """Starts a process that writes garbage to these places all the time. Returns its pid."""
    parent, child = os.getpid(), os.fork()
    if child:
        return child
    rubbish = random.Random(7).randbytes(1 << 16)
    view, at = memoryview(program.map), 0
    while os.getppid() == parent:
        for start, size in places:
            at = (at + 61) % ((1 << 16) - size)
            view[start : start + size] = rubbish[at : at + size]
    os._exit(0)


@contextlib.contextmanager
def scribbled(program: Program, places: list[tuple[int, int]]) -> Iterator[None]:
    """Runs the process of scribbles() within the block."""
    child = scribbles(program, places)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def fields_of(names: tuple[str, ...]) -> list[tuple[int, int]]:
    """Returns the places of these fields of all entries in the area."""
    return [
        (AREA + at * ENTRY + OFFSETS[name][0], OFFSETS[name][1])
        for at in range(ASKS)
        for name in names
    ]


def filled(program: Program, region: int, kinds: tuple[int, ...]) -> None:
    """Fills the ring with valid requests, not published."""
    answers = int(sys.argv[4]) if len(sys.argv) > 4 else ANSWERS
    for at in range(ASKS):
        kind = kinds[at % len(kinds)]
        program.entry(
            at,
            kind,
            handler=answers if kind == REQUEST else int(lib.CAREFUL_HANDLERS),
            region=region,
            bytes=16 if kind == REQUEST else 4096,
            memory_off=4096 * (at % 128),
        )


def rubbish(attach: Callable[[], Program]) -> Iterator[int]:
    """Overwrites everything that carefuld reads, also its own numbers, all the time."""
    while True:
        with attach() as program:
            filled(program, program.table(), (REQUEST, STORE, GET, REPLY))
            pages = [(at, 4096) for at in range(0, PAYLOADS, 4096)]
            program.publish(rng.randrange(1, ASKS))
            # Writes a whole ring, or a few bytes anywhere.
            small = [(rng.randrange(PAYLOADS - 8), rng.randrange(1, 8)) for _ in range(64)]
            with scribbled(program, pages if rng.random() < 0.5 else small):
                until = time.monotonic() + 0.2
                while time.monotonic() < until and not program.ended():
                    program.publish(rng.choice((1, 7, 255, -1, -300)))
                    yield 1


def changing(attach: Callable[[], Program]) -> Iterator[int]:
    """Changes published entries: payloads, lengths, places, flags, files, peers."""
    names = ("status", "peer", "handler", "region", "bytes", "region_off", "memory_off", "flags")
    while True:
        with contextlib.suppress(Ended), attach() as program:
            region = program.table()
            filled(program, region, (REQUEST, STORE, GET, REQUEST))
            places = fields_of(names) + [(PAYLOADS + at * PAYLOAD, 16) for at in range(ASKS)]
            rng.shuffle(places)
            with scribbled(program, places):
                until = time.monotonic() + 0.5
                while time.monotonic() < until and not program.ended():
                    n = program.room()
                    program.publish(n)
                    program.area.notes_taken.value = rng.choice(
                        (program.area.notes_put.value, rng.getrandbits(32))
                    )
                    yield n
                    if not n:
                        filled(program, region, (REQUEST, STORE, GET, REQUEST))


def flood(attach: Callable[[], Program], kinds: tuple[int, ...], **more: Any) -> Iterator[int]:
    """Keeps all its operations under way."""
    with attach() as program:
        region = program.table()
        filled(program, region, kinds)
        for at in range(ASKS):
            for name, value in more.items():
                setattr(program.asks[at], name, value)
        while not program.ended():
            n = program.room()
            program.publish(n)
            program.area.notes_taken.value = program.area.notes_put.value
            yield n
            if not n:
                time.sleep(0.0002)  # need not spin


def fills(attach: Callable[[], Program]) -> Iterator[int]:
    """Sends as much as possible to a silent handler, fills its rings, and reads nothing."""
    with attach() as program:
        for at in range(OPERATIONS + ASKS):
            program.entry(at, REQUEST, handler=NEVER)
        while True:
            n = program.room()
            program.publish(n)
            yield n
            time.sleep(0.001)


def dies(attach: Callable[[], Program]) -> Iterator[int]:
    """Starts programs that die in the middle of a flood."""
    while True:
        child = os.fork()
        if not child:
            until = time.monotonic() + 0.05
            for _ in flood(attach, (REQUEST, STORE, GET)):
                if time.monotonic() > until:
                    break
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        yield 1


MISDEEDS: dict[str, Callable[[Callable[[], Program]], Iterator[int]]] = {
    "rubbish": rubbish,
    "changing": changing,
    "requests": lambda attach: flood(attach, (REQUEST,)),
    "one-way": lambda attach: flood(attach, (REQUEST,), id=0),
    "stores": lambda attach: flood(attach, (STORE,), bytes=MEMORY_BYTES, memory_off=0),
    "gets": lambda attach: flood(attach, (GET,), bytes=MEMORY_BYTES, memory_off=0),
    "memory": lambda attach: flood(
        attach, (REQUEST,), handler=int(lib.CAREFUL_MEMORY_LIST), bytes=0
    ),
    "dies": dies,
    "fills": fills,
}


def main() -> None:
    """Runs until SIGTERM."""
    path, peer, misdeed = sys.argv[1:4]
    done, over = 0, []
    signal.signal(signal.SIGTERM, lambda *_: over.append(True))

    def attach() -> Program:
        try:
            return Program(path, peer, misdeed.encode())
        except OSError as error:
            if error.errno != errno.EUSERS:
                raise
            raise Ended from None

    for n in MISDEEDS[misdeed](attach):
        if not done and n:
            print("begun", flush=True)
        done += n
        if over:
            break
    print(json.dumps({"done": done}))


if __name__ == "__main__":
    main()
