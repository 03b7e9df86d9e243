"""How soon a Dask scheduler notices that a worker is gone, over careful:// and tcp://, in turn.

The scheduler runs on h1. Workers of h2 are killed one after the other (SIGKILL); then the carefuld
of h3 is, over careful:// alone; at last the switch takes the link of h4 away. Nobody computes
meanwhile, so nothing is sent but what keeps comms alive. Before a program's sockets are closed, of
either kind, the kernel gives its memory back, which takes a core: so its end is kept, too. Owns a
lab. Needs root; tools/setup run build test brings Dask.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench_lab import LAB, PYTHON, BenchError, ctl, lab_up, on, process, run, up

DASK_HOSTS, WAYS, PORT = ("h1", "h2", "h3", "h4"), ("careful", "tcp"), 8786

ROUNDS = 1

#: A worker that is killed is noticed as its program ends, or so much later at most.
AT_ONCE_S = 0.02
#: A host that is silent counts as gone after 30 s over either; so much later at most.
LATER_S = 5.0
#: When a worker's comm ended, by the clock that is this machine's: a line each.
SCHEDULER = """
import asyncio, sys, time
from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

class Told(SchedulerPlugin):
    def add_worker(self, scheduler, worker):
        print("there", worker, flush=True)
    def remove_worker(self, scheduler, worker, **more):
        print("gone", worker, time.monotonic(), flush=True)

async def main():
    async with Scheduler(host=sys.argv[1], port=int(sys.argv[2]), dashboard=False) as scheduler:
        scheduler.add_plugin(Told())
        print("listens", flush=True)
        await scheduler.finished()

asyncio.run(main())
"""


class Cluster:
    """A scheduler on h1 that says who comes and goes, and workers."""

    def __init__(self, way: str, folder: Path, stack: ExitStack) -> None:
        self.address = f"{way}://10.77.0.1"
        self._folder, self._stack, self._workers = folder, stack, 0
        self._scheduler = self._started("h1", "-c", SCHEDULER, self.address, PORT)
        self._line("listens")

    def _started(self, host: str, *words: object) -> subprocess.Popen[str]:
        one = self._stack.enter_context(process(on(host, PYTHON, *words)))
        self._stack.callback(one.kill)
        return one

    def _line(self, what: str) -> list[str]:
        """Returns the other words of the scheduler's next line with this one."""
        assert self._scheduler.stdout is not None
        for line in self._scheduler.stdout:
            if line.split()[0] == what:
                return line.split()[1:]
        raise BenchError("the scheduler ended")

    def worker(self, host: str) -> subprocess.Popen[str]:
        """A worker, once the scheduler has it."""
        self._workers += 1
        own = ("--local-directory", str(self._folder / str(self._workers)), "--nthreads", "1")
        words = ("-m", "dask", "worker", f"{self.address}:{PORT}", "--no-nanny", "--no-dashboard")
        one = self._started(host, *words, *own, "--memory-limit", "0")
        self._line("there")
        return one

    def gone_s(self, since: float) -> float:
        """Until the scheduler says that a worker is gone, seconds."""
        return round(float(self._line("gone")[1]) - since, 5)


def round_of(way: str, workers: int, folder: Path) -> dict[str, Any]:
    """Seconds until what ended was noticed, over one way."""
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        cluster = Cluster(way, folder, stack)
        killed = [cluster.worker("h2") for _ in range(workers)]
        others = {host: cluster.worker(host) for host in DASK_HOSTS[2:]}
        found["worker_s"], found["ended_s"] = [], []
        for one in killed:
            time.sleep(0.5)  # the scheduler has told the others of the last one
            began = time.monotonic()
            one.kill()
            one.wait()
            found["ended_s"].append(round(time.monotonic() - began, 5))
            found["worker_s"].append(cluster.gone_s(began))
        if way == "careful":
            (instance,) = ctl("h3", "status")["instances"]
            began = time.monotonic()
            os.kill(instance["pid"], signal.SIGKILL)
            found["carefuld_s"] = cluster.gone_s(began)
        else:
            others["h3"].kill()
            cluster.gone_s(0.0)
        switch = ("ip", "netns", "exec", f"careful-{LAB}-sw", "ip", "link", "set", "p4")
        began = time.monotonic()
        run(*switch, "down")
        found["link_s"] = cluster.gone_s(began)
    return found


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=5, metavar="N", help="that are killed [5]")


def measured(args: argparse.Namespace) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="careful-dask-") as name:
        for turn in range(args.rounds):
            one: dict[str, Any] = {"load": round(os.getloadavg()[0], 1)}
            for way in WAYS if turn % 2 == 0 else WAYS[::-1]:
                with lab_up("--hosts", len(DASK_HOSTS)):
                    for host in DASK_HOSTS:
                        up(host, "--insecure")
                    one[way] = round_of(way, args.workers, Path(name))
            found.append(one)
    return {"workers": args.workers, "rounds": found}


def report(found: dict[str, Any]) -> bool:
    """Prints the table; whether who is gone is noticed as over TCP."""
    rounds = found["rounds"]
    killed = {way: [s for one in rounds for s in one[way]["worker_s"]] for way in WAYS}
    ended = {way: [s for one in rounds for s in one[way]["ended_s"]] for way in WAYS}
    later = {
        way: statistics.median(a - b for a, b in zip(killed[way], ended[way], strict=True))
        for way in WAYS
    }
    link = {way: max(one[way]["link_s"] for one in rounds) for way in WAYS}
    carefuld = max(one["careful"]["carefuld_s"] for one in rounds)

    def row(name: str, values: dict[str, float], unit: str = "ms", scale: float = 1e3) -> None:
        print(f"{name:34}" + "".join(f"{values[way] * scale:>9.1f} {unit}" for way in WAYS))

    print(f"{'':34}" + "".join(f"{way:>12}" for way in WAYS))
    row("a worker that is killed: median", {way: statistics.median(killed[way]) for way in WAYS})
    row("                           most", {way: max(killed[way]) for way in WAYS})
    row("its program ends: median", {way: statistics.median(ended[way]) for way in WAYS})
    row("from its end on: median", later)
    row("its host's link is down: most", link, "s ", 1)
    print(f"its carefuld is killed: most {carefuld:.1f} s")
    at_once = later["careful"] <= later["tcp"] + AT_ONCE_S
    return bool(at_once and max(link["careful"], carefuld) <= link["tcp"] + LATER_S)
