"""Reports of long runs: commit, end time, and JSON files."""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
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
