"""Many concurrent calls of one program end, and the host continues after all leftovers."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("fsspec")

from hosts import Host, finish, wait_for

#: More than the handles that a host grants us, and than a program's questions under way.
COUNT = 300
HEAD = """
import asyncio, faulthandler, os, sys
import careful.files, fsspec
faulthandler.dump_traceback_later(90, exit=True)
count = int(sys.argv[1])
names = [f"many/{k}" for k in range(count)]
fs = fsspec.filesystem("careful", host="h2")
"""
MANY = """
fs.pipe({f"/piped/{k}": b"x" for k in range(count)})
fs.cp("/many", "/copied", recursive=True)
fs.get("/many", "got", recursive=True)
assert set(fs.cat(names).values()) == {b"x"}
async def at_once():
    async with careful.files.aconnect("h2") as h2:
        each = lambda call: asyncio.gather(*(call(k, f"made/{k}/f") for k in range(count)))
        await each(lambda k, name: h2.mkdir(f"made/{k}", parents=True, exist_ok=True))
        await each(lambda k, name: h2.write(name, b"x"))
        await each(lambda k, name: h2.write(name, b"y", 0))
        assert await each(lambda k, name: h2.read(name)) == [b"y"] * count
        await each(lambda k, name: h2.remove(name))
        await each(lambda k, name: anext(h2.ls(names[k])))
asyncio.run(at_once())
"""
#: Sends every kind of request, without the bounds of careful.files, and closes nothing.
FLOOD = """
from careful._abi import lib
async def flood():
    async with careful.files.aconnect("h2") as h2, h2._connections.shared() as shared:
        remote = shared.remote
        kinds = (
            lambda k: remote.create(f"new{k}", 1, 0o600, True),
            lambda k: remote.create(f"part{k}", 1, 0o600, True, tag=k + 1, tail_bytes=64),
            lambda k: remote.open(names[k], wait=True),
            lambda k: remote.open_inplace(names[k]),
            lambda k: remote.scratch(".", 1 << 16),
            lambda k: remote.request(lib.CAREFUL_BLOCK_LIST, (lib.CAREFUL_BLOCK_WAIT,), b"many"),
            lambda k: remote.stat(names[k]),
            lambda k: remote.mkdir(f"directory{k}", 0o700),
        )
        asked = [asyncio.ensure_future(kinds[(k + FIRST) % len(kinds)](k)) for k in range(count)]
        await asyncio.wait(asked, timeout=3)
        os.kill(os.getpid(), 9)
asyncio.run(flood())
"""
#: Opens as many files as one program may.
HOLDER = """
async def hold():
    async with careful.files.aconnect("h2") as h2:
        opened = []
        try:
            for name in names:
                opened.append(await h2.open(name))
        except OSError as error:
            print(len(opened), error.strerror)
        await opened.pop().close()
        await h2.write("one", b"x")
        print("wrote", flush=True)
        await asyncio.sleep(80)
asyncio.run(hold())
"""

#: Each call of this program holds a file, 32 at a time.
SHARERS = """
for _ in range(5):
    assert set(fs.cat(names).values()) == {b"x"}
async def write():
    async with careful.files.aconnect("h2") as h2:
        await asyncio.gather(*(h2.write(name, b"x", 0, sync=False) for name in names))
asyncio.run(write())
"""


def make_files(host: Host) -> None:
    (host.export / "many").mkdir()
    (host.export / "piped").mkdir()
    for number in range(COUNT):
        (host.export / f"many/{number}").write_bytes(b"x")


def temporary(host: Host) -> list[str]:
    """Returns temporary files, except partial ones, whose tags the flood chose."""
    found = (path.name for path in host.export.glob(".careful-*.part"))
    return [name for name in found if int(name[9:25], 16) > COUNT]


def run(host: Host, text: str) -> tuple[int, str, str]:
    return finish(host.lab.start("h1", sys.executable, "-c", HEAD + text, f"{COUNT}", cwd=host.own))


def test_files__many_at_once(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    make_files(remote)
    assert run(local, MANY) == (0, "", "")
    for folder in (remote.export / "piped", remote.export / "copied", local.own / "got"):
        assert len(list(folder.iterdir())) == COUNT


def test_flood__that_is_killed(pair: tuple[Host, Host]) -> None:
    """Other programs can use the host at once, with as many files as before."""
    local, remote = pair
    make_files(remote)
    for first in range(4):
        assert run(local, FLOOD.replace("FIRST", f"{first}"))[0] == -9
        assert run(local, "fs.ls('/'), fs.cat(names), fs.pipe('/one', b'x')") == (0, "", "")
        (remote.export / "one").unlink()
    wait_for(lambda: not temporary(remote), "temporary files to go")


def test_files__of_one_program_leave_some_to_others(pair: tuple[Host, Host]) -> None:
    local, remote = pair
    make_files(remote)
    command = [sys.executable, "-c", HEAD + HOLDER, f"{COUNT}"]
    holder = local.lab.start("h1", *command, cwd=local.own)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "96 Too many open files\n"
    assert holder.stdout.readline() == "wrote\n"
    assert run(local, "fs.ls('/'), fs.cat(names), fs.pipe('/two', b'x')") == (0, "", "")
    # Two programs want more than the rest. Their calls wait for each other.
    command = [sys.executable, "-c", HEAD + SHARERS, f"{COUNT}"]
    both = [local.lab.start("h1", *command, cwd=local.own) for _ in range(2)]
    assert [finish(one) for one in both] == [(0, "", "")] * 2
    holder.kill()
