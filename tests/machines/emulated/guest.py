"""An emulated machine: its first file system, its QEMU, and running commands in it."""

from __future__ import annotations

import fcntl
import json
import lzma
import os
import re
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from laboratory.state import LabError

from emulated.agent import PIECE
from emulated.archive import PLACE, foreign
from emulated.kernels import Kernel
from emulated.qemu import NICS, WORDS, qemu

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[2]
#: Commands that run in a machine at the same time.
PORTS = 8
#: Longest start, seconds; it takes ten or twenty on an idle machine.
BOOT_S = 300.0
MEMORY_MIB = 1024

#: Modules of all machines: a file system, and the devices of careful's C tests.
BASE = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "veth", "bridge", "fuse")
#: QEMU's event for a frame that waits for a buffer in the card's receive ring: e1000e, igb.
RING_EMPTY = "e1000e_rx_can_recv_rings_full"
#: The module for `ss --xdp`; Linux 6.1 lacks it.
DIAG = "xsk_diag"
#: Architecture -> QEMU's words, and the kernel's console. "max" is slow in QEMU: AVX2 and SMAP on
#: amd64, on arm64 functions that sign their return addresses.
BOARDS = {
    "amd64": (("-cpu", "Nehalem"), "ttyS0"),
    "arm64": (("-machine", "virt", "-cpu", "neoverse-n1"), "ttyAMA0"),
}
#: Further modules of a machine with a disk.
DISK = ("virtio_blk", "ext4", "xfs", "loop")


@dataclass(frozen=True)
class Machine:
    """Properties of a group's machines. queues: of a card; disk: machines have one."""

    kernel: Kernel
    nic: str
    mtu: int
    queues: int
    disk: bool

    @property
    def card(self) -> str:
        """Returns QEMU's device."""
        device = NICS[self.nic][0]
        if self.queues > 1 and "mq=on" not in device:
            device += f",mq=on,vectors={2 * self.queues + 2}"
        return device

    @property
    def own(self) -> Path | None:
        """Returns the root that the machine sees instead of this host's, or None."""
        return None if self.kernel.arch == "amd64" else foreign(self.kernel.arch)


def ramdisk(machine: Machine, to: Path, init: Path = HERE / "init") -> None:
    """Writes the first file system: busybox, init, the checkout's path, the modules in order."""
    tree = to.with_suffix(".d")
    shutil.rmtree(tree, ignore_errors=True)
    (tree / "bin").mkdir(parents=True)
    (tree / "modules").mkdir()
    shutil.copy2((machine.own or Path("/")) / "bin/busybox", tree / "bin")
    shutil.copy2(init, tree / "init")  # executable
    (tree / "checkout").write_text(str(CHECKOUT))
    paths: list[str] = []
    kernel = machine.kernel
    for name in (*BASE, NICS[machine.nic][1], *(DISK if machine.disk else ()), DIAG):
        argv = ["modprobe", "-d", str(kernel.modules), "-S", kernel.version, "--show-depends", name]
        done = subprocess.run(argv, capture_output=True, text=True)
        if done.returncode and name != DIAG:
            raise LabError(f"kernel {kernel.version} has no {name}")
        found = re.findall(r"^insmod (\S.*\.ko\S*)", done.stdout, re.M)
        paths += [one for one in found if one not in paths]
    for number, path in enumerate(paths):
        data = Path(path).read_bytes()
        data = lzma.decompress(data) if path.endswith(".xz") else data
        (tree / f"modules/{number:02}-{Path(path).name.removesuffix('.xz')}").write_bytes(data)
    names = "\n".join(str(one.relative_to(tree)) for one in sorted(tree.rglob("*")))
    argv = ["cpio", "--quiet", "-o", "-H", "newc"]
    with to.open("wb") as file:
        subprocess.run(argv, cwd=tree, input=names.encode(), stdout=file, check=True)
    shutil.rmtree(tree)


def shared(tag: str, path: Path) -> tuple[str, str]:
    """Returns QEMU's words for files of this host that init mounts."""
    words = "security_model=passthrough,readonly=on,multidevs=remap"
    quoted = str(path).replace(",", ",,")
    return "-virtfs", f"local,path={quoted},mount_tag={tag},{words}"


def ports(folder: Path) -> Iterator[str]:
    """Returns QEMU's words for the ports of run()."""
    yield from ("-device", f"virtio-serial-pci,max_ports={PORTS + 1}")
    for number in range(PORTS):
        path = folder / f"exec{number}"
        yield from ("-chardev", f"socket,id=exec{number},path={path},server=on,wait=off")
        yield from ("-device", f"virtserialport,chardev=exec{number},name=exec{number}")


def net_words(net: str) -> Iterator[str]:
    """Returns QEMU's words for a `-netdev`. That of careful-hop is its socket: "hop:PATH"."""
    kind, _, path = net.partition(":")
    if kind != "hop":
        yield from ("-netdev", net)
        return
    yield from ("-object", f"memory-backend-memfd,id=mem,size={MEMORY_MIB}M,share=on")
    yield from ("-machine", "memory-backend=mem", "-chardev", f"socket,id=wire,path={path}")
    yield from ("-netdev", "vhost-user,id=net,chardev=wire")


