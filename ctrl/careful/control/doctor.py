"""What careful needs of a machine, stage by stage: looked at, put right, undone.

check() changes nothing and needs no privilege: what it could not see it says.
fix() acts only where something is missing.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from careful._abi import lib
from careful.control import bpf, daemon, ethtool, instances, links, maps
from careful.control.instances import Instance
from careful.control.links import Link
from careful.errors import CarefulError

BPFFS = Path("/sys/fs/bpf")
_BPF_FS_MAGIC = 0xCAFE4A11
_AF_XDP = 44
#: Multi-buffer frames came with it; before, a frame fits one buffer.
_KERNEL_FRAGS = (6, 6)
_KERNEL_MIN = (5, 11)
_MTU_MIN = int(lib.CAREFUL_MTU_MIN)
_MTU_BUFFER = 3826  # fits one AF_XDP buffer on veth: 3840 bytes less Ethernet's 14
_BACKLOG_DEFAULT = 1000

OK, WARN, FAIL, UNKNOWN = "ok", "warn", "fail", "unknown"


@dataclass(frozen=True)
class Finding:
    """What one stage found.

    Attributes:
        stage: what was looked at.
        state: ok, warn, fail or unknown (could not be seen).
        text: what is there.
        advice: what to do; "" if nothing.
    """

    stage: str
    state: str
    text: str
    advice: str = ""


def _kernel() -> Iterator[Finding]:
    release = os.uname().release
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2])
    if numbers < _KERNEL_MIN:
        yield Finding("kernel", FAIL, f"Linux {release}", "5.11 is the least, 6.6 the better")
    elif numbers < _KERNEL_FRAGS:
        yield Finding("kernel", OK, f"Linux {release}: frames of one buffer (several from 6.6 on)")
    else:
        yield Finding("kernel", OK, f"Linux {release}")
    try:
        socket.socket(_AF_XDP, socket.SOCK_RAW).close()
    except PermissionError:
        yield Finding("AF_XDP", OK, "the kernel has it; only root may use it")
    except OSError as error:
        advice = "a kernel with CONFIG_XDP_SOCKETS is needed"
        yield Finding("AF_XDP", FAIL, f"no such socket: {error.strerror}", advice)
    else:
        yield Finding("AF_XDP", OK, "the kernel has it")


def bpffs_mounted() -> bool:
    """Whether a BPF file system is where maps are pinned."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        if (point, kind) == (str(BPFFS), "bpf"):
            return True
    return False


def _bpffs() -> Iterator[Finding]:
    if bpffs_mounted():
        yield Finding("bpffs", OK, f"mounted on {BPFFS}")
    else:
        advice = "`up` mounts it, or: carefulctl doctor --fix IFACE"
        yield Finding("bpffs", WARN, f"not mounted on {BPFFS}", advice)


def _python() -> Iterator[Finding]:
    try:
        bpf.library()
        yield Finding("bcc", OK, "python3-bpfcc is there")
    except CarefulError as error:
        yield Finding("bcc", FAIL, "python3-bpfcc is missing", error.reason)
    try:
        yield Finding("carefuld", OK, str(daemon.executable()))
    except CarefulError as error:
        yield Finding("carefuld", FAIL, error.reason, "reinstall careful")


def _interface(link: Link) -> Iterator[Finding]:
    if link.loopback:
        yield Finding("interface", FAIL, f"{link.name} is a loopback", "an Ethernet is needed")
    elif not link.up:
        yield Finding("interface", FAIL, f"{link.name} is down", f"ip link set {link.name} up")
    elif not link.carrier:
        yield Finding(
            "interface", WARN, f"{link.name} is up, but has no carrier", "look at the cable"
        )
    else:
        yield Finding("interface", OK, f"{link.name} is up")
    if link.mtu < _MTU_MIN:
        yield Finding("MTU", FAIL, f"{link.mtu}", f"{_MTU_MIN} is the least")
    elif link.kind == "veth" and link.mtu > _MTU_BUFFER:
        advice = f"{_MTU_BUFFER} is the largest that needs one buffer, and the fastest per byte"
        yield Finding("MTU", WARN, f"{link.mtu}: a frame fills several buffers", advice)
    else:
        yield Finding("MTU", OK, f"{link.mtu}")


def _queues(link: Link, driver: ethtool.DriverInfo) -> Iterator[Finding]:
    yield Finding("driver", OK, f"{driver.driver}, {driver.rx_queues} receive queue(s)")
    if driver.rx_queues > 1 and driver.ntuple is False:
        advice = f"ethtool -K {link.name} ntuple on, or: ethtool -L {link.name} combined 1"
        yield Finding("steering", WARN, "several queues, and no flow steering", advice)
    elif driver.rx_queues > 1:
        yield Finding("steering", OK, "several queues: `up` steers the port to one")
    if driver.lro:
        advice = f"XDP excludes it: ethtool -K {link.name} lro off"
        yield Finding("offloads", WARN, "LRO is on", advice)
    elif driver.gro and link.kind == "veth":
        yield Finding("offloads", OK, "GRO is on: veth then runs XDP in NAPI, as it should")
    else:
        yield Finding("offloads", OK, "none in the way")


def _in_use(instance: Instance) -> bool:
    """Whether what is on the interface is a carefuld's, or a program's with a queue of its own."""
    return bool(instance.pid or instances.owner_without_daemon(instance.name))


