"""The other end of test_node.py: a node that serves until it is told to quit.

Prints "ready" when it serves. HANDLERS has the handlers by number.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from typing import Any

import careful
import numpy as np
from careful.errors import CarefulError
from careful.node import FileRange, LateReply, Message, Peer, Reply
from node_handlers import Handlers

NBYTES = 300_001
BLANK_BYTES = 600_000


class Server:
    def __init__(self, node: careful.Node) -> None:
        self.node = node
        self.running = True
        self.waiting: list[LateReply] = []
        self.events: list[Any] = []
        self.calls: list[tuple[Peer, bytes]] = []
        self.array = np.arange(NBYTES, dtype=np.uint8)
        self.blank = np.zeros((3, 100_000), dtype=np.uint16)
        fd = os.memfd_create("region")
        os.write(fd, b"-" * 10 + bytes(self.array))
        with os.fdopen(fd, "rb+") as file:
            part = node.register(FileRange(file, 10), "rw")
        self.regions = [node.register(self.array, "r"), node.register(self.blank, "rw"), part]

    def on_error(self, error: Exception, where: str) -> None:
        self.events.append([type(error).__name__, str(error), where])

    def regions_(self, message: Message) -> bytes:
        return b"".join(region.handle for region in self.regions)

    def echo(self, message: Message) -> Reply:
        return Reply(message.payload[::-1], tuple(reversed(message.args)))

    def fail(self, message: Message) -> None:
        if message.args[0]:
            raise FileNotFoundError(errno.ENOENT, "no such thing")
        raise ValueError("a handler's own mistake")

    def refuse(self, message: Message) -> Reply:
        return Reply(b"why", (4, 3), status=errno.EDOM)

    def late(self, message: Message) -> bytes:
        self.waiting.append(message.later())
        if message.args[0]:
            raise ValueError("after later()")
        return b"is not sent"

    def release(self, message: Message) -> None:
        for index, reply in enumerate(self.waiting):
            if not reply.sent:
                with contextlib.suppress(CarefulError):  # the client may have gone
                    reply.send(Reply(b"late", (index,)))
        self.waiting.clear()

    def stored(self, message: Message) -> bytes:
        number = self.regions.index(message.region) if message.region else -1
        self.events.append([number, message.offset, message.nbytes, *message.args])
        return b"a store's reply is its end alone"

    def report(self, message: Message) -> bytes:
        events, self.events = self.events, []
        return json.dumps(events).encode()

    def call_back(self, message: Message) -> None:
        self.calls.append((message.peer, message.payload))

    def too_large(self, message: Message) -> bytes:
        return bytes(message.peer.payload_bytes + 1)

    def quit(self, message: Message) -> None:
        self.running = False

    def step(self) -> None:
        self.node.wait(1.0)
        for peer, payload in self.calls:
            peer.request(Handlers.CALLED, payload).add_done_callback(self.answered)
        self.calls.clear()

    def answered(self, operation: Any) -> None:
        try:
            self.events.append(operation.result().payload.decode())
        except CarefulError as error:
            self.events.append(["called", error.errno, str(error)])


def main() -> None:
    options = {"stall_ms": int(sys.argv[1])} if len(sys.argv) > 1 else {}
    with careful.open("eth1", peers=2, **options) as node:
        server = Server(node)
        node.on_error = server.on_error
        for number in Handlers:
            name = "regions_" if number == Handlers.REGIONS else number.name.lower()
            if function := getattr(server, name, None):
                node.handle(number, function, stores=number == Handlers.STORED)
        print("ready", flush=True)
        while server.running:
            server.step()


if __name__ == "__main__":
    main()
