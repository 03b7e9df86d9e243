"""The names that fsspec's calls mean: patterns, the targets of copies, and moves.

A name that exists is that name; only other names are patterns.
"""

from __future__ import annotations

import errno
import inspect
import os
import posixpath
from collections.abc import Sequence
from glob import escape
from pathlib import Path
from typing import Any

from fsspec.core import has_magic
from fsspec.implementations.local import LocalFileSystem, make_path_posix, trailing_sep

from careful.errors import CarefulError

#: Errors for names that cannot exist; exists(), find() and others treat them as absent.
NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


def by_mapping() -> bool:
    """Reports whether fsspec's mapping is the caller: its keys are names, never patterns.

    fsspec.get_mapper() calls the same rm() and cat() as a program that wants patterns. Only the
    stack tells them apart.
    """
    frame = inspect.currentframe()
    while frame and frame.f_globals.get("__name__") != "fsspec.mapping":
        frame = frame.f_back
    return frame is not None


async def is_name(fs: Any, path: Any) -> bool:
    """Reports whether a path looks like a pattern but exists."""
    return isinstance(path, str) and has_magic(path) and await fs._lexists(path)


def placed(names: Sequence[str], top: str, target: str, into: bool) -> list[str]:
    """Returns the targets of copies.

    Args:
        names: the sources: top, and the names below it.
        top: the path that the user gave; with a trailing slash, its contents.
        target: where the copies go.
        into: whether target is an existing directory.
    """
    bare = top.rstrip("/")
    base = posixpath.dirname(bare).rstrip("/") if into and not trailing_sep(top) else bare
    return [target.rstrip("/") + name[len(base) :] for name in names]


async def copied(
    fs: Any, source: str, target: str, recursive: bool, maxdepth: int | None
) -> tuple[list[str], bool]:
    """Returns the names to copy, and whether they are a whole directory."""
    names = await fs._expand_path([source], recursive, maxdepth)
    if not recursive or maxdepth is not None:
        names = [name for name in names if not await fs._isdir(name)]
    return names, trailing_sep(target) or await fs._isdir(target)


def sources_here(
    source: Any, target: Any, is_dir: bool, recursive: bool, maxdepth: int | None
) -> tuple[Any, Any]:
    """Returns arguments for fs.put() in which no existing local name acts as a pattern.

    Args:
        source: one name, or several.
        target: where they go.
        is_dir: whether target is an existing directory.
        recursive: see fs.put().
        maxdepth: see fs.put().
    """
    if isinstance(source, list):
        if isinstance(target, list):
            return source, target
        return [escape(one) if os.path.lexists(one) else one for one in source], target
    path = make_path_posix(source)
    if not (has_magic(path) and os.path.lexists(path)):
        return source, target
    names, here = [path.rstrip("/")], LocalFileSystem()
    if Path(path).is_dir():
        names = sorted({*names, *here.find(path, maxdepth, withdirs=True)}) if recursive else []
    return names, placed(names, path, target, is_dir)


async def move(fs: Any, source: Any, target: Any) -> None:
    """Renames names at the host; see CarefulFileSystem.mv()."""
    if isinstance(source, list) and isinstance(target, list):
        pairs = list(zip(source, target, strict=True))
    else:
        many = not isinstance(source, str) or (has_magic(source) and not await is_name(fs, source))
        into = many or trailing_sep(target) or await fs._isdir(target)
        names = await fs._expand_path(source)
        folder = fs._strip_protocol(target)
        pairs = [
            (old, posixpath.join(folder, posixpath.basename(old)) if into else folder)
            for old in names
        ]
    stripped = [(fs._strip_protocol(old), fs._strip_protocol(new)) for old, new in pairs]
    if len({new for _, new in stripped}) < len(stripped):
        raise ValueError("two of the names would move to the same name")
    for old, new in stripped:
        await _move_one(fs, old, new)


async def _move_one(fs: Any, old: str, new: str) -> None:
    if new.startswith(f"{old}/"):
        text = "a directory cannot be moved into itself"
        raise CarefulError(errno.EINVAL, text, fs.unstrip_protocol(old))
    try:
        await fs._rename(old, new)
    except FileNotFoundError:
        if not await fs._lexists(old):
            raise
        await fs._makedirs(fs._parent(new), exist_ok=True)
        await fs._rename(old, new)
    except OSError as error:
        if error.errno != errno.EXDEV or not await _is_file(fs, old):
            raise
        await _move_contents(fs, old, new)


async def _is_file(fs: Any, name: str) -> bool:
    return await fs._isfile(name) and not await fs._connected().is_link(name)


async def _move_contents(fs: Any, old: str, new: str) -> None:
    """Moves a file to another file system of the host, unless both names are the same file."""
    mine = await fs._connected().stat(old)
    if await fs._exists(new):
        there = await fs._connected().stat(new)
        if (mine.device, mine.inode) == (there.device, there.inode):
            return
    await fs._cp_file(old, new)
    await fs._rm_file(old)
