"""The peer's carefuld was killed and is up again: the next command connects again by itself."""

from __future__ import annotations

import os
import signal

import pytest
from hosts import Host, alive, hosts_up, wait_for

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

#: Each command of the README that asks the peer's carefuld, and its exit statuses.
COMMANDS = {
    "ping h2 -c 2 -i 10ms": {0},
    "speed h2 --time 0.5": {5},  # nothing answers TCP there
    "measure pathchar h2 --time 1": {0, 5},
    "measure blackbox h2 --time 1": {0, 5},
    "measure logp h2 --time 1": {0, 5},
    "measure burst h2": {0},
    "doctor h2": {0},
    "ls h2:": {0},
    "memory ls h2": {0},
}


@pytest.fixture(scope="module")
def hosts(lab_possible: None, tmp_path_factory: pytest.TempPathFactory):
    with hosts_up(tmp_path_factory.mktemp("restarted")) as made:
        for host in made:
            host.down()
            host.up("--lend", "16MiB")
        yield made


def kill(host: Host) -> None:
    pid = host.status()["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid), "its end")


@pytest.mark.parametrize("command", COMMANDS)
def test_command__connects_again(hosts: list[Host], command: str) -> None:
    h1, h2 = hosts
    h1.ctl("ls", "h2:")  # h1 has a session
    kill(h2)
    h2.up("--lend", "16MiB")
    done = h1.ctl(*command.split(), check=False)
    assert done.returncode in COMMANDS[command], done.stderr
    assert "ended or restarted" not in done.stderr
    assert "reset" not in done.stderr


def test_ping__goes_on_over_a_restart(hosts: list[Host]) -> None:
    h1, h2 = hosts
    running = h1.start("ping", "h2", "-c", "40", "-i", "100ms")
    assert running.stdout
    for said in ("PING", "seq=1"):
        assert said in running.stdout.readline()
    kill(h2)
    h2.up("--lend", "16MiB")
    said, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert "h2: its careful restarted; connected again" in said
    assert "40 sent, 40 received, 0% lost" in said
