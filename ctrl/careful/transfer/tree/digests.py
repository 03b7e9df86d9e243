"""Compares small files of two trees by their digests, many in a message.

Owns which files are compared together. A file that cannot be compared so (too large now,
unreadable, or an old peer) is compared by itself, which reports the reason.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from careful._abi import lib
from careful.errors import FATAL, CarefulError
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import Item, Tree
from careful.transfer.protocol.block import Entry
from careful.transfer.tasks import all_of
from careful.transfer.tree.attributes import parts

#: Batches under way at a time: one is read at each end, one crosses.
_BATCHES = 3


async def equal_small(source: Tree, target: Tree, files: Sequence[Entry]) -> dict[str, bool]:
    """Compares the contents of files in two directories by XXH3.

    Larger files are left out.

    Returns:
        name -> whether the files are equal; unknown names are missing.

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
    """Returns the answers to items in order, or nothing if the answer is malformed."""
    try:
        found = list(batch.parse(await tree.run(batch.joined(asked), 0)))
    except CarefulError as error:
        if error.errno in FATAL:
            raise
        return []
    return found if len(found) == len(asked) else []