def start(
    folder: Path, machine: Machine, host: int, nets: list[str], inside: Sequence[str] = ()
) -> None:
    """Starts a machine.

    Args:
        folder: the machine's files; `qemu.log` has a line for each frame that found no buffer in an
            Intel card's receive ring. With a disk, `disk` is its image, and `disk.log` has all
            writes in the format of Linux's dm-log-writes.
        machine: its kernel, card and disk.
        host: its number, from 1 on.
        nets: QEMU's `-netdev`s; the one whose id is `net` is the card's. "hop:PATH": that of
            careful-hop, a link.
        inside: a command that runs QEMU's, like `ip netns exec NAME`.
    """
    folder.mkdir(exist_ok=True)
    program, env = qemu(machine.nic, machine.kernel.arch)
    board, console = BOARDS[machine.kernel.arch]
    # On a busy host the kernel's timer test can fail, with a panic. Without the mitigations a start
    # is a sixth faster; bpf()'s own checks stay in force.
    words = f"console={console} quiet panic=-1 no_timer_check nopti spectre_v2=off"
    words += f" {WORDS.get(machine.nic, '')}"
    argv: list[str | Path] = [
        *inside, *program, "-nodefaults", "-no-reboot", "-display", "none", "-daemonize",
        "-pidfile", folder / "pid", "-serial", f"file:{folder / 'console'}",
        # Nested KVM is sometimes available, but ends in an internal error.
        "-accel", "tcg,thread=multi", *board,
        "-smp", "2", "-m", str(MEMORY_MIB),
        "-kernel", machine.kernel.image, "-initrd", folder.parent / "ramdisk",
        "-append", f"{words} {'own ' if machine.own else ''}careful={host},{machine.mtu}",
        *shared("root", Path("/")), *(shared("own", machine.own) if machine.own else ()),
        *(word for net in nets for word in net_words(net)),
        "-device", f"{machine.card},romfile=,netdev=net,mac=02:77:00:00:00:{host:02x}",
        "-device", "virtio-rng-pci",
        "-trace", RING_EMPTY, "-D", folder / "qemu.log",
        *ports(folder),
    ]  # fmt: skip
    if machine.disk:
        (folder / "disk.log").touch()
        files = f"file.driver=file,file.filename={folder / 'disk'},log.driver=file"
        files += f",log.filename={folder / 'disk.log'},log-super-update-interval=1"
        argv += ["-blockdev", f"driver=blklogwrites,node-name=disk,{files}"]
        argv += ["-device", "virtio-blk-pci,drive=disk"]
    done = subprocess.run(argv, capture_output=True, text=True, env=env)
    if done.returncode:
        raise LabError(f"QEMU: {(done.stderr.strip() or 'failed').splitlines()[-1]}")


def wait_until_up(folder: Path) -> None:
    """Waits until the machine runs commands."""
    until = time.monotonic() + BOOT_S
    while time.monotonic() < until:
        if not pid_of(folder):
            break
        if run(folder, ["true"], limit_s=1.0) == 0:
            return
    PLACE.mkdir(parents=True, exist_ok=True)
    kept = shutil.copyfile(folder / "console", PLACE / "console")
    raise LabError(f"{folder.name} does not start: {last_words(kept)} (the console: {kept})")


def last_words(console: Path) -> str:
    """Returns the reason of a kernel's panic, or the last line of output."""
    lines = console.read_text(errors="replace").strip().splitlines()
    gave_up = [one for one in lines if "Kernel panic" in one]
    return (gave_up or lines or ["its console is silent"])[-1]


def pid_of(folder: Path) -> int:
    """Returns the process id of the machine's QEMU; 0: it has ended."""
    try:
        pid = int((folder / "pid").read_text())
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return 0
    return pid if str(folder / "pid").encode() in line.split(b"\0") else 0


def _connect(folder: Path, locks: list[IO[bytes]]) -> socket.socket:
    """Connects to a free port, and reserves it until `locks` is closed."""
    for number in range(PORTS):
        lock = (folder / f"lock{number}").open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        locks.append(lock)
        one = socket.socket(socket.AF_UNIX)
        one.connect(str(folder / f"exec{number}"))
        return one
    raise LabError(f"{folder.name} runs {PORTS} commands already")


def begin(stream: IO[bytes], token: bytes) -> None:
    """Skips answers to earlier clients until ours begins.

    Raises:
        ConnectionError: the machine has ended.
    """
    seen = b""
    while not seen.endswith(token):
        one = stream.read(1)
        if not one:
            raise ConnectionError
        seen = seen[1 - len(token) :] + one


def run(folder: Path, argv: list[str], limit_s: float | None = None) -> int:
    """Runs a command in a machine with our output. Returns its exit status.

    Args:
        folder: the machine's.
        argv: the command.
        limit_s: longest time without output; then the status is -1.
    """
    keep = {key: os.environ[key] for key in ("PATH", "HOME", "TERM", "LANG") if key in os.environ}
    own = {key: value for key, value in os.environ.items() if key.startswith("CAREFUL_")}
    token = secrets.token_hex(16)
    request = {"token": token, "argv": argv, "cwd": str(Path.cwd()), "env": keep | own}
    locks: list[IO[bytes]] = []
    try:
        with _connect(folder, locks) as port:
            port.settimeout(limit_s)
            port.sendall(json.dumps(request).encode() + b"\n")
            stream = port.makefile("rb")
            begin(stream, token.encode())
            while True:
                kind, count = PIECE.unpack(stream.read(PIECE.size))
                data = stream.read(count)
                if kind == 0:
                    return int(data)
                out = sys.stdout if kind == 1 else sys.stderr
                out.buffer.write(data)
                out.flush()
    except TimeoutError:
        return -1
    except (struct.error, ConnectionError):
        if limit_s is None:
            raise LabError(f"{folder.name} has ended") from None
        return -1
    finally:
        for one in locks:
            one.close()


def kill(folder: Path) -> None:
    """Ends the machine's QEMU, if it runs, and waits until it has ended."""
    if pid := pid_of(folder):
        handle = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        select.select([handle], [], [])
        os.close(handle)
