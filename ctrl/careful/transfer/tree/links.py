"""Symlinks and hard links of a tree, as items of a batch, and whether one is there already."""

from __future__ import annotations

import os
from collections.abc import Sequence

from careful._abi import lib
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import Item, Tree
from careful.transfer.protocol.entries import Entry
from careful.transfer.tree.clashes import is_another


def link_items(
    symlinks: Sequence[Entry], hard_links: Sequence[tuple[Entry, str]]
) -> list[tuple[str, Item]]:
    """What makes links, by name; hard_links: (the name, the first name of the file)."""
    made = []
    for one in symlinks:
        attr, target = batch.packed_attr(one.attr), os.fsencode(one.target)
        made.append((one.name, Item(lib.CAREFUL_ITEM_SYMLINK, os.fsencode(one.name), attr, target)))
    for one, first in hard_links:
        item = Item(lib.CAREFUL_ITEM_LINK, os.fsencode(one.name), text=os.fsencode(first))
        made.append((one.name, item))
    return made


async def is_made(target: Tree, item: Item) -> bool:
    """Whether what is there is the link that an item was to make."""
    names = [item.name, *([item.text] if item.op == lib.CAREFUL_ITEM_LINK else [])]
    found = await batch.asked(target, [Item(lib.CAREFUL_ITEM_READ, one) for one in names])
    if any(one.status for one in found):
        return False
    if item.op == lib.CAREFUL_ITEM_LINK:
        return not is_another(found[0].found, found[1].found)
    return found[0].op == lib.CAREFUL_ITEM_SYMLINK and found[0].text == item.text
