"""Guards that keep --delete from emptying a copy: too many names, or a disk that is not mounted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from careful.errors import Option, Text
from careful.transfer.protocol.entries import Attr, Entry, parent


def mount_points(above: Attr | None, top: Attr, entries: Iterable[Entry]) -> set[str]:
    """Returns the directories of a tree that are mount points; ".": the top itself.

    Args:
        above: attributes of the directory above the top; None: unknown.
        top: attributes of the top.
        entries: of the tree, parents first.
    """
    devices = {"": top.device}
    found = {"."} if above and above.inode and above.device != top.device else set()
    for entry in entries:
        if entry.attr.is_dir:
            devices[entry.name] = entry.attr.device
            if entry.attr.device != devices.get(parent(entry.name), entry.attr.device):
                found.add(entry.name)
    return found


def why_stopped(gone: Sequence[Entry], unmounted: Iterable[str], most: int | None) -> Text:
    """Returns why names must not be deleted, or "".

    Args:
        gone: the names to delete.
        unmounted: directories of the source that were mount points last time, and are not now.
        most: the most names to delete; None: any number.
    """
    for name in sorted(unmounted):
        if any(name in (".", one.name) or one.name.startswith(name + "/") for one in gone):
            what = "it" if name == "." else f"its {name}"
            return (
                f"nothing is deleted: {what} was a mount point the last time, but not now; "
                "mount it, or delete the copy yourself"
            )
    if most is not None and len(gone) > most:
        what = f"nothing is deleted: {len(gone)} names would be deleted, more than "
        return what, Option.MAX_DELETE, str(most)
    return ""
