"""Writes the tables of tests/reports/speed.md and benchmarks.md from the stored runs.

`tools/bench/run speed` and `carefulctl bench` made speed.json and bench.json. Replaces a page from
its heading "A kept run" on. The verdict after a table of benchmarks.md stays, except for its first
sentence. --check writes nothing; exit status 1 means that a page belongs to another run.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from typing import Any

from bench_lab import REPORTS
from careful.bench.experiments import TABLES
from careful.render.measuring import bench
from careful.render.measuring.bench_delta import totals
from scenarios.engine import speed

HEADING = "## A kept run"


def sentence(count: Counter[str | None]) -> str:
    """Returns a sentence with the number of cells in which each protocol is ahead."""
    said = bench.verdict(count)
    return f"{said[0].upper()}{said[1:]}."


def of_bench(whole: dict[str, Any], old: str) -> str:
    """Returns P2's tables, each with the verdict of the old page."""
    given, found = whole["inputs"], bench.read(whole)
    kernel = ".".join(given["kernel"].split(".")[:2])
    paragraphs = old.split("\n\n")
    parts = [
        f"Hosts of network namespaces on {given['cpus']} CPUs, kernel {kernel}, "
        f"MTU {given['mtu_bytes']}, {given['rounds']} rounds. {sentence(totals(found))}"
    ]
    for name in TABLES:
        if any(cell.table == name for cell, _ in found.results):
            table = bench.markdown(found, name)
            title = table.partition("\n")[0]
            behind = paragraphs[paragraphs.index(title) + 2] if title in paragraphs else ""
            kept = " ".join(behind.split()).partition(". ")[2]
            parts += [table, f"{sentence(totals(found, name))} {kept}"]
    return "\n\n".join(one if "|" in one else textwrap.fill(one, 99) for one in parts)


def of_speed(whole: dict[str, Any], old: str) -> str:
    """Returns the tables of a run of speed."""
    head, *tables = speed.section(whole).split("\n\n")
    return "\n\n".join([textwrap.fill(head, 99), *tables])


PAGES: dict[str, Callable[[dict[str, Any], str], str]] = {"bench": of_bench, "speed": of_speed}
NAMES = {"bench": "benchmarks.md", "speed": "speed.md"}


def main() -> int:
    """Writes the pages, or compares them."""
    checks, differ = sys.argv[1:] == ["--check"], False
    for name, make in PAGES.items():
        path = REPORTS / NAMES[name]
        old = path.read_text(encoding="utf-8")
        top, _, rest = old.partition(HEADING)
        whole = json.loads((REPORTS / f"{name}.json").read_text())
        new = f"{top.rstrip()}\n\n{HEADING}\n\n{make(whole, rest)}\n"
        differ |= new != old
        if not checks:
            path.write_text(new, encoding="utf-8")
    return int(checks and differ)
