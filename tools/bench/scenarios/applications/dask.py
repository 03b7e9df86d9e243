"""Dask over careful:// on hosts of a lab: three measurements.

speed: a cluster of four hosts over careful:// and tcp://, in turn. `shuffle`: an array in bands of
rows is regrouped in bands of columns, so that each worker sends to each. `move`: arrays of one
worker are computed with on another.
gone: how soon a scheduler notices that a worker is gone, over both, in turn. Workers of h2 are
killed one after the other (SIGKILL); then the carefuld of h3 is, over careful:// alone; at last the
switch takes the link of h4 away. The cluster is idle meanwhile. Before the kernel closes a
program's sockets, it frees the program's memory, which uses a core. So the time of the program's
end is recorded too.
checks: distributed's own checks of comms over careful://, on two hosts, stored by name. Its
    packages have no tests, so a checkout is needed: --checkout, or the installed release's tag,
    fetched with git. tests/support/dask_tests.py lists the checks.

The scheduler and the client run on h1. Owns labs. Needs root; tools/setup run build test brings
Dask.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from typing import Any

from bench_lab import (
    HOSTS,
    LAB,
    PYTHON,
    ROOT,
    BenchError,
    ctl,
    daemons,
    lab_up,
    on,
    process,
    run,
    up,
)

ROUNDS = 3

DASK_HOSTS, PORT = ("h1", "h2", "h3", "h4"), 8786
WAYS = ("careful", "tcp")
CHECKS = ROOT / "tests/support/dask_tests.py"
SOURCE = "https://github.com/dask/distributed"
#: A killed worker is noticed at most this long after its program's end.
AT_ONCE_S = 0.02
#: A silent host counts as gone after 30 s, or at most this much later.
LATER_S = 5.0
#: A line with the time of each end of a worker's comm, by this machine's clock.
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
JOB = """
import json, sys, time
import dask.array, numpy
from distributed import Client, wait

address, mib, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
PART = 16 << 20

