"""Counts the engine's instructions by layer and function, without a clock or noise.

Runs build/gcc/null (tests/cost/null.c) under callgrind for each kind of KINDS.
valgrind's CPU has AES, so the cipher is AES-256-GCM. An inlined function counts for its own file.
Needs valgrind, and no privilege.

With --against it compares with a stored run, like tests/reports/instructions.json, and fails if a
kind needs 3 % more, or the run lacks it.

Further programs, built from other commits, get a column each.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from bench_lab import BenchError, built, run
from laboratory.report import made

#: Counted kinds: name -> (null's words, the unit).
KINDS = {
    "request": (["request", 2000, 64], "request and reply"),
    "lent": (["lent", 2000, 64], "request and reply, built in a send buffer"),
    "idle": (["idle", 20000, 0], "poll that finds nothing"),
    "store": (["store", 4, 1 << 20], "frame of a store"),
    "word": (["request", 2000, 4], "request and reply of 4 bytes"),
    "word-traditional": (
        ["request", 2000, 4, "traditional"],
        "request and reply of 4 bytes, traditional",
    ),
    "store-traditional": (["store", 4, 1 << 20, "traditional"], "frame of a store, traditional"),
    "store-auth": (["store", 4, 1 << 20, "auth"], "frame of a store, sealed auth"),
    "store-encrypt": (["store", 4, 1 << 20, "encrypt"], "frame of a store, sealed encrypt"),
    "request-encrypt": (["request", 2000, 64, "encrypt"], "request and reply, sealed encrypt"),
}
#: A kind fails if it needs this many times a stored run's instructions.
MORE = 1.03
LAYERS = ("engine", "message", "link", "device")


class Cost(NamedTuple):
    """Instructions of a unit: total, by layer and by function; and calls of the device."""

    total: float
    layers: dict[str, float]
    functions: dict[str, float]
    calls: dict[str, Any]


def layer_of(path: str) -> str:
    """Returns a file's folder in datapath, or names shared and foreign code."""
    if found := re.search(r"datapath/(\w+)/", path):
        return found[1]
    if "/memory_device." in path:
        return "device"
    return "bench" if "tests/cost/" in path else "libc and others"


def read_profile(text: str) -> Counter[tuple[str, str]]:
    """Returns each (file, function)'s instructions without its callees, from callgrind's file.

    https://valgrind.org/docs/manual/cl-format.html: names are written once, then by number;
    a line after calls= is the callee's cost.
    """
    names: dict[str, dict[str, str]] = {"file": {}, "fn": {}}
    found: Counter[tuple[str, str]] = Counter()
    where = {"file": "", "fn": ""}
    skip = False
    for line in text.splitlines():
        if named := re.match(r"(fl|fi|fe|fn)=\((\d+)\)(?: (.*))?$", line):
            kind = "fn" if named[1] == "fn" else "file"
            if named[3]:
                names[kind][named[2]] = named[3]
            where[kind] = names[kind].get(named[2], "")
        elif named := re.match(r"(cfn|cfi|cfl)=\((\d+)\)(?: (.*))?$", line):
            if named[3]:
                names["fn" if named[1] == "cfn" else "file"][named[2]] = named[3]
        elif line.startswith("calls="):
            skip = True
        elif cost := re.match(r"[+\-*]?\d* ?(\d+)$", line):
            if not skip:
                found[where["file"], where["fn"]] += int(cost[1])
            skip = False
    return found


def measure(program: Path, kind: str) -> Cost:
    """Runs null under callgrind."""
    words = KINDS[kind][0]
    with tempfile.TemporaryDirectory(prefix="careful-instructions.") as work:
        out = Path(work) / "callgrind.out"
        argv = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}"]
        argv += ["--toggle-collect=measured", str(program), *map(str, words)]
        calls = json.loads(run(*argv).splitlines()[-1])
        profile = read_profile(out.read_text())
    units = int(str(words[1])) * (calls["frames"] if words[0] == "store" else 1)
    layers: dict[str, float] = defaultdict(float)
    functions: dict[str, float] = defaultdict(float)
    for (path, function), cost in profile.items():
        layers[layer_of(path)] += cost / units
        functions[function.partition("'")[0]] += cost / units
    return Cost(sum(profile.values()) / units, layers, functions, calls)


def report(kind: str, costs: list[Cost], top: int) -> None:
    """Prints a table with a column for each program."""
    print(f"\n{KINDS[kind][1]}")
    rows: list[tuple[str, list[float]]] = [("instructions", [cost.total for cost in costs])]
    others = {name for cost in costs for name in cost.layers} - set(LAYERS)
    for name in [*LAYERS, *sorted(others)]:
        rows.append((f"  {name}", [cost.layers.get(name, 0) for cost in costs]))
    names = {name for cost in costs for name in cost.functions}
    each = {name: [cost.functions.get(name, 0) for cost in costs] for name in names}
    rows += sorted(each.items(), key=lambda row: -max(row[1]))[:top]
    for name, values in rows:
        print(f"{name:40}" + "".join(f"{value:12.1f}" for value in values))


def grown(found: dict[str, list[Any]], kept: dict[str, Any]) -> list[str]:
    """Returns the kinds that need MORE than in a stored run, and those that it lacks."""
    lines = []
    for kind, costs in found.items():
        now = costs[0]["total"]
        if kind not in kept["kinds"]:
            lines.append(f"{KINDS[kind][1]}: the kept run has no such kind")
        elif now > (was := kept["kinds"][kind][0]["total"]) * MORE:
            lines.append(f"{KINDS[kind][1]}: {now:.0f} instructions, {was:.0f} in the kept run")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "programs", nargs="*", type=Path, metavar="PROGRAM", help="[builds its own]"
    )
    parser.add_argument("--only", default=",".join(KINDS), help=f"of {','.join(KINDS)}")
    parser.add_argument("--top", type=int, default=16, help="functions shown [16]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all layers and functions")
    parser.add_argument("--against", type=Path, metavar="FILE", help="a kept run of --json")
    args = parser.parse_args()
    programs = args.programs or [built("null") / "null"]
    if not shutil.which("valgrind"):
        raise BenchError("needs valgrind")
    found: dict[str, list[Any]] = {}
    for kind in [k for k in KINDS if k in args.only.split(",")]:
        costs = [measure(program, kind) for program in programs]
        report(kind, costs, args.top)
        found[kind] = [cost._asdict() for cost in costs]
    if args.json:
        whole = {"schema": 1, **made(), "kinds": found}
        args.json.write_text(json.dumps(whole, separators=(",", ":")) + "\n")
    if args.against and (more := grown(found, json.loads(args.against.read_text()))):
        raise BenchError("; ".join(more))
    return 0
