"""Transfers over a link that breaks the promise: how long, what was lost, still right?

`python tests/lossy.py` moves a file there and back over an emulated link for each
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
#: What the link does to a share of the frames, either way, control messages among them.
FAULTS = {
    "loss": "loss = {rate}",
    "duplication": "duplicate = {rate}",
    "reordering": "reorder = {rate}\nreorder_us = 300",
    "corruption": "corrupt = {rate}",
    "all four": "loss = {rate}\nduplicate = {rate}\nreorder = {rate}\nreorder_us = 300\n"
    "corrupt = {rate}",
}
RATES = (0.0001, 0.01, 0.1)
COLUMNS = ("fault", "rate", "command", "status", "right", "elapsed_s", "lost_frames")
COLUMNS += ("new_epochs_count", "retries_count")


def hops(folder: Path, mishap: str) -> Path:
    """A link with a mishap, for Lab(hops=…)."""
    path = folder / "hops.toml"
    path.write_text(LINK.format(mishap=mishap))
    return path


def move(a: Host, b: Host, command: str, limit_s: float) -> dict[str, Any]:
    """Get the file or put it back; what became of it."""
    ours, theirs = a.own / "big", b.export / ("big" if command == "get" else "back")
    args = ["h2:big", ours] if command == "get" else [ours, "h2:back"]
    done = a.ctl(command, "--json", *args, check=False, timeout=limit_s)
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    right = ours.exists() and theirs.exists() and ours.read_bytes() == theirs.read_bytes()
    row = {name: found.get(name) for name in COLUMNS[5:]}
    return {"status": done.returncode, "right": right, "error": done.stderr, **row}


def there_and_back(fault: str, rate: float, nbytes: int, limit_s: float) -> list[dict[str, Any]]:
    """Both commands over a link of their own."""
    with tempfile.TemporaryDirectory() as folder:
        path = hops(Path(folder), FAULTS[fault].format(rate=rate))
        with hosts_up(Path(folder), hops=path) as (a, b):
            make_file(b.export / "big", nbytes)
            found = []
            for command in ("get", "put"):
                what = {"fault": fault, "rate": rate, "command": command}
                found.append(what | move(a, b, command, limit_s))
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
            for row in there_and_back(fault, rate, options.mib * MIB, options.limit_s):
                row = {"bytes": options.mib * MIB, **row}
                same = ("bytes", "fault", "rate", "command")
                rows = [one for one in rows if any(one[key] != row[key] for key in same)] + [row]
                print(line(row), flush=True)
            if options.report:
                text = json.dumps({"schema": 1, "rows": rows}, indent=1)
                options.report.write_text(text + "\n")
    print(f"{time.monotonic() - began:.0f} s")
    return any(row["status"] or not row["right"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
