"""Copies attributes between trees, many names at a time, and makes names durable."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from careful._abi import lib
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import Item, Tree
from careful.transfer.protocol.entries import Attr, Entry
from careful.transfer.tree.outcome import Outcome

_T = TypeVar("_T")


def batches(
    items: Sequence[_T], size: Callable[[_T], int] | None = None, bytes_max: int = batch.BYTES
) -> Iterable[list[_T]]:
    """Cuts items into batches of at most `bytes_max`; a larger item is a batch by itself."""
    group: list[_T] = []
    total = 0
    for item in items:
        nbytes = size(item) if size is not None else 0
        if group and (len(group) >= batch.COUNT or total + nbytes > bytes_max):
            yield group
            group, total = [], 0
        group.append(item)
        total += nbytes
    if group:
        yield group


async def apply_attributes(
    source: Tree,
    target: Tree,
    wanted: Sequence[tuple[str, str, Attr]],
    flags: int,
    outcome: Outcome,
) -> None:
    """Gives names of the target the attributes of names of the source.

    wanted: (name in the source, name in the target, attributes when the contents were moved).
    """
    for group in batches(wanted):
        items = [
            Item(lib.CAREFUL_ITEM_META, os.fsencode(name), batch.packed_attr(attr))
            for _, name, attr in group
        ]
        without_xattrs: list[Item] = []  # their xattrs cannot be read, and stay as they are
        if flags & lib.CAREFUL_BATCH_XATTRS:
            answers = await _read_xattrs(source, [name for name, _, _ in group], flags)
            for (name, _, _), answer in zip(group, answers, strict=True):
                if answer.status:
                    outcome.fail_errno(source.name(name), answer.status)
            pairs = list(zip(items, answers, strict=True))
            without_xattrs = [item for item, answer in pairs if answer.status]
            items = [
                item._replace(xattrs=answer.xattrs) for item, answer in pairs if not answer.status
            ]
        await _set_attributes(target, items, flags, outcome)
        await _set_attributes(target, without_xattrs, flags & ~lib.CAREFUL_BATCH_XATTRS, outcome)


async def _set_attributes(target: Tree, items: list[Item], flags: int, outcome: Outcome) -> None:
    if not items:
        return
    answers = await batch.run_items(target, items, flags)
    for item, answer in zip(items, answers, strict=True):
        if answer.status:
            outcome.fail_errno(target.name(os.fsdecode(item.name)), answer.status)


async def _read_xattrs(source: Tree, names: Sequence[str], flags: int) -> list[Item]:
    """Returns each name's READ answer; asks again for those that did not fit."""
    reads = [Item(lib.CAREFUL_ITEM_READ, os.fsencode(name)) for name in names]
    answers = await batch.run_items(source, reads, flags)
    unanswered = [index for index, one in enumerate(answers) if one.status == errno.EOVERFLOW]
    if 0 < len(unanswered) < len(answers):
        rest = await _read_xattrs(source, [names[index] for index in unanswered], flags)
        for index, one in zip(unanswered, rest, strict=True):
            answers[index] = one
    return answers


async def set_usual_modes(target: Tree, made: Sequence[Entry], mask: int) -> None:
    """Gives new directories the permissions that new ones usually have, without the bits of
    `mask`.
    """
    for group in batches(made):
        items = []
        for one in group:
            mode = batch.packed_attr(one.attr._replace(mode=one.attr.mode & ~0o7000 & ~mask))
            items.append(Item(lib.CAREFUL_ITEM_META, os.fsencode(one.name), mode))
        await batch.run_items(target, items, lib.CAREFUL_BATCH_MODE)


async def sync_file_system(tree: Tree, outcome: Outcome, folder: str = ".") -> None:
    """Makes everything on the file system of `folder`, relative to `tree`, durable (syncfs)."""
    item = Item(lib.CAREFUL_ITEM_SYNC, os.fsencode(os.path.join(folder, ".")))
    for answer in batch.parse(await tree.run(item.packed(), 0)):
        if answer.status:
            outcome.fail_errno(tree.name(folder), answer.status)
