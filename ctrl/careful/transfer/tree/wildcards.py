"""Expands wildcards in a peer's paths, as a shell there would; an existing path is literal."""

from __future__ import annotations

import errno
import posixpath
import re
from collections.abc import Sequence

from careful.errors import CarefulError, shown
from careful.transfer.filters import fits_name
from careful.transfer.protocol.block import BlockClient
from careful.transfer.protocol.entries import relative
from careful.transfer.tree.scan import is_missing

_WILD = re.compile(r"[*?\[]")


async def matching(remote: BlockClient, paths: Sequence[str]) -> list[str]:
    """Expands `*`, `?` and `[...]` in paths, in order; a trailing slash matches only directories.
    Raises CarefulError: nothing matches a path, or a directory cannot be read.
    """
    matches: list[str] = []
    for path in paths:
        matches += await _matching(remote, path) if _WILD.search(path) else [path]
    return matches


async def _matching(remote: BlockClient, path: str) -> list[str]:
    try:
        await remote.stat(relative(path))
    except CarefulError as error:
        if not is_missing(error):
            raise
    else:
        return [path]
    has_slash = path.endswith("/")
    *folders, last = relative(path).split("/")
    directories = ["."]
    for component in folders:
        directories = [
            path
            for top in directories
            for path in await _matching_names(remote, top, component, True)
        ]
    names = [
        path for top in directories for path in await _matching_names(remote, top, last, has_slash)
    ]
    if not names:
        raise CarefulError(errno.ENOENT, "nothing matches", remote.name(shown(path)))
    return [name + "/" * has_slash for name in names]


async def _matching_names(remote: BlockClient, top: str, pattern: str, folders: bool) -> list[str]:
    """Returns the names in a directory that match; `folders`: only directories."""
    if not _WILD.search(pattern):
        return [posixpath.normpath(posixpath.join(top, pattern))]
    try:
        entries = await remote.listing(top)
    except CarefulError as error:
        if is_missing(error):
            return []
        raise
    return sorted(
        posixpath.normpath(posixpath.join(top, entry.name))
        for entry in entries
        if fits_name(pattern, entry.name) and (entry.attr.is_dir or not folders)
    )
