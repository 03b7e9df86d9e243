"""Finds names that clash, are extra, or are the same on a file system without case."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from careful._abi import lib
from careful.transfer.file.journal import is_partial
from careful.transfer.options import Options
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import Item, Tree
from careful.transfer.protocol.block import Attr, Entry, ancestors, parent
from careful.transfer.tree.attributes import parts


def _comes(entry: Entry, options: Options) -> bool:
    """Reports whether an entry is moved, not skipped or refused."""
    if entry.attr.is_link:
        return options.links
    return entry.attr.is_dir or (entry.attr.is_file and not is_partial(entry.name))


def in_the_way(
    entries: Sequence[Entry], existing: Mapping[str, Entry], options: Options
) -> list[Entry]:
    """Returns what must go before a source's entries can get their names, children first.

    A file or link goes to make place for a directory, if files may be replaced. A directory goes
    with its contents to make place for a file or link, if the target may lose names (rsync's rule)
    and patterns protect none of them; else the whole directory stays. `existing` maps names to
    entries of the target.
    """
    found: dict[str, Entry] = {}
    for entry in entries:
        there = existing.get(entry.name)
        if there is None or there.attr.is_special or entry.error:
            continue
        if there.attr.is_dir == entry.attr.is_dir or not _comes(entry, options):
            continue
        if entry.attr.is_dir and options.replace:
            found[there.name] = there
        elif there.attr.is_dir and options.delete and options.replace:
            below = there.name + "/"
            lost = {name: one for name, one in existing.items() if name.startswith(below)}
            fits = options.filters.fits_whole
            if all(fits(name, one.attr.is_dir) for name, one in lost.items()):
                found |= {**lost, there.name: there}
    return sorted(found.values(), key=lambda one: one.name.count("/"), reverse=True)


def extra(entries: Sequence[Entry], existing: Mapping[str, Entry], options: Options) -> list[Entry]:
    """Returns the target's names that the source lacks, if patterns permit, children first."""
    present = {entry.name for entry in entries}
    # Below an unreadable directory of the source, nothing is known to be gone. A directory in a
    # file's place stays as a whole.
    closed = {one.name for one in entries if one.error or not one.attr.is_dir}
    gone = [
        one
        for one in existing.values()
        if one.name not in present
        and one.attr.mode
        and not (is_partial(one.name) and parent(one.name) in {"", *present})
        and options.filters.fits_whole(one.name, one.attr.is_dir)
        and not any(above in closed for above in ancestors(one.name))
    ]
    return sorted(gone, key=lambda one: one.name.count("/"), reverse=True)


def look_alike(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Returns groups of files whose paths differ only in case or in Unicode composition."""
    found: dict[str, dict[str, Entry]] = {}
    for entry in entries:
        if not entry.attr.is_dir and not entry.error:
            key = unicodedata.normalize("NFC", entry.name.casefold())
            found.setdefault(key, {})[entry.name] = entry
    return [list(group.values()) for group in found.values() if len(group) > 1]


def is_another(one: Attr, other: Attr) -> bool:
    """Reports whether two entries of one file system are different files."""
    return (one.inode, one.device) != (other.inode, other.device)


async def taken_for_one(target: Tree, groups: Iterable[list[Entry]]) -> list[tuple[str, str]]:
    """Finds names of which a file system without case keeps only one.

    The target reported all of the names as present; `groups` come from look_alike().

    Returns:
        Pairs of names that are one file at the target.
    """
    pairs = [(group, one) for group in groups for one in group]
    lost: list[tuple[str, str]] = []
    for part in parts(pairs):
        items = [Item(lib.CAREFUL_ITEM_READ, os.fsencode(one.name)) for _, one in part]
        seen: dict[tuple[int, int, int], Entry] = {}
        answers = await batch.asked(target, items)
        for (group, one), answer in zip(part, answers, strict=True):
            if answer.status:
                continue
            key = id(group), answer.found.device, answer.found.inode
            other = seen.setdefault(key, one)
            if is_another(other.attr, one.attr):
                lost.append((other.name, one.name))
    return lost
