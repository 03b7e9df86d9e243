"""Counts the engine's instructions, by layer and by function: no clock, no noise.

Builds build/bench/null (tools/bench/null.c) and runs it under callgrind for each kind of KINDS.
valgrind's CPU has AES, so the cipher is AES-256-GCM. An inlined function counts for the file that
it stands in. Needs valgrind, and no privilege.

With --halves it times each call of a request and its reply of 4 bytes, in turn under both
protocols, and draws histograms. Their difference is the work that only one of them does (P2's A.3:
instructions do not tell).

With --against it compares with a kept run, as tests/reports/instructions.json, and fails if
something takes 3 % more than it did.

With --many it counts and times a message of 64 bytes with 2 to 256 active peers (many.c), next to
the null device's part and to messages that share frames. The numbers of peers take turns, and the
least time of each counts. It fails if 128 peers take 5 % more instructions than 2.

With --lent it times a request whose payload the engine copies, and one that is built in a send
buffer (careful_alloc()), in turn. Their difference is the cost of that copy.

Several programs, built from other commits, get a column each.
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

from bench_lab import BenchError, built, commit, run

#: The kinds that are counted: name -> (null's words, a unit of it).
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
#: Times a kept run's instructions that are too many.
MORE = 1.03
#: Times the instructions with 2 peers that are too many with 128.
MORE_PEERS = 1.05
#: The kinds that many.c measures, and the numbers of peers.
MANY = ("stream", "burst", "packed", "device")
PEERS = (2, 8, 32, 128, 256)
#: What --lent times, bytes: the last is a whole frame's.
LENT = (64, 1024, 3072)
#: Runs of a round, and requests of each: in so short a time nobody else may have run.
LENT_RUNS, LENT_COUNT = 20, 5000
LAYERS = ("engine", "message", "link", "device")


class Cost(NamedTuple):
    """Instructions of one unit: all, by layer and by function; and calls of the device."""

    total: float
    layers: dict[str, float]
    functions: dict[str, float]
    calls: dict[str, Any]


def layer_of(path: str) -> str:
    """The folder of datapath that a file stands in; what is shared, or not ours."""
    if found := re.search(r"datapath/(\w+)/", path):
        return found[1]
    if "tools/bench/memory" in path:
        return "device"
    return "bench" if "tools/bench/" in path else "libc and others"


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


def null(argv: list[str]) -> dict[str, Any]:
    """Returns the last line that a run of null prints."""
    found: dict[str, Any] = json.loads(run(*argv).splitlines()[-1])
    return found


def measure(program: Path, kind: str) -> Cost:
    """One run under callgrind."""
    words = KINDS[kind][0]
    with tempfile.TemporaryDirectory(prefix="careful-instructions.") as work:
        out = Path(work) / "callgrind.out"
        argv = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}"]
        argv += ["--toggle-collect=measured", str(program), *map(str, words)]
        calls = null(argv)
        profile = read_profile(out.read_text())
    units = int(str(words[1])) * (calls["frames"] if words[0] == "store" else 1)
    layers: dict[str, float] = defaultdict(float)
    functions: dict[str, float] = defaultdict(float)
    for (path, function), cost in profile.items():
        layers[layer_of(path)] += cost / units
        functions[function.partition("'")[0]] += cost / units
    return Cost(sum(profile.values()) / units, layers, functions, calls)


def report(kind: str, costs: list[Cost], top: int) -> None:
    """One table: a column for each program."""
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


def halves(program: Path, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Each call's times under both protocols, in turn: name -> rounds of what null prints."""
    found: dict[str, list[dict[str, Any]]] = {"careful": [], "traditional": []}
    for _ in range(rounds):
        for name, runs in found.items():
            argv = [str(program), "halves", "100000", "4"]
            argv += ["traditional"] if name == "traditional" else []
            runs.append(null(argv))
    return found


