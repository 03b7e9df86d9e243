"""Compares two trees by the file system's own attributes, without careful."""

from __future__ import annotations

import errno
import os
import stat
import struct
from pathlib import Path
from typing import Any


def set_xattr(path: Path, key: str, value: bytes) -> None:
    """Sets an extended attribute if the file system has them."""
    try:
        os.setxattr(path, key, value)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise


def acl_of(*users: tuple[int, int]) -> bytes:
    """An access ACL as the kernel's posix_acl_xattr.h lays it out.

    Args:
        users: user and permissions of each named user.
    """
    everybody = 0xFFFFFFFF
    entries = [(0x01, 6, everybody), *((0x02, perm, user) for user, perm in users)]
    entries += [(0x04, 4, everybody), (0x10, 6, everybody), (0x20, 0, everybody)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries)


def describe(top: Path) -> dict[str, dict[str, Any]]:
    """Returns, by name, the attributes of a directory and everything below it."""
    inodes: dict[tuple[int, int], str] = {}
    found = {}
    for path in sorted([top, *top.rglob("*")]):
        name = str(path.relative_to(top))
        st = path.lstat()
        one: dict[str, Any] = {
            "mode": stat.filemode(st.st_mode),
            "owner": (st.st_uid, st.st_gid),
            "mtime_ns": st.st_mtime_ns,
        }
        if stat.S_ISLNK(st.st_mode):
            one["target"] = str(path.readlink())
        else:
            one["xattrs"] = {key: os.getxattr(path, key) for key in os.listxattr(path)}
        if stat.S_ISREG(st.st_mode):
            one["data"] = path.read_bytes()
            one["same_as"] = inodes.setdefault((st.st_dev, st.st_ino), name)
        found[name] = one
    return found


def assert_equal(one: Path, other: Path) -> None:
    """Fails if two trees differ, and shows where."""
    mine, theirs = describe(one), describe(other)
    assert sorted(mine) == sorted(theirs)
    for name, found in mine.items():
        assert found == theirs[name], name
