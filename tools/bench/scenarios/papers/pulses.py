"""P3's and P5's experiments where every sink works by itself, two thousand times slower.

A page of 8 KiB crosses P3's three DMA engines, by its figures. The first reads a slow
file, and the last writes one. Between them is a virtio card, which completes a frame when an
emulated link has served it. The engine's own rule joins what waits; the link charges g for every
frame. Store-and-forward moves a page at once, fixed pulses exactly a fragment in every stage. Also
measured: streams of pages, as in P5's Table 1. Owns two emulated machines, with real-time priority.
Needs root, and the packages of `tools/setup machines`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench_lab import CTL, PYTHON, ROOT, BenchError, built, run
from careful.model.pulses import PAGE_BYTES
from careful.model.simulation import EagerPulse, FixedPulse, Message, Rule, WholeMessage, simulate
from careful.model.stages import Pipeline, Stage
from scenarios.papers.trapeze import FIXED, TRAPEZE, WHOLE, savings

ROUNDS = 5

SCALE = 2000
MTU = 9000
NAME = f"bench{os.getpid()}"
MACHINES = ROOT / "tests/machines/emulate"
STATE = Path("/run/careful-machines")
FAR = ROOT / "tools" / "bench" / "far_stores.py"
LINK_LOG, FILE_LOG = STATE / NAME / "wire.log", "/tmp/slowfs.log"
HOSTS = ("h1", "h2")
EAGER = (256, 384, 512, 768, 1024, 1280, 1536, 2048)
#: A minpulse that a sink does not exceed (CAREFUL_MINPULSE_EXACT).
EXACT = 1 << 31
#: Arms whose streams are timed, and the pages of a stream.
STREAMS = (WHOLE, "fixed 512", "fixed 1024", "fixed 2048", "eager 256", "eager 512", "eager 1024")
STREAM = 16
#: Least savings of eager pulses relative to store-and-forward and to the best fixed ones; most by
#: which they rise with minpulse more than the model; most by which one setting misses each best.
SAVED_MIN, GAIN_MIN, RISE_MAX, NEAR_MAX = 0.40, 0.07, 0.05, 0.05


def arms() -> list[dict[str, Any]]:
    """Returns the ways to send a page: a frame, and a minpulse of each sink, bytes.

    A page is read fragment by fragment. Fixed pulses are one fragment in every stage.
    """
    found = []
    for name in (WHOLE, *(f"fixed {n}" for n in FIXED), *(f"eager {n}" for n in EAGER)):
        kind, _, size = name.partition(" ")
        frame = equal_bytes(int(size or PAGE_BYTES))
        sink = 1 | EXACT if kind == "fixed" else frame
        row = {"name": name, "frame": frame, "host_tx": 1, "net_tx": sink, "store": sink}
        found.append(row | {"stream": STREAM if name in STREAMS else 0})
    return found


def equal_bytes(nbytes: int) -> int:
    """Returns the size of the equal fragments that a plan of this size cuts a page into."""
    return -(-PAGE_BYTES // -(-PAGE_BYTES // nbytes))


def predicted_us(name: str) -> float:
    """Returns the model's latency of an arm, not scaled.

    A stage delivers whole frames, reads and writes. Reads have no g, as P3's host reads a page by
    one transfer.
    """
    _, net, store = TRAPEZE.stages
    first = Stage("hostTx", 0, TRAPEZE.stages[0].G_us_per_KiB)
    last = Stage("store", store.g_us, store.G_us_per_KiB)
    kind, _, size = name.partition(" ")
    rules: list[Rule] = [WholeMessage()] * 3
    if size:
        pulse = equal_bytes(int(size))
        sink: Rule = EagerPulse(pulse) if kind == "eager" else FixedPulse(pulse)
        rules = [FixedPulse(pulse), sink, sink]
    return simulate(Pipeline((first, net, last)), [Message(PAGE_BYTES)], rules).latency_us[0]


def on(host: str, *argv: object) -> str:
    """Runs a command on a machine."""
    return run(MACHINES, "exec", "--name", NAME, host, "--", *argv, timeout_s=3600)


def beside(host: str, *argv: object) -> None:
    """Starts a command on a machine that runs until the machine ends."""
    on(host, "sh", "-c", f"setsid {' '.join(map(str, argv))} >/tmp/log 2>&1 </dev/null & sleep 3")


@contextmanager
def machines(logs: bool = False) -> Iterator[None]:
    """Makes the machines with slow files, and careful up on both.

    logs: the link and the slow files log each frame, read and write (LINK_LOG, FILE_LOG).
    """
    read, net, store = ((one.g_us * SCALE, one.G_us_per_KiB * SCALE) for one in TRAPEZE.stages)
    slow = {"h1": (0, 0, 0, read[1]), "h2": store}
    words = ("--name", NAME, "--nic", "virtio", "--mtu", MTU, "--wire", f"{net[0]},{net[1]}")
    program = built("slowfs", "careful-hop") / "slowfs"
    run(MACHINES, "up", *words, *["--wire-log"] * logs)
    try:
        for host in HOSTS:
            # Its CPU mostly waits; late, it would add milliseconds to a pulse.
            pid = (STATE / NAME / host / "pid").read_text().strip()
            run("chrt", "--all-tasks", "--rr", "--pid", 5, pid)
            on(host, "sh", "-c", "mkdir /tmp/backing /tmp/top; truncate -s 1M /tmp/backing/file")
            given = slow[host]
            log = ("env", f"SLOWFS_LOG={FILE_LOG}") if logs else ()
            beside(host, *log, program, *given[:2], "/tmp/backing", "/tmp/top", *given[2:])
            on(host, "mountpoint", "/tmp/top")
            options = ("--export", "/tmp:rw", "--insecure", "--xdp", "generic", "--peers", 2)
            on(host, CTL, "up", "eth1", *options)
        beside("h2", "env", "CAREFUL_INSTANCE=eth1", PYTHON, FAR, "serve")
        yield
    finally:
        down = [str(MACHINES), "down", "--name", NAME]
        subprocess.run(down, check=False, stdout=subprocess.DEVNULL)


def timed(given: dict[str, Any]) -> str:
    """Runs a job of far_stores.py between the machines. Returns its output."""
    on("h1", "sh", "-c", f"cat >/tmp/job <<'END'\n{json.dumps(given)}\nEND")
    return on("h1", "env", "CAREFUL_INSTANCE=eth1", PYTHON, FAR, "time", "/tmp/job")


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Returns every round of each arm, µs, in random order."""
    with machines():
        output = timed({"bytes": PAGE_BYTES, "rounds": args.rounds, "arms": arms()})
        counters = {host: status(host) for host in HOSTS}
    if not output.strip():
        raise BenchError("no times")
    times: dict[str, Any] = json.loads(output)
    return {"scale": SCALE, "pages": STREAM, "counters": counters} | times


