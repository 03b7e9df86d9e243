"""Measures the controller's cost: its share of a core in each phase, and its memory.

`tune auto` runs on h1 while h2 reads 4 KiB from it again and again: over GAM x 10, which the
controller measures and tunes, and on a bare veth, where it tries settings. Owns a lab. Needs root.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench_lab import (
    LAB,
    PIPELINES,
    PYTHON,
    SERVER_IP,
    daemons,
    known,
    lab_up,
    pinned,
    process,
    wait_until,
)
from careful.control.instance import choice, instances

ROUNDS = 5

CPU_MAX, MEASURE_MAX, RSS_MIB_MAX = 0.02, 0.023, 100.0
#: Least time for trials, time for which the decided controller is watched, and most time of all
#: phases, seconds.
TRYING_S, IDLE_S, PHASES_S = 5.0, 22.0, 60.0
#: A path that a black box can measure: messages of 4 KiB take two milliseconds.
TUNED = ("--scale", "10", "--mtu", "9000")
READ = """
import careful.files

with careful.files.connect("10.77.0.1") as host:
    while True:
        host.read("file", 0, 4096)
"""


def spent_s(pid: int) -> float:
    """Returns the CPU time of a process."""
    spent_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # a thread has ended
            spent_ns += int((task / "schedstat").read_text().split()[0])
    return spent_ns / 1e9


def phase() -> str:
    """Returns the controller's phase: it measures at first, has a trial, or waits."""
    path = known("h1")
    if path.get("on_trial") or path.get("put_back"):
        return "trial"
    return "idle" if path.get("decisions") else "measure"


def spent_by_phase(pid: int, until: Callable[[dict[str, float]], bool]) -> dict[str, Any]:
    """Returns a process's share of a core, and the seconds, of each phase.

    until: decides from the seconds by phase whether to stop.
    """
    cpu_s: dict[str, float] = {}
    wall_s: dict[str, float] = {}
    at_h1 = choice.choose(f"{LAB}-h1")
    wait_until(lambda: instances.tuner(at_h1) == pid, 60, "tune auto")  # after Python's start
    now, spent, at = time.monotonic(), spent_s(pid), phase()
    end = now + PHASES_S
    while not until(wall_s) and now < end:
        time.sleep(0.1)
        before, spent = spent, spent_s(pid)
        began, now = now, time.monotonic()
        cpu_s[at] = cpu_s.get(at, 0.0) + spent - before
        wall_s[at] = wall_s.get(at, 0.0) + now - began
        at = phase()
    return {
        name: {"cpu_share": cpu_s[name] / seconds, "elapsed_s": seconds}
        for name, seconds in wall_s.items()
    }


@contextmanager
def controlled() -> Iterator[int]:
    """Yields the controller's process, with careful up on both hosts and h2 reading."""
    argv = pinned("h1", "carefulctl", "tune", "auto", "eth1", "--peer", SERVER_IP)
    with tempfile.TemporaryDirectory(prefix="careful-cost-") as name:
        (Path(name) / "file").write_bytes(bytes(8192))
        # Each command of argv executes the next, so the process is the controller.
        with (
            daemons("--export", name),
            process(pinned("h2", PYTHON, "-c", READ), quiet=True),
            process(argv, quiet=True) as controller,
        ):
            yield controller.pid


def one_round() -> dict[str, Any]:
    with lab_up(), controlled() as pid:
        veth = spent_by_phase(pid, lambda s: s.get("trial", 0.0) > TRYING_S or "idle" in s)
    with lab_up(*TUNED, hops=(PIPELINES / "gam.toml").read_text()), controlled() as pid:
        tuned = spent_by_phase(pid, lambda s: s.get("idle", 0.0) > IDLE_S)
        status = Path(f"/proc/{pid}/status").read_text()
    kib = next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line)
    return {"veth": veth, "tuned": tuned, "rss_max_MiB": kib / 1024}


def measured(args: argparse.Namespace) -> dict[str, Any]:
    return {"rounds": [one_round() for _ in range(args.rounds)]}


def whole(phases: dict[str, dict[str, float]]) -> dict[str, float]:
    """Returns all phases as one."""
    seconds = sum(one["elapsed_s"] for one in phases.values())
    cpu_s = sum(one["cpu_share"] * one["elapsed_s"] for one in phases.values())
    return {"cpu_share": cpu_s / seconds, "elapsed_s": seconds}


def report(found: dict[str, Any]) -> bool:
    """Prints the figures; reports whether all bounds are met."""
    rounds = found["rounds"]
    met = True
    for what, most, some in (
        ("all phases over GAM x 10", CPU_MAX, [whole(one["tuned"]) for one in rounds]),
        ("  when all is decided", CPU_MAX, [one["tuned"].get("idle") for one in rounds]),
        ("  the first measurement", MEASURE_MAX, [one["tuned"].get("measure") for one in rounds]),
        ("  an A/B", None, [one["tuned"].get("trial") for one in rounds]),
        ("measurement, bare veth", MEASURE_MAX, [one["veth"].get("measure") for one in rounds]),
        ("ways tried on a bare veth", CPU_MAX, [one["veth"].get("trial") for one in rounds]),
    ):
        seen = [one for one in some if one]
        shares = [one["cpu_share"] for one in seen] or [float("nan")]
        met &= most is None or max(shares) < most
        seconds = sum(one["elapsed_s"] for one in seen)
        print(
            f"{what:26}{statistics.median(shares):>7.2%} of a core, {max(shares):.2%} at most, ",
            end="",
        )
        print(f"{seconds:.0f} s of {len(seen)} rounds")
    memory = max(one["rss_max_MiB"] for one in rounds)
    print(f"its memory: {memory:.0f} MiB")
    return met and memory < RSS_MIB_MAX
