"""Guards that keep --delete from emptying a copy: too many names, or a disk that is not mounted."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Sequence
from contextlib import suppress

from careful.errors import CarefulError, Option, Text
from careful.transfer.options import Options
from careful.transfer.protocol.entries import Attr, Entry, parent
from careful.transfer.tree.direction import Direction


def _mount_points(parent_attr: Attr | None, top: Attr, entries: Iterable[Entry]) -> set[str]:
    """Returns the names of a tree's directories that are mount points; "." is its top.

    parent_attr: of the directory above the top; None if unknown. entries: parents first.
    """
    devices = {"": top.device}
    mounts = (
        {"."} if parent_attr and parent_attr.inode and parent_attr.device != top.device else set()
    )
    for entry in entries:
        if entry.attr.is_dir:
            devices[entry.name] = entry.attr.device
            if entry.attr.device != devices.get(parent(entry.name), entry.attr.device):
                mounts.add(entry.name)
    return mounts


def _objection(names: Sequence[Entry], unmounted: Iterable[str], names_max: int | None) -> Text:
    """Returns why the names must not be deleted, or "".

    unmounted: directories of the source that were mount points last time, and are not now.
    names_max: the most names to delete; None: any number.
    """
    for name in sorted(unmounted):
        if any(name in (".", one.name) or one.name.startswith(name + "/") for one in names):
            subject = "it" if name == "." else f"its {name}"
            return (
                f"nothing is deleted: {subject} was a mount point the last time, but not now; "
                "mount it, or delete the copy yourself"
            )
    if names_max is not None and len(names) > names_max:
        text = f"nothing is deleted: {len(names)} names would be deleted, more than "
        return text, Option.MAX_DELETE, str(names_max)
    return ""


async def objection(
    direction: Direction,
    paths: tuple[str, str],
    source: tuple[Attr, Sequence[Entry]],
    removed: Sequence[Entry],
    options: Options,
) -> Text:
    """Returns why `removed` must not be deleted; else returns "" and remembers the mount points.

    paths: source and target; source: the attributes of its top, and its entries.
    """
    above = None
    if not direction.fetch or paths[0] not in (".", ""):  # a peer hides what is above its export
        with suppress(CarefulError):  # a symlink may lead to the top of an export
            above = await direction.source.stat(direction.source.join(paths[0], ".."), follow=True)
    mounted = _mount_points(above, *source)
    remote, local = paths if direction.fetch else paths[::-1]
    # Aliases of the host and of the directory must give the same key.
    ends = f"{direction.remote.place}:{posixpath.normpath(remote)}", os.path.realpath(local)
    trees = ends if direction.fetch else ends[::-1]
    mounts = options.mounts
    mounted_before = mounts.read(trees) if mounts is not None else set()
    text: Text = ""
    if options.delete:
        text = _objection(removed, mounted_before - mounted, options.max_delete)
    else:  # an unmounted disk stays known
        mounted |= mounted_before
    if not text and mounts is not None and mounted != mounted_before and not options.dry_run:
        mounts.write(trees, mounted)
    return text
