"""Debian's kernels, unpacked under build/machines and not installed."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from laboratory.state import LabError

from emulated.archive import PLACE, apt, refresh, run

#: Folders of modules for hardware that no machine has. Without these, depmod is much faster.
NEVER_THERE = (
    "sound", "net/mac80211", "net/bluetooth", "net/wireless",
    *(f"drivers/{one}" for one in (
        "bluetooth", "gpu", "hid", "hwmon", "iio", "infiniband", "input", "media", "misc", "mtd",
        "net/can", "net/usb", "net/wireless", "nvme", "platform", "power", "scsi", "staging",
        "target", "usb",
    )),
)  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel. version: like `uname -r`; arch: Debian's word, like amd64."""

    version: str
    root: Path
    arch: str

    @property
    def image(self) -> Path:
        """The file that QEMU boots. Debian's Linux 7.3 has it next to the modules, not in /boot."""
        boot = self.root / f"boot/vmlinuz-{self.version}"
        return boot if boot.exists() else self.root / f"lib/modules/{self.version}/vmlinuz"

    @property
    def modules(self) -> Path:
        """The directory in which `modprobe -d` finds lib/modules."""
        return self.root


def _key(version: str) -> list[int]:
    return [int(one) for one in re.findall(r"\d+", version)]


def _newest(wanted: str, arch: str) -> str:
    """Returns the newest kernel whose version begins like this; for 7.x the newest 7."""
    begin = re.escape(wanted.removesuffix(".x")) + r"[.+-]"
    pattern = re.compile(rf"linux-image-({begin}[0-9.+-]*(?:\+?deb\d+)?(?:\+bpo)?-{arch})")
    names = apt("apt-cache", "pkgnames", "linux-image-", arch=arch).split()
    found = [match[1] for match in map(pattern.fullmatch, names) if match]
    if not found:
        raise LabError(f"Debian has no kernel {wanted} for {arch}")
    return max(found, key=_key)


def _packages(version: str, arch: str) -> list[str]:
    """Returns the packages of the image, and from 7.0 on of its parts."""
    image = f"linux-image-{version}"
    words = re.findall(r"linux-\S+", apt("apt-cache", "depends", "--important", image, arch=arch))
    return [image, *(one for one in words if one != image and one.endswith(version))]


def kernel(wanted: str, arch: str = "amd64") -> Kernel:
    """Returns a kernel, fetched if necessary.

    Args:
        wanted: 6.1, 6.12, 6.18 or 7.x: Debian's newest version that begins like this.
        arch: like amd64 or arm64.

    Raises:
        LabError: there is none, or the packages cannot be downloaded.
    """
    name = wanted if arch == "amd64" else f"{wanted}-{arch}"
    place = PLACE / "kernels" / name
    if not place.is_dir():
        refresh(arch)
        version, temporary = _newest(wanted, arch), PLACE / f".{name}"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        (temporary / "version").write_text(version)
        apt("apt-get", "download", *_packages(version, arch), cwd=temporary, arch=arch)
        for package in temporary.glob("*.deb"):
            run("dpkg-deb", "--extract", str(package), str(temporary))
            package.unlink()
        if not (temporary / "lib").exists():  # since Debian 13
            (temporary / "lib").symlink_to("usr/lib")
        for folder in NEVER_THERE:
            shutil.rmtree(temporary / f"lib/modules/{version}/kernel" / folder, ignore_errors=True)
        run("depmod", "-b", str(temporary), version)
        place.parent.mkdir(exist_ok=True)
        temporary.rename(place)
        shutil.rmtree(PLACE / "apt/cache", ignore_errors=True)
    return Kernel((place / "version").read_text(), place, arch)
