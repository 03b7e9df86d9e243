"""The state of a lab on disk, under /run/careful-lab, and what is left of it.

Owns the lock that one `up`, `down` or `sweep` holds, and how programs are run under it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from laboratory import chain

STATE = Path("/run/careful-lab")
NETNS = Path("/run/netns")

shared_descriptors: list[int] = []  # of the lock, while it is held


class LabError(Exception):
    """The fault and the remedy, in one line."""


@dataclass
class Lab:
    """What `up` was asked for; written to lab.json before anything is made."""

    name: str
    hosts: int
    mtu: int
    owner_pid: int = 0  # 0: nobody's; otherwise `sweep` takes it down after that process
    owner_start: str = ""  # ticks since boot, for a pid can come again
    ready: bool = False
    hops: list[dict[str, Any]] = field(default_factory=list)  # of chain.Hop: a chain, or a star
    charge: str = "frame"
    queues: list[int] = field(default_factory=list)  # of h1's and h2's interface; []: one each
    ipv6: bool = False  # over emulated links, too, which then carry what IPv6 says by itself

    @property
    def links(self) -> list[chain.Hop]:
        """The emulated links from h1 to h2, or from each host to the switch."""
        return [chain.Hop(**one) for one in self.hops]

    @property
    def star(self) -> bool:
        """Reports whether each host has an emulated link of its own."""
        return bool(self.hops) and self.hosts > 2

    def host(self, k: int) -> str:
        """Name of host k's namespace."""
        return f"careful-{self.name}-h{k}"

    @property
    def switch(self) -> str:
        """Name of the switch's namespace."""
        return f"careful-{self.name}-sw"

    def router(self, k: int) -> str:
        """Name of the namespace of router k, between links k and k + 1."""
        return f"careful-{self.name}-r{k}"

    @property
    def wire(self) -> str:
        """Name of the namespace in which the emulated links run."""
        return f"careful-{self.name}-wire"

    @property
    def shape(self) -> tuple[Any, ...]:
        """Returns what makes one lab unlike another."""
        return self.hosts, self.mtu, self.hops, self.charge, self.ipv6, self.queues

    @property
    def namespaces(self) -> list[str]:
        """All namespaces that a complete lab has."""
        hosts = [self.host(k) for k in range(1, self.hosts + 1)]
        if self.star:
            return [*hosts, self.switch, self.wire]
        if self.hops:
            return [*hosts, *(self.router(k) for k in range(1, len(self.hops))), self.wire]
        return hosts if self.hosts == 2 else [*hosts, self.switch]


def command(*argv: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program, `text` on its standard input, and return what it printed."""
    return subprocess.run(
        argv, input=text or "", capture_output=True, text=True, pass_fds=shared_descriptors
    )


def must(*argv: str, text: str | None = None) -> None:
    """Run a program that has to succeed."""
    done = command(*argv, text=text)
    if done.returncode:
        raise LabError(f"{argv[0]}: {(done.stderr.strip() or 'failed').splitlines()[0]}")


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """One `up`, `down` or `sweep` at a time, whatever the lab's name.

    Programs that command() starts share the lock, so that it is held until the last `ip`
    of an `up` that was killed has ended.
    """
    while True:
        STATE.mkdir(mode=0o755, exist_ok=True)
        try:
            descriptor = os.open(STATE, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # removed between the two calls by one that has just ended
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), STATE.stat()):
                break  # not removed by the one who had it before us
        os.close(descriptor)
    shared_descriptors.append(descriptor)
    try:
        yield
    finally:
        shared_descriptors.clear()
        with contextlib.suppress(OSError):  # other labs are in it
            STATE.rmdir()
        os.close(descriptor)


def read_state(name: str) -> Lab | None:
    """Returns what is recorded of a lab, or None if nothing whole is."""
    try:
        lab = Lab(**json.loads((STATE / name / "lab.json").read_text()))
        with contextlib.suppress(FileNotFoundError):  # most labs have no chain
            of_chain = json.loads((STATE / name / "chain.json").read_text())
            lab.hops, lab.charge = of_chain["hops"], of_chain["charge"]
            lab.ipv6 = bool(of_chain.get("ipv6"))
        return lab
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def write_state(lab: Lab) -> None:
    folder = STATE / lab.name
    folder.mkdir(exist_ok=True)
    temporary = folder / ".lab.json"
    state = asdict(lab)
    of_chain = {key: state.pop(key) for key in ("hops", "charge", "ipv6")}
    if lab.hops:
        (folder / "chain.json").write_text(json.dumps(of_chain, indent=1) + "\n")
    temporary.write_text(json.dumps(state, indent=1) + "\n")
    temporary.rename(folder / "lab.json")


def namespaces_of(name: str) -> list[str]:
    """Namespaces of a lab that exist, whatever is recorded of it."""
    pattern = re.compile(rf"careful-{re.escape(name)}-(h\d+|r\d+|sw|wire)")
    found = NETNS.iterdir() if NETNS.is_dir() else iter(())
    return sorted(path.name for path in found if pattern.fullmatch(path.name))


def labs() -> list[str]:
    """Names of all labs of which anything is left."""
    found = {path.name for path in STATE.iterdir() if path.is_dir()} if STATE.is_dir() else set()
    for path in NETNS.iterdir() if NETNS.is_dir() else ():
        if match := re.fullmatch(r"careful-(.+)-(?:h\d+|r\d+|sw|wire)", path.name):
            found.add(match[1])
    return sorted(found)
