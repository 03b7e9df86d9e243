"""`careful.open()`: two Python programs on two hosts, each with a queue of its own.

The assertions are in node_traffic.py and node_life.py; node_client.py runs each case in a process
on the host.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import careful
import pytest
from lab import Lab, MakeLab

pytestmark = pytest.mark.lab

HERE = Path(__file__).parent
#: Tells the test when an example serves.
READY = ("    while True:", "    print('ready', flush=True)\n    while True:")
PINS = Path("/sys/fs/bpf/careful")


@pytest.fixture(scope="module")
def server(lab: Lab) -> Iterator[Lab]:
    """Starts a node that serves on h2."""
    process = lab.start("h2", sys.executable, HERE / "node_server.py")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    yield lab
    process.terminate()
    assert process.communicate(timeout=30)[1] == ""


def run(
    lab: Lab, case: str, *args: str, check: bool = True, **more: Any
) -> subprocess.CompletedProcess[str]:
    client = (sys.executable, "-X", "dev", HERE / "node_client.py", case, *args)
    return lab.run("h1", *client, check=check, **more)


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("case", ["request", "handler_errors", "late_reply", "get", "store"])
def test_two_programs__over_ipv4_and_ipv6(server: Lab, case: str, family: int) -> None:
    done = run(server, case, server.address("h2", family))
    assert done.stderr == ""


@pytest.mark.parametrize(
    "case",
    [
        "regions",
        "built",
        "built_share",
        "memory_is_held",
        "full",
        "peers",
        "close",
        "close_errors",
        "options",
        "misuse",
        "forked",
        "forked_again",
        "loop_failures",
        "loop_handlers",
        "own_loop",
        "coroutine_without_loop",
    ],
)
def test_node__case(server: Lab, case: str) -> None:
    done = run(server, case)
    assert done.stderr == ""


@pytest.mark.parametrize("wait", ["adaptive", "spin", "block"])
def test_loop__waiting(server: Lab, wait: str) -> None:
    environment = {**os.environ, "CASE_WAIT": wait}
    assert run(server, "loop_traffic", env=environment).stderr == ""


def test_wait__ends_with_a_signal(server: Lab) -> None:
    assert run(server, "interrupt").stderr == ""


def test_node__without_references_is_closed_with_a_warning(server: Lab) -> None:
    assert "ResourceWarning: careful on eth1 was not closed" in run(server, "dropped").stderr


@pytest.mark.parametrize("case", ["left_open", "left_in_a_thread"])
def test_program__ends_without_close(server: Lab, case: str) -> None:
    done = run(server, case)
    assert done.stdout.strip() == server.instance("h1")
    assert done.stderr == ""
    assert not (PINS / server.instance("h1")).exists()


@pytest.mark.parametrize("again", ["by_a_program", "by_carefuld"])
def test_program__killed_then_opened_again(server: Lab, again: str) -> None:
    done = run(server, "killed", check=False)
    assert done.returncode != 0
    name, child = done.stdout.split()
    assert (PINS / name).exists()
    if again == "by_carefuld":
        server.run("h1", "carefulctl", "up", "eth1")
        run(server, "beside_carefuld")
        server.run("h1", "carefulctl", "status", "eth1")
        server.run("h1", "carefulctl", "down", "eth1")
    else:
        run(server, "request")
    assert not (PINS / name).exists()
    os.kill(int(child), signal.SIGKILL)


def test_carefulctl__next_to_a_program(server: Lab) -> None:
    def ctl(*args: str, check: bool = True) -> str:
        done = server.run("h2", "carefulctl", *args, check=check)
        assert check or done.returncode == 1
        return done.stdout + done.stderr

    name = server.instance("h2")
    assert f"instance {name}: is in use by process" in ctl("up", "eth1", check=False)
    assert f"instance {name}: is in use by process" in ctl("down", "eth1", check=False)
    assert "eth1: belongs to process" in ctl("status", "eth1", check=False)
    assert f"instance {name}: belongs to process" in ctl("ls", "h1:", check=False)
    assert "1000 fixed" not in ctl("tune", "show", "eth1")
    ctl("tune", "set", "eth1", "--fragment-bytes", "1000")
    assert "1000 fixed" in ctl("tune", "show", "eth1")
    found = json.loads(ctl("doctor", "--json", "eth1"))["findings"]
    states = {one["check"]: one["state"] for one in found}
    assert (states["XDP"], states["qdisc"], states["instance"]) == ("ok", "ok", "ok")
    run(server, "get")


@pytest.mark.parametrize(
    "case",
    ["peer_killed", "peer_silent", "interface_gone", "loop_interface_gone", "loop_peer_killed"],
)
def test_other_end__is_gone(make_lab: MakeLab, case: str) -> None:
    lab = make_lab()
    process = lab.start("h2", sys.executable, HERE / "node_server.py")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    run(lab, case, "h2", str(process.pid))


@pytest.mark.parametrize("case", ["away", "loop_away"])
def test_session__given_up_in_a_pause(make_lab: MakeLab, case: str) -> None:
    lab = make_lab()
    process = lab.start("h2", sys.executable, HERE / "node_server.py", "1000")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    run(lab, case)


def code_in(text: str) -> list[str]:
    """Returns the Python programs in a docstring."""
    blocks = re.findall(r"(?:^    .*\n|^\n)+", text, re.MULTILINE)
    return [textwrap.dedent(one) for one in blocks if "import careful" in one]


def test_example__works_as_documented(make_lab: MakeLab) -> None:
    lab = make_lab()
    assert careful.__doc__ is not None
    serve, ask = code_in(careful.__doc__)
    process = lab.start("h2", sys.executable, "-c", serve.replace(*READY))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    done = lab.run("h1", sys.executable, "-c", ask)
    assert done.stdout == "b'HELLO'\nbytearray(b'some bytes')\n"


def test_open__without_privilege(server: Lab) -> None:
    program = "import careful; careful.open('eth1')"
    powerless = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]
    done = server.run("h1", *powerless, sys.executable, "-c", program, check=False)
    assert done.returncode == 1
    assert "CarefulPermissionError: eth1: no permission" in done.stderr
    assert "run as root" in done.stderr


def test_server__quits_when_asked(make_lab: MakeLab) -> None:
    lab = make_lab()
    process = lab.start("h2", sys.executable, HERE / "node_server.py")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    run(lab, "quit_server")
    assert process.wait(30) == 0
    assert not (PINS / lab.instance("h2")).exists()
