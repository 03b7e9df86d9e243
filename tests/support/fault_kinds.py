"""The faults of faults.py: breaks hosts and networks, and mends them.

Owns the list of faults and their allowed results. No fault touches anything outside the test.
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

from fault_rig import EXPORTED, FILE_BYTES, FaultRig
from hosts import MIB, RUN, Host, alive, wait_for

#: Pattern of a command's error if it cannot reach a host.
_UNREACHABLE = (
    "carefuld|nobody answers|reset|no answer|interface is gone|not running|is not up|reached"
)

#: Patterns of log lines about a peer at other_address(), and about a peer that heard nothing.
_ELSEWHERE = r"peer \d 10\.77\.0\.10\d"
_CUT = "stalled|beginning a new epoch|frames lost on the way"


def kill_daemon(rig: FaultRig, victim: Host, rng: random.Random) -> None:
    """Kills carefuld."""
    pid = victim.pid
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid), "end of carefuld")


def stop_daemon(rig: FaultRig, victim: Host, rng: random.Random) -> None:
    """Stops carefuld for a while."""
    stop_for(victim, rng.uniform(0.05, 2))


def stop_longer(rig: FaultRig, victim: Host, rng: random.Random) -> None:
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


def link_down(rig: FaultRig, victim: Host, rng: random.Random) -> None:
    """Sets the interface down, and up again."""
    victim.lab.run(victim.name, "ip", "link", "set", "eth1", "down")
    time.sleep(rng.uniform(0, 1))
    restore_interface(victim)


def restore_interface(victim: Host) -> None:
    """Sets the interface up, with the lab's addresses."""
    number = int(victim.name[1:])
    for command in (
        ("link", "set", "eth1", "up"),
        ("addr", "replace", f"10.77.0.{number}/24", "dev", "eth1"),
        ("-6", "addr", "replace", f"fd77::{number:x}/64", "dev", "eth1", "nodad"),
    ):
        victim.lab.run(victim.name, "ip", *command)


def recreate(rig: FaultRig, victim: Host, rng: random.Random) -> None:
    """Replaces the interface by a new one, with the same MAC address or another."""
    lab, number = rig.lab, victim.name[1:]
    switch = rig.switch
    pid = victim.pid
    victim.lab.run(victim.name, "ip", "link", "del", "eth1")
    wait_for(lambda: not alive(pid), "end of carefuld")
    port = f"p{number}"
    host = f"careful-{lab.name}-{victim.name}"
    # The same MAC: like a driver that is loaded again. Another MAC: like another card.
    mac = f"02:77:00:00:00:{int(number):02x}" if rng.random() < 0.5 else some_mac(rng)
    for line in (
        f"link add eth1 netns {host} address {mac} mtu 3826 numtxqueues 1 numrxqueues 1 type veth "
        f"peer name {port} netns {switch} mtu 3826 numtxqueues 1 numrxqueues 1",
        f"-n {switch} link set {port} master br0",
        f"-n {switch} link set {port} up",
    ):
        rig.run(f"ip {line}")
    rig.run(f"tc -netns {switch} qdisc replace dev {port} root pfifo limit 16384")
    restore_interface(victim)


def some_mac(rng: random.Random) -> str:
    """Returns a MAC address that no other host has."""
    return "02:00:00:" + rng.randbytes(3).hex(":")


def new_mac(rig: FaultRig, victim: Host, rng: random.Random) -> None:
    """Changes the MAC address without telling the other hosts."""
    victim.lab.run(victim.name, "ip", "link", "set", "eth1", "address", some_mac(rng))


def no_address(rig: FaultRig, victim: Host, rng: random.Random) -> None:
    """Removes the address for a while."""
    victim.lab.run(victim.name, "ip", "addr", "flush", "dev", "eth1")
    time.sleep(rng.uniform(0, 1))
    restore_interface(victim)


def other_address(victim: Host) -> str:
    """Returns another address for a host."""
    return f"10.77.0.{100 + int(victim.name[1:])}"


def new_address(rig: FaultRig, victim: Host, rng: random.Random) -> None:
    """Changes the address."""
    use_other_address(victim)


def use_other_address(victim: Host) -> None:
    """Replaces the addresses by another one."""
    victim.lab.run(victim.name, "ip", "addr", "flush", "dev", "eth1")
    victim.lab.run(victim.name, "ip", "addr", "add", f"{other_address(victim)}/24", "dev", "eth1")


def restart_elsewhere(rig: FaultRig, victim: Host, rng: random.Random) -> None:
    """Ends carefuld by SIGTERM, and starts it again with another address."""
    pid = victim.pid
    os.kill(pid, signal.SIGTERM)  # starting `down` would take longer
    wait_for(lambda: not alive(pid), "end of carefuld")
    new_address(rig, victim, rng)
    rig.ensure_up(victim)


