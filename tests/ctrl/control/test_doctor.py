"""What `carefulctl doctor` finds, puts right and takes back."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import PINS, Host, alive, wait_for
from lab import MakeLab

Found = dict[str, tuple[str, str, str]]


@pytest.fixture
def host(make_lab: MakeLab, tmp_path: Path) -> Iterator[Host]:
    """One host of a lab, on which nothing is up."""
    one = Host(make_lab(hosts=2), "h1", tmp_path)
    yield one
    one.ctl("down", "eth1", check=False)


def doctor(host: Host, *args: str, status: int = 0) -> Found:
    """Each stage's state, text and advice."""
    done = host.ctl("doctor", *args, "--json", check=False)
    assert done.returncode == status, done.stdout + done.stderr
    stages = json.loads(done.stdout)["fixed" if "--fix" in args else "findings"]
    return {one["stage"]: (one["state"], one["text"], one["advice"]) for one in stages}


def test_doctor__before_and_while_it_is_up(host: Host) -> None:
    found = doctor(host, "eth1")
    assert found["XDP"][:2] == ("ok", "no program on the interface")
    assert found["instance"][0] == "ok"
    assert {state for state, _, _ in found.values()} <= {"ok", "unknown"}
    host.up()
    found = doctor(host, "eth1")
    assert found["XDP"][:2] == ("ok", "ours: careful_frags, native")
    assert found["qdisc"][:2] == ("ok", "pfifo")
    assert str(host.pid) in found["instance"][1]


def test_doctor__interface_down(host: Host) -> None:
    host.lab.run("h1", "ip", "link", "set", "eth1", "down")
    state, text, advice = doctor(host, "eth1", status=1)["interface"]
    assert (state, text) == ("fail", "eth1 is down")
    assert advice == "ip link set eth1 up"
    assert doctor(host, "--fix", "eth1")["interface"][1] == "set eth1 up"
    assert doctor(host, "--fix", "eth1")["interface"][1] == "nothing to do"
    host.up()


def test_doctor__no_such_interface(host: Host) -> None:
    found = doctor(host, "eth9", status=1)
    assert found["interface"][0] == "fail"
    assert "eth9" in found["interface"][1]


def test_doctor__after_a_kill(host: Host) -> None:
    host.up()
    pid = host.pid
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid), "end of carefuld")
    found = doctor(host, "eth1")
    assert found["instance"][0] == "warn"
    assert found["qdisc"][0] == "warn"
    taken = doctor(host, "--fix", "eth1")["instance"][1]
    assert taken == "removed what a killed carefuld had left"
    assert not (PINS / host.lab.instance("h1")).exists()
    found = doctor(host, "eth1")
    assert found["instance"][0] == "ok"
    assert found["qdisc"][0] == "ok"


def test_doctor__fix_while_it_is_up(host: Host) -> None:
    host.up()
    assert doctor(host, "--fix", "eth1")["instance"][1] == "nothing to do"
    assert host.status()["pid"] == host.pid
