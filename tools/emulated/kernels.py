"""Debian's kernels, unpacked under build/machines and installed nowhere.

Owns a second state of apt (sources, lists and cache), so that kernels of Debian 13 and its
backports can be had on Debian 12, and this host's own sources stay as they are.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from laboratory.state import LabError

PLACE = Path(__file__).parents[2] / "build/machines"
#: Suites beside the host's own in which kernels are looked for.
SUITES = ("trixie", "trixie-backports")
#: Modules for what no emulated machine has: most of them, and depmod reads each.
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
    """An unpacked kernel. version: as `uname -r` says it."""

    version: str
    root: Path

    @property
    def image(self) -> Path:
        """What QEMU boots."""
        return self.root / f"boot/vmlinuz-{self.version}"

    @property
    def modules(self) -> Path:
        """The directory in which `modprobe -d` finds lib/modules."""
        return self.root


def _run(*argv: str, cwd: Path | None = None) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=cwd)
    if done.returncode:
        lines = [one for one in done.stderr.splitlines() if one.startswith(("E:", "dpkg"))]
        raise LabError(f"{argv[0]}: {(lines or ['failed'])[0]}")
    return done.stdout


def _apt(tool: str, *argv: str, cwd: Path | None = None) -> str:
    """apt-get or apt-cache with the second state."""
    state = PLACE / "apt"
    options = {
        "Dir::Etc::sourcelist": state / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": state / "lists",
        "Dir::Cache": state / "cache",
        "APT::Sandbox::User": "root",  # who may write to build/
    }
    return _run(tool, "-q", *(f"-o{key}={value}" for key, value in options.items()), *argv, cwd=cwd)


def _refresh() -> None:
    """The lists of Debian's main archive, from where this host has its own."""
    format_ = "$(REPO_URI) $(CODENAME) $(COMPONENT)"
    rows = [one.split() for one in _run("apt-get", "indextargets", "--format", format_).split("\n")]
    mine = {(row[0], row[1]) for row in rows if len(row) == 3 and row[2] == "main"}
    places = sorted({uri for uri, suite in mine if "-" not in suite})
    if not places:
        raise LabError("apt knows no sources of Debian: run `apt-get update`")
    sources = [f"deb {uri} {suite} main" for uri, suite in sorted(mine)]
    sources += [f"deb {places[0]} {suite} main" for suite in SUITES]
    state = PLACE / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "sources.list").write_text("\n".join(sources) + "\n")
    _apt("apt-get", "update")


def _key(version: str) -> list[int]:
    return [int(one) for one in re.findall(r"\d+", version)]


def _newest(wanted: str) -> str:
    """The newest kernel whose version begins so; of 7.x the newest 7."""
    begin = re.escape(wanted.removesuffix(".x")) + r"[.+-]"
    pattern = re.compile(rf"linux-image-({begin}[0-9.+-]*(?:\+?deb\d+)?(?:\+bpo)?-amd64)")
    names = _apt("apt-cache", "pkgnames", "linux-image-").split()
    found = [match[1] for match in map(pattern.fullmatch, names) if match]
    if not found:
        raise LabError(f"Debian has no kernel {wanted}")
    return max(found, key=_key)


def _packages(version: str) -> list[str]:
    """The image, and from 7.0 on what holds its parts."""
    image = f"linux-image-{version}"
    words = re.findall(r"linux-\S+", _apt("apt-cache", "depends", "--important", image))
    return [image, *(one for one in words if one != image and one.endswith(version))]


def kernel(wanted: str) -> Kernel:
    """A kernel, fetched if it is not here.

    Args:
        wanted: as 6.1, 6.12, 6.18 or 7.x: the newest of Debian's that begins so.

    Raises:
        LabError: there is none, or the packages cannot be had.
    """
    place = PLACE / "kernels" / wanted
    if not place.is_dir():
        if shutil.which("apt-get") is None:
            raise LabError("apt-get is missing: kernels come from Debian's archive")
        _refresh()
        version, temporary = _newest(wanted), PLACE / f".{wanted}"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        (temporary / "version").write_text(version)
        _apt("apt-get", "download", *_packages(version), cwd=temporary)
        for package in temporary.glob("*.deb"):
            _run("dpkg-deb", "--extract", str(package), str(temporary))
            package.unlink()
        if not (temporary / "lib").exists():  # since Debian 13
            (temporary / "lib").symlink_to("usr/lib")
        for folder in NEVER_THERE:
            shutil.rmtree(temporary / f"lib/modules/{version}/kernel" / folder, ignore_errors=True)
        _run("depmod", "-b", str(temporary), version)
        place.parent.mkdir(exist_ok=True)
        temporary.rename(place)
        shutil.rmtree(PLACE / "apt/cache", ignore_errors=True)
    return Kernel((place / "version").read_text(), place)