def made(seed):
    return numpy.full(PART // 8, float(seed))

def used(array):
    return float(array[0] + array[-1])

found = {"shuffle_s": [], "move_s": []}
with Client(address) as client:
    client.wait_for_workers(3, timeout=120)
    first, second = sorted(client.scheduler_info()["workers"])[:2]
    side = int((mib * 2**20 / 8) ** 0.5) // 12 * 12
    for one in range(rounds + 1):
        rows = dask.array.ones((side, side), chunks=(side // 12, side)).persist()
        wait(rows)
        began = time.monotonic()
        columns = rows.rechunk((side, side // 12)).persist()
        wait(columns)
        shuffle_s = time.monotonic() - began
        del rows, columns
        seeds = range(one * 1000, one * 1000 + max(1, mib * 2**20 // PART))
        arrays = client.map(made, seeds, workers=[first], pure=False)
        wait(arrays)
        began = time.monotonic()
        ends = client.gather(client.map(used, arrays, workers=[second], pure=False))
        move_s = time.monotonic() - began
        assert ends == [2.0 * seed for seed in seeds]
        del arrays
        if one:  # the first connects
            found["shuffle_s"].append(shuffle_s)
            found["move_s"].append(move_s)
print(json.dumps(found))
"""


def worker_argv(address: str, folder: Path) -> tuple[object, ...]:
    """Returns the arguments of Python for a worker."""
    own = ("--no-nanny", "--no-dashboard", "--memory-limit", "0", "--local-directory", folder)
    return ("-m", "dask", "worker", f"{address}:{PORT}", "--nthreads", "1", *own)


def worked(way: str, mib: int, rounds: int, folder: Path) -> dict[str, list[float]]:
    """Returns a cluster's times with one transport."""
    address = f"{way}://10.77.0.1"
    dask = (PYTHON, "-m", "dask")
    with ExitStack() as stack:
        scheduler = on("h1", *dask, "scheduler", "--host", address, "--port", PORT)
        stack.enter_context(process(scheduler, quiet=True))
        for host in DASK_HOSTS[1:]:
            argv = on(host, PYTHON, *worker_argv(address, folder / host))
            stack.enter_context(process(argv, quiet=True))
        output = run(*on("h1", PYTHON, "-c", JOB, f"{address}:{PORT}", mib, rounds))
    found: dict[str, list[float]] = json.loads(output)
    return found


class Cluster:
    """A scheduler on h1 that prints arrivals and departures, and workers."""

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
        """Starts a worker and waits until the scheduler has it."""
        self._workers += 1
        one = self._started(host, *worker_argv(self.address, self._folder / str(self._workers)))
        self._line("there")
        return one

    def gone_s(self, since: float) -> float:
        """Returns the seconds until the scheduler reports that a worker has gone."""
        return round(float(self._line("gone")[1]) - since, 5)


def ended(way: str, workers: int, folder: Path) -> dict[str, Any]:
    """Returns the seconds until each end was noticed, with one transport."""
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


def speed(args: argparse.Namespace) -> dict[str, Any]:
    """Returns every turn, and the medians of all."""
    turns: list[dict[str, Any]] = []
    with lab_up("--hosts", len(DASK_HOSTS)), tempfile.TemporaryDirectory() as folder:
        for host in DASK_HOSTS:
            up(host, "--insecure")
        for turn in range(args.turns):
            one: dict[str, Any] = {"load": round(os.getloadavg()[0], 1)}
            for way in WAYS if turn % 2 == 0 else WAYS[::-1]:
                one[way] = worked(way, args.mib, args.rounds, Path(folder))
            turns.append(one)
    found: dict[str, Any] = {"inputs": {"mib": args.mib, "rounds": args.rounds}}
    for what in ("shuffle_s", "move_s"):
        medians = {
            way: statistics.median(one for turn in turns for one in turn[way][what]) for way in WAYS
        }
        found[what] = medians | {"careful_by_tcp": medians["careful"] / medians["tcp"]}
    return found | {"turns": turns}


def gone(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the seconds until each end was noticed, by round and transport."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="careful-dask-") as name:
        for turn in range(args.rounds):
            one: dict[str, Any] = {"load": round(os.getloadavg()[0], 1)}
            for way in WAYS if turn % 2 == 0 else WAYS[::-1]:
                with lab_up("--hosts", len(DASK_HOSTS)):
                    for host in DASK_HOSTS:
                        up(host, "--insecure")
                    one[way] = ended(way, args.workers, Path(name))
            found.append(one)
    return {"workers": args.workers, "rounds": found}


def release() -> str:
    (site,) = (ROOT / ".venv/lib").glob("python3*/site-packages")
    (found,) = metadata.distributions(name="distributed", path=[str(site)])
    return found.version


def fetched() -> Path:
    """Fetches a checkout of the installed release."""
    version = release()
    path = ROOT / "build" / f"distributed-{version}"
    if not path.exists():
        run("git", "clone", "-q", "--depth", "1", "--branch", version, SOURCE, path)
    return path


def checked(checkout: Path) -> list[dict[str, str]]:
    """Returns pytest's outcome of each check by name."""
    env = {
        "CAREFUL_DISTRIBUTED": str(checkout),
        "CAREFUL_INSTANCES": " ".join(f"{LAB}-{host}" for host in HOSTS),
        "PYTHONPATH": str(checkout),
    }
    argv = on("h1", PYTHON, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", CHECKS)
    with lab_up(), daemons("--insecure"):
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=170, env=os.environ | env
        )
    found = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED) \S+?::(\S+)", done.stdout, re.MULTILINE)
    if not found:
        raise BenchError(f"no check ran: {(done.stdout + done.stderr).strip()[-200:]}")
    return [{"name": name, "outcome": outcome.lower()} for outcome, name in sorted(found)]


def checks(args: argparse.Namespace) -> dict[str, Any]:
    checkout = (args.checkout or fetched()).resolve()
    of = args.of or run("git", "-C", checkout, "rev-parse", "HEAD").strip()
    return {"distributed": of, "release": release(), "checks": checked(checkout)}


MEASUREMENTS = {"speed": speed, "gone": gone, "checks": checks}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("measurement", choices=MEASUREMENTS)
    parser.add_argument("--turns", type=int, default=4, metavar="N", help="of speed's ways [4]")
    parser.add_argument("--mib", type=int, default=1024, help="of speed's arrays [1024]")
    parser.add_argument("--workers", type=int, default=5, metavar="N", help="that are killed [5]")
    parser.add_argument("--checkout", type=Path, help="of distributed, with its .git")
    parser.add_argument("--of", metavar="COMMIT", help="the checkout's, if it has no .git")


def variant(args: argparse.Namespace) -> str:
    """Returns the measurement that is kept."""
    return str(args.measurement)


def measured(args: argparse.Namespace) -> dict[str, Any]:
    return MEASUREMENTS[args.measurement](args)


def report_gone(found: dict[str, Any]) -> bool:
    """Prints the table; reports whether ends are noticed like over TCP."""
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


def report(kept: dict[str, Any]) -> bool:
    """Prints a measurement's figures; reports whether it met its bounds, if it has any."""
    if "workers" in kept:
        return report_gone(kept)
    if "checks" in kept:
        passed = sum(one["outcome"] == "passed" for one in kept["checks"])
        print(f"{passed} of {len(kept['checks'])} passed")
        return bool(passed == len(kept["checks"]))
    for what in ("shuffle_s", "move_s"):
        print(f"{what:10}" + "".join(f"  {name} {value:.3f}" for name, value in kept[what].items()))
    return True
