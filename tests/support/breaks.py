"""Breaks hosts and networks for faults.py, and mends them.

Owns the list of faults: what breaks at a random instant of a transfer, and the allowed results.
Nothing here touches anything outside the test.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ground import EXPORTED, FILE_BYTES, Ground
from hosts import MIB, RUN, Host, alive, wait_for

#: The error of a command that cannot reach a host (a pattern).
_GONE = "carefuld|nobody answers|reset|no answer|interface is gone|not running|is not up|reached"

#: The log's lines about a peer at other_address(), and about one that received nothing for a while.
_ELSEWHERE = r"peer \d 10\.77\.0\.10\d"
_CUT = "stalled|beginning a new epoch|frames lost on the way"


def kill_daemon(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Kills carefuld."""
    pid = victim.pid
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid), "end of carefuld")


def stop_daemon(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Stops carefuld for a while."""
    stop_for(victim, rng.uniform(0.05, 2))


def stop_longer(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Stops carefuld for longer than the others wait (--stall)."""
    stop_for(victim, rng.uniform(33, 38))


def stop_for(victim: Host, seconds: float) -> None:
    """Stops a carefuld, and lets it continue."""
    pid = victim.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def link_down(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Sets the interface down, and up again."""
    victim.lab.run(victim.name, "ip", "link", "set", "eth1", "down")
    time.sleep(rng.uniform(0, 1))
    put_right(victim)


def put_right(victim: Host) -> None:
    """Sets the interface up, with the lab's addresses."""
    number = int(victim.name[1:])
    for command in (
        ("link", "set", "eth1", "up"),
        ("addr", "replace", f"10.77.0.{number}/24", "dev", "eth1"),
        ("-6", "addr", "replace", f"fd77::{number:x}/64", "dev", "eth1", "nodad"),
    ):
        victim.lab.run(victim.name, "ip", *command)


def recreate(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Replaces the interface by a new one, maybe with another MAC address."""
    lab, number = ground.lab, victim.name[1:]
    switch = ground.switch
    pid = victim.pid
    victim.lab.run(victim.name, "ip", "link", "del", "eth1")
    wait_for(lambda: not alive(pid), "end of carefuld")
    port = f"p{number}"
    host = f"careful-{lab.name}-{victim.name}"
    # As when a driver is loaded again, the card keeps its MAC; or it is another.
    mac = f"02:77:00:00:00:{int(number):02x}" if rng.random() < 0.5 else some_mac(rng)
    for line in (
        f"link add eth1 netns {host} address {mac} mtu 3826 numtxqueues 1 numrxqueues 1 type veth "
        f"peer name {port} netns {switch} mtu 3826 numtxqueues 1 numrxqueues 1",
        f"-n {switch} link set {port} master br0",
        f"-n {switch} link set {port} up",
    ):
        ground.run(f"ip {line}")
    ground.run(f"tc -netns {switch} qdisc replace dev {port} root pfifo limit 16384")
    put_right(victim)


def some_mac(rng: random.Random) -> str:
    """Returns a MAC address that no other host has."""
    return "02:00:00:" + rng.randbytes(3).hex(":")


def new_mac(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Changes the MAC address without telling the other hosts."""
    victim.lab.run(victim.name, "ip", "link", "set", "eth1", "address", some_mac(rng))


def no_address(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Removes the address for a while."""
    victim.lab.run(victim.name, "ip", "addr", "flush", "dev", "eth1")
    time.sleep(rng.uniform(0, 1))
    put_right(victim)


def other_address(victim: Host) -> str:
    """Returns another address for a host."""
    return f"10.77.0.{100 + int(victim.name[1:])}"


def new_address(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Changes the address."""
    take_other_address(victim)


def take_other_address(victim: Host) -> None:
    """Replaces the addresses by another one."""
    victim.lab.run(victim.name, "ip", "addr", "flush", "dev", "eth1")
    victim.lab.run(victim.name, "ip", "addr", "add", f"{other_address(victim)}/24", "dev", "eth1")


def restart_elsewhere(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Ends carefuld regularly, and starts it again with another address."""
    pid = victim.pid
    os.kill(pid, signal.SIGTERM)  # `down` takes its time to begin
    wait_for(lambda: not alive(pid), "end of carefuld")
    new_address(ground, victim, rng)
    ground.make_sure(victim)


def check_new_address(ground: Ground, victim: Host) -> None:
    """Checks that the host is reached at the new address, and reaches others from it."""
    (other,) = (host for host in ground.hosts[:2] if host is not victim)
    back = [host.own / "back" for host in (other, victim)]
    try:
        other.ctl("get", f"{other_address(victim)}:{EXPORTED}", back[0])
        assert back[0].read_bytes() == ground.held[victim.name], "from the new address"
        victim.ctl("get", f"{other.name}:{EXPORTED}", back[1])
        assert back[1].read_bytes() == ground.held[other.name], "to it"
    finally:
        old_address(victim)


def old_address(victim: Host) -> None:
    """Restores the host's own address."""
    victim.lab.run(victim.name, "ip", "addr", "flush", "dev", "eth1")
    put_right(victim)


def new_mtu(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Sets a smaller MTU everywhere for a while."""
    for mtu in (str(rng.randrange(1280, 3826)), "3826"):
        for host in ground.hosts:
            host.lab.run(host.name, "ip", "link", "set", "eth1", "mtu", mtu)
        time.sleep(rng.uniform(0, 0.5))


def truncate(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Truncates the source for a while."""
    source = victim.export / EXPORTED
    os.truncate(source, rng.randrange(1, FILE_BYTES))
    time.sleep(rng.uniform(0, 0.5))
    source.write_bytes(ground.held[victim.name])


def local_garbage(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Sends garbage to the local socket, and connects silent clients."""
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


def partition(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Separates the two hosts; the third host still hears both."""
    ports = [f"p{host.name[1:]}" for host in ground.hosts[:2]]
    for state in ("on", "off"):
        for port in ports:
            ground.run(f"bridge -n {ground.switch} link set dev {port} isolated {state}")
        if state == "on":
            time.sleep(rng.uniform(0.2, 1.5))


def one_way(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Diverts frames to the victim to the third host; the victim's own frames arrive."""
    shown = victim.lab.run(victim.name, "ip", "-o", "link", "show", "eth1").stdout
    mac = shown.split("link/ether ")[1].split()[0]
    bridge = f"bridge -n {ground.switch} fdb"
    ground.run(f"{bridge} replace {mac} dev p3 master static sticky")
    time.sleep(rng.uniform(0.2, 1.5))
    ground.run(f"{bridge} del {mac} dev p3 master")


def clock_back(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Sets the wall clock back by up to a month, everywhere."""
    if not ground.apart.has_clock:
        raise AssertionError("no C compiler, so no clock to set back")
    ground.apart.set_back(rng.randrange(3600, 31 * 86400))


def check_clock(ground: Ground, victim: Host) -> None:
    """Checks that carefuld logs the new time."""
    log = RUN / victim.lab.instance(victim.name) / "log"
    before = log.read_text()
    victim.lab.run(victim.name, "ip", "link", "set", "eth1", "down")
    wait_for(lambda: "is down" in log.read_text()[len(before) :], "news of it")
    put_right(victim)
    line = log.read_text()[len(before) :].splitlines()[0]
    when = datetime.fromisoformat(line.split()[0])
    assert when < datetime.now(UTC) - timedelta(minutes=59), line


def unmount_bpffs(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Unmounts all pins: status and tune cannot use them."""
    ground.apart.run("umount /sys/fs/bpf")


def check_without_bpffs(ground: Ground, victim: Host) -> None:
    """Checks that a command that needs the pins says so, and that `down` and `up` work."""
    for host in ground.hosts:
        found = host.status()
        assert "is careful up?" in found["xdp_counters_error"], found["xdp_counters_error"]
        tuned = host.ctl("tune", "show", "eth1", check=False)
        assert tuned.returncode == 1
        assert tuned.stderr.count("\n") == 1, tuned.stderr
        host.down()
    ground.apart.run("mount -t bpf bpf /sys/fs/bpf")
    for host in ground.hosts:
        host.up("--peers", "4")
        assert host.status()["xdp_counters_error"] is None


def small_disk(ground: Ground, victim: Host) -> AbstractContextManager[None]:
    """Mounts a small file system on both of a host's folders."""
    small = f"mount -t tmpfs -o size={FILE_BYTES + 2 * MIB} tmpfs"
    return ground.mounted(small, victim.own / "disk", victim.export / "disk")


def fill_disk(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Fills the rest of the disk."""
    for folder in (victim.own, victim.export):
        path = ground.apart.seen(folder / "disk/else")
        with contextlib.suppress(OSError), path.open("wb", 0) as file:
            while True:
                file.write(bytes(MIB))


@contextlib.contextmanager
def failing_disk(ground: Ground, victim: Host) -> Iterator[None]:
    """A file system on a loop device whose backing file can be cut."""
    image, folder = victim.own / "image", victim.export / "disk"
    with image.open("wb") as file:
        file.truncate(FILE_BYTES + 32 * MIB)
    with ground.loop_device(image, folder):
        ground.apart.seen(folder / EXPORTED).write_bytes(ground.held[victim.name])
        # Mounted again, to empty the page cache.
        device = ground.apart.run(f"findmnt -n -o SOURCE {folder}")
        ground.apart.run(f"umount {folder}")
        ground.apart.run(f"mount {device} {folder}")
        yield


def cut_disk(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Makes the device unreadable beyond some point, or completely."""
    os.truncate(victim.own / "image", rng.randrange(0, FILE_BYTES))
    with ground.apart.seen(victim.export / "disk" / EXPORTED).open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextlib.contextmanager
def sealed_disk(ground: Ground, victim: Host) -> Iterator[None]:
    """Mounts a file system on a loop device in memory that can be sealed."""
    ground.memory = os.memfd_create("disk", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.truncate(ground.memory, FILE_BYTES + 32 * MIB)
        image = Path(f"/proc/{os.getpid()}/fd/{ground.memory}")
        with ground.loop_device(image, victim.own / "disk", victim.export / "disk"):
            yield
    finally:
        os.close(ground.memory)


def seal_disk(ground: Ground, victim: Host, rng: random.Random) -> None:
    """Makes the device read-only; earlier writes fail when they reach it."""
    fcntl.fcntl(ground.memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


@dataclass(frozen=True)
class Fault:
    """One way to break something.

    Attributes:
        hit: breaks the victim in the middle of a transfer.
        said: pattern of the error line of a transfer that it ends; "": it must not end one.
        victim: "source" or "target" of the transfer's file; "": either of the two hosts.
        ends: whether the transfer must end.
        changes_source: whether the source changes for a while.
        options: of the transfer.
        source, target: names of the file, in the exported or the host's own folder.
        place: prepares the victim before the transfer.
        everywhere: whether it also hits the third host, whose sessions then begin again.
        descriptors: that may stay open in a carefuld that continues: 2 that are being closed, and
            those of a session that has not ended yet.
        logged: pattern in the log of the victim's carefuld, or of its peer's; "": nothing certain.
        after: checks after the transfers, also at the victim.
        is_long: whether it takes too long for the tests.
    """

    hit: Callable[[Ground, Host, random.Random], None]
    said: str = ""
    victim: str = ""
    ends: bool = False
    changes_source: bool = False
    options: tuple[str, ...] = ()
    source: str = EXPORTED
    target: str = "copy"
    place: Callable[[Ground, Host], AbstractContextManager[None]] | None = None
    after: Callable[[Ground, Host], None] | None = None
    everywhere: bool = False
    descriptors: int = 2
    logged: str = ""
    is_long: bool = False


FAULTS: dict[str, Fault] = {
    "SIGKILL": Fault(kill_daemon, _GONE, ends=True),
    "SIGSTOP": Fault(stop_daemon),
    "SIGSTOP for 35 s": Fault(stop_longer, "no answer in time|was reset", is_long=True),
    "link down": Fault(link_down),
    "interface recreated": Fault(recreate, _GONE, ends=True),
    "MAC changed": Fault(new_mac, logged="the link address changed from"),
    "address gone": Fault(no_address),
    "address changed": Fault(
        new_address, _GONE, after=check_new_address, descriptors=6, logged=_ELSEWHERE
    ),
    "address changed, restarted": Fault(
        restart_elsewhere,
        _GONE,
        ends=True,
        after=check_new_address,
        descriptors=6,
        logged=_ELSEWHERE,
    ),
    "MTU changed": Fault(new_mtu, everywhere=True),
    "partition": Fault(partition, logged=_CUT),
    "one-way partition": Fault(one_way, logged=_CUT),
    "source truncated": Fault(truncate, "changed|shrank", "source", changes_source=True),
    "disk full": Fault(
        fill_disk,
        "No space left",
        "target",
        ends=True,
        options=("-S",),
        target="disk/copy",
        place=small_disk,
    ),
    "I/O error": Fault(
        cut_disk, "Input/output error", "source", source=f"disk/{EXPORTED}", place=failing_disk
    ),
    "write error": Fault(
        seal_disk,
        "Input/output error",
        "target",
        ends=True,
        target="disk/copy",
        place=sealed_disk,
    ),
    "bpffs unmounted": Fault(unmount_bpffs, after=check_without_bpffs),
    "clock set back": Fault(clock_back, after=check_clock),
    "local garbage": Fault(local_garbage),
}
