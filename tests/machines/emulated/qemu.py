"""Chooses QEMU: this host's, or Debian 13's if this host's is too old."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from laboratory.state import LabError

from emulated.archive import unpacked

#: Architecture -> QEMU, its package, the folder of the unpacked package.
PROGRAMS = {
    "amd64": ("qemu-system-x86_64", "qemu-system-x86", "qemu"),
    "arm64": ("qemu-system-aarch64", "qemu-system-arm", "qemu-arm"),
}
SUITE = "trixie"
#: Older versions sometimes run stale code that another CPU has changed (QEMU's deba78709ae8). A
#: booting kernel changes its own code, so one start in thirty ended in "Oops: int3". This version
#: also has igb.
OLDEST = (8, 1)

#: Cards of --nic: QEMU's device, and its driver.
NICS = {
    "virtio": ("virtio-net-pci", "virtio_net"),
    # Zero-copy needs the DMA API, and further queues. Without event_idx QEMU asks for a notice of
    # new buffers only while frames find none, so ethtool's rx_kicks counts only these.
    "virtio-zerocopy": (
        "virtio-net-pci,event_idx=off,mq=on,vectors=10,iommu_platform=on,disable-legacy=on",
        "virtio_net",
    ),
    "e1000e": ("e1000e", "e1000e"),
    "igb": ("igb", "igb"),
    "igb-intx": ("igb", "igb"),
}
#: Kernel parameters for a card: without MSI igb has one interrupt for both directions.
WORDS = {"igb-intx": "pci=nomsi"}

Argv = list[str | Path]


def _serves(argv: Argv, env: Mapping[str, str], nic: str) -> bool:
    def said(*words: str) -> str:
        return subprocess.run([*argv, *words], capture_output=True, text=True, env=env).stdout

    numbers = re.search(r"version (\d+)\.(\d+)", said("--version"))
    device = NICS[nic][0].partition(",")[0]
    return (
        numbers is not None
        and (int(numbers[1]), int(numbers[2])) >= OLDEST
        and bool(said("-device", f"{device},help").strip())  # its exit status is meaningless
    )


def qemu(nic: str, arch: str = "amd64") -> tuple[Argv, dict[str, str]]:
    """Returns the start of a command, and its environment.

    Raises:
        LabError: no available QEMU has this card.
    """
    env = dict(os.environ)
    program, package, name = PROGRAMS[arch]
    if shutil.which(program) and _serves([program], env, nic):
        return [program], env
    root = unpacked(name, SUITE, "amd64", [package])
    libraries = root / "usr/lib/x86_64-linux-gnu"
    argv: Argv = [
        root / "usr/lib64/ld-linux-x86-64.so.2", "--library-path", libraries,
        root / "usr/bin" / program, "-L", root / "usr/share/seabios", "-L", root / "usr/share/qemu",
    ]  # fmt: skip
    env["QEMU_MODULE_DIR"] = str(libraries / "qemu")
    if not _serves(argv, env, nic):
        raise LabError(f"this host's QEMU and Debian {SUITE}'s are too old or have no {nic}")
    return argv, env


def version(nic: str, arch: str = "amd64") -> str:
    """Returns the version of the QEMU that has this card."""
    argv, env = qemu(nic, arch)
    output = subprocess.run([*argv, "--version"], capture_output=True, text=True, env=env).stdout
    return output.partition(" version ")[2].partition("\n")[0]
