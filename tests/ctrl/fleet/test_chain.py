"""`fleet put` as this host sees it: what relays say, and what is told of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from careful.fleet.blocks import Blocks
from careful.fleet.chain import Member, Put, _Link, _version
from careful.fleet.hosts import Host
from careful.fleet.relay import DAMAGED

BLOCKS = Blocks(100, 1 << 16)
#: A relay that answers one question, when it has said twice that it is busy.
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


@pytest.fixture
def put(tmp_path: Path) -> Iterator[Put]:
    (tmp_path / "a").write_bytes(b"x" * 100)
    found = Put(tmp_path / "a", 30, False, lambda member: None)
    found._fd = os.open(tmp_path / "a", os.O_RDONLY)
    found._version = _version(os.fstat(found._fd))
    yield found
    os.close(found._fd)


def test_hear__busy_moves_nothing(put: Put) -> None:
    chain = [link("h2"), link("h3")]
    put._hear(chain, 0, {"busy": True}, BLOCKS)
    assert [(one.is_over, one.have) for one in chain] == [(False, set())] * 2


@pytest.mark.parametrize("is_written", [False, True])
def test_hear__written_to_is_not_damaged(put: Put, is_written: bool) -> None:
    """What a program writes into the file after its digests were taken."""
    if is_written:
        put.path.write_bytes(b"y" * 101)
    chain = [link("h2"), link("h3")]
    for one in chain:
        one.finishing = True
    put._hear(chain, 0, {"ended": f"a: {DAMAGED}"}, BLOCKS)
    put._hear(chain, 1, {"ended": "a: No space left on device"}, BLOCKS)
    changed = "changed while it was being put; put it again"
    assert chain[0].member.error == f"a: {changed if is_written else DAMAGED}"
    assert chain[1].member.error == "a: No space left on device"
