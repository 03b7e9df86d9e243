"""Programs of tests that talk over careful://. `comms`: both ends of comms in this program, over
two carefulds; `job`: an array job of a cluster's, one of whose workers is killed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import time

import dask.array
import numpy
from careful.dask.backend import CarefulBackend
from distributed import Client
from distributed.comm import Comm, CommClosedError, connect, listen
from distributed.comm.registry import backends
from distributed.protocol import to_serialize

ADDRESS = "careful://10.77.0.2"


async def echo(comm: Comm) -> None:
    try:
        while True:
            await comm.write(await comm.read())
    except CommClosedError:
        await comm.close()


async def large(count: int, items: int) -> None:
    """Sends arrays forth and back on several comms at once, with small messages between them."""
    async with listen(ADDRESS, echo) as listener:

        async def talk(seed: int) -> None:
            comm = await connect(listener.contact_address)
            arrays = [numpy.random.default_rng(seed).random(items + one) for one in range(3)]
            for one in range(5):
                await comm.write({"number": one})
            await comm.write(
                {"arrays": [to_serialize(array) for array in arrays], "x": b"y" * 50000}
            )
            await comm.write({"number": 5})
            for one in range(5):
                assert await comm.read() == {"number": one}
            back = await comm.read()
            assert await comm.read() == {"number": 5}
            assert back["x"] == b"y" * 50000
            for array, other in zip(arrays, back["arrays"], strict=True):
                assert (array == other).all()
                other[0] = 1.0  # writable
            await comm.close()

        await asyncio.gather(*(talk(seed) for seed in range(count)))
    print("large")


async def ends() -> None:
    """Tests comms without a listener, closed comms, and ports in use."""
    got: asyncio.Queue[Comm] = asyncio.Queue()
    async with listen(f"{ADDRESS}:3221", got.put) as listener:
        try:
            await listen(f"{ADDRESS}:3221", got.put)
        except OSError as error:
            print(3221, "taken" if error.errno == errno.EADDRINUSE else error)
        comm = await connect(listener.contact_address)
        other = await got.get()
        await comm.write("last words")
        # Larger than the other end reads, so it stays until the end.
        await other.write({"x": to_serialize(numpy.ones(1 << 20))})
        await comm.close()
        print(await other.read())
        for call in (other.read(), other.write("late")):
            try:
                await call
            except CommClosedError:
                print("closed")
    try:
        await connect(f"{ADDRESS}:3222", timeout=0.2)
    except OSError:
        print("nobody")


def job(scheduler: str, workers: int) -> None:
    with Client(scheduler) as client:  # type: ignore[no-untyped-call]
        client.wait_for_workers(workers, timeout=120)
        pids = client.run(os.getpid)
        array = dask.array.random.random((1200, 1200), chunks=(300, 300))
        table = (array + array.T).persist()
        print("symmetric", bool((abs(table - table.T)).max().compute() < 1e-12))
        os.kill(min(pids.values()), signal.SIGKILL)
        began = time.monotonic()
        while len(client.scheduler_info()["workers"]) == workers:
            time.sleep(0.01)
            assert time.monotonic() < began + 20, "the worker's end is not noticed"
        print("sum", int(dask.array.ones((500, 500), chunks=(100, 100)).sum().compute()))
        # The other workers compute the lost results again.
        print("again", bool((abs(table - table.T)).max().compute() < 1e-12))


async def vanished() -> None:
    """Checks a read while the other end's program is killed."""
    got: asyncio.Queue[Comm] = asyncio.Queue()
    async with listen(f"{ADDRESS}:3300", got.put):
        print("ready", flush=True)
        comm = await got.get()
        os.kill(int(await comm.read()), signal.SIGKILL)
        try:
            await comm.read()
        except CommClosedError:
            print("noticed")


async def victim() -> None:
    comm = await connect(f"{ADDRESS}:3300")
    await comm.write(os.getpid())
    await asyncio.sleep(100)


if __name__ == "__main__":
    name, *words = sys.argv[1:]
    if name == "job":
        job(words[0], int(words[1]))
    elif name == "victim":
        asyncio.run(victim())
    elif name == "vanished":
        asyncio.run(vanished())
    else:
        backends["careful"] = CarefulBackend(*words[:2])
        asyncio.run(large(4, 300_000) if name == "large" else ends())
