"""Helpers of all scenarios: a lab, programs on its hosts, and paths to tune."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "lab"
BUILD = ROOT / "build" / "gcc"
REPORTS = ROOT / "tests" / "reports"
PIPELINES = ROOT / "ctrl" / "careful" / "model" / "pipelines"
PYTHON = ROOT / ".venv" / "bin" / "python"
CTL = PYTHON.with_name("carefulctl")
STORES = ROOT / "tools" / "bench" / "stores.py"
RUN = Path("/run/careful")
LAB = f"bench{os.getpid()}"
CLIENT, SERVER = HOSTS = ("h1", "h2")
SERVER_IP = "10.77.0.2"
#: One core per host.
CPU = {CLIENT: 0, SERVER: 1}
#: The share of 40 runs that must be within the bound, and of intervals that must hold the truth.
SHARE = 36 / 40
#: Options of `tools/lab up` for the papers' figures times 100.
SCALED = ("--scale", "100", "--charge", "payload", "--mtu", "9000")


#: Above the rows of within().
HEAD = f"{'':>22} {'runs':>5} {'within':>7} {'in interval':>11} {'median':>8} {'max':>8}"


class BenchError(Exception):
    """The reason why a measurement is impossible, in one line."""


#: carefulctl's exit status if a figure is withheld; its JSON object has the reason.
WITHHELD = 5


def run(*argv: object, timeout_s: float = 400, env: dict[str, str] | None = None) -> str:
    """Runs a program to its end and returns what it printed."""
    try:
        done = subprocess.run(
            [str(word) for word in argv],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=os.environ | (env or {}),
        )
    except OSError as error:
        raise BenchError(f"{argv[0]}: {error.strerror}") from None
    if done.returncode not in (0, WITHHELD):
        why = (done.stderr.strip() or done.stdout.strip() or "failed").splitlines()[-1]
        raise BenchError(f"{argv[0]}: {why}")
    return done.stdout


def built(*programs: str) -> Path:
    """Builds C programs from the checkout and returns their folder."""
    run(ROOT / "tools" / "build", *programs, timeout_s=1800)
    return BUILD


def on(host: str, *argv: object, lab: str = "") -> list[str]:
    """Returns the command line that runs a command on a host of the lab."""
    return [str(TOOL), "exec", "--name", lab or LAB, host, "--", *map(str, argv)]


def pinned(host: str, *argv: object) -> list[str]:
    """Returns the command line that runs a command on the host's core."""
    return on(host, "taskset", "-c", CPU[host], *argv)


def ctl(host: str, *words: object) -> dict[str, Any]:
    """Returns the JSON output of a carefulctl command on a host."""
    found: dict[str, Any] = json.loads(run(*on(host, "carefulctl", *words, "--json")))
    return found


def status(host: str) -> dict[str, Any]:
    (found,) = ctl(host, "status", "eth1")["instances"]
    return dict(found)


def known(host: str, peer: str = "") -> dict[str, Any]:
    """Returns a host's stored figures of the path to a peer [the only one], or {}."""
    try:
        paths = json.loads((RUN / f"{LAB}-{host}" / "tuning.json").read_text())["paths"]
        return dict(paths[peer] if peer else next(iter(paths.values())))
    except (OSError, ValueError, KeyError, StopIteration):
        return {}


def wait_until(done: Callable[[], bool], seconds: float, what: str) -> None:
    """Waits until a condition holds. Raises BenchError after the time limit."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise BenchError(f"no {what} within {seconds:.0f} s")
        time.sleep(0.05)


def links(*options: str) -> list[dict[str, Any]]:
    """Returns each emulated link's settings and report."""
    found: list[dict[str, Any]] = json.loads(run(TOOL, "links", "--name", LAB, "--json", *options))[
        "links"
    ]
    return found


