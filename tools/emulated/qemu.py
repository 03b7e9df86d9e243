"""Which QEMU a machine has: this host's, or Debian 13's where it has no such network card."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from laboratory.state import LabError

from emulated.archive import unpacked

PROGRAM = "qemu-system-x86_64"
SUITE = "trixie"

#: What --nic offers: QEMU's device, and its driver.
NICS = {
    "virtio": ("virtio-net-pci", "virtio_net"),
    # Zero-copy wants the DMA API, and queues beside the one that is used.
    "virtio-zerocopy": (
        "virtio-net-pci,mq=on,vectors=10,iommu_platform=on,disable-legacy=on",
        "virtio_net",
    ),
    "e1000e": ("e1000e", "e1000e"),
    "igb": ("igb", "igb"),
}

Argv = list[str | Path]


def _has_nic(argv: Argv, env: Mapping[str, str], nic: str) -> bool:
    device = NICS[nic][0].partition(",")[0]
    done = subprocess.run([*argv, "-device", f"{device},help"], capture_output=True, env=env)
    return bool(done.stdout)  # the status is 0 either way


def qemu(nic: str) -> tuple[Argv, dict[str, str]]:
    """The start of a command, and its environment.

    Raises:
        LabError: no QEMU that can be had has this card.
    """
    env = dict(os.environ)
    if shutil.which(PROGRAM) and _has_nic([PROGRAM], env, nic):
        return [PROGRAM], env
    root = unpacked("qemu", SUITE, "amd64", ["qemu-system-x86"])
    libraries = root / "usr/lib/x86_64-linux-gnu"
    argv: Argv = [
        root / "usr/lib64/ld-linux-x86-64.so.2", "--library-path", libraries,
        root / "usr/bin" / PROGRAM, "-L", root / "usr/share/seabios", "-L", root / "usr/share/qemu",
    ]  # fmt: skip
    env["QEMU_MODULE_DIR"] = str(libraries / "qemu")
    if not _has_nic(argv, env, nic):
        raise LabError(f"this QEMU has no {nic}, and Debian's {SUITE} neither")
    return argv, env
