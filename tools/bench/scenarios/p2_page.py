"""Writes the tables of tests/reports/benchmarks.md from the kept run tests/reports/bench.json.

`carefulctl bench --keep tests/reports/bench.json` wrote the run. The command rewrites the page from
its heading "A kept run" on. With --check it writes nothing, and status 1 says that the page belongs
to another run.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter

from bench_lab import REPORTS
from careful.bench.experiments import TABLES
from careful.render import bench as report
from careful.render.bench_delta import totals

PAGE = REPORTS / "benchmarks.md"
HEADING = "## A kept run\n"
#: How each table compares with P2's; to be read again with another run.
VERDICTS = {
    "latency": "P2's careful is ahead in all cells, by 1 to 26 %. Ours is ahead in two cells of "
    "six with 2 nodes, by 2 and 5 %, and in eight of twelve with 4 and 8, by 6 to 16 %. By their "
    "operations and calls the protocols differ by 7 to 25 ns a frame "
    "(`tests/reports/protocols.md`), where a hop takes 3.7 µs and more. With 4 and 8 nodes, "
    "which take turns on a CPU, it takes 23 and more, and they differ by 1 to 4: the "
    "traditional one takes 1.04 to 1.23 times careful's CPU time.",
    "throughput": "P2's careful is ahead in all cells, by up to 31 %. Ours is ahead in one cell "
    "of eight with 2 nodes, by 9 %, and in all with 4 and 8. A node that has no CPU takes "
    "nothing: the traditional protocol sends on, frames are dropped and sent again, and with 4 "
    "nodes it takes 2.4 to 3.0 times careful's CPU time. Careful's sender waits for credits.",
    "one-buffer": "P2's gains 37 %, ours 10. The run kept before this one, with another kernel "
    "and older code, had 34 %: 5.41 µs beside 8.19.",
    "flood": "With 2 nodes P2's careful takes 5 to 12 % longer without processing. Ours takes "
    "42 % of the time or less. Most of that is one time-out of the other: frames are dropped, "
    "and it asks again when nothing has come for 2 ms. In five cells of six its values stand in "
    "two groups, a step of about 3 ms apart; the lower are still 1.3 to 1.6 times careful's. Nor "
    "does a shorter time-out close the gap: with 0.5 and 0.2 ms, tried before this run in 10 "
    "rounds, careful took 9 to 55 % less. At 1000 and 2000 words careful takes 46 to 74 % of its "
    "CPU time. From 4 nodes on P2's traditional protocol crawls or never ends. Ours ends, after "
    "careful. P2 has no "
    "figure of careful for 8 nodes, 2000 words and processing. Careful's broadcasts go in one "
    "frame (`carefulctl help events`); the traditional protocol replicates them.",
    "replicated": "With 4 nodes careful does not gain by sending less: it takes 42 to "
    "68 % less time here, and 2 to 12 % less than with one frame for all (Table 3). With 8 nodes "
    "the one frame is part of the gain: without it careful takes 36 to 51 % longer, and is ahead "
    "by 22 to 35 % in five cells of six. P2's figures are Table 3's.",
    "jacobi": "P2's careful is 33, 28 and 26 % faster for 8 by 8 on 2, 4 and 8 nodes. Ours is "
    "ahead in six cells of 18, all with 4 and 8 nodes, by 8 to 14 %: up to 64 by 64 most of an "
    "iteration is the kernel's. In P2 any number of nodes is faster than one from 32 by 32 on. "
    "Here none is up to 64 by 64, which one node computes in 2.15 µs: two exchanges of a row take "
    "more. On larger grids careful on 2 nodes is 1.6 times (256 by 256) and 1.8 times (1024) as "
    "fast as one node, the traditional protocol 1.5 and 1.8. With 4 nodes, two to a CPU, 256 by "
    "256 takes twice as long as one node and more, and 1024 by 1024 is 1.3 times as fast under "
    "both. With 8 that takes 0.97 times as long as with one (careful) and 1.01 times (the other).",
}


def section() -> str:
    """From the heading on."""
    whole = json.loads((REPORTS / "bench.json").read_text())
    given, found = whole["inputs"], report.read(whole)
    kernel = ".".join(given["kernel"].split(".")[:2])
    said = (
        f"Hosts of network namespaces on {given['cpus']} CPUs, kernel {kernel}, "
        f"MTU {given['mtu_bytes']}, {given['rounds']} rounds."
    )
    parts = [HEADING.rstrip("\n"), textwrap.fill(f"{said} {sentence(totals(found))}", 99)]
    for name in TABLES:
        if not any(cell.table == name for cell, _ in found.results):
            continue
        verdict = f"{sentence(totals(found, name))} {VERDICTS[name]}"
        parts += [report.markdown(found, name), textwrap.fill(verdict, 99)]
    return "\n\n".join(parts) + "\n"


def sentence(count: Counter[str | None]) -> str:
    """In how many cells which protocol is ahead."""
    said = report.verdict(count)
    return f"{said[0].upper()}{said[1:]}."


def main() -> int:
    """Status 1: --check, and the page is not of the kept run."""
    text = PAGE.read_text()
    new = text.partition(HEADING)[0].rstrip("\n") + "\n\n" + section()
    if sys.argv[1:] == ["--check"]:
        return int(text != new)
    PAGE.write_text(new)
    return 0
