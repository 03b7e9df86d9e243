"""`carefulctl up` of what is up already, what it leaves behind, and what it says is exported."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest
from careful.control import command_line
from careful.control.config import DEFAULTS, UpOptions
from hosts import RUN, Host


@pytest.fixture
def host(lab: object, tmp_path: Path) -> object:
    """A host on which nothing is up."""
    one = Host(lab, "h1", tmp_path)  # type: ignore[arg-type]
    yield one
    one.ctl("down", "eth1", check=False)


def test_up__twice_is_once(host: Host) -> None:
    host.up("--peers", "4")
    pid = host.pid
    again = host.ctl("up", "eth1", "--export", f"{host.export}:rw", "--peers", "4")
    assert again.stdout == f"eth1: is up already, with these options (carefuld {pid})\n"
    assert host.pid == pid
    # An option that is given as what it is by default makes no difference.
    done = host.ctl(
        *("up", "eth1", "--export", f"{host.export}:rw", "--peers", "4"),
        *("--wait", "adaptive", "--rx-buffers", "512", "--json"),
    )
    assert json.loads(done.stdout)["already"] is True


def test_up__otherwise_names_what_differs(host: Host) -> None:
    host.up("--peers", "4")
    pid = host.pid
    done = host.ctl("up", "eth1", "--peers", "2", "--xdp", "generic", check=False)
    assert done.returncode == 1
    assert "--peers is 4, not 2; --xdp is auto, not generic" in done.stderr
    assert f"--export is {host.export}:rw, not none" in done.stderr
    assert done.stderr.endswith("first: carefulctl down eth1\n")
    assert host.pid == pid


def test_up__refused_leaves_nothing(host: Host) -> None:
    done = host.ctl("up", "eth1", "--require-zerocopy", check=False)
    assert "zero-copy" in done.stderr
    assert not (RUN / host.lab.instance("h1")).exists()
    host.up()


def test_status__exports(host: Host, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    host.up("--export", more)
    found = host.status()["exports"]
    assert found == [
        {"path": str(host.export), "writable": True},
        {"path": str(more), "writable": False},
    ]
    said = " ".join(host.ctl("status", "eth1").stdout.split())
    assert f"exports {host.export} (writable), {more}" in said


def test_command_line__there_and_back() -> None:
    options = UpOptions(
        name="a", peers=3, xdp="native", require_zerocopy=True, export=("/a", "/b:rw")
    )
    argv = ["carefuld", "--ifname", "eth1", *command_line.words(options), "--ready-fd", "5"]
    assert command_line.read(argv) == options


def test_defaults__are_those_of_carefuld() -> None:
    """Each that its help states, and no other."""
    said = subprocess.run(["carefuld", "--help"], capture_output=True, text=True, check=True)
    stated = {
        name.replace("-", "_"): value
        for name, value in re.findall(r"--([\w-]+) [A-Z]+ .*\((\w+)\)$", said.stdout, re.M)
    }
    own = {one.name: getattr(DEFAULTS, one.name) for one in fields(DEFAULTS)}
    assert stated == {name: str(value) for name, value in own.items() if value} | {"queue": "0"}