def check_new_address(rig: FaultRig, victim: Host) -> None:
    """Checks that the host is reached at the new address, and reaches others from it."""
    (other,) = (host for host in rig.hosts[:2] if host is not victim)
    back = [host.own / "back" for host in (other, victim)]
    try:
        other.ctl("get", f"{other_address(victim)}:{EXPORTED}", back[0])
        assert back[0].read_bytes() == rig.contents[victim.name], "get from the new address"
        victim.ctl("get", f"{other.name}:{EXPORTED}", back[1])
        assert back[1].read_bytes() == rig.contents[other.name], "get to the new address"
    finally:
        restore_address(victim)


def restore_address(victim: Host) -> None:
    """Restores the host's own address."""
    victim.lab.run(victim.name, "ip", "addr", "flush", "dev", "eth1")
    restore_interface(victim)


def new_mtu(rig: FaultRig, victim: Host, rng: random.Random) -> None:
    """Sets a smaller MTU everywhere for a while."""
    for mtu in (str(rng.randrange(1280, 3826)), "3826"):
        for host in rig.hosts:
            host.lab.run(host.name, "ip", "link", "set", "eth1", "mtu", mtu)
        time.sleep(rng.uniform(0, 0.5))


def truncate(rig: FaultRig, victim: Host, rng: random.Random) -> None:
    """Truncates the source for a while."""
    source = victim.export / EXPORTED
    os.truncate(source, rng.randrange(1, FILE_BYTES))
    time.sleep(rng.uniform(0, 0.5))
    source.write_bytes(rig.contents[victim.name])


def local_garbage(rig: FaultRig, victim: Host, rng: random.Random) -> None:
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


def partition(rig: FaultRig, victim: Host, rng: random.Random) -> None:
    """Separates the two hosts; the third host still hears both."""
    ports = [f"p{host.name[1:]}" for host in rig.hosts[:2]]
    for state in ("on", "off"):
        for port in ports:
            rig.run(f"bridge -n {rig.switch} link set dev {port} isolated {state}")
        if state == "on":
            time.sleep(rng.uniform(0.2, 1.5))


def one_way(rig: FaultRig, victim: Host, rng: random.Random) -> None:
    """Diverts frames to the victim to the third host; the victim's own frames arrive."""
    shown = victim.lab.run(victim.name, "ip", "-o", "link", "show", "eth1").stdout
    mac = shown.split("link/ether ")[1].split()[0]
    bridge = f"bridge -n {rig.switch} fdb"
    rig.run(f"{bridge} replace {mac} dev p3 master static sticky")
    time.sleep(rng.uniform(0.2, 1.5))
    rig.run(f"{bridge} del {mac} dev p3 master")


def clock_back(rig: FaultRig, victim: Host, rng: random.Random) -> None:
    """Sets the wall clock back by up to a month, everywhere."""
    if not rig.namespace.has_clock:
        raise AssertionError("no C compiler, so no clock to set back")
    rig.namespace.set_back(rng.randrange(3600, 31 * 86400))


def check_clock(rig: FaultRig, victim: Host) -> None:
    """Checks that carefuld logs the new time."""
    log = RUN / victim.lab.instance(victim.name) / "log"
    before = log.read_text()
    victim.lab.run(victim.name, "ip", "link", "set", "eth1", "down")
    wait_for(lambda: "is down" in log.read_text()[len(before) :], "log line about the link")
    restore_interface(victim)
    line = log.read_text()[len(before) :].splitlines()[0]
    when = datetime.fromisoformat(line.split()[0])
    assert when < datetime.now(UTC) - timedelta(minutes=59), line


def unmount_bpffs(rig: FaultRig, victim: Host, rng: random.Random) -> None:
    """Unmounts the bpffs, so status and tune cannot use the pins."""
    rig.namespace.run("umount /sys/fs/bpf")


def check_without_bpffs(rig: FaultRig, victim: Host) -> None:
    """Checks that commands report missing pins, and that `down` and `up` work."""
    for host in rig.hosts:
        found = host.status()
        assert "is careful up?" in found["xdp_counters_error"], found["xdp_counters_error"]
        tuned = host.ctl("tune", "show", "eth1", check=False)
        assert tuned.returncode == 1
        assert tuned.stderr.count("\n") == 1, tuned.stderr
        host.down()
    rig.namespace.run("mount -t bpf bpf /sys/fs/bpf")
    for host in rig.hosts:
        host.up("--peers", "4")
        assert host.status()["xdp_counters_error"] is None


def small_disk(rig: FaultRig, victim: Host) -> AbstractContextManager[None]:
    """Mounts a small file system below both folders of a host."""
    small = f"mount -t tmpfs -o size={FILE_BYTES + 2 * MIB} tmpfs"
    return rig.mounted(small, victim.own / "disk", victim.export / "disk")


