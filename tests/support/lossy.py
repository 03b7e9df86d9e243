"""Transfers over a link that breaks the promise: how long, what was lost, still right?

`python tests/support/lossy.py` moves a file there and back over an emulated link for each
fault and rate, prints a table, and with --report keeps it. test_lossy.py uses the
same link for a few small ones.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hosts import MIB, Host, hosts_up, make_file
from lab import Lab, commit

LINK = """
name = "a link with mishaps"
[[stage]]
name = "wire"
g_us = 5
G_us_per_KiB = 8
[stage.link]
seed = 7
queue_frames = 1000
{mishap}
"""
#: The link's treatment of a share of the frames, either way, control messages among them.
FAULTS = {
    "loss": "loss = {rate}",
    "duplication": "duplicate = {rate}",
    "reordering": "reorder = {rate}\nreorder_us = 300",
    "corruption": "corrupt = {rate}",
    "all four": "loss = {rate}\nduplicate = {rate}\nreorder = {rate}\nreorder_us = 300\n"
    "corrupt = {rate}",
}
RATES = (0.0001, 0.01, 0.1)
#: The fields that distinguish the rows of a report.
WHICH = ("bytes", "family", "fault", "rate", "command")
COLUMNS = ("family", "fault", "rate", "command", "status", "right", "elapsed_s", "lost_frames")
COLUMNS += ("new_epochs_count", "retries_count")


def hops(folder: Path, mishap: str) -> Path:
    """A link with a mishap, for Lab(hops=…)."""
    path = folder / "hops.toml"
    path.write_text(LINK.format(mishap=mishap))
    return path


def with_ipv6(lab: Lab) -> str:
    """Give the hosts of a lab with emulated links IPv6, too; h2's address for carefulctl."""
    macs = {}
    for host in lab.hosts:
        lab.run(host, "sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/eth1/disable_ipv6")
        lab.run(host, "ip", "addr", "add", f"{lab.address(host, 6)}/64", "dev", "eth1", "nodad")
        (link,) = json.loads(lab.run(host, "ip", "-json", "link", "show", "eth1").stdout)
        macs[host] = link["address"]
    for host, other in (lab.hosts, lab.hosts[::-1]):
        told = (lab.address(other, 6), "lladdr", macs[other], "dev", "eth1", "nud", "permanent")
        lab.run(host, "ip", "neigh", "replace", *told)
    return f"[{lab.address('h2', 6)}]"


def move(a: Host, b: Host, server: str, command: str, limit_s: float) -> dict[str, Any]:
    """Get the file or put it back; what became of it."""
    ours, theirs = a.own / "big", b.export / ("big" if command == "get" else "back")
    args = [f"{server}:big", ours] if command == "get" else [ours, f"{server}:back"]
    done = a.ctl(command, "--json", *args, check=False, timeout=limit_s)
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    right = ours.exists() and theirs.exists() and ours.read_bytes() == theirs.read_bytes()
    row = {name: found.get(name) for name in COLUMNS[6:]}
    return {"status": done.returncode, "right": right, "error": done.stderr, **row}


def there_and_back(
    fault: str, rate: float, nbytes: int, limit_s: float, ipv6: bool = False
) -> list[dict[str, Any]]:
    """Both commands over a link of their own."""
    with tempfile.TemporaryDirectory() as folder:
        path = hops(Path(folder), FAULTS[fault].format(rate=rate))
        with hosts_up(Path(folder), hops=path) as (a, b):
            make_file(b.export / "big", nbytes)
            server = with_ipv6(a.lab) if ipv6 else b.name
            found = []
            for command in ("get", "put"):
                what = {"commit": commit(), "family": 6 if ipv6 else 4, "bytes": nbytes}
                what |= {"fault": fault, "rate": rate, "command": command}
                found.append(what | move(a, b, server, command, limit_s))
            return found


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    cells = [row[name] for name in COLUMNS]
    texts = [
        f"{one:.1f}" if name == "elapsed_s" and one is not None else str(one)
        for name, one in zip(COLUMNS, cells, strict=True)
    ]
    return "  ".join(f"{text:>{len(name)}}" for name, text in zip(COLUMNS, texts, strict=True))


def main() -> int:
    """All faults and rates; the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=100, help="size of the file, MiB")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES))
    parser.add_argument("--ipv6", action="store_true", help="over IPv6 instead of IPv4")
    parser.add_argument("--limit-s", type=float, default=1800, help="of one command")
    parser.add_argument("--report", type=Path, help="JSON; rows of an earlier run stay")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if options.report and options.report.exists():
        rows = json.loads(options.report.read_text())["rows"]
    print("  ".join(COLUMNS))
    began = time.monotonic()
    for rate in options.rates:
        for fault in options.faults:
            size = options.mib * MIB
            for row in there_and_back(fault, rate, size, options.limit_s, options.ipv6):
                rows = [one for one in rows if any(one[key] != row[key] for key in WHICH)] + [row]
                print(line(row), flush=True)
            if options.report:
                text = json.dumps({"schema": 2, "rows": rows}, indent=1)
                options.report.write_text(text + "\n")
    print(f"{time.monotonic() - began:.0f} s")
    return any(row["status"] or not row["right"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
