"""Finds names that clash, are extra, or are the same on a file system that ignores case."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from careful._abi import lib
from careful.transfer.file.journal import is_partial
from careful.transfer.options import Options
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import Item, Tree
from careful.transfer.protocol.entries import Attr, Entry, ancestors, parent
from careful.transfer.tree.attributes import batches


def _is_moved(entry: Entry, options: Options) -> bool:
    """Reports whether an entry is moved; others are skipped or refused."""
    if entry.attr.is_link:
        return options.links
    return entry.attr.is_dir or (entry.attr.is_file and not is_partial(entry.name))


def removed_first(
    entries: Sequence[Entry], existing: Mapping[str, Entry], options: Options
) -> list[Entry]:
    """Returns the target's entries that must go before a source's entries can get their names,
    children first.

    A file or link makes room for a directory, if files may be replaced. A directory makes room for
    a file or link with all its contents, if the target may lose names (rsync's rule) and patterns
    protect none of them. existing: name -> entry of the target.
    """
    removable: dict[str, Entry] = {}
    for entry in entries:
        existing_entry = existing.get(entry.name)
        if existing_entry is None or existing_entry.attr.is_special or entry.error:
            continue
        if existing_entry.attr.is_dir == entry.attr.is_dir or not _is_moved(entry, options):
            continue
        if entry.attr.is_dir and options.replace:
            removable[existing_entry.name] = existing_entry
        elif existing_entry.attr.is_dir and options.delete and options.replace:
            below = existing_entry.name + "/"
            lost = {name: one for name, one in existing.items() if name.startswith(below)}
            fits = options.filters.fits_with_parents
            if all(fits(name, one.attr.is_dir) for name, one in lost.items()):
                removable |= {**lost, existing_entry.name: existing_entry}
    return sorted(removable.values(), key=lambda one: one.name.count("/"), reverse=True)


def extra(entries: Sequence[Entry], existing: Mapping[str, Entry], options: Options) -> list[Entry]:
    """Returns the target's names that the source lacks, if patterns permit, children first."""
    present = {entry.name for entry in entries}
    # Nothing is known below an unreadable directory of the source; a directory in a file's place
    # stays as a whole.
    opaque = {one.name for one in entries if one.error or not one.attr.is_dir}
    extras = [
        one
        for one in existing.values()
        if one.name not in present
        and one.attr.mode
        and not (is_partial(one.name) and parent(one.name) in {"", *present})
        and options.filters.fits_with_parents(one.name, one.attr.is_dir)
        and not any(above in opaque for above in ancestors(one.name))
    ]
    return sorted(extras, key=lambda one: one.name.count("/"), reverse=True)


def same_name_groups(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Returns groups of files whose paths differ only in case or in Unicode composition."""
    by_key: dict[str, dict[str, Entry]] = {}
    for entry in entries:
        if not entry.attr.is_dir and not entry.error:
            key = unicodedata.normalize("NFC", entry.name.casefold())
            by_key.setdefault(key, {})[entry.name] = entry
    return [list(group.values()) for group in by_key.values() if len(group) > 1]


def is_another(one: Attr, other: Attr) -> bool:
    """Reports whether two entries of one file system are different files."""
    return (one.inode, one.device) != (other.inode, other.device)


async def merged_names(target: Tree, groups: Iterable[list[Entry]]) -> list[tuple[str, str]]:
    """Returns pairs of different files that are one file at the target, which ignores case.

    The target finds all of the names, so inodes are compared. groups: from same_name_groups().
    """
    pairs = [(group, one) for group in groups for one in group]
    lost: list[tuple[str, str]] = []
    for group_items in batches(pairs):
        items = [Item(lib.CAREFUL_ITEM_READ, os.fsencode(one.name)) for _, one in group_items]
        by_inode: dict[tuple[int, int, int], Entry] = {}
        answers = await batch.run_items(target, items)
        for (group, one), answer in zip(group_items, answers, strict=True):
            if answer.status:
                continue
            key = id(group), answer.attributes.device, answer.attributes.inode
            other = by_inode.setdefault(key, one)
            if is_another(other.attr, one.attr):
                lost.append((other.name, one.name))
    return lost
