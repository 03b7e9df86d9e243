"""Measures the controller's cost: pushes, round trips next to it, its CPU and memory.

Push: the tune map is written as `tune set` does it, and a message follows at once; it counts until
that message is answered, and the live map must show it under the new version. Round trips: 64
bytes, by the stamps of carefuld, in blocks with the controller running and stopped in turn, while
it is idle, and while it tries ways to send under the other host's reads. CPU and memory: while the
other host reads 4 KiB again and again, over GAM x 10, which it measures and tunes, and on a bare
veth, where it tries ways; each phase by itself. Owns a lab. Needs root.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from bench_lab import (
    LAB,
    PIPELINES,
    PYTHON,
    ROOT,
    RUN,
    SERVER_IP,
    STORES,
    BenchError,
    beside,
    daemons,
    lab_up,
    pinned,
    process,
    run,
)
from careful.control import instances

ROUNDS = 5

PUSH_US_MAX, TRIP_MORE_MAX, CPU_MAX, RSS_MIB_MAX = 1000.0, 0.02, 0.02, 100.0
#: A round's pushes, blocks of round trips with each arm, round trips of a block, and seconds.
PUSHES, BLOCKS, TRIPS, TRAFFIC_S = 50, 20, 400, 22.0
#: Ways are tried for so long at least, where they last; and all phases are over by then, seconds.
TRYING_S, PHASES_S = 5.0, 60.0
PROBE = ROOT / "tools" / "bench" / "cost_probe.py"
#: A path that a black box has figures of: messages of 4 KiB take two milliseconds.
GAM = (PIPELINES / "gam.toml").read_text()
TUNED = ("--scale", "10", "--mtu", "9000")
SEEN_MIN = 500
READ = """
import careful.files

with careful.files.connect("10.77.0.1") as host:
    while True:
        host.read("file", 0, 4096)
"""


def pushes() -> list[dict[str, float]]:
    """Returns how long each push took until the call ended, and until a message used it, µs."""
    with beside("h2", PYTHON, STORES, "serve", ready="ready"):
        said = run(*pinned("h1", PYTHON, PROBE, "push", PUSHES))
    found: list[dict[str, float]] = json.loads(said)
    return found


def known() -> dict[str, Any]:
    """Returns what the controller keeps of the one path; {}: nothing yet."""
    try:
        (one,) = json.loads((RUN / f"{LAB}-h1" / "tuning.json").read_text())["paths"].values()
    except (OSError, ValueError):
        return {}
    return dict(one)


def decisions() -> list[str]:
    """Returns its decisions so far."""
    return [one["what"] for one in known().get("decisions", [])]


def wait_for(done: Callable[[], bool], what: str) -> None:
    """Until something is so."""
    end = time.monotonic() + 60
    while not done():
        if time.monotonic() > end:
            raise BenchError(f"no {what}: it decides {decisions() or 'nothing'}")
        time.sleep(0.05)


def decided_first(process: subprocess.Popen[str], *wanted: str) -> None:
    """Wait until the controller has decided one of these."""
    wait_for(
        lambda: process.poll() is not None or not set(wanted).isdisjoint(decisions()), wanted[0]
    )
    if process.poll() is not None:
        raise BenchError("tune auto has ended")


def trips(controller: subprocess.Popen[str]) -> dict[str, list[float]]:
    """Medians of blocks of round trips of 64 bytes, µs, with and without the controller."""
    words = (PROBE, "trips", SERVER_IP, controller.pid, BLOCKS, TRIPS)
    found: dict[str, list[float]] = json.loads(run(*pinned("h1", PYTHON, *words)))
    return found


def spent_s(pid: int) -> float:
    """CPU time of a process."""
    spent_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # one has ended
            spent_ns += int((task / "schedstat").read_text().split()[0])
    return spent_ns / 1e9


def phase() -> str:
    """Returns the controller's phase: it measures at first, has something on trial, or waits."""
    one = known()
    if one.get("on_trial") or one.get("put_back"):
        return "trial"
    return "idle" if one.get("decisions") else "measure"


def spent_by_phase(pid: int, until: Callable[[dict[str, float]], bool]) -> dict[str, Any]:
    """Its share of a core in each phase, and the phase's seconds; until: of these."""
    cpu_s: dict[str, float] = {}
    wall_s: dict[str, float] = {}
    wait_for(lambda: tuner() == pid, "tune auto")  # Python's start is over
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
        name: {"cpu_share": round(cpu_s[name] / seconds, 4), "elapsed_s": round(seconds, 1)}
        for name, seconds in wall_s.items()
    }


def tuner() -> int:
    """The process that tunes h1's instance; 0: none does."""
    return instances.tuner(instances.choose(f"{LAB}-h1"))


def rss_max_MiB(pid: int) -> float:
    """The most memory that it had."""
    status = Path(f"/proc/{pid}/status").read_text()
    kib = next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line)
    return round(kib / 1024, 1)