def _program(link: Link, instance: Instance) -> Iterator[Finding]:
    if link.xdp_program is None:
        yield Finding("XDP", OK, "no program on the interface")
        return
    try:
        name = maps.program_name(link.xdp_program)
    except CarefulError:
        name = f"program {link.xdp_program} (its name is for root to see)"
    if _in_use(instance):
        yield Finding("XDP", OK, f"ours: {name}, {link.xdp_mode}")
    else:
        advice = f"`up` refuses; ip link set dev {link.name} xdp off removes it"
        yield Finding("XDP", FAIL, f"another one is attached: {name}, {link.xdp_mode}", advice)


def _qdisc(link: Link, instance: Instance) -> Iterator[Finding]:
    qdisc = links.root_qdisc(link)
    if qdisc is None and link.kind == "veth":
        yield Finding(
            "qdisc", OK, "none; `up` puts a pfifo there, so that a full ring loses nothing"
        )
    elif qdisc is not None and qdisc.is_ours and not _in_use(instance):
        advice = f"carefulctl down {link.name} removes it"
        yield Finding("qdisc", WARN, f"{qdisc.kind}, left by a carefuld that was killed", advice)
    else:
        yield Finding("qdisc", OK, qdisc.kind if qdisc else "none")


def _memory() -> Iterator[Finding]:
    free = "0"
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("HugePages_Free"):
            free = line.split()[1]
    if free == "0":
        advice = "with `sysctl vm.nr_hugepages=8` UMEM would lie in them"
        yield Finding("hugepages", OK, f"none free; not needed ({advice})")
    else:
        yield Finding("hugepages", OK, f"{free} free")
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if os.geteuid() == 0 or soft == resource.RLIM_INFINITY:
        yield Finding("memlock", OK, "no limit for root; carefuld raises its own")
    else:
        yield Finding("memlock", UNKNOWN, f"{soft >> 10} KiB for this user; carefuld runs as root")
    path = Path("/proc/sys/net/core/netdev_max_backlog")
    try:
        backlog = int(path.read_text())
    except OSError:
        text = f"not visible in this network namespace; taken for {_BACKLOG_DEFAULT}"
        yield Finding("backlog", UNKNOWN, text)
        return
    yield Finding("backlog", OK, f"{backlog} frames: bounds R in generic mode")


def _leftovers(instance: Instance, ifname: str) -> Iterator[Finding]:
    if instance.pid:
        yield Finding("instance", OK, f"{instance.name} runs (carefuld {instance.pid})")
        return
    pid = instances.owner_without_daemon(instance.name)
    if pid:
        text = f"{instance.name} belongs to process {pid}, a program with a queue of its own"
        yield Finding("instance", OK, text)
        return
    try:
        pins = (maps.PINS / instance.name).exists()
    except PermissionError:
        yield Finding("instance", UNKNOWN, "whether pins are left is for root to see")
        return
    if pins or (instance.directory / "pid").exists():
        advice = f"the next `up` clears them, or: carefulctl down {ifname}"
        yield Finding("instance", WARN, "pins or files of a killed carefuld are left", advice)
    else:
        yield Finding("instance", OK, f"{instance.name} is not up; nothing is left of it")


def check(ifname: str, name: str | None) -> list[Finding]:
    """Look at everything, change nothing.

    Args:
        ifname: the interface.
        name: of the instance, by option or CAREFUL_INSTANCE.
    """
    found = [*_kernel(), *_bpffs(), *_python()]
    instance = instances.on_interface(ifname, name)
    try:
        link = links.find(ifname)
    except CarefulError as error:
        found.append(Finding("interface", FAIL, str(error), "ip link lists them"))
    else:
        found += [*_interface(link), *_queues(link, ethtool.driver_info(ifname))]
        found += [*_program(link, instance), *_qdisc(link, instance)]
    return [*found, *_memory(), *_leftovers(instance, ifname)]


def _mount_bpffs() -> str:
    if bpffs_mounted():
        return ""
    done = subprocess.run(
        ["mount", "-t", "bpf", "-o", "nosuid,nodev,noexec,mode=0700", "bpf", str(BPFFS)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise CarefulError(errno.EIO, done.stderr.strip(), f"mounting {BPFFS}")
    return f"mounted a BPF file system on {BPFFS}"


def _set_up(ifname: str) -> str:
    link = links.find(ifname)
    if link.up:
        return ""
    links.set_up(link)
    return f"set {ifname} up"


def _clear(ifname: str, name: str | None) -> str:
    instance = instances.on_interface(ifname, name)
    with instances.changing(instance.name):
        instance = instances.find(instance.name)
        if _in_use(instance):
            return ""
        done = daemon.clear(instance, ifname)
    return "removed what a killed carefuld had left" if done else ""


def fix(ifname: str, name: str | None) -> list[Finding]:
    """Put right what can be: bpffs, the interface's state, leftovers.

    Raises:
        CarefulError: not root, or something could not be done.
    """
    instances.need_root(f"doctor --fix {ifname}")
    links.find(ifname)
    stages: list[tuple[str, Callable[[], str]]] = [
        ("bpffs", _mount_bpffs),
        ("interface", lambda: _set_up(ifname)),
        ("instance", lambda: _clear(ifname, name)),
    ]
    return [Finding(stage, OK, act() or "nothing to do") for stage, act in stages]
