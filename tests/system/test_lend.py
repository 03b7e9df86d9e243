"""Memory that carefuld lends: pieces, owners, bounds and quotas."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts import MIB, Host, Hosts, make_file, wait_for
from keyed import Keyed
from lab import Lab

pytestmark = pytest.mark.lab

#: Each program below begins with this.
HEAD = """
import asyncio, os, sys
import careful.memory
from careful.memory import CarefulError
def fails(errno_name, call, *args, **more):
    import errno
    try:
        call(*args, **more)
    except CarefulError as error:
        assert error.errno == getattr(errno, errno_name), error
        return error
    raise AssertionError(f"{errno_name} was expected")
"""


def python(host: Host, text: str, *args: str | Path) -> str:
    """Runs a program on a host to its end; returns its output."""
    return host.lab.run(host.name, sys.executable, "-W", "error", "-c", HEAD + text, *args).stdout


def lends(host: Host) -> list[dict[str, Any]]:
    """Returns what a host's status says about each owner."""
    found: list[dict[str, Any]] = host.status()["lent"]["owners"]
    return found


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, lab_possible: None) -> Iterator[list[Host]]:
    """h1 and h3, which borrow, and h2, which lends 64 MiB, of them 40 MiB to one host."""
    lab = Lab(hosts=3)
    try:
        made = [Host(lab, name, tmp_path_factory.mktemp("lend")) for name in lab.hosts]
        for host in made:
            lend = ("--lend", "64MiB", "--lend-host", "40MiB", "--lend-keep", "2s")
            host.up(*(lend if host.name == "h2" else ()))
        yield made
        for host in made:
            host.down()
    finally:
        lab.down()


def test_piece__is_read_and_written(three: list[Host]) -> None:
    text = """
h2 = careful.memory.connect("h2")
data = os.urandom(5_000_001)
with h2.create("one", 8 << 20) as piece:
    assert piece.read(0, 1 << 20) == bytes(1 << 20)
    assert piece.write(data, 4097) == len(data)
    back = bytearray(len(data))
    assert piece.read_into(back, 4097) == len(data) and back == data
    assert piece.read(0, 4097) == bytes(4097)
    assert piece.read(4097 + len(data), 10) == bytes(10)
    for ordered in (False, True):
        parts = [(at * 8192, os.urandom(4096)) for at in range(200)]
        piece.writev(parts, ordered=ordered)
        got = [(at, bytearray(4096)) for at, _ in reversed(parts)]
        assert piece.readv(got, ordered=ordered) == 200 * 4096
        assert [bytes(one) for _, one in reversed(got)] == [one for _, one in parts]
    fails("ERANGE", piece.read, (8 << 20) - 5, 6)
    fails("ERANGE", piece.write, b"12", (8 << 20) - 1)
    assert piece.read((8 << 20) - 5, 5) == bytes(5)
    try:
        piece.read_into(b"fixed")
    except BufferError:
        pass
    else:
        raise AssertionError("a read-only buffer was written")
fails("EBADF", piece.read, 0, 1)
fails("EEXIST", h2.create, "one", 4096)
[info] = h2.list()
assert (info.name, info.nbytes, info.access, info.mine) == ("one", 8 << 20, "rw", True), info
assert h2.stat("one") == info
h2.delete("one")
assert h2.list() == []
fails("ENOENT", h2.open, "one")
fails("ENOENT", h2.delete, "one")
with h2.create("one", 8 << 20) as piece:
    assert piece.read(0, 8 << 20) == bytes(8 << 20), "memory of another piece"
h2.delete("one")

async def main():
    h2 = await careful.memory.aconnect("h2")
    async with await h2.create("two", 1 << 20) as piece:
        await asyncio.gather(*(piece.write(bytes([k]) * 1000, k * 1000) for k in range(50)))
        got = await asyncio.gather(*(piece.read(k * 1000, 1000) for k in range(50)))
        assert got == [bytes([k]) * 1000 for k in range(50)]
    await h2.delete("two")
asyncio.run(main())
"""
    python(three[0], text)


def test_quota__of_the_host_and_of_all(three: list[Host]) -> None:
    """A host gets its share and no more; what is freed can be had again."""
    h1, _, h3 = three
    text = """
h2 = careful.memory.connect("h2")
h2.create("most", 38 << 20).close()
fails("EDQUOT", h2.create, "more", 4 << 20)
fails("EDQUOT", h2.create, "huge", 1 << 62)
fails("EINVAL", h2.create, "none", 0)
room = h2.room()
assert (room.nbytes, room.mine, room.mine_most) == (64 << 20, 38 << 20, 40 << 20), room
print("ready", flush=True)
sys.stdin.readline()
h2.delete("most")
for number in range(room.pieces_most):
    h2.create(f"many {number}", 4096).close()
fails("EDQUOT", h2.create, "too many", 4096)
assert len(h2.list()) == room.pieces_most
for one in h2.list():
    h2.delete(one.name)
"""
    import subprocess

    argv = h1.lab.argv("h1", sys.executable, "-c", HEAD + text)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        python(
            h3,
            """
h2 = careful.memory.connect("h2")
fails("ENOSPC", h2.create, "rest", 30 << 20)
h2.create("rest", 20 << 20).close()
assert h2.room().free == 6 << 20, h2.room()
h2.delete("rest")
""",
        )
        [owner] = lends(three[1])
        assert (owner["used"], owner["pieces"]) == (38 * MIB, 1), owner
        assert "lends 64 MiB" in three[1].ctl("status").stdout
        first.communicate("\n", timeout=200)
        assert first.returncode == 0


