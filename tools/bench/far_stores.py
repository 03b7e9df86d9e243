"""Times stores from a slow file into a slow file of another machine: `serve`, or `time FILE`.

The pulses scenario runs it on emulated machines. Each machine sets its own sinks: the
sender by itself, the receiver when the sender asks over TCP. `time` prints a JSON line: µs of each
round by arm, of a message alone and of a stream, and of an empty request.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sys
import time
from pathlib import Path
from typing import Any

from careful._abi import lib
from careful.control.instance import remote as routes
from careful.control.options.config import Config
from careful.control.plans import tune_entry
from careful.transfer.run.session import connected
from stores import set_classes

PORT = 7100
SERVER = "10.77.0.2"
INSTANCE = "eth1"
STORE = lib.CAREFUL_IPC_STORE
LOCAL, REMOTE = "/tmp/top/file", "top/file"


def set_sinks(frame_bytes: int | None, **pulses: int) -> None:
    """Sets this machine's fragments and minpulses for all messages."""
    if frame_bytes is not None:
        set_classes(tune_entry.change(fragment_bytes=frame_bytes), INSTANCE)
    for sink, pulse in pulses.items():
        set_classes(tune_entry.change(minpulse_bytes=pulse, sinks=(sink,)), INSTANCE)


def serve() -> None:
    """Sets the store's minpulse when asked, until the end."""
    with socket.create_server((SERVER, PORT)) as server:
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rw") as lines:
                for line in lines:
                    set_sinks(None, store=int(line))
                    print("done", file=lines, flush=True)


async def timed(given: dict[str, Any]) -> None:
    """Prints each arm's times."""
    nbytes = given["bytes"]
    way, _ = routes.route(SERVER, INSTANCE, Config(), 60)
    found: dict[str, Any] = {"idle_us": {}, "stream_us": {}, "empty_us": []}
    with socket.create_connection((SERVER, PORT)) as connection, connection.makefile("rw") as lines:
        async with connected(way) as remote:
            handle, _ = await remote.open_inplace(REMOTE)
            with Path(LOCAL).open("rb") as file:
                async with remote.registered(file.fileno()) as local:

                    async def stored(count: int) -> float:
                        began = time.monotonic_ns()
                        made = [
                            remote.move(STORE, handle, at * nbytes, nbytes, local)
                            for at in range(count)
                        ]
                        for answer in await asyncio.gather(*made):
                            answer.check(REMOTE)
                        return (time.monotonic_ns() - began) / 1e3

                    for counted in [False] + [True] * given["rounds"]:
                        for arm in random.sample(given["arms"], len(given["arms"])):
                            print(arm["store"], file=lines, flush=True)
                            lines.readline()
                            set_sinks(arm["frame"], host_tx=arm["host_tx"], net_tx=arm["net_tx"])
                            await asyncio.sleep(0.1)
                            us = await stored(1)
                            found["idle_us"].setdefault(arm["name"], []).extend([us] * counted)
                            if arm["stream"]:
                                await asyncio.sleep(0.1)
                                us = await stored(arm["stream"])
                                row = found["stream_us"].setdefault(arm["name"], [])
                                row.extend([us] * counted)
                        began = time.monotonic_ns()
                        await remote.stat(REMOTE)
                        took_us = (time.monotonic_ns() - began) / 1e3
                        found["empty_us"] += [took_us] * counted
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        asyncio.run(timed(json.loads(Path(sys.argv[2]).read_text())))