@contextmanager
def controlled(*traffic: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Careful on both hosts, the controller on h1, and before it h2's traffic, if any."""
    argv = pinned("h1", "carefulctl", "tune", "auto", "eth1", "--peer", SERVER_IP)
    with tempfile.TemporaryDirectory(prefix="careful-cost-") as name, ExitStack() as stack:
        (Path(name) / "file").write_bytes(bytes(8192))  # h2 reads it
        stack.enter_context(daemons("--export", name))
        if traffic:
            stack.enter_context(process(pinned("h2", *traffic), quiet=True))
        # Each of the commands becomes the next: the process is the controller.
        yield stack.enter_context(process(argv, quiet=True))


def one_round() -> dict[str, Any]:
    """All figures once: round trips and ways on a bare veth, phases on a path that is tuned."""
    with lab_up():
        found: dict[str, Any] = {"pushes": pushes()}
        with controlled() as controller:
            decided_first(controller, "changed", "nothing to change", "not measured")
            found["trips_us"] = trips(controller)
            found["trips_decisions"] = decisions()
        with controlled(PYTHON, "-c", READ) as controller:
            decided_first(controller, "trying")
            found["trips_trying_us"] = trips(controller)
            found["trips_trying_phase"] = phase()
            found["veth"] = spent_by_phase(
                controller.pid, lambda s: s.get("trial", 0.0) > TRYING_S or "idle" in s
            )
    with lab_up(*TUNED, hops=GAM), controlled(PYTHON, "-c", READ) as controller:
        found["tuned"] = spent_by_phase(controller.pid, lambda s: s.get("idle", 0.0) > TRAFFIC_S)
        found["messages_seen_count"] = int(run(*pinned("h1", PYTHON, PROBE, "seen")))
        found["rss_max_MiB"] = rss_max_MiB(controller.pid)
        found["traffic_decisions"] = decisions()
    return found


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """All rounds."""
    return {"rounds": [one_round() for _ in range(args.rounds)]}


def _trips(what: str, rounds: list[dict[str, list[float]]]) -> tuple[str, bool]:
    """Round trips with and without the controller, in words, and whether they are alike."""
    with_us, without_us = (
        statistics.median(us for each in rounds for us in each[arm]) for arm in ("with", "without")
    )
    more = with_us / without_us - 1
    text = (
        f"{what}: {with_us:.2f} us with the controller, {without_us:.2f} us without ({more:+.1%})"
    )
    return text, more <= TRIP_MORE_MAX


def _shares(what: str, rounds: list[dict[str, float] | None]) -> tuple[str, bool]:
    """Its share of a core in a phase, in words, and whether that is little in every round."""
    some = [one for one in rounds if one]
    if not some:
        return f"{what}: not seen", False
    whole_s = sum(one["elapsed_s"] for one in some)
    middle = statistics.median(one["cpu_share"] for one in some)
    most = max(one["cpu_share"] for one in some)
    text = (
        f"{what}: {middle:.2%} of a core, {most:.2%} at most, {whole_s:.0f} s of {len(some)} rounds"
    )
    return text, most < CPU_MAX


def _whole(phases: dict[str, dict[str, float]]) -> dict[str, float]:
    """All phases as one."""
    whole_s = sum(one["elapsed_s"] for one in phases.values())
    cpu_s = sum(one["cpu_share"] * one["elapsed_s"] for one in phases.values())
    return {"cpu_share": cpu_s / whole_s, "elapsed_s": whole_s}


def _phases(rounds: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    """While something is on trial, and while all is decided."""
    return [
        _trips("the same while ways are tried", [each["trips_trying_us"] for each in rounds]),
        _shares("its first half minute on GAM x 10", [_whole(each["tuned"]) for each in rounds]),
        _shares("  of that when all is decided", [each["tuned"].get("idle") for each in rounds]),
        _shares("ways tried on a bare veth", [each["veth"].get("trial") for each in rounds]),
    ]


def _bursts(rounds: list[dict[str, Any]]) -> str:
    """Returns the phases that are short, and dearer by the second, in words."""
    found = []
    for name, what in (("measure", "the first measurement"), ("trial", "an A/B")):
        some = [each["tuned"][name] for each in rounds if name in each["tuned"]]
        if some:
            cpu_s = statistics.median(one["cpu_share"] * one["elapsed_s"] for one in some)
            long_s = statistics.median(one["elapsed_s"] for one in some)
            found.append(f"{what} {cpu_s:.2f} s of a core's time in {long_s:.1f} s")
    return "; ".join(found)


def report(found: dict[str, Any]) -> bool:
    """Prints the figures; whether all bounds are met."""
    rounds = found["rounds"]
    used = sorted(one["used_us"] for each in rounds for one in each["pushes"])
    call = statistics.median(one["call_us"] for each in rounds for one in each["pushes"])
    p95 = used[int(0.95 * (len(used) - 1))]
    seen = min(each["messages_seen_count"] for each in rounds)
    rss = max(each["rss_max_MiB"] for each in rounds)
    rows = [
        (
            f"push, from call to use: {statistics.median(used):.0f} us, P95 {p95:.0f} us, at worst "
            f"{used[-1]:.0f} us (the call alone {call:.0f} us), of {len(used)}",
            statistics.median(used) < PUSH_US_MAX,
        ),
        _trips("64 bytes, there and back", [each["trips_us"] for each in rounds]),
        *_phases(rounds),
        (f"messages seen: {seen} at least", seen >= SEEN_MIN),
        (f"its memory: {rss:.0f} MiB", rss < RSS_MIB_MAX),
    ]
    for text, met in rows:
        print(text + ("" if met else "  NOT MET"))
    print(f"bursts: {_bursts(rounds)}")
    return all(met for _, met in rows)
