"""The state of labs below /run/careful-lab, and the lock of `up`, `down` and `sweep`."""

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
    """An error and its remedy, in one line."""


@dataclass
class Lab:
    """The arguments of `up`; written to lab.json before the lab is made."""

    name: str
    hosts: int
    mtu: int
    owner_pid: int = 0  # `sweep` removes the lab after this process; 0: no owner
    owner_start: str = ""  # ticks since boot, since a pid can be reused
    ready: bool = False
    hops: list[dict[str, Any]] = field(default_factory=list)  # of chain.Hop: a chain, or a star
    charge: str = "frame"
    queues: list[int] = field(default_factory=list)  # of h1's and h2's interface; []: one each
    ipv6: bool = False  # also over emulated links, which then carry IPv6's own messages

    @property
    def links(self) -> list[chain.Hop]:
        """Returns the emulated links from h1 to h2, or from each host to the switch."""
        return [chain.Hop(**one) for one in self.hops]

    @property
    def star(self) -> bool:
        """Reports whether each host has its own emulated link."""
        return bool(self.hops) and self.hosts > 2

    def host(self, k: int) -> str:
        """Returns the name of host k's namespace."""
        return f"careful-{self.name}-h{k}"

    @property
    def switch(self) -> str:
        """Returns the name of the switch's namespace."""
        return f"careful-{self.name}-sw"

    def router(self, k: int) -> str:
        """Returns the name of router k's namespace, between links k and k + 1."""
        return f"careful-{self.name}-r{k}"

    @property
    def wire(self) -> str:
        """Returns the name of the emulated links' namespace."""
        return f"careful-{self.name}-wire"

    @property
    def shape(self) -> tuple[Any, ...]:
        """Returns the properties that distinguish labs."""
        return self.hosts, self.mtu, self.hops, self.charge, self.ipv6, self.queues

    @property
    def namespaces(self) -> list[str]:
        """Returns all namespaces of a complete lab."""
        hosts = [self.host(k) for k in range(1, self.hosts + 1)]
        if self.star:
            return [*hosts, self.switch, self.wire]
        if self.hops:
            return [*hosts, *(self.router(k) for k in range(1, len(self.hops))), self.wire]
        return hosts if self.hosts == 2 else [*hosts, self.switch]


def command(*argv: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a program with `text` as standard input. Returns its output."""
    return subprocess.run(
        argv, input=text or "", capture_output=True, text=True, pass_fds=shared_descriptors
    )


def must(*argv: str, text: str | None = None) -> None:
    """Runs a program that must succeed."""
    done = command(*argv, text=text)
    if done.returncode:
        raise LabError(f"{argv[0]}: {(done.stderr.strip() or 'failed').splitlines()[0]}")


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Allows one `up`, `down` or `sweep` at a time, for all labs.

    Programs of command() share the lock: it lasts until the last `ip` of a killed `up` has ended.
    """
    while True:
        STATE.mkdir(mode=0o755, exist_ok=True)
        try:
            descriptor = os.open(STATE, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # an ending process removed it between the two calls
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), STATE.stat()):
                break  # not removed by its last owner
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
    """Returns a lab's recorded state, or None if there is no complete one."""
    try:
        return Lab(**json.loads((STATE / name / "lab.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def write_state(lab: Lab) -> None:
    folder = STATE / lab.name
    folder.mkdir(exist_ok=True)
    temporary = folder / ".lab.json"
    temporary.write_text(json.dumps(asdict(lab), indent=1) + "\n")
    temporary.rename(folder / "lab.json")


def namespaces_of(name: str) -> list[str]:
    """Returns the existing namespaces of a lab, recorded or not."""
    pattern = re.compile(rf"careful-{re.escape(name)}-(h\d+|r\d+|sw|wire)")
    found = NETNS.iterdir() if NETNS.is_dir() else iter(())
    return sorted(path.name for path in found if pattern.fullmatch(path.name))


def labs() -> list[str]:
    """Returns the names of all labs with leftovers."""
    found = {path.name for path in STATE.iterdir() if path.is_dir()} if STATE.is_dir() else set()
    for path in NETNS.iterdir() if NETNS.is_dir() else ():
        if match := re.fullmatch(r"careful-(.+)-(?:h\d+|r\d+|sw|wire)", path.name):
            found.add(match[1])
    return sorted(found)
