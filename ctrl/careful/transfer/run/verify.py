"""Compares a peer's files with local ones, without moving them."""

from __future__ import annotations

import errno
import os
import posixpath
import time
from contextlib import closing
from dataclasses import dataclass, field

from careful.errors import CarefulError, Option, meaning, shown
from careful.transfer.file.compare import difference_of
from careful.transfer.file.journal import is_partial
from careful.transfer.protocol.batch import LocalTree, RemoteTree
from careful.transfer.protocol.block import BlockClient
from careful.transfer.protocol.entries import Entry, ancestors, relative
from careful.transfer.tasks import each
from careful.transfer.tree.digests import equal_small
from careful.transfer.tree.outcome import kind_of
from careful.transfer.tree.scan import scan_local

#: Files compared at a time.
_WIDTH = 8


@dataclass
class Verified:
    """The result of a comparison.

    Attributes:
        files: how many were compared.
        bytes: of all these files, at the peer.
        differences: (name, difference).
        seconds: duration.
    """

    files: int = 0
    bytes: int = 0
    differences: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0


def _kind(entry: Entry) -> str:
    if entry.attr.is_dir:
        return "directory"
    return "file" if entry.attr.is_file else kind_of(entry.attr.mode)


async def _equal(
    remote: BlockClient, source: str, target: str, files: dict[str, Entry]
) -> set[str]:
    """Returns the paths of files known to be equal by their batch; others may be equal, too."""
    with closing(LocalTree(target, target)) as local:
        are_equal = await equal_small(RemoteTree(remote, source), local, list(files.values()))
    return {path for path, entry in files.items() if are_equal.get(entry.name)}


async def verify(
    remote: BlockClient, source: str, target: str, recursive: bool, block_bytes: int
) -> Verified:
    """Compares a file or a tree, with one digest per `block_bytes`. Raises CarefulError: one of
    the two cannot be read.
    """
    began, source = time.monotonic(), relative(source)
    result = Verified()
    attr = await remote.stat(source)
    pairs: list[tuple[str, str, int]] = []
    equal: set[str] = set()
    if attr.is_dir and recursive:
        files: dict[str, Entry] = {}
        theirs = {one.name: one for one in await remote.listing(source, recursive=True)}
        mine = {one.name: one for one in scan_local(target)}
        unread = {one.name for one in (*theirs.values(), *mine.values()) if one.error}
        for name in sorted(theirs.keys() | mine.keys()):
            a, b = theirs.get(name), mine.get(name)
            if is_partial(name) or any(above in unread for above in ancestors(name)):
                continue
            if name in unread:
                ends = [(one.error, where) for one, where in ((a, "there"), (b, "here")) if one]
                texts = [f"cannot be read {where}: {meaning(code)}" for code, where in ends if code]
                result.differences.append((shown(name), ", ".join(texts)))
            elif a is None or b is None:
                result.differences.append((shown(name), "only here" if a is None else "only there"))
            elif _kind(a) != _kind(b):
                result.differences.append((shown(name), f"{_kind(a)} there, {_kind(b)} here"))
            elif a.attr.is_link and a.target != b.target:
                text = f"-> {shown(a.target)} there, -> {shown(b.target)} here"
                result.differences.append((shown(name), text))
            elif a.attr.is_file:
                path = name if source == "." else posixpath.join(source, name)
                pairs.append((path, os.path.join(target, name), a.attr.bytes))
                files[path] = a
        equal = await _equal(remote, source, target, files)
    elif attr.is_dir:
        reason = ("is a directory; ", Option.RECURSIVE, " compares it")
        raise CarefulError(errno.EISDIR, reason, remote.name(shown(source)))
    else:
        pairs.append((source, target, attr.bytes))
    root = target if attr.is_dir else None  # another user may change names below the target

    async def compare(pair: tuple[str, str, int]) -> None:
        path, local, nbytes = pair
        try:
            difference = ""
            if path not in equal:
                difference = await difference_of(remote, path, local, block_bytes, root)
        except CarefulError as error:
            if len(pairs) == 1:
                raise
            difference = error.reason
        result.files += 1
        result.bytes += nbytes
        if difference:
            result.differences.append((remote.name(shown(path)), difference))

    await each(pairs, _WIDTH, compare)
    result.seconds = time.monotonic() - began
    return result
