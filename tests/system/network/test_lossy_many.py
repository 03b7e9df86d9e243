"""Losses on a link that queues or programs share, and on a path that eats large frames: no session
ends."""

from __future__ import annotations

import json
import subprocess
import threading

import pytest
from hosts import MIB, Host, Hosts, attached, make_file, wait_for
from lab import Lab
from lossy import hops

pytestmark = pytest.mark.lab

#: Requests must arrive in order. Answers with the number of those that did.
SERVES = """
import asyncio, careful
async def main():
    seen = 0
    def count(message):
        nonlocal seen
        seen += int(bytes(message.payload)) == seen
        return b"%d" % seen
    async with careful.attach(name="serves") as node:
        table = node.register(node.memory(1 << 20))
        node.handle(1, lambda message: table)
        node.handle(2, count)
        print("ready", flush=True)
        await node.serve_forever()
asyncio.run(main())
"""
ASKS = """
import careful, os
with careful.attach(name="asks") as node:
    h2 = node.connect("10.77.0.2")
    table = h2.region(h2.request(1).result().payload)
    print("ready", flush=True)
    asked = 0
    for _ in range(100):
        flying = [h2.request(2, b"%d" % (asked + k)) for k in range(16)]
        for operation in flying:
            asked += 1
            assert operation.result().payload == b"%d" % asked, (asked, operation.result().payload)
        mine, back = os.urandom(50_000), bytearray(50_000)
        table.store(mine, asked).result()
        table.get(back, asked).result()
        assert back == mine
    print(asked)
"""


def assert_repaired(hosts: list[Host]) -> None:
    """Checks that frames were lost, and that their loss ended no session."""
    counted: dict[str, int] = {}
    for host in hosts:
        for name, count in host.status()["counters"].items():
            counted[name] = counted.get(name, 0) + count
    assert counted["sent_again"] > 0
    for name in ("lost_frames", "epochs_broken", "bad_credits", "drop_crc", "digest_bad"):
        assert counted[name] == 0, name


def test_program__sees_the_order_and_every_byte(
    hosts: Hosts, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = hops(tmp_path_factory.mktemp("link"), "loss = 0.01")
    a, b = made = hosts(hops=path)
    for host in made:
        host.up()
    serves = attached(b, SERVES)
    asks = attached(a, ASKS)
    kept = make_file(b.export / "big", 2 * MIB)
    a.ctl("get", "h2:big", a.own / "big")  # carefuld's own session has the same link
    assert (a.own / "big").read_bytes() == kept
    out, err = asks.communicate(timeout=200)
    assert (asks.returncode, out, err) == (0, "1600\n", "")
    serves.kill()
    serves.wait(60)
    assert_repaired(made)


def flap(lab: Lab, over: threading.Event) -> None:
    """Takes h2's interface down for 20 ms, again and again.

    The kernel handles a new carrier once a second. Until then it sends nothing itself.
    """
    script = "ip link set eth1 down; sleep 0.02; ip link set eth1 up"
    while not over.wait(1.2):
        lab.run("h2", "sh", "-c", script)


def test_queues__each_repairs_its_losses(hosts: Hosts) -> None:
    a, b = made = hosts(queues=(4, 4))
    for host in made:
        host.up("--queues", "4", "--peers", "8")
    kept = make_file(b.export / "big", 64 * MIB)
    servers = ["10.77.0.2", "10.77.0.22"]  # an address is a host with its own queue
    b.lab.run("h2", "ip", "address", "add", "10.77.0.22/24", "dev", "eth1")
    for server in servers:
        # While the link is down, the kernel's neighbour requests fail for a second or more.
        words = (server, "lladdr", "02:77:00:00:00:02", "dev", "eth1", "nud", "permanent")
        a.lab.run("h1", "ip", "neighbor", "replace", *words)
        a.ctl("get", "-f", f"{server}:big", "null:")
    two = {one["queue"] for one in a.status()["peers"]}
    assert len(two) == 2
    over = threading.Event()
    flaps = threading.Thread(target=flap, args=(a.lab, over))
    flaps.start()
    try:
        for server in 100 * servers:
            a.ctl("get", "-f", f"{server}:big", a.own / "big")
            assert (a.own / "big").read_bytes() == kept
            found = a.status()["peers"]
            if {one["queue"] for one in found if one["asked_again_frames"]} == two:
                break
    finally:
        over.set()
        flaps.join()
    assert_repaired(made)


#: The switch of a lab of three hosts eats packets of more bytes.
EATS = """add table bridge eats
add chain bridge eats forward { type filter hook forward priority 0; }
add rule bridge eats forward meta length > 1500 drop
"""


def test_path__that_eats_large_frames(hosts: Hosts) -> None:
    a, b = made = hosts(hosts=3)[:2]
    for host in made:
        host.up()
    kept = make_file(b.export / "big", 8 * MIB)
    a.ctl("get", "h2:big", "null:")
    argv = ["nsenter", f"--net={a.lab.netns('sw')}", "nft", "-f", "-"]
    subprocess.run(argv, input=EATS, text=True, check=True)
    found = json.loads(a.ctl("get", "--json", "h2:big", a.own / "big").stdout)
    assert (a.own / "big").read_bytes() == kept
    assert found["retries_count"] > 0  # the range that was lost
    # The search may go on after the transfer, which meanwhile uses frames that pass.
    wait_for(lambda: b.status()["peers"][0]["path_is_narrow"], "the end of the search")
    (peer,) = b.status()["peers"]
    assert 1480 <= peer["frame_bytes"] - 14 <= 1500
    assert_repaired(made)
