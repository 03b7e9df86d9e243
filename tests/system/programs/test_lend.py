"""Memory that carefuld lends: pieces, owners, bounds and quotas."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


@contextmanager
def program(host: Host, text: str) -> Iterator[Any]:
    """Runs a program whose input and output are pipes, and ends it."""
    argv = host.lab.argv(host.name, sys.executable, "-W", "error", "-c", HEAD + text)
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lends(host: Host) -> list[dict[str, Any]]:
    """Returns what a host's status says about each owner."""
    found: list[dict[str, Any]] = host.status()["lent"]["owners"]
    return found


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, lab_possible: None) -> Iterator[list[Host]]:
    """Yields h1 and h3, which borrow, and h2, which lends 64 MiB, at most 40 MiB to a host."""
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
    """A host gets only its share; freed memory is available again."""
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
    with program(h1, text) as first:
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


def test_wait__ends_when_a_write_is_in_place(three: list[Host]) -> None:
    """A host with which the piece is shared is told of each notifying write."""
    reader = """
h2 = careful.memory.connect("h2", timeout_s=3)
with h2.open("told") as piece:
    seen = piece.wait()
    assert seen == 0 and piece.wait(seen, timeout_s=0.05) == 0
    for number in range(1, 4):
        print("reads", flush=True)
        seen = piece.wait(seen, timeout_s=60)
        assert seen == number, seen
        assert piece.read(0, 1 << 20) == bytes([number]) * (1 << 20)
    fails("EACCES", piece.write, b"x", notify=True)
    print("reads", flush=True)
    fails("ENOENT", piece.wait, seen, 60)
"""
    writer = """
h2 = careful.memory.connect("h2")
with h2.create("told", 1 << 20, share={"h3": "r"}) as piece:
    piece.write(b"without notice")
    print("writes", flush=True)
    for number in range(1, 4):
        sys.stdin.readline()
        piece.write(bytes([number]) * (1 << 20), notify=True)
sys.stdin.readline()
h2.delete("told")
"""
    with program(three[0], writer) as writes:
        assert writes.stdout.readline() == "writes\n"
        with program(three[2], reader) as reads:
            for _ in range(4):
                assert reads.stdout.readline() == "reads\n"
                writes.stdin.write("go on\n")
                writes.stdin.flush()
            assert reads.wait(100) == 0
        assert writes.wait(100) == 0


def test_close__waits_for_other_threads(three: list[Host]) -> None:
    """A concurrent reader finds the piece complete, or closed."""
    text = """
import threading
h2 = careful.memory.connect("h2")
h2.create("race", 4 << 20).close()
wrong = []
def reads(piece):
    while True:
        try:
            if piece.read(0, 1 << 20) != bytes(1 << 20):
                wrong.append("bytes")
        except CarefulError as error:
            if "is closed" not in str(error):
                wrong.append(error)
            return
for _ in range(40):
    piece = h2.open("race")
    threads = [threading.Thread(target=reads, args=(piece,)) for _ in range(3)]
    closers = [threading.Thread(target=piece.close) for _ in range(2)]
    for one in threads + closers:
        one.start()
    for one in threads + closers:
        one.join()
assert not wrong, wrong
h2.delete("race")
# The end of a program cuts a thread short.
piece = h2.create("cut", 4 << 20)
threading.Thread(target=reads, args=(piece,), daemon=True).start()
"""
    python(three[0], text)
    three[0].ctl("memory", "rm", "h2:cut")


def test_lend__hugepages(hosts: Hosts) -> None:
    """A piece uses hugepages while the host has some, then small pages."""
    h1, h2 = hosts()
    h1.up()
    h2.up("--lend", "64MiB")
    data = make_file(h1.own / "data", 8 * MIB)
    reserved = Path("/proc/sys/vm/nr_hugepages")
    before = int(reserved.read_text())
    try:
        reserved.write_text(f"{before + 8}\n")
        if int(reserved.read_text()) != before + 8:
            pytest.skip("the kernel has no 8 hugepages")
        h1.ctl("memory", "put", h1.own / "data", "h2:huge")
        h1.ctl("memory", "create", "h2:small", "20MiB")
        found = json.loads(h1.ctl("memory", "ls", "h2", "--json").stdout)["pieces"]
        assert [one["page_bytes"] for one in found] == [2 * MIB, 4096]
        h1.ctl("memory", "get", "h2:huge", h1.own / "copy")
        assert (h1.own / "copy").read_bytes() == data
    except OSError as error:
        pytest.skip(f"no hugepages: {error}")
    finally:
        with suppress(OSError):
            reserved.write_text(f"{before}\n")


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
    assert (
        "this host has 1 MiB in 1 piece (at most 40 MiB in "
        in h1.ctl("memory", "stat", "h2").stdout
    )
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
    """Without keys the address owns the memory; with keys the key does."""
    h1, h2 = hosts()
    keyed = Keyed(h1, h2)
    keyed.up("--lend", "16MiB")
    h1.ctl("memory", "create", "h2:mine", "1MiB", "--share", keyed.public(h2))
    [owner] = lends(h2)
    assert (owner["owner"], owner["used"]) == ("h1", MIB)
    done = h1.ctl("memory", "create", "h2:other", "1MiB", "--share", "10.77.0.9", check=False)
    assert "no key of this host is trusted here" in done.stderr
    keyed.key(h1, "new", "--later")
    keyed.key(h1, "new", "--replace")
    keyed.key(h2, "trust", "h1", keyed.public(h1))
    wait_for(lambda: "keys: read again" in h2.log, "new keys")
    h1.down()
    h1.up("--keys", keyed.folder(h1))
    assert "no pieces" in h1.ctl("memory", "ls", "h2").stdout, "another key at the address"
