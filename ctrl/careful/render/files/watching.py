"""Chooses how a transfer is watched: by a bar on a terminal, or by lines."""

from __future__ import annotations

import sys
from collections.abc import Callable

from careful.render.files.progress import Lines


def watch(
    bar: bool,
    names: Callable[[str], None] | None = None,
    fd: int | None = None,
    host: str = "the other host",
    name: str = "",
) -> Lines:
    """Returns a bar if it is wanted and standard error is a terminal, else lines.

    Args:
        bar: whether a bar is wanted.
        names: prints each finished file; None: not printed.
        fd: where JSON lines go.
        host: the host that the bar names while it waits.
        name: name of the file or tree that is copied, for the bar.
    """
    if not (bar and sys.stderr.isatty()):
        return Lines(names, fd)
    from careful.render.files.bar import Bar  # rich: needed on a terminal only

    return Bar(names, fd, host, name)
