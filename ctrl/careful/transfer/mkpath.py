"""The directories on the way to a target: made if that is asked for, else missed by name.

Owns the one wording of what is missing, for files, trees and streams, here and at a peer. It
calls the ends of direction.py.
"""

from __future__ import annotations

import errno
import posixpath
from typing import TYPE_CHECKING

from careful.errors import CarefulError
from careful.transfer.options import Options

if TYPE_CHECKING:
    from careful.transfer.direction import End

#: Of directories that a command makes above what it moves.
MODE = 0o777


def missing(name: str) -> CarefulError:
    """A directory is not there, and nobody asked that it be made."""
    return CarefulError(errno.ENOENT, "no such directory; --mkpath makes it", name)


async def make_path(end: End, folder: str, options: Options) -> int:
    """Make sure that a directory is there; how many had to be made.

    Args:
        end: whose it is.
        folder: the directory.
        options: make_path and dry_run count.

    Raises:
        CarefulError: it is not there, and is not to be made; what is there is no directory.
    """
    absent: list[str] = []
    while folder not in ("", ".", "/"):
        there = await end.stat(folder, follow=True)
        if there is not None:
            if there.is_file or there.is_special:
                raise CarefulError(errno.ENOTDIR, "is not a directory", end.name(folder))
            break
        absent.append(folder)
        folder = posixpath.dirname(folder)
    if absent and not options.make_path:
        raise missing(end.name(absent[0]))
    if options.dry_run:
        return 0
    return sum([await end.make_directory(one, MODE) for one in reversed(absent)])
