"""BLAKE3 of a file at both ends: each end reads its own file, and only digests cross."""

from __future__ import annotations

import errno
from functools import partial

from careful._abi import ffi, lib
from careful.errors import CarefulError, check, shown
from careful.transfer.file.mover import Mover
from careful.transfer.protocol.block import BlockClient
from careful.transfer.tasks import in_slices, in_thread

#: The most times that a block is compared before the transfer fails.
_ATTEMPTS = 3


def _one(fd: int, offset: int, nbytes: int, algorithm: int, place: int | None = None) -> bytes:
    digest = ffi.new("uint8_t[]", lib.CAREFUL_DIGEST_BYTES_MAX)
    place = offset if place is None else place
    check(lib.careful_digest_at(fd, place, offset, nbytes, algorithm, digest), "")
    return bytes(digest)


async def _parts(fd: int, nbytes: int, block_bytes: int, kind: int) -> list[bytes]:
    def part(at: int) -> bytes:
        return _one(fd, at, min(block_bytes, nbytes - at), kind)

    return await in_slices(part, range(0, nbytes, block_bytes), block_bytes)


def _joined(parts: list[bytes]) -> int:
    digest = ffi.new("uint8_t[]", lib.CAREFUL_DIGEST_BYTES_MAX)
    lib.careful_digest_join(b"".join(parts), len(parts), digest)
    return int.from_bytes(bytes(digest), "big")


async def agreed(mover: Mover, remote: BlockClient, nbytes: int, path: str) -> int:
    """Returns the BLAKE3 of a file that was moved, computed at both ends.

    Moves blocks again that differ; these count as retries. The blocks of `mover` are powers of two.

    Raises:
        CarefulError: the ends still differ after _ATTEMPTS.
    """
    step = mover.block_bytes
    if not nbytes:
        return int.from_bytes(_one(mover.fd, 0, 0, lib.CAREFUL_BLOCK_BLAKE3_ROOT), "big")
    kind = lib.CAREFUL_BLOCK_BLAKE3 if nbytes > step else lib.CAREFUL_BLOCK_BLAKE3_ROOT
    for _ in range(_ATTEMPTS):
        theirs = await mover.ask(
            lambda handle: remote.digests_as(kind, handle, (0, nbytes), step, path)
        )
        mine = await _parts(mover.fd, nbytes, step, kind)
        bad = [
            index for index, pair in enumerate(zip(mine, theirs, strict=True)) if len({*pair}) > 1
        ]
        if not bad:
            return int.from_bytes(mine[0], "big") if len(mine) == 1 else _joined(mine)
        for index in bad:
            mover.pace.retries += 1
            mover.progress.retried()
            await mover.block(index * step, min(step, nbytes - index * step))
    raise CarefulError(errno.EBADMSG, "the BLAKE3 of the two ends differs", shown(path))


class StreamDigest:
    """The BLAKE3 of a stream, whose blocks pass through memory one after another.

    Args:
        mover: moves blocks between the peer's file and a ring in memory.
        remote: the peer's tree.
        path: the peer's path, for errors.
        is_one: whether the stream is known to have one block.
    """

    def __init__(self, mover: Mover, remote: BlockClient, path: str, is_one: bool = False) -> None:
        self._mover, self._remote, self._path = mover, remote, path
        self._parts: dict[int, bytes] = {}
        self.is_one = is_one

    async def block(self, offset: int, nbytes: int, base: int) -> int:
        """Moves a block until both ends agree; returns its XXH3."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._mover.pace.retries += 1
                self._mover.progress.retried()
            digest = await self._mover.block(offset, nbytes, base)
            if await self._agrees(offset, nbytes, base):
                return digest
        raise CarefulError(errno.EBADMSG, "the BLAKE3 of the two ends differs", shown(self._path))

    async def _agrees(self, offset: int, nbytes: int, base: int) -> bool:
        kind = lib.CAREFUL_BLOCK_BLAKE3_ROOT if self.is_one else lib.CAREFUL_BLOCK_BLAKE3
        mover, ask = self._mover, self._remote.digests_as
        [theirs] = await mover.ask(
            lambda handle: ask(kind, handle, (offset, nbytes), mover.block_bytes, self._path)
        )
        mine = await in_thread(partial(_one, mover.fd, offset, nbytes, kind, base))
        self._parts[offset] = mine
        return mine == theirs

    async def end(self, nbytes: int) -> int:
        """Returns the digest of the whole stream of `nbytes`. Raises CarefulError: the two ends
        differ.
        """
        if not nbytes:
            return int.from_bytes(_one(self._mover.fd, 0, 0, lib.CAREFUL_BLOCK_BLAKE3_ROOT), "big")
        if len(self._parts) == 1 and not self.is_one:  # it turned out to be the last
            self.is_one = True
            if not await self._agrees(0, nbytes, 0):
                text = "the BLAKE3 of the two ends differs"
                raise CarefulError(errno.EBADMSG, text, shown(self._path))
        parts = [self._parts[offset] for offset in sorted(self._parts)]
        return int.from_bytes(parts[0], "big") if len(parts) == 1 else _joined(parts)
