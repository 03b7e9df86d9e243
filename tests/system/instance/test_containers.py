"""Hosts that share /run/careful and have their own PID namespaces, like containers."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from denied import DOCKER_DENIES, denied
from hosts import MIB, RUN, Host, alive, make_file, wait_for
from lab import MakeLab

ROOT = Path(__file__).parents[3]
#: Capabilities of a Docker container.
DOCKER_HAS = (
    *("audit_write", "chown", "dac_override", "fowner", "fsetid", "kill", "mknod", "net_raw"),
    *("net_bind_service", "setfcap", "setgid", "setpcap", "setuid", "sys_chroot"),
)
_UP = "carefulctl up eth1 >/dev/null && echo up && sleep 600"


def _carefuld(host: Host) -> int:
    """Returns the pid of a host's carefuld in our namespace, or 0."""
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            words = (proc / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if words[0].endswith("carefuld") and host.lab.instance(host.name) in words:
            return int(proc.name)
    return 0


@contextmanager
def _container(host: Host) -> Iterator[int]:
    """Runs careful in a PID namespace; yields carefuld's pid in our namespace."""
    argv = ["unshare", "-pf", "--kill-child", "--mount-proc", "sh", "-c", _UP]
    process = host.lab.start(host.name, *argv)
    try:
        assert process.stdout
        assert process.stdout.readline() == "up\n"
        yield _carefuld(host)
    finally:
        process.kill()
        process.communicate()


def _in(pid: int, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in all namespaces of a process."""
    argv = ["nsenter", "-t", str(pid), "-p", "-m", "-n", *command]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120)


def test_down__ends_no_other_containers_carefuld(make_lab: MakeLab, tmp_path: Path) -> None:
    """Both had the same pid: `down` of one ended the other, and reported success."""
    lab = make_lab(hosts=2)
    a, b = (Host(lab, name, tmp_path) for name in ("h1", "h2"))
    with _container(a) as ours, _container(b) as theirs:
        assert ours
        assert theirs
        done = _in(ours, "carefulctl", "down", "eth1", "--instance", lab.instance("h2"))
        assert done.returncode == 1
        assert "its process runs in another PID namespace; run this command there" in done.stderr
        assert alive(ours)
        assert alive(theirs)
        assert (RUN / lab.instance("h2") / "sock").exists()
        # `status` asks each carefuld; options of the other one are no longer mixed in
        shown = json.loads(_in(ours, "carefulctl", "status", "--json").stdout)["instances"]
        assert lab.instance("h1") in [one["instance"] for one in shown]
        assert lab.instance("h2") not in [one["instance"] for one in shown]
        # from outside both are visible, with their pids there
        b.ctl("down", "eth1")
        wait_for(lambda: not alive(theirs), "its own carefuld to end")
        assert alive(ours)
        a.ctl("down", "eth1")


def test_carefuld__names_the_process_that_runs_already(make_lab: MakeLab, tmp_path: Path) -> None:
    """The pid in the lock's file is valid only in carefuld's own container."""
    lab = make_lab(hosts=2)
    host = Host(lab, "h1", tmp_path)
    with _container(host) as running:
        command = ["carefuld", "--ifname", "eth1", "--instance", lab.instance("h1")]
        second = lab.run("h1", *command, check=False)
        assert f"a carefuld runs there already: process {running}\n" in second.stderr
        apart = ["unshare", "-pf", "--kill-child", "--mount-proc"]
        second = lab.run("h1", *apart, *command, check=False)
        assert "runs there already: a process of another PID namespace\n" in second.stderr
        program = [sys.executable, "-c", "import careful; careful.open('eth1')"]
        second = lab.run("h1", *program, check=False)
        assert "carefuld runs on eth1: use careful.attach()" in second.stderr
        second = lab.run("h1", *apart, *program, check=False)
        assert "is in use by a process of another PID namespace;" in second.stderr


def test_docker_run__the_documented_line_is_enough(make_lab: MakeLab, tmp_path: Path) -> None:
    """The capabilities of `help services`, without the system calls that Docker denies."""
    if platform.machine() != "x86_64":
        pytest.skip("the system calls have x86_64's numbers")
    text = (ROOT / "ctrl/careful/man/operation/services.md").read_text()
    added = [name.lower() for name in re.findall(r"--cap-add (\w+)", text)]
    assert added
    kept = ",".join(f"+{name}" for name in (*DOCKER_HAS, *added))
    docker = ["setpriv", f"--bounding-set=-all,{kept}", *denied(*DOCKER_DENIES)]
    lab = make_lab(hosts=2)
    pair = Host(lab, "h1", tmp_path), Host(lab, "h2", tmp_path)
    for one in pair:
        up = ["carefulctl", "up", "eth1", "--export", f"{one.export}:rw", "--insecure"]
        done = lab.run(one.name, *docker, *up)
        assert "io_uring is denied" in done.stdout
    data = make_file(pair[1].export / "big", 3 * MIB + 7, 1)
    target = tmp_path / "copy"
    lab.run("h1", *docker, "carefulctl", "get", "h2:big", target)
    assert target.read_bytes() == data
    lab.run("h1", *docker, "carefulctl", "put", target, "h2:back")
    assert (pair[1].export / "back").read_bytes() == data
    for one in pair:
        lab.run(one.name, *docker, "carefulctl", "down", "eth1")
        assert not (RUN / lab.instance(one.name)).exists()
