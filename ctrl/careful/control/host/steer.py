"""Steers our UDP ports to our queues, on a NIC with several queues.

Runs ethtool, which prints the number of each new rule. carefuld does not start without a rule from
its port to its queue.
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
    """Returns ethtool's output, or None if it failed or is missing."""
    if shutil.which("ethtool") is None:
        return None
    done = subprocess.run(["ethtool", *args], cwd="/", capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode == 0 else None


def add(ifname: str, steered: Iterable[tuple[int, int]], record: Path) -> int:
    """Steers ports to queues, as far as the NIC can; returns the number of new rules.

    steered: UDP destination ports, and the receive queue of each; record: a file for remove() with
    the number, port and queue of each rule, written right after each rule is added.
    """
    added = 0
    for kind, (port, queue) in product(_TYPES, steered):
        rule = ["-N", ifname, "flow-type", kind, "dst-port", str(port), "action", str(queue)]
        output = _run(*rule)
        match = re.search(r"rule with ID (\d+)", output) if output else None
        if match:
            record.parent.mkdir(parents=True, exist_ok=True)
            with record.open("a") as file:
                file.write(f"{match[1]} {port} {queue}\n")
            added += 1
    return added


def _is_ours(ifname: str, number: str, port: str, queue: str) -> bool:
    """Reports whether add() made a rule: its number may have been reused."""
    output = _run("-n", ifname, "rule", number) or ""
    ports = rf"^\s*Dest port: {port} mask: 0x0$"
    return bool(re.search(ports, output, re.M) and re.search(rf"\bqueue {queue}$", output, re.M))


def remove(ifname: str, record: Path) -> int:
    """Removes the rules of add() that still exist; returns their number."""
    try:
        lines = [line.split() for line in record.read_text().splitlines()]
    except FileNotFoundError:
        return 0
    removed = 0
    for number, port, queue in (line for line in lines if len(line) == 3):
        if _is_ours(ifname, number, port, queue):
            removed += _run("-N", ifname, "delete", number) is not None
    record.unlink()
    return removed
