"""Copies attributes between trees, many names at a time, and makes names durable."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from careful._abi import lib
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import Item, Tree
from careful.transfer.protocol.block import Attr, Entry
from careful.transfer.tree.outcome import Outcome

_T = TypeVar("_T")


def parts(
    items: Sequence[_T], size: Callable[[_T], int] | None = None, most: int = batch.BYTES
) -> Iterable[list[_T]]:
    """Cuts items into batches of at most `most` bytes; a larger item is a batch by itself."""
    part: list[_T] = []
    total = 0
    for item in items:
        nbytes = size(item) if size is not None else 0
        if part and (len(part) >= batch.COUNT or total + nbytes > most):
            yield part
            part, total = [], 0
        part.append(item)
        total += nbytes
    if part:
        yield part


async def apply_attributes(
    source: Tree, target: Tree, wanted: Sequence[tuple[str, str, Attr]], flags: int, sink: Outcome
) -> None:
    """Gives names of the target the attributes of names of the source.

    `wanted` has the name in the source, the name in the target, and the attributes at the time when
    the contents were moved.
    """
    for part in parts(wanted):
        items = [
            Item(lib.CAREFUL_ITEM_META, os.fsencode(name), batch.packed_attr(attr))
            for _, name, attr in part
        ]
        others: list[Item] = []  # an unreadable list of attributes does not count as empty
        if flags & lib.CAREFUL_BATCH_XATTRS:
            found = await _read_xattrs(source, [name for name, _, _ in part], flags)
            for (name, _, _), answer in zip(part, found, strict=True):
                if answer.status:
                    sink.fail_errno(source.name(name), answer.status)
            pairs = list(zip(items, found, strict=True))
            others = [item for item, answer in pairs if answer.status]
            items = [
                item._replace(xattrs=answer.xattrs) for item, answer in pairs if not answer.status
            ]
        await _set(target, items, flags, sink)
        await _set(target, others, flags & ~lib.CAREFUL_BATCH_XATTRS, sink)


async def _set(target: Tree, items: list[Item], flags: int, sink: Outcome) -> None:
    if not items:
        return
    answers = await batch.asked(target, items, flags)
    for item, answer in zip(items, answers, strict=True):
        if answer.status:
            sink.fail_errno(target.name(os.fsdecode(item.name)), answer.status)


async def _read_xattrs(source: Tree, names: Sequence[str], flags: int) -> list[Item]:
    """Returns each name's READ answer; asks again for those that did not fit."""
    reads = [Item(lib.CAREFUL_ITEM_READ, os.fsencode(name)) for name in names]
    found = await batch.asked(source, reads, flags)
    late = [index for index, one in enumerate(found) if one.status == errno.EOVERFLOW]
    if 0 < len(late) < len(found):
        rest = await _read_xattrs(source, [names[index] for index in late], flags)
        for index, one in zip(late, rest, strict=True):
            found[index] = one
    return found


async def usual_modes(target: Tree, made: Sequence[Entry], mask: int) -> None:
    """Gives new directories the permissions that new ones usually have.

    `mask` has permission bits to leave out.
    """
    for part in parts(made):
        items = []
        for one in part:
            mode = batch.packed_attr(one.attr._replace(mode=one.attr.mode & ~0o7000 & ~mask))
            items.append(Item(lib.CAREFUL_ITEM_META, os.fsencode(one.name), mode))
        await batch.asked(target, items, lib.CAREFUL_BATCH_MODE)


async def sync_file_system(tree: Tree, sink: Outcome, folder: str = ".") -> None:
    """Makes everything on a directory's file system durable (syncfs).

    Args:
        tree: a directory.
        sink: receives a failure; then nothing is certain to survive a crash.
        folder: the directory to sync, relative to `tree`.
    """
    item = Item(lib.CAREFUL_ITEM_SYNC, os.fsencode(os.path.join(folder, ".")))
    for answer in batch.parse(await tree.run(item.packed(), 0)):
        if answer.status:
            sink.fail_errno(tree.name(folder), answer.status)
