"""Expands wildcards in a peer's paths, as a shell there would.

Owns which names a pattern stands for. A path that exists literally stands for itself.
"""

from __future__ import annotations

import errno
import posixpath
import re
from collections.abc import Sequence

from careful.errors import CarefulError, shown
from careful.transfer.filters import fits_name
from careful.transfer.protocol.block import BlockClient, relative
from careful.transfer.tree.scan import not_there

_WILD = re.compile(r"[*?\[]")


async def matching(remote: BlockClient, paths: Sequence[str]) -> list[str]:
    """Expands paths in order; a trailing slash matches only directories.

    Args:
        remote: the peer's tree.
        paths: with or without `*`, `?` and `[...]` in any component.

    Raises:
        CarefulError: nothing matches a path, or a directory cannot be read.
    """
    found: list[str] = []
    for path in paths:
        found += await _matching(remote, path) if _WILD.search(path) else [path]
    return found


async def _matching(remote: BlockClient, path: str) -> list[str]:
    try:
        await remote.stat(relative(path))
    except CarefulError as error:
        if not not_there(error):
            raise
    else:
        return [path]
    slash = path.endswith("/")
    *folders, last = relative(path).split("/")
    tops = ["."]
    for one in folders:
        tops = [path for top in tops for path in await _fitting(remote, top, one, True)]
    names = [path for top in tops for path in await _fitting(remote, top, last, slash)]
    if not names:
        raise CarefulError(errno.ENOENT, "nothing matches", remote.name(shown(path)))
    return [name + "/" * slash for name in names]


async def _fitting(remote: BlockClient, top: str, pattern: str, folders: bool) -> list[str]:
    """Returns the names in a directory that match; `folders`: only those that can have entries."""
    if not _WILD.search(pattern):
        return [posixpath.normpath(posixpath.join(top, pattern))]
    try:
        entries = await remote.listing(top)
    except CarefulError as error:
        if not_there(error):
            return []
        raise
    return sorted(
        posixpath.normpath(posixpath.join(top, one.name))
        for one in entries
        if fits_name(pattern, one.name) and (one.attr.is_dir or not folders)
    )