@contextmanager
def lab_up(
    *options: object, hops: str | None = None, lab: str = LAB, where: tuple[str, ...] = ()
) -> Iterator[None]:
    """Makes a lab, with emulated links if there is a hops file, and removes it at the end.

    where: a command that runs tools/lab, like taskset.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(hops or "")
        file.flush()
        given = ("--hops", file.name) if hops else ()
        # After a SIGKILL, `tools/lab sweep` removes it.
        owner = ("--owner", os.getpid())
        run(*where, TOOL, "up", "--name", lab, *given, *owner, *options)
    try:
        yield
    finally:
        down = [str(TOOL), "down", "--name", lab, "--kill"]
        subprocess.run(down, check=False, stdout=subprocess.DEVNULL)


def up(host: str, *options: object) -> None:
    """Starts carefuld on a host."""
    run(*on(host, "carefulctl", "up", "eth1", *options))


@contextmanager
def daemons(
    *options: object,
    hosts: tuple[str, ...] = HOSTS,
    own: Mapping[str, tuple[object, ...]] | None = None,
    pin: bool = False,
) -> Iterator[None]:
    """Starts carefuld on each host and ends it afterwards.

    own: more options, by host; pin: each runs on the host's core.
    """
    started = []
    try:
        for host in hosts:
            core = ("--cpu", CPU[host]) if pin else ()
            up(host, *options, *core, *(own or {}).get(host, ()))
            started.append(host)
        yield
    finally:
        for host in started:
            down = on(host, "carefulctl", "down", "eth1")
            subprocess.run(down, check=False, stdout=subprocess.DEVNULL)


@contextmanager
def process(
    argv: list[str], ready: str = "", env: dict[str, str] | None = None, quiet: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """Runs a program during the block, in its own session.

    ready: the text of its first line, for which to wait; quiet: its output is discarded.
    """
    out, err = (subprocess.DEVNULL,) * 2 if quiet else (subprocess.PIPE, None)
    with subprocess.Popen(
        argv, stdout=out, stderr=err, text=True, env=os.environ | (env or {}), process_group=0
    ) as one:
        try:
            line = one.stdout.readline() if ready and one.stdout else ""
            if ready not in line:
                raise BenchError(f"{argv[-1]}: it does not begin: {line.strip()}")
            yield one
        finally:
            with suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGCONT)  # a scenario may have stopped it
                os.killpg(one.pid, signal.SIGTERM)
            try:
                one.wait(20)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(one.pid, signal.SIGKILL)


@contextmanager
def beside(
    host: str, *argv: object, ready: str = "", env: dict[str, str] | None = None
) -> Iterator[None]:
    """Runs a server on a host's core during the block."""
    with process(pinned(host, *argv), ready, env) as one:
        time.sleep(0.0 if ready else 0.3)
        if one.poll() is not None:
            raise BenchError(f"{argv[0]}: it ended at once")
        yield


def big_file(path: Path, nbytes: int) -> None:
    """Writes a file in which all MiB differ."""
    block = os.urandom(1 << 20)
    with path.open("wb") as big:
        for at in range(0, nbytes, 1 << 20):
            big.write((at.to_bytes(8, "big") + block[8:])[: nbytes - at])


def equal_hops(*G_us_per_KiB: float) -> str:
    """Returns the hops file of stages that differ only in bandwidth."""
    return "\n".join(
        f'[[stage]]\nname = "hop {k}"\ng_us = 10\nG_us_per_KiB = {G}\n'
        for k, G in enumerate(G_us_per_KiB, 1)
    )


def fixed(nbytes: int) -> dict[str, int]:
    """Returns the tune map's plan for fragments of one size."""
    flat = {"ratio_q16": 65536, "step_bytes": 0, "down_ratio_q16": 65536, "down_step_bytes": 0}
    return {"first_bytes": nbytes, "peak_bytes": nbytes} | flat


def untuned_bytes(host: str) -> int:
    """Returns the payload of a new peer's fragments, a full frame."""
    new = ctl(host, "tune", "show", "eth1")["peers"][0]
    return int(new["classes"][0]["plan"]["first_bytes"])


def plans() -> tuple[dict[str, Any], list[dict[str, Any]], int]:
    """Returns a black-box measurement, its plans, and the payload of a frame.

    There are no plans if the measurement has no figures.
    """
    with daemons():
        payload_bytes = untuned_bytes("h1")
        found = ctl("h1", "measure", "blackbox", "h2")
    argv = [str(CTL), "plan", "--pipeline", "-", "--classes", "--json"]
    done = subprocess.run(argv, input=json.dumps(found), capture_output=True, text=True)
    if done.returncode:
        return {"reason": done.stderr.strip()}, [], payload_bytes
    rows: list[dict[str, Any]] = json.loads(done.stdout)["classes"]
    return found, rows, payload_bytes


@contextmanager
def given_as(work: dict[str, Any]) -> Iterator[str]:
    """Writes a job for stores.py and returns the file's name."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(work, file)
        file.flush()
        yield file.name


def served(command: str, work: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the output of a command of stores.py on h1 while h2 serves."""
    with given_as(work) as name, beside("h2", PYTHON, STORES, "serve", ready="ready"):
        return [
            json.loads(line)
            for line in run(*pinned("h1", PYTHON, STORES, command, name)).splitlines()
        ]


def spread(values: Iterable[float]) -> str:
    """Returns the median and the largest of some values, as text."""
    some = list(values)
    return f"{statistics.median(some):.1f}, at most {max(some):.1f}"


def within(
    what: str, runs: Sized, errors: list[float], most: float, held: int | None = None
) -> bool:
    """Prints the runs' errors; reports whether nine of ten are within a bound.

    A run without a figure counts as not within.

    Args:
        what: begins the row.
        runs: all of them.
        errors: errors of the runs with the figure.
        most: the bound.
        held: number of intervals that hold the truth, if nine of ten must.
    """
    good = sum(error <= most for error in errors)
    middle, worst = (f"{one(errors):.2%}" if errors else "-" for one in (statistics.median, max))
    interval = "" if held is None else str(held)
    print(f"{what:>22} {len(runs):>5} {good:>7} {interval:>11} {middle:>8} {worst:>8}")
    return min(good, good if held is None else held) >= SHARE * len(runs)
