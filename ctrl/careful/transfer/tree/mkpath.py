"""Makes the directories above a target, or reports the one that is missing."""

from __future__ import annotations

import errno
import posixpath

from careful.errors import CarefulError, Option
from careful.transfer.options import Options
from careful.transfer.tree.direction import End

#: Permission bits of directories that a command makes above its target.
MODE = 0o777


def missing_error(name: str) -> CarefulError:
    """Returns the error for a directory that does not exist and must not be made."""
    text = ("no such directory; ", Option.MAKE_PATH, " makes it")
    return CarefulError(errno.ENOENT, text, name)


async def make_path(end: End, folder: str, options: Options) -> int:
    """Makes a directory and its parents if they are missing and options.make_path is set; returns
    the count made. Raises CarefulError.
    """
    absent: list[str] = []
    while folder not in ("", ".", "/"):
        existing = await end.stat(folder, follow=True)
        if existing is not None:
            if existing.is_file or existing.is_special:
                raise CarefulError(errno.ENOTDIR, "is not a directory", end.name(folder))
            break
        absent.append(folder)
        folder = posixpath.dirname(folder)
    if absent and not options.make_path:
        raise missing_error(end.name(absent[0]))
    if options.dry_run:
        return 0
    return sum([await end.make_directory(one, MODE) for one in reversed(absent)])
