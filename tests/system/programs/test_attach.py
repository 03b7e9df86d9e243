"""`careful.attach()`: several programs next to one carefuld, one of them killed."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from hosts import Host, attached, programs, wait_for

pytestmark = pytest.mark.lab

#: Serves requests and a region until it is ended.
SERVES = """
import asyncio, careful, sys
async def late(message):
    await asyncio.sleep(0.01)
    return message.payload[::-1]
async def main():
    async with careful.attach(name="serves") as node:
        table = node.register(node.memory(1 << 20))
        node.handle(1, lambda message: table)
        node.handle(2, lambda message: message.payload.upper())
        node.handle(3, late)
        other = node.register(bytearray(4 << 20))
        node.handle(5, lambda message: other)
        with open(sys.argv[1], "r+b") as file:
            stored = node.register(file)
        node.handle(4, lambda message: stored)
        print("ready", flush=True)
        await node.serve_forever()
asyncio.run(main())
"""
#: Uses all that SERVES serves until a file exists, then makes requests that must fail.
ASKS = """
import careful, errno, os, sys
name, end = sys.argv[1:]
with careful.attach(name=name, memory_bytes=1 << 20) as node:
    h2 = node.connect("10.77.0.2")
    table = h2.region(h2.request(1).result().payload)
    stored = h2.region(h2.request(4).result().payload)
    mine = os.urandom(100_000)
    at = (sum(name.encode()) % 8) * 100_000
    rounds = 0
    while True:
        assert h2.request(2, b"hello").result().payload == b"HELLO"
        assert h2.request(3, b"hello").result().payload == b"olleh"
        message = node.outgoing()
        message.payload[:5] = b"built"
        assert message.send(h2, 2, 5).result().payload == b"BUILT"
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
    # As many built messages as there may be; those that nobody sent are given back.
    built = [node.outgoing() for _ in range(64)]
    try:
        node.outgoing()
        raise SystemExit("one more than there may be")
    except careful.CarefulError as error:
        assert error.errno == errno.EAGAIN and "unsent" in str(error), error
    flying = [message.send(h2, 2, 1) for message in built[:32]]
    assert all(len(operation.result().payload) == 1 for operation in flying)
    del built
    for _ in range(200):
        node.outgoing().free()
    message = node.outgoing()
    try:
        message.send(h2, 2).result()  # all that there is room for: more than a frame has
        raise SystemExit("as large as it is")
    except careful.CarefulError as error:
        assert error.errno == errno.EMSGSIZE, error
    # More than is shared, from and into memory that is not shared; nor is the peer's region.
    other = h2.region(h2.request(5).result().payload)
    mine, at = os.urandom(1_000_003), (sum(name.encode()) % 4) * (1 << 20)
    back = bytearray(len(mine))
    rest = node.memory(1 << 20)  # all of the shared memory
    for local in (1, 10, 4096, len(mine)):
        other.store(mine[:local], at + 1).result()
        part = memoryview(back)[:local]
        other.get(part, at + 1).result()
        assert part == mine[:local]
    assert not any(rest)
    print(node.info()["peers_max"], node.peers[0].state)
"""


def test_programs__side_by_side_and_one_is_killed(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    (remote.own / "stored").write_bytes(bytes(1 << 20))
    serves = attached(remote, SERVES, str(remote.own / "stored"))
    end = local.own / "end"
    first, second, third = (
        attached(local, ASKS, name, str(end)) for name in ("first", "second", "third")
    )
    found = programs(local)
    assert set(found) == {"first", "second", "third"}
    assert all(one["pid"] and one["asked"] >= 5 for one in found.values())
    assert (programs(remote)["serves"]["handlers"], programs(remote)["serves"]["regions"]) == (5, 3)
    assert "second" in local.ctl("status", "-v").stdout
    # lab.start() runs the program as a child of another process; status has the program's pid.
    subprocess.run(["kill", "-9", str(found["second"]["pid"])], check=True)
    second.wait(60)
    wait_for(lambda: "second" not in programs(local), "end of the program")
    before = programs(local)["first"]["asked"]
    wait_for(lambda: programs(local)["first"]["asked"] > before + 20, "traffic")
    # Files move meanwhile, and a fourth program takes the second's place.
    (local.own / "file").write_bytes(b"x" * 1_000_000)
    local.ctl("put", local.own / "file", "h2:")
    fourth = attached(local, ASKS, "fifth", str(end))
    end.touch()
    for process in (first, third, fourth):
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        assert out == "8 up\n"
    # When the other host's program ends, its clients get an error, and carefuld is as before.
    serves.send_signal(signal.SIGKILL)
    serves.wait(60)
    wait_for(lambda: not programs(remote), "end of the program")
    assert programs(local) == {}
    for host in pair:
        host.assert_nothing_lost()


#: Pings to careful's XDP program and to the engine of the other host; and the burst of its path.
PINGS = """
import careful
from careful._abi import ffi, lib
found = []
@ffi.callback("careful_ping_fn")
def pinged(result, _):
    found.append((result.status, result.stage, result.round_trip_ns > 0))
