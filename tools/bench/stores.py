"""Times stores, events, writes and reads of messages with given plans: a command and its FILE.

Scenarios run it on the hosts of a lab. A command prints JSON lines, times in µs:

    sweep   a line per message size: empty messages, and stores by arm
    both    a line per round: single messages, and a stream
    events  a line per message size, as sweep, with events between the two hosts
    write   a line per message size: writes to a file of h2's carefuld
    read    the same for reads
    mix     nothing: reads and writes messages of FILE's sizes until it is ended

`serve` and `answer-events`, without FILE, are the other host's part.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import careful
import careful.event
from careful import files
from careful.control.instance import maps
from careful.control.plans import tune_entry
from careful.plan import CLASS_COUNT, Plan

HANDLE = 1  # the request that asks for the region
BYTES_MAX = 1 << 20
NET_TX_BYTES = 65536  # netTx's least pulse on an untuned path


def serve() -> None:
    """Serves a region for stores until the end."""
    with careful.open("eth1") as node:
        region = node.register(bytearray(BYTES_MAX))
        node.handle(HANDLE, lambda _: region)
        print("ready", flush=True)
        while True:
            node.wait()


def set_classes(
    settings: Mapping[int, tune_entry.Setting], instance: str = "", slot: int | None = None
) -> None:
    """Sets plans like `carefulctl tune`, in this host's instance or another, for one peer and new
    ones, or for all.
    """
    instance = instance or os.environ["CAREFUL_INSTANCE"]
    with tune_entry.one_writer(maps.pins(instance)), maps.tune_map(instance) as entries:
        slots = tune_entry.all_slots()
        tune_entry.apply(entries, slots if slot is None else [slots[0], slot], settings)


def set_arm(arm: dict[str, Any], instance: str = "", slot: int | None = None) -> None:
    """Sets a plan, and netTx's minpulse; None: that of an untuned path."""
    pulse = NET_TX_BYTES if arm["net_tx"] is None else arm["net_tx"]
    one = tune_entry.Setting(Plan(**arm["plan"]), {"net_tx": pulse})
    set_classes(dict.fromkeys(range(CLASS_COUNT), one), instance, slot)


def elapsed_us(work: Callable[[], object]) -> float:
    """Returns the time of some work."""
    began_ns = time.monotonic_ns()
    work()
    return round((time.monotonic_ns() - began_ns) / 1e3, 1)


@contextmanager
def connected() -> Iterator[tuple[careful.Peer, careful.RemoteRegion]]:
    """Yields the other host's peer, and the region to store to."""
    with careful.open("eth1") as node:
        peer = node.connect("h2")
        yield peer, peer.region(peer.request(HANDLE).result().payload)


def sweep(given: dict[str, Any]) -> None:
    """Prints a line per message size. The first round does not count. Then each arm runs once per
    round in random order, because a message right after an empty one is slower by microseconds.
    """
    with connected() as (peer, region):
        timed_now(
            given,
            lambda message: region.store(message).result(),
            lambda: peer.request(HANDLE).result(),
        )


def timed_now(
    given: dict[str, Any], send: Callable[[bytes], object], empty: Callable[[], object]
) -> None:
    """Prints a line per message size: the arms' times of `send`, and those of `empty`."""
    for size in given["sizes"]:
        message = bytes(size["bytes"])
        arms_us: dict[str, list[float]] = {arm["name"]: [] for arm in size["arms"]}
        empty_us: list[float] = []
        for counted in [False] + [True] * given["rounds"]:
            for arm in random.sample(size["arms"], len(size["arms"])):
                set_arm(arm)
                arms_us[arm["name"]] += [elapsed_us(partial(send, message))] * counted
            empty_us += [elapsed_us(empty)] * counted
        found = {"bytes": size["bytes"], "empty_us": empty_us, "arms_us": arms_us}
        print(json.dumps(found), flush=True)


def events(given: dict[str, Any] | None) -> None:
    """Sends events to the other host, which answers each with a byte; None: answers them."""
    with (
        careful.open("eth1") as node,
        careful.event.join(node, ["h1", "h2"], int(given is None)) as group,
    ):
        event = itertools.count(1, 2)

        def turn(message: bytes) -> None:
            now = next(event)
            group.send(message, now, 1)
            group.receive(now + 1, 1)

        if given is not None:
            print(json.dumps({"frame_bytes": group.fragment_bytes}))
            timed_now(given, turn, lambda: turn(b"x"))
            group.send(b"", next(event), 1)
            return
        while group.receive(now := next(event), 0).nbytes:
            group.send(b"x", now + 1, 0)


def stored(region: careful.RemoteRegion, pieces: list[bytes], count: int, under_way: int) -> float:
    """Returns the time of this many messages with this many under way, µs."""
    began = time.monotonic_ns()
    waiting: deque[careful.Operation] = deque()
    for _ in range(count):
        while len(waiting) >= under_way * len(pieces):
            waiting.popleft().result()
        waiting += [region.store(piece) for piece in pieces]
    while waiting:
        waiting.popleft().result()
    return round((time.monotonic_ns() - began) / 1e3, 1)


