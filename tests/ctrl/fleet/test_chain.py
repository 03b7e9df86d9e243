"""`fleet put` at this host: reports of relays, and output."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from careful.errors import CarefulError
from careful.fleet.blocks import Blocks
from careful.fleet.chain import Member, Put, _Link, _version
from careful.fleet.hosts import Host
from careful.fleet.relay import DAMAGED
from careful.fleet.running import end

BLOCKS = Blocks(100, 1 << 16)
#: A relay that answers one question after it has said twice that it is busy.
BUSY = """read -r line; echo '{"busy": true}'; echo '{"busy": true}'; echo '{"whole": []}'"""


def link(name: str, script: str = "") -> _Link:
    return _Link(Member(Host(name, ("sh", "-c", script), name, "eth1")))


def test_ask__busy_is_no_answer() -> None:
    async def ask() -> dict[str, object]:
        one = link("h2", BUSY)
        await one.start()
        try:
            return await one.ask(30, name="a")
        finally:
            assert one.process
            await one.process.wait()

    assert asyncio.run(ask()) == {"whole": []}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo 'Welcome to h2'; exec sleep 60",
            "said 'Welcome to h2', which is not an answer",
        ),
        ("""python3 -c 'print("[" * 100000)'; exec sleep 60""", "which is not an answer"),
        ("exec tr '\\\\0' x < /dev/zero", "sent a line that is too long"),
        ("echo gone >&2", "gone"),
    ],
)
def test_ask__malformed_answer_is_reported_at_once(script: str, said: str) -> None:
    """For example a shell's greeting, or a hostile host."""

    async def ask() -> None:
        one = link("h2", script)
        await one.start()
        try:
            with pytest.raises(CarefulError, match=said):
                await asyncio.wait_for(one.ask(120, name="a"), 45)
        finally:
            assert one.process
            await end(one.process)

    asyncio.run(ask())


@pytest.fixture
def put(tmp_path: Path) -> Iterator[Put]:
    (tmp_path / "a").write_bytes(b"x" * 100)
    found = Put(tmp_path / "a", 30, False, lambda member: None)
    found._fd = os.open(tmp_path / "a", os.O_RDONLY)
    found._version = _version(os.fstat(found._fd))
    yield found
    os.close(found._fd)


def test_handle__busy_moves_nothing(put: Put) -> None:
    chain = [link("h2"), link("h3")]
    put._handle(chain, 0, {"busy": True}, BLOCKS)
    assert [(one.has_ended, one.present) for one in chain] == [(False, set())] * 2


@pytest.mark.parametrize("is_written", [False, True])
def test_handle__written_to_is_not_damaged(put: Put, is_written: bool) -> None:
    """A program changes the file after its digests were taken: this does not count as damage."""
    if is_written:
        put.path.write_bytes(b"y" * 101)
    chain = [link("h2"), link("h3")]
    for one in chain:
        one.finishing = True
    put._handle(chain, 0, {"ended": f"a: {DAMAGED}"}, BLOCKS)
    put._handle(chain, 1, {"ended": "a: No space left on device"}, BLOCKS)
    changed = "changed while it was being put; put it again"
    assert chain[0].member.error == f"a: {changed if is_written else DAMAGED}"
    assert chain[1].member.error == "a: No space left on device"


@pytest.mark.parametrize("block", [1, -1, 10**9, "x", None, [0], {}])
def test_handle__an_unknown_block_fails_its_host(put: Put, block: object) -> None:
    chain = [link("h1"), link("h2"), link("h3")]
    chain[2].finishing = True
    put._handle(chain, 0, {"sent": block}, BLOCKS)
    assert chain[0].member.error == f"forwarded block {block!r}, which does not exist"
    assert chain[1].member.error == "nothing arrived: the host before it, h1, failed"
    assert [(one.present, one.finishing) for one in chain[:2]] == [(set(), False)] * 2
    assert not chain[2].has_ended


def test_handle__words_of_any_kind(put: Put) -> None:
    chain = [link("h1"), link("h2")]
    put._handle(chain, 0, {"broken": ["x"]}, BLOCKS)
    assert chain[1].member.error == "['x']"
    put._handle(chain, 0, {"ended": 5}, BLOCKS)
    assert chain[0].member.error == "5"


@pytest.mark.parametrize("pieces", ["5", '"x"', '{"a": 1}', "[[]]"])
def test_begin__pieces_of_any_kind_are_none(put: Put, pieces: str) -> None:
    script = f"""read -r line; echo '{{}}'; read -r line; echo '{{"pieces": {pieces}}}'"""

    async def begin() -> _Link:
        one = link("h2", script)
        await put._begin(one)
        assert one.process
        await one.process.wait()
        return one

    one = asyncio.run(begin())
    assert not one.has_ended
    assert BLOCKS.blocks_present(["some digest"], one.pieces) == set()
