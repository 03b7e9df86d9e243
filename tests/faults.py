"""Faults on real carefulds at random instants, and whether all is well afterwards.

One round: two transfers begin, one of them between hosts that the fault does not
touch; at a random instant something breaks; each command must end in bounded time,
right or with one line; then the next transfer must be right. `python tests/faults.py
--rounds 200` runs many and writes what happened; test_faults.py runs each fault once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from careful.control import maps, tune
from careful.errors import CarefulError
from hosts import MIB, RUN, Host, alive, finish, make_file, wait_for
from lab import Lab

#: An operation that hears nothing gives up after 30 s (--stall-ms).
BOUND_S = 45
EXPORTED = "big"
#: Faults that reach all hosts of the lab.
TOUCH_ALL = ("MTU changed", "MAC changed")
#: Faults that end a transfer; the others are borne.
FATAL = ("SIGKILL", "interface recreated", "source truncated")


class Ground:
    """Three hosts on a switch, a file exported by each; the third is no victim."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.hosts = [Host(lab, name, folder) for name in lab.hosts]
        self.held = {}
        for seed, host in enumerate(self.hosts):
            self.held[host.name] = make_file(host.export / EXPORTED, 48 * MIB, seed)
            host.up("--peers", "4")

    def make_sure(self, host: Host) -> None:
        """Bring a host up again if its carefuld ended; the interface, too."""
        with contextlib.suppress(OSError, ValueError):
            if alive(host.pid):
                return
        host.up("--peers", "4")

    def clear(self) -> None:
        """Away with what earlier rounds brought, whole or in part."""
        for host in self.hosts:
            for path in (*host.own.iterdir(), *host.export.iterdir()):
                if path.name != EXPORTED:
                    path.unlink()

    def close(self) -> None:
        """Every carefuld down."""
        for host in self.hosts:
            host.ctl("down", "eth1", check=False)


Fault = Callable[[Ground, Host, random.Random], None]


def kill_daemon(ground: Ground, victim: Host, rng: random.Random) -> None:
    """SIGKILL."""
    pid = victim.pid
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid), "end of carefuld")


def stop_daemon(ground: Ground, victim: Host, rng: random.Random) -> None:
    """SIGSTOP for a while."""
    pid = victim.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(rng.uniform(0.05, 2))
    finally:
        os.kill(pid, signal.SIGCONT)


def link_down(ground: Ground, victim: Host, rng: random.Random) -> None:
    """The interface is set down, and up again."""
    victim.lab.run(victim.name, "ip", "link", "set", "eth1", "down")
    time.sleep(rng.uniform(0, 1))
    put_right(victim)


def put_right(victim: Host) -> None:
    """The interface up, with the addresses that the lab gave it."""
    number = int(victim.name[1:])
    for command in (
        ("link", "set", "eth1", "up"),
        ("addr", "replace", f"10.77.0.{number}/24", "dev", "eth1"),
        ("-6", "addr", "replace", f"fd77::{number:x}/64", "dev", "eth1", "nodad"),
    ):
        victim.lab.run(victim.name, "ip", *command)


def recreate(ground: Ground, victim: Host, rng: random.Random) -> None:
    """The interface is deleted; another one takes its place."""
    lab, number = ground.lab, victim.name[1:]
    switch = f"careful-{lab.name}-sw"
    pid = victim.pid
    victim.lab.run(victim.name, "ip", "link", "del", "eth1")
    wait_for(lambda: not alive(pid), "end of carefuld")
    port = f"p{number}"
    host = f"careful-{lab.name}-{victim.name}"
    # As when a driver is loaded again: the card keeps its MAC.
    mac = f"02:77:00:00:00:{int(number):02x}"
    for line in (
        f"link add eth1 netns {host} address {mac} mtu 3826 numtxqueues 1 numrxqueues 1 type veth "
        f"peer name {port} netns {switch} mtu 3826 numtxqueues 1 numrxqueues 1",
        f"-n {switch} link set {port} master br0",
        f"-n {switch} link set {port} up",
    ):
        subprocess.run(["ip", *line.split()], check=True)
    queue = f"tc -netns {switch} qdisc replace dev {port} root pfifo limit 16384"
    subprocess.run(queue.split(), check=True)
    put_right(victim)


