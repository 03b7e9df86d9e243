"""Compares small files of two trees by their digests, many in a message.

A file that cannot be compared so (too large by now, unreadable, or an old peer) is compared by
itself, which reports the reason.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from careful._abi import lib
from careful.errors import FATAL, CarefulError
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import Item, Tree
from careful.transfer.protocol.entries import Entry
from careful.transfer.tasks import each
from careful.transfer.tree.attributes import batches

#: Batches under way at a time: one is read at each end, one crosses.
_BATCHES = 3


async def equal_small(source: Tree, target: Tree, files: Sequence[Entry]) -> dict[str, bool]:
    """Compares small files in two directories by XXH3; returns name -> whether they are equal.

    Names that could not be compared are missing.
    """
    small = [one for one in files if one.attr.bytes <= batch.SMALL_BYTES]
    are_equal: dict[str, bool] = {}

    async def compare(group: list[Entry]) -> None:
        items = [Item(lib.CAREFUL_ITEM_DIGEST, os.fsencode(one.name)) for one in group]
        answers = [await _answers(tree, items) for tree in (source, target)]
        for entry, pair in zip(group, zip(*answers, strict=False), strict=False):
            if not any(one.status for one in pair):
                contents = {(one.digest, one.attributes.bytes) for one in pair}
                are_equal[entry.name] = len(contents) == 1

    await each(batches(small, lambda one: one.attr.bytes), _BATCHES, compare)
    return are_equal


async def _answers(tree: Tree, items: list[Item]) -> list[Item]:
    """Returns the answers to items in order, or nothing if the answer is malformed."""
    try:
        answers = list(batch.parse(await tree.run(batch.joined(items), 0)))
    except CarefulError as error:
        if error.errno in FATAL:
            raise
        return []
    return answers if len(answers) == len(items) else []
