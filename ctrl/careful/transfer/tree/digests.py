"""Small files of two trees compared by their digests, many in a message.

Owns which names are asked about together. What could not be told this way (too large by now,
unreadable, a peer that knows no such items) is compared by itself: that says why.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence

from careful._abi import lib
from careful.errors import FATAL, CarefulError
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import Item, Tree
from careful.transfer.protocol.block import Entry
from careful.transfer.tasks import all_of
from careful.transfer.tree.attributes import parts

#: How much of a file is equal at both ends, and whether all of it is.
Compare = Callable[[str], Awaitable[tuple[int, bool]]]
#: Batches under way at a time: one is read here, one there, one crosses.
_BATCHES = 3


async def equal_small(source: Tree, target: Tree, files: Sequence[Entry]) -> dict[str, bool]:
    """Reports whether files have the same contents (XXH3) in two directories.

    Args:
        source: the one directory.
        target: the other.
        files: entries of source; those that are not small are left out.

    Returns:
        name -> whether they are equal; names of which it could not be told are missing.

    Raises:
        CarefulError: the peer is gone.
    """
    small = [one for one in files if one.attr.bytes <= batch.SMALL_BYTES]
    todo = iter(list(parts(small, lambda one: one.attr.bytes)))
    found: dict[str, bool] = {}

    async def worker() -> None:
        for part in todo:
            asked = [Item(lib.CAREFUL_ITEM_DIGEST, os.fsencode(one.name)) for one in part]
            mine, theirs = [await _answered(tree, asked) for tree in (source, target)]
            for entry, one, other in zip(part, mine, theirs, strict=False):
                if not (one.status or other.status):
                    found[entry.name] = _content(one) == _content(other)

    await all_of(*(worker() for _ in range(min(_BATCHES, len(small)))))
    return found


def _content(item: Item) -> tuple[int, int]:
    return item.digest, item.found.bytes


async def _answered(tree: Tree, asked: list[Item]) -> list[Item]:
    """Returns the answers to items, in their order; none if that is no answer."""
    try:
        found = list(batch.parse(await tree.run(batch.joined(asked), 0)))
    except CarefulError as error:
        if error.errno in FATAL:
            raise
        return []
    return found if len(found) == len(asked) else []