def new_mac(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Another MAC address."""
    mac = "02:00:00:" + rng.randbytes(3).hex(":")
    victim.lab.run(victim.name, "ip", "link", "set", "eth1", "address", mac)
    for host in ground.hosts:
        host.lab.run(host.name, "ip", "neigh", "flush", "dev", "eth1")


def no_address(ground: Ground, victim: Host, rng: random.Random) -> None:
    """The address goes, and comes back."""
    victim.lab.run(victim.name, "ip", "addr", "flush", "dev", "eth1")
    time.sleep(rng.uniform(0, 1))
    put_right(victim)


def new_mtu(ground: Ground, victim: Host, rng: random.Random) -> None:
    """A smaller MTU everywhere, and the old one."""
    for mtu in (str(rng.randrange(1280, 3826)), "3826"):
        for host in ground.hosts:
            host.lab.run(host.name, "ip", "link", "set", "eth1", "mtu", mtu)
        time.sleep(rng.uniform(0, 0.5))


def truncate(ground: Ground, victim: Host, rng: random.Random) -> None:
    """A file that is read loses its end, and gets it back."""
    source = victim.export / EXPORTED
    os.truncate(source, rng.randrange(1, 40 * MIB))
    time.sleep(rng.uniform(0, 0.5))
    source.write_bytes(ground.held[victim.name])


def local_garbage(ground: Ground, victim: Host, rng: random.Random) -> None:
    """The local socket gets garbage, and clients that say nothing."""
    path = RUN / victim.lab.instance(victim.name) / "sock"
    silent = []
    for _ in range(100):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        silent.append(one)
        with contextlib.suppress(OSError):
            one.connect(str(path))
            if rng.random() < 0.7:
                one.send(rng.randbytes(rng.randrange(1, 4096)))
    for one in silent:
        one.close()


FAULTS: dict[str, Fault] = {
    "SIGKILL": kill_daemon,
    "SIGSTOP": stop_daemon,
    "link down": link_down,
    "interface recreated": recreate,
    "MAC changed": new_mac,
    "address gone": no_address,
    "MTU changed": new_mtu,
    "source truncated": truncate,
    "local garbage": local_garbage,
}


def pace(ground: Ground, fragment_bytes: int) -> None:
    """How large the fragments of every host are: tiny ones make a transfer last."""
    change = tune.Change(fragment_bytes=fragment_bytes)
    for host in ground.hosts:
        with contextlib.suppress(CarefulError), maps.tune_map(ground.lab.instance(host.name)) as m:
            tune.apply(m, tune.all_slots(), change)


def meet(ground: Ground, name: str, rng: random.Random) -> tuple[Host, Host, int]:
    """A transfer that meets the fault, and one beside it; who asked whom, and how it ended."""
    first, second, bystander = ground.hosts
    victim, other = rng.sample((first, second), 2)
    asker, server = rng.sample((first, second), 2)
    get = rng.random() < 0.5
    source, target = (server, asker.own / "copy") if get else (asker, server.export / "copy")
    ground.clear()
    pace(ground, 64)
    slowly = ("--block-bytes", "64KiB")
    beside = bystander.start("get", *slowly, f"{other.name}:{EXPORTED}", bystander.own / "copy")
    if get:
        met = asker.start("get", *slowly, f"{server.name}:{EXPORTED}", target)
    else:
        met = asker.start("put", *slowly, asker.export / EXPORTED, f"{server.name}:copy")
    time.sleep(rng.uniform(0.2, 1.2))
    FAULTS[name](ground, victim, rng)
    pace(ground, 3694)
    status, _, errors = finish(met, BOUND_S)
    assert "Traceback" not in errors, errors
    assert status == 0 or (status in (1, 3) and errors.count("\n") == 1), errors
    assert status == 0 or name in FATAL, errors
    if status:
        assert not target.exists(), "a target that is not whole"
    elif name != "source truncated":
        assert target.read_bytes() == ground.held[source.name], "wrong bytes"
    status_beside, _, errors = finish(beside, BOUND_S)
    if name not in TOUCH_ALL:
        assert status_beside == 0, f"the pair beside it: {errors}"
        assert (bystander.own / "copy").read_bytes() == ground.held[other.name]
    return asker, server, status


def check_next(ground: Ground, asker: Host, server: Host) -> None:
    """The next transfers are right, both ways, and nothing is left of the last."""
    for host in (asker, server):
        ground.make_sure(host)
    back = asker.own / "next"
    asker.ctl("get", "-f", f"{server.name}:{EXPORTED}", back)
    assert back.read_bytes() == ground.held[server.name], "the next get"
    asker.ctl("put", "-f", back, f"{server.name}:next")
    assert (server.export / "next").read_bytes() == ground.held[server.name], "the next put"


def play(ground: Ground, name: str, rng: random.Random) -> str:
    """One round; how the transfer that met the fault ended.

    Raises:
        AssertionError: something was not as promised.
    """
    asker, server, status = meet(ground, name, rng)
    check_next(ground, asker, server)
    return "done" if status == 0 else "failed with one line"


def main() -> int:
    """Many rounds; the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=FAULTS)
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    seen: dict[str, Counter[str]] = {name: Counter() for name in FAULTS}
    names = [options.only] if options.only else list(FAULTS)
    lab = Lab(hosts=3)
    with tempfile.TemporaryDirectory() as folder:
        try:
            ground = Ground(lab, Path(folder))
            for k in range(options.rounds):
                name = names[k % len(names)]
                try:
                    how = play(ground, name, rng)
                except (AssertionError, subprocess.SubprocessError) as error:
                    how = f"BROKEN: {error}"
                    print(f"round {k}, {name}: {how}", file=sys.stderr, flush=True)
                    for host in ground.hosts:
                        ground.make_sure(host)
                seen[name][how.splitlines()[0]] += 1
            ground.close()
        finally:
            lab.down()
    found = {"schema": 1, "rounds": options.rounds, "seed": options.seed, "faults": seen}
    text = json.dumps(found, indent=1)
    print(text)
    if options.report:
        options.report.write_text(text + "\n")
    return any(how.startswith("BROKEN") for counts in seen.values() for how in counts)


if __name__ == "__main__":
    sys.exit(main())