def fill_disk(rig: FaultRig, victim: Host, rng: random.Random) -> None:
    """Fills the rest of the disk."""
    for folder in (victim.own, victim.export):
        path = rig.namespace.seen(folder / "disk/else")
        with contextlib.suppress(OSError), path.open("wb", 0) as file:
            while True:
                file.write(bytes(MIB))


@contextlib.contextmanager
def failing_disk(rig: FaultRig, victim: Host) -> Iterator[None]:
    """A file system on a loop device whose backing file can be cut."""
    image, folder = victim.own / "image", victim.export / "disk"
    with image.open("wb") as file:
        file.truncate(FILE_BYTES + 32 * MIB)
    with rig.loop_device(image, folder):
        rig.namespace.seen(folder / EXPORTED).write_bytes(rig.contents[victim.name])
        # Mounting again empties the page cache.
        device = rig.namespace.run(f"findmnt -n -o SOURCE {folder}")
        rig.namespace.run(f"umount {folder}")
        rig.namespace.run(f"mount {device} {folder}")
        yield


def cut_disk(rig: FaultRig, victim: Host, rng: random.Random) -> None:
    """Makes the device unreadable from a random offset on."""
    os.truncate(victim.own / "image", rng.randrange(0, FILE_BYTES))
    with rig.namespace.seen(victim.export / "disk" / EXPORTED).open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextlib.contextmanager
def sealed_disk(rig: FaultRig, victim: Host) -> Iterator[None]:
    """Mounts a file system on a loop device in memory that can be sealed."""
    rig.disk_fd = os.memfd_create("disk", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.truncate(rig.disk_fd, FILE_BYTES + 32 * MIB)
        image = Path(f"/proc/{os.getpid()}/fd/{rig.disk_fd}")
        with rig.loop_device(image, victim.own / "disk", victim.export / "disk"):
            yield
    finally:
        os.close(rig.disk_fd)


def seal_disk(rig: FaultRig, victim: Host, rng: random.Random) -> None:
    """Makes the device read-only; earlier writes fail when they reach it."""
    fcntl.fcntl(rig.disk_fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Attributes:
        inject: breaks the victim in the middle of a transfer.
        error: pattern of the error line of a transfer that fails; "": the transfer must not fail.
        victim: "source" or "target" of the transfer's file; "": either of the two hosts.
        ends: whether the transfer must fail.
        changes_source: whether the source changes for a while.
        options: options of the transfer.
        source, target: names of the file, in the exported or the host's own folder.
        prepare: prepares the victim before the transfer.
        hits_bystander: whether the sessions of the third host begin again too.
        descriptors: most new open descriptors in a carefuld that continues: 2 that are being
            closed, and those of a session that has not ended yet.
        logged: pattern in the log of the victim's carefuld or its peer's; "": not checked.
        check: checks the victim after the transfers.
        is_long: whether the fault lasts too long for test_faults.py.
    """

    inject: Callable[[FaultRig, Host, random.Random], None]
    error: str = ""
    victim: str = ""
    ends: bool = False
    changes_source: bool = False
    options: tuple[str, ...] = ()
    source: str = EXPORTED
    target: str = "copy"
    prepare: Callable[[FaultRig, Host], AbstractContextManager[None]] | None = None
    check: Callable[[FaultRig, Host], None] | None = None
    hits_bystander: bool = False
    descriptors: int = 2
    logged: str = ""
    is_long: bool = False


FAULTS: dict[str, Fault] = {
    "SIGKILL": Fault(kill_daemon, _UNREACHABLE, ends=True),
    "SIGSTOP": Fault(stop_daemon),
    "SIGSTOP for 35 s": Fault(stop_longer, "no answer in time|was reset", is_long=True),
    "link down": Fault(link_down),
    "interface recreated": Fault(recreate, _UNREACHABLE, ends=True),
    "MAC changed": Fault(new_mac, logged="the link address changed from"),
    "address gone": Fault(no_address),
    "address changed": Fault(
        new_address, _UNREACHABLE, check=check_new_address, descriptors=6, logged=_ELSEWHERE
    ),
    "address changed, restarted": Fault(
        restart_elsewhere,
        _UNREACHABLE,
        ends=True,
        check=check_new_address,
        descriptors=6,
        logged=_ELSEWHERE,
    ),
    "MTU changed": Fault(new_mtu, hits_bystander=True),
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
        prepare=small_disk,
    ),
    "I/O error": Fault(
        cut_disk, "Input/output error", "source", source=f"disk/{EXPORTED}", prepare=failing_disk
    ),
    "write error": Fault(
        seal_disk,
        "Input/output error",
        "target",
        ends=True,
        target="disk/copy",
        prepare=sealed_disk,
    ),
    "bpffs unmounted": Fault(unmount_bpffs, check=check_without_bpffs),
    "clock set back": Fault(clock_back, check=check_clock),
    "local garbage": Fault(local_garbage),
}
