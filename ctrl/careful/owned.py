"""Reads configuration files that only root or their owner can have written."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from pathlib import Path

from careful.errors import CarefulError, from_os


def read(path: Path) -> str:
    """Returns the text of a configuration file.

    Raises CarefulError if another user owns it or may write it, or if it cannot be read.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:  # an editor may add a byte order mark
            _check(os.fstat(file.fileno()), path)
            return file.read()
    except UnicodeDecodeError:
        raise CarefulError(errno.EINVAL, "is not UTF-8", str(path)) from None
    except OSError as error:
        raise from_os(error, str(path)) from None


def _check(found: os.stat_result, path: Path) -> None:
    uid = os.geteuid()
    trusted = {0, uid}
    if uid == 0 and (asked := os.environ.get("SUDO_UID", "")).isdecimal():
        trusted.add(int(asked))
    if found.st_uid not in trusted:
        text = f"belongs to user {found.st_uid}, who could change what careful does: chown it first"
        raise CarefulError(errno.EPERM, text, str(path))
    others = stat.S_IWOTH | (0 if _is_private(found) else stat.S_IWGRP)
    if found.st_mode & others and not stat.S_ISCHR(found.st_mode):
        text = "others may write it, and could change what careful does: chmod go-w it first"
        raise CarefulError(errno.EPERM, text, str(path))


def _is_private(found: os.stat_result) -> bool:
    """Reports whether the file's group is root's, or has no member but the file's owner."""
    try:
        group, owner = grp.getgrgid(found.st_gid), pwd.getpwuid(found.st_uid)
    except KeyError:
        return False
    is_own = group.gr_gid == owner.pw_gid and group.gr_name == owner.pw_name
    return group.gr_gid == 0 or (is_own and set(group.gr_mem) <= {owner.pw_name})
