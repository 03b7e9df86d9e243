"""Names that are one thing in the source and another at the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from careful.transfer.block import Entry
from careful.transfer.options import Options


def in_the_way(
    entries: Sequence[Entry], existing: Mapping[str, Entry], options: Options
) -> list[Entry]:
    """What has to go before a source's entries can get their names, children first.

    A file or link goes where a directory is to be, if files may be replaced; a directory with
    all that is in it where a file or link is to be, if the target may lose names (rsync's rule).

    Args:
        entries: of the source.
        existing: name -> entry of the target.
        options: replace and delete count.
    """
    found: dict[str, Entry] = {}
    for entry in entries:
        there = existing.get(entry.name)
        if there is None or there.attr.is_dir == entry.attr.is_dir or entry.error:
            continue
        if entry.attr.is_dir and options.replace:
            found[there.name] = there
        elif there.attr.is_dir and options.delete and options.replace:
            below = there.name + "/"
            found |= {name: one for name, one in existing.items() if name.startswith(below)}
            found[there.name] = there
    return sorted(found.values(), key=lambda one: one.name.count("/"), reverse=True)
