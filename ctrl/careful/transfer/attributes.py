"""What stands beside contents, from one tree to another, many names at a time; durability."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from careful._abi import lib
from careful.transfer import batch
from careful.transfer.batch import Item, Tree
from careful.transfer.block import Attr
from careful.transfer.sink import Sink

_T = TypeVar("_T")


def parts(items: Sequence[_T], size: Callable[[_T], int] | None = None) -> Iterable[list[_T]]:
    """Runs of items that make one batch each."""
    part: list[_T] = []
    total = 0
    for item in items:
        nbytes = size(item) if size is not None else 0
        if part and (len(part) >= batch.COUNT or total + nbytes > batch.BYTES):
            yield part
            part, total = [], 0
        part.append(item)
        total += nbytes
    if part:
        yield part


async def apply_attributes(
    source: Tree, target: Tree, wanted: Sequence[tuple[str, str, Attr]], flags: int, sink: Sink
) -> None:
    """Give names of the target what names of the source have.

    Args:
        source: the one directory.
        target: the other.
        wanted: name in the source, name in the target, and the attributes as they were
            when the contents were moved.
        flags: CAREFUL_BATCH_* of what is given.
        sink: told of failures.
    """
    for part in parts(wanted):
        items = [
            Item(lib.CAREFUL_ITEM_META, os.fsencode(name), batch.packed_attr(attr))
            for _, name, attr in part
        ]
        if flags & lib.CAREFUL_BATCH_XATTRS:
            reads = [Item(lib.CAREFUL_ITEM_READ, os.fsencode(name)) for name, _, _ in part]
            found = batch.parse(await source.run(batch.joined(reads), flags))
            items = [
                item._replace(xattrs=answer.xattrs)
                for item, answer in zip(items, found, strict=True)
            ]
        answers = batch.parse(await target.run(batch.joined(items), flags))
        for (_, name, _), answer in zip(part, answers, strict=True):
            if answer.status:
                sink.fail_errno(target.name(name), answer.status)


async def sync_file_system(tree: Tree, sink: Sink) -> None:
    """Make all durable that lies where a directory does (syncfs).

    Args:
        tree: the directory.
        sink: told if it fails: then nothing is sure to be there after a crash.
    """
    item = Item(lib.CAREFUL_ITEM_SYNC, b".")
    for answer in batch.parse(await tree.run(item.packed(), 0)):
        if answer.status:
            sink.fail_errno(tree.name("."), answer.status)
