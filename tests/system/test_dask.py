"""`careful://` between the parts of a Dask cluster, and distributed's own checks of comms."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from hosts import Host, Hosts, finish
from lossy import hops

SUPPORT = Path(__file__).parents[1] / "support"
PROGRAM = SUPPORT / "dask_program.py"
CHECKOUT = os.environ.get("CAREFUL_DISTRIBUTED", "")


def instances(pair: tuple[Host, ...]) -> list[str]:
    return [host.lab.instance(host.name) for host in pair[:2]]


def program(host: Host, *words: str) -> subprocess.Popen[str]:
    return host.lab.start(host.name, sys.executable, PROGRAM, *words)


def dask(host: Host, *words: str) -> subprocess.Popen[str]:
    """Runs the scheduler or a worker; discards its output."""
    argv = (sys.executable, "-m", "dask", *words, "--no-dashboard")
    return host.lab.start(host.name, *argv, cwd=host.own, stderr=subprocess.DEVNULL)


def test_comm__arrays_and_small_messages(pair: tuple[Host, Host]) -> None:
    code, out, err = finish(program(pair[0], "large", *instances(pair)))
    assert (code, out) == (0, "large\n"), err
    for host in pair:
        assert host.status()["programs"] == []
        host.assert_nothing_lost()


def test_comm__sessions_that_begin_anew_break_none(hosts: Hosts, tmp_path: Path) -> None:
    pair = tuple(hosts(hops=hops(tmp_path, "loss = 0.002")))
    for host in pair:
        host.up("--repair", "off")
    code, out, err = finish(program(pair[0], "large", *instances(pair)))
    assert (code, out) == (0, "large\n"), err
    assert sum(host.status()["counters"]["epochs_broken"] for host in pair) > 0


def test_comm__ends(pair: tuple[Host, Host]) -> None:
    code, out, err = finish(program(pair[0], "ends", *instances(pair)))
    assert code == 0, err
    assert out.splitlines() == ["3221 taken", "last words", "closed", "closed", "nobody"]


def test_comm__a_killed_program_is_noticed_by_its_reader(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    reads = program(remote, "vanished")
    assert reads.stdout is not None
    assert reads.stdout.readline() == "ready\n"
    victim = program(local, "victim")
    assert finish(reads)[:2] == (0, "noticed\n")
    assert victim.wait(60) == -signal.SIGKILL


def test_cluster__four_hosts_compute_and_one_is_killed(hosts: Hosts) -> None:
    first, *others = hosts(hosts=4)
    for host in (first, *others):
        host.up()
    address = "careful://10.77.0.1:8786"
    dask(first, "scheduler", "--host", "careful://10.77.0.1", "--port", "8786")
    for host in others:
        dask(host, "worker", address, "--nthreads", "1", "--no-nanny")
    code, out, err = finish(program(first, "job", address, "3"))
    assert (code, out) == (0, "symmetric True\nsum 250000\nagain True\n"), err


@pytest.mark.skipif(not CHECKOUT, reason="CAREFUL_DISTRIBUTED names no checkout of distributed")
def test_comm__distributed_own_checks_pass(pair: tuple[Host, Host]) -> None:
    argv = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"PYTHONPATH": CHECKOUT, "CAREFUL_INSTANCES": " ".join(instances(pair))}
    done = pair[0].lab.run("h1", *argv, SUPPORT / "dask_tests.py", timeout=280, env=env)
    assert " passed" in done.stdout.splitlines()[-1]
