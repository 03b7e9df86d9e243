"""Guards that keep --delete from emptying a copy: too many names, or a disk that is not mounted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from careful.errors import Option, Text
from careful.transfer.protocol.entries import Attr, Entry, parent


def mount_points(parent_attr: Attr | None, top: Attr, entries: Iterable[Entry]) -> set[str]:
    """Returns the directories of a tree that are mount points; ".": the top itself.

    parent_attr: of the directory above the top; None: unknown. entries: parents first.
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


def deletion_objection(
    names: Sequence[Entry], unmounted: Iterable[str], names_max: int | None
) -> Text:
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
