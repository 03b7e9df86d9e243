"""--on-loss fail: a loss ends the transfer in any step."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import Any

import pytest
from careful._abi import ffi, lib
from careful.errors import CarefulError, LossError
from careful.transfer.lost_frames import Losses
from careful.transfer.stream import ends

SLOT = 3


class FakeIpc:
    """A carefuld that counts a peer's lost frames."""

    lost = 0

    async def ask(self, op: int) -> Any:
        assert op == lib.CAREFUL_IPC_PEERS
        info = ffi.new("struct careful_peer_info *", {"slot": SLOT, "lost_here": self.lost})
        return SimpleNamespace(payload=bytes(ffi.buffer(info)))


async def losses_after(fail: bool, lost: int, status: int) -> Losses:
    ipc = FakeIpc()
    losses = Losses(ipc, SLOT, "h2", fail)  # type: ignore[arg-type]
    await losses.begin()
    ipc.lost = lost
    await losses.check(status)
    return losses


@pytest.mark.parametrize("status", [-errno.ECONNRESET, -errno.EBADMSG])
def test_loss__ends_the_transfer_at_once_and_at_the_end(status: int) -> None:
    async def run() -> None:
        ipc = FakeIpc()
        losses = Losses(ipc, SLOT, "h2", True)  # type: ignore[arg-type]
        await losses.begin()
        ipc.lost = 2
        with pytest.raises(LossError, match=r"lost 2 frames|damaged"):
            await losses.check(status)
        await losses.check(status)  # clean-up may be repeated
        with pytest.raises(LossError):
            losses.check_end()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("fail", "lost", "status"),
    [
        (False, 2, -errno.ECONNRESET),
        (True, 0, -errno.ECONNRESET),  # the peer restarted
        (True, 2, -errno.ENOENT),
    ],
)
def test_no_loss__the_transfer_continues(fail: bool, lost: int, status: int) -> None:
    asyncio.run(losses_after(fail, lost, status)).check_end()


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (LossError(errno.ECONNABORTED, "the network lost 1 frame", "h2"), True),
        (CarefulError(errno.ENOENT, "", "h2:f"), False),
    ],
)
def test_remote_attr__a_loss_is_reported(error: CarefulError, raised: bool) -> None:
    """Only a loss is reported here; other failures show when the file is opened."""

    class Remote:
        async def stat(self, _: str) -> None:
            raise error

    look = ends._remote_attr(Remote(), "f")  # type: ignore[arg-type]
    if raised:
        with pytest.raises(LossError):
            asyncio.run(look)
    else:
        assert asyncio.run(look) == ends.NOTHING