def both(given: dict[str, Any]) -> None:
    """Prints a line per round: each arm's single message and stream."""
    nbytes = given["bytes"]
    with connected() as (peer, region):
        for _ in range(given["rounds"]):
            found: dict[str, Any] = {"idle_us": {}, "stream_us": {}}
            for arm in given["arms"]:
                set_arm(arm)
                piece = arm["piece_bytes"] or nbytes
                pieces = [bytes(min(piece, nbytes - at)) for at in range(0, nbytes, piece)]
                idle = [stored(region, pieces, 1, 1) for _ in range(given["messages"])]
                found["idle_us"][arm["name"]] = idle
                took = stored(region, pieces, given["stream"], given["under_way"])
                found["stream_us"][arm["name"]] = took
            found["empty_us"] = elapsed_us(lambda: peer.request(HANDLE).result())
            print(json.dumps(found), flush=True)


async def write(given: dict[str, Any]) -> None:
    """Prints a line per message size: each arm's times of writes in place to h2's file through both
    carefulds, and of empty requests, µs.
    """
    async with files.aconnect("h2") as host, await host.open("file", "r+") as file:

        def pieces(size: dict[str, Any], arm: dict[str, Any]) -> Awaitable[object]:
            set_classes(tune_entry.change(fragment_bytes=arm["frame"]))
            pulse = tune_entry.change(minpulse_bytes=arm["write"], sinks=("store",))
            set_classes(pulse, given["store"])
            starts = range(0, size["bytes"], arm["piece"])
            cut = [(bytes(min(arm["piece"], size["bytes"] - at)), at) for at in starts]

            async def all_of_them() -> None:
                await asyncio.gather(*(file.write_at(*piece) for piece in cut))

            return all_of_them()

        await timed(given, host, "took_us", pieces)


async def read(given: dict[str, Any]) -> None:
    """Prints a line per message size: each arm's times of reads from h2's file through both
    carefulds, cut by h2, and of empty requests, µs.
    """
    async with files.aconnect("h2") as host, await host.open("file") as file:

        def whole(size: dict[str, Any], arm: dict[str, Any]) -> Awaitable[object]:
            set_arm(arm, given["instance"], given["slot"])
            return file.read_at(0, size["bytes"])

        await timed(given, host, "arms_us", whole)


async def timed(
    given: dict[str, Any],
    host: files.AsyncHost,
    name: str,
    prepare: Callable[[dict[str, Any], dict[str, Any]], Awaitable[object]],
) -> None:
    """Times each arm's messages of each size, given["rounds"] times after an uncounted one, in
    random order like sweep(). A pause after each lets our host's answer to the live measurement
    pass (engine/live_latency.c), which would delay the next request.

    name: of the arms' times in the output; prepare: makes the timed function from a size and an
        arm.
    """
    for size in given["sizes"]:
        arms_us: dict[str, list[float]] = {arm["name"]: [] for arm in size["arms"]}
        empty_us: list[float] = []
        for counted in [False] + [True] * given["rounds"]:
            began = time.monotonic_ns()
            await host.stat("file")
            empty = (time.monotonic_ns() - began) / 1e3
            empty_us += [empty] * counted
            for arm in random.sample(size["arms"], len(size["arms"])):
                message = prepare(size, arm)
                began = time.monotonic_ns()
                await message
                arms_us[arm["name"]] += [(time.monotonic_ns() - began) / 1e3] * counted
                await asyncio.sleep(empty / 1e6)
        print(json.dumps({"bytes": size["bytes"], name: arms_us, "empty_us": empty_us}), flush=True)


async def mix(given: dict[str, Any]) -> None:
    """Uses h2's file as live traffic.

    given: `kind` is reads [reads], writes or both, in random order of `sizes`; `busy` is the share
    of time with a message under way [1]. Each message's start, kind, bytes and time, in seconds,
    are appended to the file `log`, if there is one.
    """
    kind, busy = given.get("kind", "reads"), given.get("busy", 1.0)
    async with (
        files.aconnect("h2") as host,
        await host.open("file", "r" if kind == "reads" else "r+") as file,
    ):

        async def go_on(name: str) -> None:
            while True:
                size = random.choice(given["sizes"])
                began = time.monotonic()
                await kinds[name](size)
                took = time.monotonic() - began
                print(began, name, size, took, file=log, flush=True)
                await asyncio.sleep(took * (1 / busy - 1))

        kinds: dict[str, Callable[[int], Awaitable[object]]] = {
            "reads": lambda size: file.read_at(0, size),
            "writes": lambda size: file.write_at(bytes(size), 0),
        }
        print("ready", flush=True)
        with Path(given.get("log", os.devnull)).open("a") as log:
            await asyncio.gather(*(go_on(name) for name in kinds if kind in (name, "both")))


if __name__ == "__main__":
    command, *job = sys.argv[1:]
    given_job = json.loads(Path(job[0]).read_text()) if job else {}
    if command == "serve":
        serve()
    elif command == "answer-events":
        events(None)
    elif command in ("sweep", "both", "events"):
        {"sweep": sweep, "both": both, "events": events}[command](given_job)
    else:
        asyncio.run({"write": write, "read": read, "mix": mix}[command](given_job))
