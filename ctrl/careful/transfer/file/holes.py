"""Finds where a file holds data, here and at a peer, and turns zeros into holes."""

from __future__ import annotations

import errno
import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import partial
from itertools import chain

from careful._abi import lib, pack
from careful.errors import CarefulError, about, shown
from careful.transfer.protocol.block import BlockClient
from careful.transfer.protocol.entries import Attr
from careful.transfer.tasks import SLICE_BYTES, in_slices, in_thread

#: Zeros are found in runs of this size, bytes.
GRAIN = 32 << 10
_ZEROS = bytes(GRAIN)
#: A file has holes if it occupies at least this much less than its size, bytes.
_HOLES_BYTES_MIN = 4096
_PUNCH_HOLE_KEEP_SIZE = 3
#: The most extents of a file; everything after the last counts as data.
_EXTENTS_MAX = 1 << 18


def has_holes(attr: Attr) -> bool:
    """Reports whether a file occupies clearly less than its size."""
    return attr.allocated + _HOLES_BYTES_MIN <= attr.bytes


class Ranges:
    """The parts of a file that hold data: extents (offset, bytes), in order and disjoint."""

    def __init__(self, extents: Iterable[tuple[int, int]]) -> None:
        self._extents = list(extents)
        self._starts = [offset for offset, _ in self._extents]

    def __call__(self, offset: int, nbytes: int) -> list[tuple[int, int]]:
        """Returns the parts of a range that hold data: offset and bytes of each."""
        end = offset + nbytes
        parts = []
        first = max(0, bisect_right(self._starts, offset) - 1)
        for index in range(first, bisect_left(self._starts, end)):
            at, size = self._extents[index]
            begin, last = max(at, offset), min(at + size, end)
            if begin < last:
                parts.append((begin, last - begin))
        return parts

    def hole_end(self, offset: int, end: int) -> int:
        """Returns where the next data begins, at most `end`; returns `offset` if data is there."""
        index = bisect_right(self._starts, offset)
        if index and offset < sum(self._extents[index - 1]):
            return offset
        return min(end, self._starts[index]) if index < len(self._starts) else end


def merged(*lists: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the union of extents, in order and disjoint."""
    extents: list[tuple[int, int]] = []
    for at, size in sorted(chain.from_iterable(lists)):
        if extents and at <= sum(extents[-1]):
            begin, before = extents[-1]
            extents[-1] = begin, max(before, at + size - begin)
        else:
            extents.append((at, size))
    return extents


def local_extents(fd: int, nbytes: int) -> list[tuple[int, int]]:
    """Returns where an open file holds data."""
    extents: list[tuple[int, int]] = []
    at = 0
    while at < nbytes:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break
            return [*extents, (at, nbytes - at)]
        end = min(os.lseek(fd, begin, os.SEEK_HOLE), nbytes)
        if begin < end:
            extents.append((begin, end - begin))
        at = end
    return extents


def is_hole(fd: int, offset: int, nbytes: int) -> bool:
    """Reports whether a range of an open file certainly holds no data."""
    end = offset + nbytes
    try:
        return os.lseek(fd, offset, os.SEEK_DATA) >= end
    except OSError as error:
        return error.errno == errno.ENXIO and os.fstat(fd).st_size >= end


def without_zeros(fd: int, extents: Iterable[tuple[int, int]], name: str) -> list[tuple[int, int]]:
    """Returns the extents without aligned runs of GRAIN zeros."""
    kept: list[tuple[int, int]] = []
    with about(shown(name)):
        for begin, nbytes in extents:
            at, end = begin, begin + nbytes
            while at < end:
                size = min(GRAIN - at % GRAIN, end - at)
                is_zero = os.pread(fd, size, at) == _ZEROS[:size]
                if not is_zero and kept and sum(kept[-1]) == at:
                    kept[-1] = kept[-1][0], kept[-1][1] + size
                elif not is_zero:
                    kept.append((at, size))
                at += size
    return kept


async def remote_extents(
    remote: BlockClient, handle: int, nbytes: int, path: str
) -> list[tuple[int, int]]:
    """Returns where a peer's open file holds data. Raises CarefulError: the answer is malformed."""
    extents: list[tuple[int, int]] = []
    at, name = 0, remote.name(shown(path))
    while at < nbytes:
        if len(extents) > _EXTENTS_MAX:
            return [*extents, (at, nbytes - at)]
        payload = pack("careful_block_range", offset=at, bytes=nbytes - at)
        answer = await remote.request(lib.CAREFUL_BLOCK_EXTENTS, (handle,), payload)
        count, high, low, _ = answer.check(name).args
        end, last = high << 32 | low, at
        is_valid = len(answer.payload) == 16 * count and at < end <= nbytes
        for begin, size in struct.iter_unpack(">QQ", answer.payload if is_valid else b""):
            is_valid = is_valid and last <= begin <= begin + size <= end
            extents.append((begin, size))
            last = begin + size
        if not is_valid:
            raise CarefulError(errno.EPROTO, "the peer sent malformed extents", name)
        at = end
    return extents


async def ranges(
    remote: BlockClient, ends: tuple[tuple[int, str], tuple[int, str]], nbytes: int, no_zeros: bool
) -> Ranges:
    """Returns where data of a file must move: where either end holds data. The target may hold data
    of an earlier transfer, or of the replaced file, where the source has a hole.

    Args:
        remote: the peer's tree.
        ends: handle and path of the peer's file, descriptor and path of ours.
        nbytes: size of the file.
        no_zeros: whether zeros of our file are holes.
    """
    (handle, path), (fd, name) = ends
    here = await in_thread(partial(local_extents, fd, nbytes))
    if no_zeros:
        pieces = [
            (at, min(SLICE_BYTES, begin + size - at))
            for begin, size in here
            for at in range(begin, begin + size, SLICE_BYTES)
        ]
        search = lambda piece: without_zeros(fd, [piece], name)  # noqa: E731
        here = list(chain.from_iterable(await in_slices(search, pieces, SLICE_BYTES)))
    return Ranges(merged(here, await remote_extents(remote, handle, nbytes, path)))


def punch_zeros(fd: int, offset: int, nbytes: int) -> None:
    """Turns zeros in a range of an open file into holes, if the file system can."""
    at, end = offset, offset + nbytes
    while at < end:
        size = min(GRAIN - at % GRAIN, end - at)
        is_zero = os.pread(fd, size, at) == _ZEROS[:size]
        if is_zero and lib.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, at, size):
            return
        at += size
