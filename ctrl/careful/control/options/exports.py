"""The syntax of `--export`: a directory, whether peers may write, and which hosts.

carefuld parses the words again (datapath/daemon/export_option.c), with hosts as addresses.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from careful.address import resolve
from careful.errors import CarefulError

#: A path, the last ":rw" or ":ro", and words.
_LAST = re.compile(r"(?s)(.*):(r[wo])((?:,[^,]*)*)\Z")


@dataclass(frozen=True)
class Export:
    """One export.

    Attributes:
        path: the directory, as given.
        writable: whether peers may write.
        owners: whether peers may set owners and other attributes that need root.
        devices: whether block devices in the directory, whole disks, are served.
        hosts: hosts that may use it; () for all.
    """

    path: str
    writable: bool = False
    owners: bool = False
    devices: bool = False
    hosts: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = [word for word in ("owners", "devices") if getattr(self, word)]
        words += [f"host={host}" for host in self.hosts]
        if not (self.writable or words):
            return self.path
        return ",".join([f"{self.path}:{'rw' if self.writable else 'ro'}", *words])


def parse(text: str, option: str = "--export ") -> Export:
    """Parses DIR[:rw|:ro[,owners][,devices][,host=HOST]...].

    Raises CarefulError about the option if the directory is missing or a word is unknown.
    """
    match = _LAST.match(text)
    path, kind, words = match.groups() if match else (text, "ro", "")
    if not path:
        raise CarefulError(errno.EINVAL, "no directory is given", f"{option}{text!r}")
    hosts: list[str] = []
    owners = devices = False
    for word in words.split(",")[1:]:
        if word.startswith("host=") and len(word) > len("host="):
            hosts.append(word.removeprefix("host="))
        elif word == "owners" and kind == "rw":
            owners = True
        elif word == "devices":
            devices = True
        else:
            words = ":rw (owners, devices, host=HOST) or :ro (devices, host=HOST)"
            reason = f"{word!r} is not an option of {words}"
            raise CarefulError(errno.EINVAL, reason, f"{option}{text!r}")
    return Export(path, kind == "rw", owners, devices, tuple(hosts))


def numeric(host: str) -> str:
    """Returns a host's address in carefuld's form. Raises CarefulError if it is unknown."""
    return resolve(f"[{host}]" if host.count(":") > 1 else host).ip


def check(
    given: tuple[str, ...] | None, address: Callable[[str], str] = numeric
) -> tuple[str, ...] | None:
    """Returns exports with absolute paths and numeric hosts: carefuld runs in another directory.

    address: resolves a host's name. Raises CarefulError: a path is not a directory, or a host is
    unknown.
    """
    if given is None:
        return None
    checked = []
    for export in map(parse, given):
        path = Path(export.path)
        if not path.is_dir():
            reason = "is not a directory" if path.exists() else "no such directory"
            raise CarefulError(errno.ENOTDIR, reason, f"--export {export.path}")
        hosts = tuple(map(address, export.hosts))
        checked.append(str(replace(export, path=str(path.resolve()), hosts=hosts)))
    return tuple(checked)