with careful.attach(name="pings") as node:
    h2 = node.connect("10.77.0.2")
    for stage in (lib.CAREFUL_STAGE_NET_RX, lib.CAREFUL_STAGE_HOST_RX):
        ask = ffi.new("struct careful_ping_ask *", (stage, 0, 300, 30000))
        assert lib.careful_ping(node._engine.pointer, h2.index, ask, pinged, ffi.NULL) == 0
        assert node._engine.wait_until(lambda: found[-1:] == [(0, stage, True)], 60), found
    # It begins, or something is under way to the peer (EBUSY); test_burst.py tests its result.
    assert lib.careful_peer_measure(node._engine.pointer, h2.index) in (0, -16)
    assert lib.careful_peer_measure(node._engine.pointer, h2.index + (1 << 16)) < 0
"""
#: A group of two, in an event loop, until a file exists.
EVENTS = """
import asyncio, careful, careful.event, numpy, os, sys
group, rank, end = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
async def main():
    async with careful.attach(name=f"events{group}") as node:
        events = await careful.event.ajoin(node, ["10.77.0.1", "10.77.0.2"], rank, group=group)
        assert "share a queue with carefuld" in events.broadcasts
        mine = numpy.arange(100_000.0) + rank
        into, event = numpy.empty_like(mine), 0
        while not os.path.exists(end):
            event += 1
            await asyncio.gather(
                events.asend(mine, event, crowd=True), events.areceive(event, into=into)
            )
            assert (into == mine + 1 - 2 * rank).all()
            if event == 1:
                print("ready", flush=True)
        print(event)
asyncio.run(main())
"""


def test_ping__comes_back(pair: tuple[Host, Host]) -> None:
    here, _ = pair
    process = here.lab.start(here.name, sys.executable, "-W", "error", "-c", PINGS)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (0, "", "")


def test_events__groups_beside_carefuld(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    end = local.own / "events.end"
    jacobi = ["-m", "careful.event.jacobi", "eth1", "--attached", "--size", "16"]
    jacobi += ["--iterations", "20", "--check", "--hosts", "10.77.0.1,10.77.0.2", "--rank"]
    first = [
        host.lab.start(host.name, sys.executable, "-W", "error", *jacobi, str(rank))
        for rank, host in enumerate(pair)
    ]
    groups = {
        group: [
            host.lab.start(
                host.name,
                sys.executable,
                "-W",
                "error",
                "-c",
                EVENTS,
                str(group),
                str(rank),
                str(end),
            )
            for rank, host in enumerate(pair)
        ]
        for group in (1, 2)
    }
    for process in groups[1] + groups[2]:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
    # If a member of a group is killed, the other gets an error; other groups do not.
    killed = programs(remote)["events1"]
    subprocess.run(["kill", "-9", str(killed["pid"])], check=True)
    _, err = groups[1][0].communicate(timeout=60)
    assert "node 1 (10.77.0.2): failed" in err
    groups[1][1].communicate(timeout=60)
    for process in first:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, ""), out
    end.touch()
    for process in groups[2]:
        process.communicate(timeout=60)
    for host in pair:
        wait_for(lambda host=host: not programs(host), "end of the programs")
        host.assert_nothing_lost()
