"""BLAKE3 of a file at both ends: each reads its own, and only digests cross."""

from __future__ import annotations

import errno
from functools import partial

from careful._abi import ffi, lib
from careful.errors import CarefulError, check
from careful.transfer.block import BlockClient
from careful.transfer.local import shown
from careful.transfer.mover import Mover, in_thread

#: How often blocks that differ are moved again.
_ATTEMPTS = 3


def _one(fd: int, offset: int, nbytes: int, algorithm: int) -> bytes:
    digest = ffi.new("uint8_t[]", lib.CAREFUL_DIGEST_BYTES_MAX)
    check(lib.careful_digest(fd, offset, nbytes, algorithm, digest), "")
    return bytes(digest)


def _parts(fd: int, nbytes: int, block_bytes: int) -> list[bytes]:
    kind = lib.CAREFUL_BLOCK_BLAKE3 if nbytes > block_bytes else lib.CAREFUL_BLOCK_BLAKE3_ROOT
    starts = range(0, nbytes, block_bytes)
    return [_one(fd, at, min(block_bytes, nbytes - at), kind) for at in starts]


def _joined(parts: list[bytes]) -> int:
    digest = ffi.new("uint8_t[]", lib.CAREFUL_DIGEST_BYTES_MAX)
    lib.careful_digest_join(b"".join(parts), len(parts), digest)
    return int.from_bytes(bytes(digest), "big")


async def agreed(mover: Mover, remote: BlockClient, nbytes: int, path: str) -> int:
    """The BLAKE3 of a file that was moved, the same at both ends.

    Blocks that differ are moved again, and count as retries.

    Args:
        mover: that moved it; its blocks are powers of two.
        remote: the peer's tree.
        nbytes: of the file.
        path: the peer's, for errors.

    Raises:
        CarefulError: they do not come to be equal.
    """
    step = mover.block_bytes
    if not nbytes:
        return int.from_bytes(_one(mover.fd, 0, 0, lib.CAREFUL_BLOCK_BLAKE3_ROOT), "big")
    kind = lib.CAREFUL_BLOCK_BLAKE3 if nbytes > step else lib.CAREFUL_BLOCK_BLAKE3_ROOT
    for _ in range(_ATTEMPTS):
        theirs = await remote.digests_as(kind, mover.handle, (0, nbytes), step, path)
        mine = await in_thread(partial(_parts, mover.fd, nbytes, step))
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