def show_halves(found: dict[str, list[dict[str, Any]]]) -> None:
    """The medians, their difference, and a histogram of the first round's for each call."""
    print("a request and its reply of 4 bytes, ns: the least of the rounds' medians")
    total = dict.fromkeys(found, 0)
    for call in ("send", "answer", "take"):
        least = {name: min(run[call]["median_ns"] for run in found[name]) for name in found}
        for name in total:
            total[name] += least[name]
        print(f"{call:8}" + "".join(f"  {name} {value}" for name, value in least.items()))
        for name, runs in found.items():
            counts, width = runs[0][call]["counts"], runs[0]["bin_ns"]
            shown = max(sum(counts) // 100, 1)
            for at, count in enumerate(counts):
                if count >= shown:
                    bar = "#" * (60 * count // max(counts))
                    print(f"  {name[:7]:8}{at * width:6} {count:7} {bar}")
    print(f"all calls: careful {total['careful']}, traditional {total['traditional']}")


def many_instructions(program: Path, what: str, peers: int) -> tuple[float, dict[str, float]]:
    """Instructions a message: all, and by layer."""
    with tempfile.TemporaryDirectory(prefix="careful-instructions.") as work:
        out = Path(work) / "callgrind.out"
        argv = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}"]
        argv += ["--toggle-collect=measured", str(program), what, str(peers), "8000", "64"]
        count = null([*argv, "callgrind"])["measured"]
        profile = read_profile(out.read_text())
    layers: dict[str, float] = defaultdict(float)
    for (path, _), cost in profile.items():
        layers[layer_of(path)] += cost / count
    return sum(layers.values()), layers


def many(program: Path, rounds: int) -> dict[str, dict[int, dict[str, Any]]]:
    """Returns the cost of a message, by number of peers: kind -> peers -> figures."""
    found: dict[str, dict[int, dict[str, Any]]] = {what: {} for what in MANY}
    for what in MANY:
        for peers in PEERS:
            total, layers = many_instructions(program, what, peers)
            found[what][peers] = {"instructions": total, "layers": layers, "ns_least": []}
    for _ in range(rounds):
        for what in MANY:
            for peers in PEERS:
                figures = null([str(program), what, str(peers), "200000"])
                row = found[what][peers]
                row["ns_least"].append(figures.pop("ns_least"))
                row["calls"] = figures
    return found


def show_many(found: dict[str, dict[int, dict[str, Any]]]) -> list[str]:
    """A table of each kind; what 128 peers take more than they should."""
    lines = []
    print("a message of 64 bytes: instructions, by layer; ns (the least span of all rounds)")
    for what, rows in found.items():
        for peers, row in rows.items():
            layers = "  ".join(f"{name} {row['layers'].get(name, 0):.0f}" for name in LAYERS)
            least = min(row["ns_least"], default=float("nan"))
            print(f"{what:7} {peers:4} peers {row['instructions']:7.0f}  {layers}  {least:6.1f} ns")
        few, most = rows[PEERS[0]]["instructions"], rows[128]["instructions"]
        if most > few * MORE_PEERS:
            lines.append(f"{what}: {most:.0f} instructions with 128 peers, {few:.0f} with 2")
    return lines


def lent(program: Path, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Times of a request and its reply, in turn: bytes -> kind -> each round's least, ns."""
    found: dict[str, dict[str, list[float]]] = {
        str(nbytes): {"request": [], "lent": []} for nbytes in LENT
    }
    for _ in range(rounds):
        for nbytes, kinds in found.items():
            least = dict.fromkeys(kinds, float("inf"))
            for _ in range(LENT_RUNS):
                for kind in kinds:
                    argv = [str(program), kind, str(LENT_COUNT), nbytes]
                    least[kind] = min(least[kind], null(argv)["ns"])
            for kind, ns in kinds.items():
                ns.append(least[kind])
    return found


def show_lent(found: dict[str, dict[str, list[float]]]) -> None:
    """The least of the rounds, and their difference."""
    print("a request and its reply, ns: the least of the rounds")
    for nbytes, kinds in found.items():
        copied, built_there = (min(kinds[kind]) for kind in ("request", "lent"))
        saved = copied - built_there
        print(f"{nbytes:>5} bytes: copied {copied:.1f}, lent {built_there:.1f}, saved {saved:.1f}")


def keep(path: Path, what: dict[str, Any], indent: int | None = None) -> None:
    """With the commit that it was counted at."""
    text = json.dumps({"schema": 1, "commit": commit(), **what}, indent=indent)
    path.write_text(text + "\n")


def grown(found: dict[str, list[Any]], kept: dict[str, Any]) -> list[str]:
    """Returns the kinds that take MORE than in a kept run, and those that the run lacks."""
    lines = []
    for kind, costs in found.items():
        now = costs[0]["total"]
        if kind not in kept["kinds"]:
            lines.append(f"{KINDS[kind][1]}: the kept run has no such kind")
        elif now > (was := kept["kinds"][kind][0]["total"]) * MORE:
            lines.append(f"{KINDS[kind][1]}: {now:.0f} instructions, {was:.0f} in the kept run")
    return lines


def main() -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "programs", nargs="*", type=Path, metavar="PROGRAM", help="[builds its own]"
    )
    parser.add_argument("--only", default=",".join(KINDS), help=f"of {','.join(KINDS)}")
    parser.add_argument("--top", type=int, default=16, help="functions shown [16]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all layers and functions")
    parser.add_argument("--halves", type=int, metavar="ROUNDS", help="times, of both protocols")
    parser.add_argument("--lent", type=int, metavar="ROUNDS", help="times, without a copy")
    parser.add_argument("--many", type=int, metavar="ROUNDS", help="2 to 256 peers; 0: untimed")
    parser.add_argument("--against", type=Path, metavar="FILE", help="a kept run of --json")
    args = parser.parse_args()
    if not (args.halves or args.lent) and not shutil.which("valgrind"):
        raise BenchError("needs valgrind")
    if args.many is not None:
        figures = many((args.programs or [built("many") / "many"])[0], args.many)
        worse = show_many(figures)
        if args.json:
            keep(args.json, {"many": figures}, indent=1)
        if worse:
            raise BenchError("; ".join(worse))
        return 0
    programs = args.programs or [built("null") / "null"]
    if args.halves:
        times = halves(programs[0], args.halves)
        show_halves(times)
        if args.json:
            keep(args.json, {"halves": times})
        return 0
    if args.lent:
        in_turn = lent(programs[0], args.lent)
        show_lent(in_turn)
        if args.json:
            keep(args.json, {"lent": in_turn})
        return 0
    found: dict[str, list[Any]] = {}
    for kind in [k for k in KINDS if k in args.only.split(",")]:
        costs = [measure(program, kind) for program in programs]
        report(kind, costs, args.top)
        found[kind] = [cost._asdict() for cost in costs]
    if args.json:
        keep(args.json, {"kinds": found}, indent=1)
    if args.against and (more := grown(found, json.loads(args.against.read_text()))):
        raise BenchError("; ".join(more))
    return 0
