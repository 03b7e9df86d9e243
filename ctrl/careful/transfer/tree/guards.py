"""Guards that keep --delete from emptying a copy: too many names, or a disk that is not mounted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from careful.errors import Option, Text
from careful.transfer.protocol.entries import Attr, Entry, parent


def mount_points(above: Attr | None, top: Attr, entries: Iterable[Entry]) -> set[str]:
    """The directories of a tree on which another file system is mounted; ".": the top itself.

    Args:
        above: attributes of the directory that the top stands in; None: unknown.
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
    """Why names are not deleted; "": they may be.

    Args:
        gone: what would be deleted.
        unmounted: directories of the source that were mount points last time, and are none now.
        most: how many names may be deleted; None: any number.
    """
    for name in sorted(unmounted):
        if any(name in (".", one.name) or one.name.startswith(name + "/") for one in gone):
            what = "it" if name == "." else f"its {name}"
            return (
                f"nothing is deleted: {what} was a mount point the last time and is none now; "
                "mount it, or delete the copy yourself"
            )
    if most is not None and len(gone) > most:
        what = f"nothing is deleted: {len(gone)} names would be, more than "
        return what, Option.MAX_DELETE, str(most)
    return ""
