"""Flow steering: our UDP ports to our queues, on a NIC that has several.

Uses the program ethtool, which names the rule it added; carefuld itself refuses to
start where no rule leads the port to its queue.
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
    """What ethtool printed, or None if it failed or is not there."""
    if shutil.which("ethtool") is None:
        return None
    done = subprocess.run(["ethtool", *args], capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode == 0 else None


def add(ifname: str, ways: Iterable[tuple[int, int]], record: Path) -> int:
    """Steer ports to queues, as far as the NIC can.

    Args:
        ifname: the interface.
        ways: UDP destination ports, and the receive queue of each.
        record: file that keeps the rules' numbers for remove().

    Returns:
        How many rules were added.
    """
    numbers: list[str] = []
    for kind, (port, queue) in product(_TYPES, ways):
        rule = ["-N", ifname, "flow-type", kind, "dst-port", str(port), "action", str(queue)]
        said = _run(*rule)
        found = re.search(r"rule with ID (\d+)", said) if said else None
        if found:
            numbers.append(found[1])
    if numbers:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(" ".join(numbers) + "\n")
    return len(numbers)


def remove(ifname: str, record: Path) -> int:
    """Take back the rules that add() made; how many."""
    try:
        numbers = record.read_text().split()
    except FileNotFoundError:
        return 0
    gone = sum(_run("-N", ifname, "delete", number) is not None for number in numbers)
    record.unlink()
    return gone
