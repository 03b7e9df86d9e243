"""Symlinks and hard links of a tree, as items of a batch."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence, Set

from careful._abi import lib
from careful.transfer.options import Options
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import Item, Tree
from careful.transfer.protocol.entries import Entry
from careful.transfer.tree.clashes import is_another
from careful.transfer.tree.existing import Decision, decide_entry


def link_items(
    symlinks: Sequence[Entry], hard_links: Sequence[tuple[Entry, str]]
) -> list[tuple[str, Item]]:
    """Returns the items that make links, by name; hard_links: (name, the file's first name)."""
    links = []
    for one in symlinks:
        attr, target = batch.packed_attr(one.attr), os.fsencode(one.target)
        links.append(
            (one.name, Item(lib.CAREFUL_ITEM_SYMLINK, os.fsencode(one.name), attr, target))
        )
    for one, first in hard_links:
        item = Item(lib.CAREFUL_ITEM_LINK, os.fsencode(one.name), text=os.fsencode(first))
        links.append((one.name, item))
    return links


class HardLinks:
    """Files with several names: one name moves the file, the others are linked to it.

    existing: name -> entry of the target.

    Attributes:
        pairs: (entry, the name to link it to).
    """

    def __init__(self, existing: Mapping[str, Entry], options: Options) -> None:
        self._existing, self._options = existing, options
        self._firsts: dict[tuple[int, int], str] = {}
        self.pairs: list[tuple[Entry, str]] = []

    def add(self, entry: Entry) -> bool:
        """Reports whether a name becomes a link; if not, the file moves under this name."""
        if entry.attr.nlink <= 1:
            return False
        decision = decide_entry(entry, self._existing, self._options)
        if decision in (Decision.NEWER, Decision.REFUSE):  # the existing file is not the source's
            return False
        first = self._firsts.setdefault((entry.attr.device, entry.attr.inode), entry.name)
        # A name that may not be replaced is compared like a file of its own.
        if first == entry.name or (
            decision is Decision.COMPARE and not self._is_linked(entry, first)
        ):
            return False
        self.pairs.append((entry, first))
        return True

    def _is_linked(self, entry: Entry, first: str) -> bool:
        one, other = self._existing.get(entry.name), self._existing.get(first)
        return one is not None and other is not None and not is_another(one.attr, other.attr)

    def drop_linked(self, unreplaced: Set[str]) -> None:
        """Drops names that are already linked to files that are not replaced."""
        self.pairs = [
            one for one in self.pairs if one[1] not in unreplaced or not self._is_linked(*one)
        ]

    def next_names(self, *moved: Container[str]) -> list[Entry]:
        """Returns the names that replace first names whose file was not moved.

        moved: names that were moved, or were equal.
        """
        firsts: dict[str, Entry] = {}
        pairs: list[tuple[Entry, str]] = []
        for one, first in self.pairs:
            if any(first in names for names in moved):
                pairs.append((one, first))
            elif firsts.setdefault(first, one) is not one:
                pairs.append((one, firsts[first].name))
        self.pairs = pairs
        return list(firsts.values())


async def is_made(target: Tree, item: Item) -> bool:
    """Reports whether the target already has the link that an item makes."""
    names = [item.name, *([item.text] if item.op == lib.CAREFUL_ITEM_LINK else [])]
    answers = await batch.run_items(target, [Item(lib.CAREFUL_ITEM_READ, one) for one in names])
    if any(one.status for one in answers):
        return False
    if item.op == lib.CAREFUL_ITEM_LINK:
        return not is_another(answers[0].attributes, answers[1].attributes)
    return answers[0].op == lib.CAREFUL_ITEM_SYMLINK and answers[0].text == item.text
