"""Flow steering: leads our UDP ports to our queues on a NIC that has several.

Runs ethtool, which prints the number of each new rule. carefuld does not start if no rule leads its
port to its queue.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from itertools import product
from pathlib import Path

_TYPES = ("udp4", "udp6")


def _run(*args: str) -> str | None:
    """Returns what ethtool printed, or None if it failed or is missing."""
    if shutil.which("ethtool") is None:
        return None
    done = subprocess.run(["ethtool", *args], cwd="/", capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode == 0 else None


def add(ifname: str, ways: Iterable[tuple[int, int]], record: Path) -> int:
    """Steers ports to queues, as far as the NIC can; returns how many rules it added.

    Args:
        ifname: the interface.
        ways: UDP destination ports, and the receive queue of each.
        record: a file for remove() with the number, port and queue of each rule; written right
            after each rule is added.
    """
    added = 0
    for kind, (port, queue) in product(_TYPES, ways):
        rule = ["-N", ifname, "flow-type", kind, "dst-port", str(port), "action", str(queue)]
        said = _run(*rule)
        found = re.search(r"rule with ID (\d+)", said) if said else None
        if found:
            record.parent.mkdir(parents=True, exist_ok=True)
            with record.open("a") as file:
                file.write(f"{found[1]} {port} {queue}\n")
            added += 1
    return added


def _is_ours(ifname: str, number: str, port: str, queue: str) -> bool:
    """Reports whether a rule is what add() made: its number may have been reused."""
    said = _run("-n", ifname, "rule", number) or ""
    ports = rf"^\s*Dest port: {port} mask: 0x0$"
    return bool(re.search(ports, said, re.M) and re.search(rf"\bqueue {queue}$", said, re.M))


def remove(ifname: str, record: Path) -> int:
    """Removes the rules of add() that still exist; returns how many."""
    try:
        lines = [line.split() for line in record.read_text().splitlines()]
    except FileNotFoundError:
        return 0
    gone = 0
    for number, port, queue in (line for line in lines if len(line) == 3):
        if _is_ours(ifname, number, port, queue):
            gone += _run("-N", ifname, "delete", number) is not None
    record.unlink()
    return gone