def test_sharing__only_with_those_that_are_named(three: list[Host]) -> None:
    h1, _, h3 = three
    python(
        h1,
        """
h2 = careful.memory.connect("h2")
h2.create("mine", 4096).write(b"secret")
h2.create("both", 4096, share={"h3": "rw"}).write(b"shared")
h2.create("seen", 4096, share={"*": "r"}).write(b"public")
""",
    )
    python(
        h3,
        """
h2 = careful.memory.connect("h2")
absent = fails("ENOENT", h2.open, "never")
hidden = fails("ENOENT", h2.open, "mine")
assert str(absent).replace("never", "mine") == str(hidden)
fails("ENOENT", h2.open, "mine", owner="h1")
fails("ENOENT", h2.stat, "mine")
fails("ENOENT", h2.delete, "both")
assert sorted((one.name, one.access, one.owner, one.mine) for one in h2.list()) == [
    ("both", "rw", "h1", False), ("seen", "r", "h1", False)], h2.list()
with h2.open("both", owner="h1") as both, h2.open("seen") as seen:
    assert both.read(0, 6) == b"shared"
    both.write(b"SHARED")
    assert seen.read(0, 6) == b"public"
    assert isinstance(fails("EACCES", seen.write, b"x"), PermissionError)
h2.create("both", 4096).close()
assert h2.open("both").read(0, 6) == bytes(6), "a host's own piece comes first"
h2.delete("both")
""",
    )
    python(
        h1,
        """
h2 = careful.memory.connect("h2")
assert h2.open("both").read(0, 6) == b"SHARED"
for one in ("mine", "both", "seen"):
    h2.delete(one)
""",
    )


def test_command__publishes_a_file(three: list[Host]) -> None:
    h1, _, h3 = three
    data = make_file(h1.own / "image", 9 * MIB + 17)
    h1.ctl("memory", "put", h1.own / "image", "h2:image", "--share", "*")
    listed = json.loads(h3.ctl("memory", "ls", "h2", "--json").stdout)["pieces"]
    assert [(one["name"], one["nbytes"], one["owner"]) for one in listed] == [
        ("image", len(data), "h1")
    ]
    h3.ctl("memory", "get", "h2:image", h3.own / "copy")
    assert (h3.own / "copy").read_bytes() == data
    done = h3.ctl("memory", "rm", "h2:image", check=False)
    assert done.returncode == 1
    assert "no such piece of memory" in done.stderr
    assert "of h1" in h3.ctl("memory", "stat", "h2:image").stdout
    h1.ctl("memory", "rm", "h2:image")
    h1.ctl("memory", "create", "h2:zeros", "1MiB")
    assert "this host has 1 MiB of at most 40 MiB" in h1.ctl("memory", "stat", "h2").stdout
    h1.ctl("memory", "rm", "h2:zeros")
    done = h1.ctl("memory", "ls", "h3", check=False)
    assert "h3: it lends no memory: `carefulctl up IFACE --lend 4GiB` there" in done.stderr


def test_piece__stays_for_a_while_without_its_owner(three: list[Host]) -> None:
    """A session's end frees nothing at once; a new session has the piece again."""
    h1, h2, _ = three
    h1.ctl("memory", "create", "h2:stays", "1MiB")
    h1.down()
    h1.up()
    assert "stays" in h1.ctl("memory", "ls", "h2").stdout
    h1.down()
    assert lends(h2), "the memory was freed at once"
    wait_for(lambda: not lends(h2), "end of the kept memory", 30)
    h1.up()
    assert "no pieces" in h1.ctl("memory", "ls", "h2").stdout


def test_up__refuses_more_than_there_is(three: list[Host]) -> None:
    h3 = three[2]
    h3.down()
    done = h3.ctl("up", "eth1", "--lend", "1000TiB", check=False)
    assert done.returncode == 1
    assert "needs" in done.stderr
    assert "are available" in done.stderr
    done = h3.ctl("up", "eth1", "--lend", "1MiB", "--queues", "2", check=False)
    assert "needs a single queue" in done.stderr
    h3.up()


def test_owner__is_known_by_its_key(hosts: Hosts) -> None:
    """Without keys, whoever has the address has the memory; with them, whoever has the key."""
    h1, h2 = hosts()
    keyed = Keyed(h1, h2)
    keyed.up("--lend", "16MiB")
    h1.ctl("memory", "create", "h2:mine", "1MiB", "--share", keyed.public(h2))
    [owner] = lends(h2)
    assert (owner["owner"], owner["used"]) == ("h1", MIB)
    done = h1.ctl("memory", "create", "h2:other", "1MiB", "--share", "10.77.0.9", check=False)
    assert "no key of it is trusted here" in done.stderr
    keyed.key(h1, "new", "--later")
    keyed.key(h1, "new", "--replace")
    keyed.key(h2, "trust", "h1", keyed.public(h1))
    h1.down()
    h1.up("--keys", keyed.folder(h1))
    assert "no pieces" in h1.ctl("memory", "ls", "h2").stdout, "another key at the address"
