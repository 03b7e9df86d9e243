"""Compares a peer's files with local ones, without moving them."""

from __future__ import annotations

import errno
import os
import posixpath
import time
from dataclasses import dataclass, field

from careful.errors import CarefulError, Option, meaning, shown
from careful.transfer.file.compare import difference_of
from careful.transfer.file.journal import is_partial
from careful.transfer.protocol.batch import LocalTree, RemoteTree
from careful.transfer.protocol.block import BlockClient, Entry, ancestors, relative
from careful.transfer.tasks import all_of
from careful.transfer.tree.digests import equal_small
from careful.transfer.tree.outcome import kind_of
from careful.transfer.tree.scan import scan_local, scan_remote

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


def _unreadable(remote: Entry | None, local: Entry | None) -> str:
    ends = (remote, "there"), (local, "here")
    errors = [(one.error, where) for one, where in ends if one is not None and one.error]
    return ", ".join(f"cannot be read {where}: {meaning(code)}" for code, where in errors)


async def _equal(
    remote: BlockClient, source: str, target: str, files: dict[str, Entry]
) -> set[str]:
    """Returns the paths of files known to be equal by their batch; others may be equal, too."""
    local = LocalTree(target, target)
    try:
        are_equal = await equal_small(RemoteTree(remote, source), local, list(files.values()))
    finally:
        local.close()
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
        theirs = {one.name: one for one in await scan_remote(remote, source)}
        mine = {one.name: one for one in scan_local(target)}
        unread = {one.name for one in (*theirs.values(), *mine.values()) if one.error}
        for name in sorted(theirs.keys() | mine.keys()):
            a, b = theirs.get(name), mine.get(name)
            if is_partial(name) or any(above in unread for above in ancestors(name)):
                continue
            if name in unread:
                result.differences.append((shown(name), _unreadable(a, b)))
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
    todo = iter(pairs)

    async def worker() -> None:
        for path, local, nbytes in todo:
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

    await all_of(*(worker() for _ in range(min(_WIDTH, len(pairs)))))
    result.seconds = time.monotonic() - began
    return result
