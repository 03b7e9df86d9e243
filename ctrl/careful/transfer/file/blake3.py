"""BLAKE3 of a file at both ends: each end reads its own file, and only digests cross."""

from __future__ import annotations

import errno
from functools import partial

from careful._abi import ffi, lib
from careful.errors import CarefulError, check, shown
from careful.transfer.file.mover import Mover
from careful.transfer.tasks import in_slices, in_thread

#: The most times that a block is compared before the transfer fails.
_ATTEMPTS = 3


def _digest(fd: int, offset: int, nbytes: int, algorithm: int, place: int | None = None) -> bytes:
    digest = ffi.new("uint8_t[]", lib.CAREFUL_DIGEST_BYTES_MAX)
    place = offset if place is None else place
    check(lib.careful_digest_at(fd, place, offset, nbytes, algorithm, digest), "")
    return bytes(digest)


def _differs(path: str) -> CarefulError:
    return CarefulError(errno.EBADMSG, "the BLAKE3 of the two ends differs", shown(path))


def _joined(digests: list[bytes]) -> int:
    digest = ffi.new("uint8_t[]", lib.CAREFUL_DIGEST_BYTES_MAX)
    lib.careful_digest_join(b"".join(digests), len(digests), digest)
    return int.from_bytes(bytes(digest), "big")


async def agreed_digest(mover: Mover, nbytes: int, path: str) -> int:
    """Returns the BLAKE3 of a moved file, computed at both ends.

    Moves blocks that differ again; these count as retries. `mover.block_bytes` is a power of two.
    Raises CarefulError: the ends still differ after _ATTEMPTS.
    """
    step = mover.block_bytes
    if not nbytes:
        return int.from_bytes(_digest(mover.fd, 0, 0, lib.CAREFUL_BLOCK_BLAKE3_ROOT), "big")
    kind = lib.CAREFUL_BLOCK_BLAKE3 if nbytes > step else lib.CAREFUL_BLOCK_BLAKE3_ROOT

    def digest(at: int) -> bytes:
        return _digest(mover.fd, at, min(step, nbytes - at), kind)

    for _ in range(_ATTEMPTS):
        theirs = await mover.ask(
            lambda handle: mover.remote.digests_as(kind, handle, (0, nbytes), step, path)
        )
        mine = await in_slices(digest, range(0, nbytes, step), step)
        pairs = zip(mine, theirs, strict=True)
        differing = [index for index, (own, other) in enumerate(pairs) if own != other]
        if not differing:
            return int.from_bytes(mine[0], "big") if len(mine) == 1 else _joined(mine)
        for index in differing:
            mover.pace.retries += 1
            mover.progress.retried()
            await mover.block(index * step, min(step, nbytes - index * step))
    raise _differs(path)


class StreamDigest:
    """The BLAKE3 of a stream, whose blocks pass through memory one after another.

    Args:
        mover: moves blocks between the peer's file and a ring in memory.
        path: the peer's path, for errors.

    Attributes:
        is_one_block: whether the stream is known to have one block.
    """

    def __init__(self, mover: Mover, path: str) -> None:
        self._mover, self._path = mover, path
        self._parts: dict[int, bytes] = {}
        self.is_one_block = False

    async def block(self, offset: int, nbytes: int, base: int) -> int:
        """Moves a block until both ends agree; returns its XXH3."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._mover.pace.retries += 1
                self._mover.progress.retried()
            digest = await self._mover.block(offset, nbytes, base)
            if await self._agrees(offset, nbytes, base):
                return digest
        raise _differs(self._path)

    async def _agrees(self, offset: int, nbytes: int, base: int) -> bool:
        kind = lib.CAREFUL_BLOCK_BLAKE3_ROOT if self.is_one_block else lib.CAREFUL_BLOCK_BLAKE3
        mover, ask = self._mover, self._mover.remote.digests_as
        [theirs] = await mover.ask(
            lambda handle: ask(kind, handle, (offset, nbytes), mover.block_bytes, self._path)
        )
        mine = await in_thread(partial(_digest, mover.fd, offset, nbytes, kind, base))
        self._parts[offset] = mine
        return mine == theirs

    async def end(self, nbytes: int) -> int:
        """Returns the digest of the whole stream of `nbytes`."""
        if not nbytes:
            return int.from_bytes(
                _digest(self._mover.fd, 0, 0, lib.CAREFUL_BLOCK_BLAKE3_ROOT), "big"
            )
        if len(self._parts) == 1 and not self.is_one_block:  # the first block was also the last
            self.is_one_block = True
            if not await self._agrees(0, nbytes, 0):
                raise _differs(self._path)
        digests = [self._parts[offset] for offset in sorted(self._parts)]
        return int.from_bytes(digests[0], "big") if len(digests) == 1 else _joined(digests)
