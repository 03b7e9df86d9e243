"""The two machines of `installed`: QEMU with Debian's disk, and commands in them.

Owns RUN.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from laboratory.state import LabError

from emulated import guest
from emulated.debian import HOSTS, command
from emulated.kernels import kernel
from emulated.qemu import qemu

RUN = Path("/run/careful-installed")
WAIT_S = 900.0
CONFIGURATION = """[nodes]
h1 = "10.77.0.1"
h2 = "10.77.0.2"
[up]
insecure = true
export = [{}]
"""
INIT = """#!/bin/busybox sh
busybox mkdir -p /dev /proc /sys /root
busybox mount -t devtmpfs dev /dev
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
for module in /modules/*; do
	busybox insmod "$module" || busybox echo "init: $module: not loaded"
done
until busybox mount -t ext4 /dev/vda /root; do busybox sleep 1; done
for place in dev proc sys; do
	busybox mount --move /$place /root/$place
done
exec busybox switch_root /root /lib/systemd/systemd
"""


class Host:
    """A machine."""

    def __init__(self, name: str, disk: Path, one: guest.Machine) -> None:
        self.name, self.number = name, HOSTS.index(name) + 1
        self.folder = RUN / name
        self.folder.mkdir(parents=True)
        command("cp", "--sparse=always", disk, self.folder.with_name(f"{name}.disk"))
        wire = f"stream,id=net,server={'on' if self.number == 1 else 'off'},addr.type=unix"
        program, env = qemu("virtio")
        argv: list[str | Path] = [
            "nice", *program, "-nodefaults", "-display", "none", "-daemonize",
            "-pidfile", self.folder / "pid", "-serial", f"file:{self.folder / 'console'}",
            "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", str(guest.MEMORY_MIB),
            "-kernel", one.kernel.image, "-initrd", RUN / "ramdisk",
            "-append", f"console=ttyS0 quiet net.ifnames=0 systemd.hostname={name}",
            "-drive", f"file={RUN / f'{name}.disk'},if=virtio,format=raw,cache=unsafe",
            "-netdev", f"{wire},addr.path={RUN / 'wire'}",
            "-device", f"virtio-net-pci,romfile=,netdev=net,mac=02:77:00:00:00:0{self.number}",
            "-device", "virtio-rng-pci",
            *guest.ports(self.folder),
        ]  # fmt: skip
        command(*argv, env=env)

    def _asked(self, argv: Sequence[str], limit_s: float | None = None) -> tuple[int, str]:
        """Returns the exit status and output of a command on the host."""
        out = io.TextIOWrapper(io.BytesIO())
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            status = guest.run(self.folder, list(argv), limit_s)
        out.seek(0)
        return status, out.read()

    def run(self, *argv: str, check: bool = True) -> str:
        """Returns the output of a command on the host.

        Raises:
            LabError: it failed.
        """
        status, text = self._asked(argv)
        if check and status:
            raise LabError(f"{self.name}: {' '.join(argv)}: status {status}: {text.strip()}")
        return text

    def sh(self, text: str) -> str:
        """Returns the output of a shell script, which ends at the first failure."""
        return self.run("sh", "-ec", text)

    def boot(self) -> str:
        """Returns the id of the current boot; "": the machine is rebooting."""
        with contextlib.suppress(LabError, OSError):
            status, text = self._asked(["cat", "/proc/sys/kernel/random/boot_id"], limit_s=20.0)
            return "" if status else text.strip()
        return ""

    def show(self, key: str, unit: str = "carefuld@eth1") -> str:
        """Returns a property of a unit."""
        return self.run("systemctl", "show", "--value", "-p", key, unit).strip()

    def pid(self) -> str:
        """Returns the process id of carefuld."""
        return self.show("MainPID")

    def configure(self, exports: str) -> None:
        """Writes careful.toml with these exports."""
        self.sh(f"cat >/etc/careful.toml <<'END'\n{CONFIGURATION.format(exports)}END\n")

    def all_active(self, *units: str) -> None:
        """Raises LabError unless all units are active."""
        for one in units:  # with several units, systemctl tells whether any is
            self.run("systemctl", "is-active", one)

    def versions(self) -> dict[str, Any]:
        """Returns careful's release and protocol numbers."""
        found = json.loads(self.run("carefulctl", "--version", "--json"))
        names = (key for key in found if key.startswith("wire") or key.endswith("version"))
        return {key: found[key] for key in names}

    def status(self) -> list[dict[str, Any]]:
        """Returns the running instances of careful."""
        shown = self.run("carefulctl", "status", "--json", check=False)
        return list(json.loads(shown)["instances"])

    def held(self) -> dict[str, Any]:
        """Returns what careful has in the kernel."""
        programs = json.loads(self.run("bpftool", "-j", "prog", "show"))
        return {
            "daemons": len(self.run("pgrep", "-x", "carefuld").split()),
            "xdp_programs": sum(one["type"] == "xdp" for one in programs),
            "instances": [one["instance"] for one in self.status()],
            "pins": self.sh("ls /sys/fs/bpf/careful/*").split(),
        }

    def listed(self) -> str:
        """Lists all files that the system does not rewrite itself."""
        where = "-path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o "
        where += "-path /var/lib/dpkg -o -path /var/cache -o -path /var/log -o -path /srv -o "
        where += "-path /var/lib/systemd -o -path /root"
        return self.sh(f"find / -xdev \\( {where} \\) -prune -o -print | sort")

    def journal_line(self, unit: str, begin: str, ever: bool = False) -> str:
        """Waits for a unit's journal line with this beginning. Returns the last such line.

        ever: also accepts lines from before the unit's last start, and systemd's.
        """
        found: list[str] = []

        def is_there() -> bool:
            last = f"_SYSTEMD_INVOCATION_ID={self.show('InvocationID', unit)}"
            which = ("-u", unit) if ever else (last,)
            lines = self.run("journalctl", "-o", "cat", *which).splitlines()
            found.extend(one for one in lines if one.startswith(begin))
            return bool(found)

        wait_for(is_there, f"{unit} logs {begin}")
        return found[-1]

    def journal(self) -> str:
        """Returns the end of the journal, for a failure."""
        with contextlib.suppress(LabError, OSError):
            return self.run("journalctl", "-n", "60", "--no-hostname", check=False)
        return ""

    def reboot(self) -> str:
        """Starts a reboot. Returns the id of the boot that ends."""
        boot = self.boot()
        # The machine may reboot before it answers.
        self._asked(["systemctl", "reboot", "--no-block"], limit_s=20.0)
        return boot

    def wait_until_up(self, but: str = "") -> None:
        """Waits until the machine has started (with `but`: in a later boot) and settled."""

        def settled() -> bool:
            output = self.run("systemctl", "is-system-running", check=False).strip()
            return output in ("running", "degraded")

        wait_for(lambda: self.boot() not in ("", but), f"{self.name} starts")
        wait_for(settled, f"{self.name} has started")


def wait_for(what: Callable[[], Any], name: str) -> None:
    end = time.monotonic() + WAIT_S
    while not what():
        if time.monotonic() > end:
            raise LabError(f"{name}: not within {WAIT_S:.0f} s")
        time.sleep(1)


def start(disk: Path) -> list[Host]:
    one = guest.Machine(kernel("6.1"), "virtio", 1500, 1, disk=True)
    init = RUN / "init"
    init.write_text(INIT)
    init.chmod(0o755)
    guest.ramdisk(one, RUN / "ramdisk", init)
    hosts = [Host(name, disk, one) for name in HOSTS]
    for host in hosts:
        host.wait_until_up()
    return hosts


def end() -> None:
    for folder in RUN.glob("h[0-9]"):
        guest.kill(folder)
    shutil.rmtree(RUN, ignore_errors=True)
