"""`careful.notebook.status()` in a kernel next to `!carefulctl status` in a cell, in turn.

Both make the table of one carefuld with one peer; the kernel's also makes HTML. The times of the
import and of the first call are stored separately. Owns a lab. Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from typing import Any

from bench_lab import CTL, PYTHON, ROOT, daemons, lab_up, on, run

ROUNDS = 30

PROGRAM = """
import json, subprocess, sys, time
rounds, ctl = int(sys.argv[1]), sys.argv[2]

def took(call):
    began = time.monotonic()
    call()
    return round(1e3 * (time.monotonic() - began), 2)

def imported():
    global notebook
    from careful import notebook

found = {"import_ms": took(imported), "call_ms": [], "command_ms": []}
found["first_ms"] = took(lambda: notebook.status()._repr_html_())
for _ in range(rounds):
    found["call_ms"].append(took(lambda: notebook.status()._repr_html_()))
    found["command_ms"].append(took(lambda: subprocess.run([ctl, "status"], capture_output=True)))
print(json.dumps(found))
"""


def measured(args: argparse.Namespace) -> dict[str, Any]:
    load = round(os.getloadavg()[0], 1)
    with lab_up(), daemons("--export", ROOT / "tests"):
        run(*on("h1", CTL, "ls", "h2:"))  # a session
        program = on("h1", PYTHON, "-c", PROGRAM, args.rounds, CTL)
        found: dict[str, Any] = json.loads(run(*program))
    return {"load": load} | found


def report(found: dict[str, Any]) -> bool:
    """Prints both; reports whether the call is faster."""
    call, command = (statistics.median(found[key]) for key in ("call_ms", "command_ms"))
    print(f"status() {call:.1f} ms, carefulctl status {command:.0f} ms, medians")
    print(f"import {found['import_ms']:.0f} ms, the first status() {found['first_ms']:.0f} ms")
    return bool(call < command)
