"""`careful.files` between hosts: a transfer that is ended in the middle, and handles."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from hosts import MIB, Host, finish, make_file, received, wait_for

GET = """
import sys, careful.files
with careful.files.connect("h2") as h2:
    try:
        h2.get("big", "copy", block_bytes=4096, rate_limit_bytes_per_s=int(sys.argv[1]))
    except KeyboardInterrupt:
        print("ended", h2.stat("big").bytes, flush=True)
        sys.exit(3)
"""
CANCEL = """
import asyncio, careful.files
async def main():
    async with careful.files.aconnect("h2") as h2:
        for _ in range(200):  # more than a host has handles for us
            task = asyncio.create_task(h2.read("big", 0, 100_000))
            await asyncio.sleep(0.002)
            task.cancel()
            await asyncio.wait([task])
        print(len(await h2.read("big")))
asyncio.run(main())
"""


def partials(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.endswith(".part")]


def test_get__interrupted_goes_on(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    data = make_file(remote.export / "big", 64 * MIB)
    job = local.lab.start("h1", sys.executable, "-c", GET, f"{16 * MIB}", cwd=local.own)
    wait_for(lambda: received(local) > 5000, "some blocks")
    job.send_signal(signal.SIGINT)
    assert finish(job) == (3, f"ended {len(data)}\n", "")
    assert len(partials(local.own)) == 1
    again = local.lab.start("h1", sys.executable, "-c", GET, f"{1 << 40}", cwd=local.own)
    assert finish(again) == (0, "", "")
    assert (local.own / "copy").read_bytes() == data
    assert partials(local.own) == []


def test_read__cancelled_leaves_no_handle(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    make_file(remote.export / "big", MIB)
    job = local.lab.start("h1", sys.executable, "-c", CANCEL, cwd=local.own)
    assert finish(job) == (0, f"{MIB}\n", "")