def status(host: str) -> dict[str, int]:
    """Returns a machine's counters of frames and losses that are not 0."""
    (one,) = json.loads(on(host, CTL, "status", "eth1", "--json"))["instances"]
    return {name: count for name, count in one["counters"].items() if count}


def latencies_us(found: dict[str, Any]) -> dict[str, float]:
    """Returns one-way latencies, not scaled, minus half of an empty request's time."""
    back_us = statistics.median(found["empty_us"]) / 2
    return {
        name: (statistics.median(us) - back_us) / found["scale"]
        for name, us in found["idle_us"].items()
    }


def report(found: dict[str, Any]) -> bool:
    """Prints the tables; reports whether all bounds are met."""
    ours = latencies_us(found)
    mib = PAGE_BYTES * found["pages"] / (1 << 20) * found["scale"] * 1e6
    wide = {name: mib / statistics.median(us) for name, us in found["stream_us"].items()}
    print(f"{'':<20}{'us':>10}{'model':>10}{'error':>8}{'stream MiB/s':>14}")
    for arm in arms():
        name = arm["name"]
        model = predicted_us(name)
        stream = f"{wide[name]:>14.1f}" if name in wide else ""
        print(f"{name:<20}{ours[name]:>10.1f}{model:>10.1f}{ours[name] / model - 1:>8.1%}{stream}")
    saved, gain = savings(ours)
    eager = [us for name, us in ours.items() if name.startswith("eager")]
    rise = max(eager) / min(eager) - 1
    model_eager = [predicted_us(name) for name in ours if name.startswith("eager")]
    model_rise = max(model_eager) / min(model_eager) - 1
    print(
        f"eager saves {saved:.1%} of store-and-forward (P3: 43 %), {gain:.1%} of the best fixed "
        f"(P3: 9 %); from {EAGER[0]} to {EAGER[-1]} bytes it rises by {rise:.1%} at most "
        f"(model {model_rise:.1%})"
    )
    quick, most = min(ours.values()), max(wide.values())
    near = {
        name: (ours[name] / quick - 1, 1 - wide[name] / most)
        for name in ours
        if name.startswith("eager") and name in wide
    }
    name = min(near, key=lambda one: max(near[one]))
    print(f"{name}: latency {near[name][0]:+.1%} of the best, bandwidth {-near[name][1]:+.1%}")
    return bool(
        saved >= SAVED_MIN
        and gain >= GAIN_MIN
        and rise <= model_rise + RISE_MAX
        and max(near[name]) <= NEAR_MAX
    )
