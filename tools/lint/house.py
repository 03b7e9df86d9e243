#!/usr/bin/env python3
"""Checks the structure of the code: allowed uses, circles, weight, and untyped data.

Usage: tools/lint/house.py [OBJECTS]

OBJECTS is a folder of object files (a build with gcc), whose symbols show the calls between C
files. Prints a line for each fault, and ends with 1 if there is any.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "ctrl" / "careful"

#: Package -> packages that it may import. Every package may import modules directly below careful/.
PACKAGES = {
    "bench": set[str](),
    "cli": {
        "bench",
        "control",
        "daemon",
        "event",
        "fleet",
        "man",
        "measure",
        "memory",
        "model",
        "render",
        "transfer",
        "tuning",
    },
    "control": {"daemon"},
    "daemon": set(),
    "event": {"node"},
    "files": {"control", "daemon", "transfer"},
    "fleet": {"files", "model", "transfer"},
    "man": {"control"},
    "measure": {"daemon"},
    "memory": {"control", "daemon", "node"},
    "model": set(),
    "node": {"control"},
    "render": {"bench", "control", "event", "fleet", "measure", "model", "transfer", "tuning"},
    "transfer": {"daemon"},
    "tuning": {"control", "daemon", "measure", "model"},
}

#: Folder below datapath/ -> folders whose functions it may call.
FOLDERS = {
    "base": set[str](),
    "daemon": {"engine", "files", "lend", "local", "measure", "storage", "device", "base"},
    "device": {"base"},
    "engine": {"message", "link", "storage", "secure", "device", "base"},
    "events": {"engine", "message", "link"},
    "files": {"engine", "storage", "base"},
    "lend": {"engine", "base"},
    "link": {"device", "secure", "base"},
    "local": {"engine", "base"},
    "measure": {"engine"},
    "memory": {"engine", "base"},
    "message": {"link", "storage", "device", "base"},
    "secure": {"base"},
    "storage": {"base"},
}

#: Folder below datapath/link/ -> folders whose functions it may call.
LINK_FOLDERS = {
    "peer": set[str](),
    "receive": {"session", "repair", "send", "peer"},
    "repair": {"send", "peer"},
    "send": {"peer"},
    "session": {"repair", "send", "peer"},
    "traditional": {"receive", "session", "send", "peer"},
}

#: Weighed folders, and their most lines.
WEIGHTS = {
    "datapath, ebpf and ctrl": (("datapath", "ebpf", "ctrl"), 100_700),
    "tools": (("tools",), 14_000),
}

#: The most bytes of stored runs: quoted figures, not raw rounds. Pages of tests/reports do not
#: count.
REPORTS_MOST_BYTES = 600_000
#: The most uses of `Any` in Python, for edges (cffi, JSON, click, untyped packages).
ANY_MAX = 90

Graph = dict[str, set[str]]


def modules() -> dict[str, Path]:
    """Returns each module's name and file."""
    found = {}
    for path in sorted(PYTHON.rglob("*.py")):
        parts = path.relative_to(PYTHON.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports() -> Graph:
    """Returns the modules that each module imports, in functions and for types, too.

    Most packages' __init__ re-exports names, so an import of a package counts only if it names no
    module.
    """
    all_ = modules()
    graph: Graph = {name: set() for name in all_}
    for name, path in all_.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                graph[name] |= {one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                below = {f"{node.module}.{one.name}" for one in node.names}
                graph[name] |= {one if one in all_ else node.module for one in below}
        graph[name] &= all_.keys()
        graph[name].discard(name)
    return graph


def calls(objects: Path) -> Graph:
    """Returns the C files that define what each C file below datapath/ uses."""
    defined: dict[str, str] = {}
    used: Graph = {}
    for path in sorted(objects.rglob("*.c.o")):
        parts = path.relative_to(objects).with_suffix("").parts
        name = "/".join(parts[1:])
        if (
            parts[0] not in ("engine.dir", "carefuld.dir")
            or not (ROOT / "datapath" / name).exists()
        ):
            continue
        used[name] = set()
        done = subprocess.run(["nm", path], capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            *_, kind, symbol = line.split()
            if kind in "TDBRV":
                defined[symbol] = name
            elif kind == "U":
                used[name].add(symbol)
    return {
        name: {defined[one] for one in symbols & defined.keys()} - {name}
        for name, symbols in used.items()
    }


def packages(graph: Graph) -> Graph:
    """Returns the graph of packages, without the modules directly below careful/."""
    found: Graph = {}
    for name, others in graph.items():
        mine = name.rpartition(".")[0]
        theirs = {one.rpartition(".")[0] for one in others}
        found.setdefault(mine, set()).update(theirs - {mine, "careful", ""})
    return {name: others & found.keys() for name, others in found.items() if name != "careful"}


def circles(graph: Graph) -> list[set[str]]:
    """Returns circles that have no name in common, until none is left."""
    found: list[set[str]] = []
    while True:
        try:
            TopologicalSorter(graph).prepare()
            return found
        except CycleError as error:
            found.append(one := set(error.args[1]))
            graph = {name: others - one for name, others in graph.items() if name not in one}


def forbidden(graph: Graph, level: int, sep: str, allowed: Mapping[str, set[str]]) -> Iterable[str]:
    """Yields each use of a folder or package that the allow-list does not name."""

    def home(name: str) -> str | None:
        parts = name.split(sep)
        return parts[level] if len(parts) > level + 1 or parts[level] in allowed else None

    for name, others in sorted(graph.items()):
        mine = home(name) if len(name.split(sep)) > level else None
        for other in sorted(others):
            theirs = home(other) if len(other.split(sep)) > level else None
            if mine and theirs and theirs != mine and theirs not in allowed.get(mine, set()):
                yield f"{name} uses {other}: {mine} may not use {theirs}"


def lines(folders: Iterable[str]) -> int:
    """Returns the number of lines of git's source files below the folders."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    total = 0
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        is_program = not path.suffix and path.is_file() and path.read_bytes()[:2] == b"#!"
        if path.is_file() and (is_program or path.suffix in (".c", ".h", ".py", ".pyi", ".lua")):
            total += len(path.read_bytes().splitlines())
    return total


def uses_of_any() -> int:
    """Returns how often the modules use `Any`, without imports."""
    trees = [ast.parse(path.read_text()) for path in modules().values()]
    nodes = (node for tree in trees for node in ast.walk(tree))
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes)


def main() -> int:
    faults: list[str] = []
    graph = imports()
    faults += forbidden(graph, 1, ".", PACKAGES)
    found = circles(graph) + circles(packages(graph))
    if len(sys.argv) > 1:
        called = calls(Path(sys.argv[1]) / "CMakeFiles")
        if not called:
            faults.append(f"{sys.argv[1]}: no object files")
        faults += forbidden(called, 0, "/", FOLDERS)
        link = {
            name: {one for one in others if one.startswith("link/")}
            for name, others in called.items()
            if name.startswith("link/")
        }
        faults += forbidden(link, 1, "/", LINK_FOLDERS)
        found += circles(called)
    faults += [f"circle: {' '.join(sorted(one))}" for one in found]
    for name, (folders, most) in WEIGHTS.items():
        count = lines(folders)
        print(f"{name}: {count:,} lines of at most {most:,}")
        if count > most:
            faults.append(f"{name}: {count:,} lines, more than {most:,}")
    reports = [one for one in (ROOT / "tests" / "reports").iterdir() if one.suffix != ".md"]
    if (kept := sum(one.stat().st_size for one in reports)) > REPORTS_MOST_BYTES:
        faults.append(f"tests/reports: {kept:,} bytes, more than {REPORTS_MOST_BYTES:,}")
    count = uses_of_any()
    print(f"Any: {count} uses of at most {ANY_MAX}")
    if count > ANY_MAX:
        faults.append(f"Any: {count} uses, more than {ANY_MAX}")
    print("\n".join(faults) or "no use of a layer above, no circle")
    return bool(faults)


if __name__ == "__main__":
    if len(sys.argv) > 2 or re.match("-", "".join(sys.argv[1:2])):
        sys.exit(f"usage: {sys.argv[0]} [OBJECTS]")
    sys.exit(main())
