"""Symlinks and hard links of a tree, as items of a batch."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence, Set

from careful._abi import lib
from careful.transfer.options import Options
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import Item, Tree
from careful.transfer.protocol.entries import Entry, parent
from careful.transfer.tree.clashes import is_another
from careful.transfer.tree.existing import Fate, fate_of


def link_items(
    symlinks: Sequence[Entry], hard_links: Sequence[tuple[Entry, str]]
) -> list[tuple[str, Item]]:
    """Returns the items that make links, by name; hard_links: (name, the file's first name)."""
    made = []
    for one in symlinks:
        attr, target = batch.packed_attr(one.attr), os.fsencode(one.target)
        made.append((one.name, Item(lib.CAREFUL_ITEM_SYMLINK, os.fsencode(one.name), attr, target)))
    for one, first in hard_links:
        item = Item(lib.CAREFUL_ITEM_LINK, os.fsencode(one.name), text=os.fsencode(first))
        made.append((one.name, item))
    return made


class HardLinks:
    """Names of files that have several: one name brings the file, the others are linked to it.

    `existing` maps names to entries of the target; for `options` see fate().

    Attributes:
        pairs: (name, the name that it is linked to).
    """

    def __init__(self, existing: Mapping[str, Entry], options: Options) -> None:
        self._existing, self._options = existing, options
        self._firsts: dict[tuple[int, int], str] = {}
        self.pairs: list[tuple[Entry, str]] = []

    def take(self, entry: Entry) -> bool:
        """Reports whether to make a name a link; if not, the file moves under this name."""
        if entry.attr.nlink <= 1:
            return False
        what = fate_of(entry, self._existing, self._options)
        if what in (Fate.NEWER, Fate.REFUSE):  # the existing file is not the source's
            return False
        first = self._firsts.setdefault((entry.attr.device, entry.attr.inode), entry.name)
        # A name that may not be replaced is compared as a file of its own.
        if first == entry.name or (what is Fate.COMPARE and not self._is_made(entry, first)):
            return False
        self.pairs.append((entry, first))
        return True

    def _is_made(self, entry: Entry, first: str) -> bool:
        one, other = self._existing.get(entry.name), self._existing.get(first)
        return one is not None and other is not None and not is_another(one.attr, other.attr)

    def drop_made(self, stay: Set[str]) -> None:
        """Drops names that are linked already; `stay`: files that are not replaced."""
        self.pairs = [one for one in self.pairs if one[1] not in stay or not self._is_made(*one)]

    def drop_below(self, folders: Set[str]) -> None:
        self.pairs = [one for one in self.pairs if parent(one[0].name) not in folders]

    def next_names(self, *here: Container[str]) -> list[Entry]:
        """Returns the names that replace first names which did not bring their file.

        `here` has the names that did, or were equal.
        """
        firsts: dict[str, Entry] = {}
        pairs: list[tuple[Entry, str]] = []
        for one, first in self.pairs:
            if any(first in names for names in here):
                pairs.append((one, first))
            elif firsts.setdefault(first, one) is not one:
                pairs.append((one, firsts[first].name))
        self.pairs = pairs
        return list(firsts.values())


async def is_made(target: Tree, item: Item) -> bool:
    """Reports whether the target already has the link that an item makes."""
    names = [item.name, *([item.text] if item.op == lib.CAREFUL_ITEM_LINK else [])]
    found = await batch.asked(target, [Item(lib.CAREFUL_ITEM_READ, one) for one in names])
    if any(one.status for one in found):
        return False
    if item.op == lib.CAREFUL_ITEM_LINK:
        return not is_another(found[0].found, found[1].found)
    return found[0].op == lib.CAREFUL_ITEM_SYMLINK and found[0].text == item.text
