"""`careful.connect()`: several programs beside one carefuld, one of them killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest
from hosts import Host, wait_for

pytest.importorskip("careful._binding")
pytestmark = pytest.mark.lab

#: Serves requests and a region until it is ended.
SERVES = """
import asyncio, careful, sys
async def late(message):
    await asyncio.sleep(0.01)
    return message.payload[::-1]
async def main():
    async with careful.connect(name="serves") as node:
        table = node.register(node.memory(1 << 20))
        node.handle(1, lambda message: table)
        node.handle(2, lambda message: message.payload.upper())
        node.handle(3, late)
        with open(sys.argv[1], "r+b") as file:
            stored = node.register(file)
        node.handle(4, lambda message: stored)
        print("ready", flush=True)
        await node.serve_forever()
asyncio.run(main())
"""
#: Asks for all of it, again and again until a file is there, and then what cannot be.
ASKS = """
import careful, os, sys
name, end = sys.argv[1:]
with careful.connect(name=name) as node:
    h2 = node.connect("10.77.0.2")
    table = h2.region(h2.request(1).result().payload)
    stored = h2.region(h2.request(4).result().payload)
    mine = os.urandom(100_000)
    at = (sum(name.encode()) % 8) * 100_000
    rounds = 0
    while True:
        assert h2.request(2, b"hello").result().payload == b"HELLO"
        assert h2.request(3, b"hello").result().payload == b"olleh"
        table.store(mine, at).result()
        back = bytearray(len(mine))
        table.get(back, at).result()
        assert back == mine
        with open(f"{end}.{name}", "w+b") as file:
            file.write(mine)
            stored.store(file, at).result()
            table.get(careful.FileRange(file, 1000, 5), at).result()
            back = bytearray(len(mine))
            stored.get(back, at).result()
            assert back == mine
            file.seek(1000)
            assert file.read(5) == mine[:5]
        rounds += 1
        if rounds == 1:
            print("ready", flush=True)
        if os.path.exists(end):
            break
    for call in (
        lambda: node.register(bytearray(10)),
        lambda: table.get(bytearray(17 << 20)),
    ):
        try:
            call()
        except careful.CarefulError as error:
            print(error.strerror)
    print(node.info()["peers_max"], node.peers[0].state)
"""


def started(host: Host, text: str, *args: str) -> subprocess.Popen[str]:
    process = host.lab.start(host.name, sys.executable, "-W", "error", "-c", text, *args)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    return process


def programs(host: Host) -> dict[str, Any]:
    return {one["name"]: one for one in host.status()["programs"]}


def test_programs__side_by_side_and_one_is_killed(pair: tuple[Host, Host]) -> None:
    here, there = pair
    (there.own / "stored").write_bytes(bytes(1 << 20))
    serves = started(there, SERVES, str(there.own / "stored"))
    end = here.own / "end"
    first, second, third = (
        started(here, ASKS, name, str(end)) for name in ("first", "second", "third")
    )
    found = programs(here)
    assert set(found) == {"first", "second", "third"}
    assert all(one["pid"] and one["asked"] >= 5 for one in found.values())
    assert (programs(there)["serves"]["handlers"], programs(there)["serves"]["regions"]) == (4, 2)
    assert "second" in here.ctl("status").stdout
    # lab.start() runs the program below another; status names itself.
    subprocess.run(["kill", "-9", str(found["second"]["pid"])], check=True)
    second.wait(60)
    wait_for(lambda: "second" not in programs(here), "end of the program")
    before = programs(here)["first"]["asked"]
    wait_for(lambda: programs(here)["first"]["asked"] > before + 20, "traffic")
    # Files move beside them, and a fourth one has the second's place.
    (here.own / "file").write_bytes(b"x" * 1_000_000)
    here.ctl("put", here.own / "file", "h2:")
    fourth = started(here, ASKS, "fifth", str(end))
    end.touch()
    for process in (first, third, fourth):
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        lines = out.splitlines()
        assert ["Node.memory()" in lines[0], "memory_bytes" in lines[1]] == [True, True]
        assert lines[2] == "8 up"
    # The other host's program: who asks it hears of its end, and carefuld is as before.
    serves.send_signal(signal.SIGKILL)
    serves.wait(60)
    wait_for(lambda: not programs(there), "end of the program")
    assert programs(here) == {}
    for host in pair:
        host.assert_nothing_lost()
