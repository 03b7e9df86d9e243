"""Two nodes of a lab that store a message in so many fragments: `serve`, or `time`.

What `tools/bench/measure model` runs on its hosts. `time BYTES FRAGMENTS_MAX REPEATS RUNS`
prints a JSON line a run: round trips of empty messages, and of stores by count of fragments, µs.
"""

from __future__ import annotations

import json
import os
import sys
import time

import careful
from careful.control import maps, tune_entry

HANDLE = 1  # the request that asks for the region
BYTES_MAX = 1 << 20


def serve() -> None:
    """A region to store into, until the end."""
    with careful.open("eth1") as node:
        region = node.register(bytearray(BYTES_MAX))
        node.handle(HANDLE, lambda _: region)
        print("ready", flush=True)
        while True:
            node.wait()


def set_plan(fragment_bytes: int) -> None:
    """As `carefulctl tune set --fragment-bytes` does."""
    instance = os.environ["CAREFUL_INSTANCE"]
    with tune_entry.one_writer(maps.PINS / instance), maps.tune_map(instance) as entries:
        settings = tune_entry.Change(fragment_bytes=fragment_bytes).settings()
        tune_entry.apply(entries, tune_entry.all_slots(), settings)


def one_run(
    region: careful.RemoteRegion, nbytes: int, counts: list[int], repeats: int
) -> dict[str, list[float] | dict[int, list[float]]]:
    """Interleaved, so that what the machine does meanwhile meets all of them alike."""
    message = bytes(nbytes)
    stores: dict[int, list[float]] = {count: [] for count in counts}
    empty: list[float] = []
    for _ in range(repeats):
        for count in counts:
            set_plan(-(-nbytes // count))
            began = time.monotonic_ns()
            region.store(message).result()
            stores[count].append((time.monotonic_ns() - began) / 1e3)
        began = time.monotonic_ns()
        region.peer.request(HANDLE).result()
        empty.append((time.monotonic_ns() - began) / 1e3)
    return {"empty_us": empty, "stores_us": stores}


def time_stores(nbytes: int, fragments_max: int, repeats: int, runs: int) -> None:
    """One line a run."""
    with careful.open("eth1") as node:
        peer = node.connect("h2")
        region = peer.region(peer.request(HANDLE).result().payload)
        for _ in range(runs):
            counts = list(range(1, fragments_max + 1))
            print(json.dumps(one_run(region, nbytes, counts, repeats)), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        time_stores(*(int(word) for word in sys.argv[2:]))
