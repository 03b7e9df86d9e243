"""Paths of the lab, a planner's choice for them, and two nodes that store over them.

What tools/bench/regret and tools/bench/adaptive share. The nodes are stores.py's.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench_lab import LAB, ROOT, TOOL, BenchError, careful_up, ctl, run

PYTHON = ROOT / ".venv" / "bin" / "python"
STORES = ROOT / "tools" / "bench" / "stores.py"
#: Options of `tools/lab up` for the papers' figures times 100.
SCALED = ("--scale", "100", "--charge", "payload", "--mtu", "9000")
#: One core a host.
CPU = {"h1": 0, "h2": 1}


def equal_hops(*G_us_per_KiB: float) -> str:
    """A pipeline of stages that differ in their bandwidth alone."""
    return "\n".join(
        f'[[stage]]\nname = "hop {k}"\ng_us = 10\nG_us_per_KiB = {G}\n'
        for k, G in enumerate(G_us_per_KiB, 1)
    )


@contextmanager
def path_up(hops: str | None, options: tuple[str, ...], lab: str = LAB) -> Iterator[None]:
    """A lab of two hosts with such links between them, None for a bare veth."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(hops or "")
        file.flush()
        owner = ("--owner", str(os.getpid()))  # what a SIGKILL leaves, `sweep` takes down
        given = ("--hops", file.name) if hops else ()
        run(TOOL, "up", "--name", lab, *given, *owner, *options)
    try:
        yield
    finally:
        subprocess.run([TOOL, "down", "--name", lab, "--kill"], check=False)


def fixed(nbytes: int) -> dict[str, int]:
    """The plan of fragments of one size, as the tune map has it."""
    return {
        "first_bytes": nbytes,
        "ratio_q16": 65536,
        "step_bytes": 0,
        "peak_bytes": nbytes,
        "down_ratio_q16": 65536,
        "down_step_bytes": 0,
    }


def untuned_bytes(host: str) -> int:
    """What a new peer's fragments hold there: as much as a frame does."""
    new = ctl(host, "tune", "show", "eth1")["peers"][0]
    return int(new["classes"][0]["plan"]["first_bytes"])


def plans() -> tuple[dict[str, Any], list[dict[str, Any]], int]:
    """A black box's measurement and what is planned from it, no plans where it has no figures; and
    what a frame holds.
    """
    careful_up()
    payload_bytes = untuned_bytes("h1")
    found = ctl("h1", "measure", "blackbox", "h2")
    if found["reason"]:  # no bottleneck that is seen from outside: the stages, from inside
        found = ctl("h1", "measure", "clearbox", "h2")
    for host in ("h1", "h2"):
        run(TOOL, "exec", "--name", LAB, host, "--", "carefulctl", "down", "eth1")
    argv = [str(PYTHON.with_name("carefulctl")), "plan", "--pipeline", "-", "--classes", "--json"]
    argv += ["--max-bytes", str(found["payload_bytes"])] if "payload_bytes" in found else []
    done = subprocess.run(argv, input=json.dumps(found), capture_output=True, text=True)
    if done.returncode:
        return {"reason": done.stderr.strip()}, [], payload_bytes
    rows: list[dict[str, Any]] = json.loads(done.stdout)["classes"]
    return found, rows, payload_bytes


def on(host: str) -> list[str]:
    """The command line of stores.py on one of the hosts, on its core."""
    lab = [str(TOOL), "exec", "--name", LAB, host, "--"]
    return [*lab, "taskset", "-c", str(CPU[host]), str(PYTHON), str(STORES)]


def served(command: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    """What a command of stores.py prints on h1, a line each, while h2 serves."""
    with (
        tempfile.NamedTemporaryFile("w", suffix=".json") as file,
        subprocess.Popen([*on("h2"), "serve"], stdout=subprocess.PIPE, text=True) as server,
    ):
        json.dump(given, file)
        file.flush()
        try:
            assert server.stdout is not None
            if server.stdout.readline() != "ready\n":
                raise BenchError("h2: the node does not serve")
            said = run(*on("h1"), command, file.name)
            return [json.loads(line) for line in said.splitlines()]
        finally:
            server.terminate()
