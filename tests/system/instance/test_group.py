"""`carefulctl up --group`: rights of members, and of root alone."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import RUN, Host
from lab import nobody

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is not installed"),
]

NOBODY = 65534
PROGRAM = """
import careful
with careful.attach(name="nobody") as node:
    print(node.connect("10.77.0.2").state)
"""


def as_nobody(host: Host, group: str, *argv: str | Path) -> tuple[int, str, str]:
    """Runs a command as an unprivileged user in one group. Returns status, output and errors."""
    done = host.lab.run(host.name, *nobody(group), "env", "HOME=/", *argv, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Returns a folder that every user may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="careful-group-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_group__sees_nothing_inside_carefuld(pair: tuple[Host, Host]) -> None:
    """A member without capabilities, like users; nobody() keeps one that reads every folder."""
    here, _ = pair
    here.down()
    here.up("--group", "games")
    member = ("setpriv", f"--reuid={NOBODY}", "--regid=games", "--clear-groups")
    proc = Path("/proc") / str(here.pid)
    assert here.lab.run("h1", *member, "cat", proc / "comm").stdout == "carefuld\n"
    for argv in (("ls", proc / "fd"), ("cat", proc / "maps"), ("head", "-c1", proc / "mem")):
        done = here.lab.run("h1", *member, *argv, check=False)
        assert done.returncode
        assert "Permission denied" in done.stderr
    # The capability shows names of descriptors, but opens none.
    done = here.lab.run("h1", *nobody("games"), "cat", proc / "fd/0", check=False)
    assert "Permission denied" in done.stderr


def test_group__uses_careful_without_root(pair: tuple[Host, Host], open_folder: Path) -> None:
    local, remote = pair
    mine, roots = open_folder / "nobody", open_folder / "roots"
    mine.mkdir()
    os.chown(mine, NOBODY, -1)
    (remote.export / "file").write_bytes(b"hello")
    local.down()
    done = local.ctl("up", "eth1", "--group", "no such", check=False)
    assert done.returncode
    assert "--group no such: there is no such group" in done.stderr
    local.up("--group", "games")
    instance = local.lab.instance("h1")
    pins = [one for one in (Path("/sys/fs/bpf/careful") / instance).rglob("*") if one.is_file()]
    assert pins
    assert not [one for one in pins if stat.S_IMODE(one.stat().st_mode) & 0o077]
    code, _, said = as_nobody(local, "games", "mkdir", RUN / "squatted")
    assert code, said
    sock = (RUN / local.lab.instance("h1") / "sock").stat()
    assert (stat.S_IMODE(sock.st_mode), sock.st_uid) == (0o660, 0)
    code, _, said = as_nobody(local, "games", "carefulctl", "get", "h2:file", mine)
    assert (code, said) == (0, "")
    assert (mine / "file").read_bytes() == b"hello"
    assert (mine / "file").stat().st_uid == NOBODY
    code, out, said = as_nobody(local, "games", "carefulctl", "status")
    assert code == 0, said
    assert "window: 64 frames" in out
    assert as_nobody(local, "games", sys.executable, "-c", PROGRAM)[:2] == (0, "up\n")
    # A file that the caller may not write stays unchanged.
    roots.write_bytes(b"root's")
    code, _, said = as_nobody(local, "games", "carefulctl", "get", "h2:file", roots)
    assert code
    assert roots.read_bytes() == b"root's"
    code, _, said = as_nobody(local, "games", "carefulctl", "down", "eth1")
    assert code
    assert "must be run as root" in said
    code, _, said = as_nobody(local, "nogroup", "carefulctl", "get", "h2:file", mine / "again")
    assert code
    assert "only root may connect (sudo), or the group of up --group" in said
