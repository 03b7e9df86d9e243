"""Reports of long runs: what they name, and JSON files."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

Json = dict[str, Any]


class Formatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows defaults, and the description unchanged."""


def commit() -> str:
    """Returns the commit of the checkout, with `-dirty` if files differ."""
    argv = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def made() -> Json:
    """Returns what each report names; of the command not the files that it wrote."""
    header = (ROOT / "datapath/include/careful/wire.h").read_text()
    numbers = re.findall(r"CAREFUL_WIRE_(?:VERSION|MINOR) = (\d+)", header)
    words = " ".join([sys.argv[0].removeprefix(f"{ROOT}/"), *sys.argv[1:]])
    return {
        "kernel": platform.release(),
        "machine": f"{platform.machine()}, {os.cpu_count()} processors",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "wire": ".".join(numbers),
        "commit": commit(),
        "command": re.sub(r" --(keep|report|json)[ =]\S+", "", words),
    }


def now() -> str:
    """Returns the time, UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def read(path: Path | None) -> Json:
    """Returns the report so far, or {}."""
    found: Json = json.loads(path.read_text()) if path and path.exists() else {}
    return found


def write(path: Path | None, what: Json) -> None:
    """Writes a report if requested; replaces the file atomically."""
    if path:
        fresh = path.with_name(f"{path.name}.new")
        fresh.write_text(json.dumps(what, indent=1) + "\n")
        fresh.rename(path)
