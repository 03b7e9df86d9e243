"""Random file trees, drawn by hypothesis."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from compare import set_xattr
from hypothesis import strategies as st

NAMES = st.binary(min_size=1, max_size=12).filter(
    lambda name: name not in (b".", b"..") and b"/" not in name and b"\0" not in name
)
LONG = st.just(b"n" * 255)
FILES = st.tuples(
    st.just("file"),
    st.one_of(st.binary(max_size=40), st.integers(0, 150_000).map(lambda n: b"z" * n)),
    st.integers(0, 0o7777),
    st.integers(-(2**40), 2**62),
    st.dictionaries(st.sampled_from(["user.a", "user.b"]), st.binary(max_size=20)),
)
LINKS = st.tuples(st.just("link"), st.binary(min_size=1, max_size=30).filter(lambda t: 0 not in t))
AGAIN = st.tuples(st.just("again"))
TREES = st.recursive(
    st.dictionaries(st.one_of(NAMES, LONG), st.one_of(FILES, LINKS, AGAIN), max_size=5),
    lambda inner: st.dictionaries(st.one_of(NAMES, LONG), st.one_of(inner, FILES), max_size=4),
    max_leaves=12,
)


def build(path: Path, tree: dict[bytes, Any], files: list[Path]) -> None:
    """Makes a tree; a repeated name is a hard link to an earlier file."""
    for name, what in tree.items():
        own = path / os.fsdecode(name)
        if isinstance(what, dict):
            own.mkdir()
            build(own, what, files)
            os.utime(own, ns=(0, len(what) * 1_000_000_001))
        elif what[0] == "link":
            own.symlink_to(os.fsdecode(what[1]))
        elif what[0] == "again":
            if files:
                own.hardlink_to(files[-1])
        else:
            own.write_bytes(what[1])
            for key, value in what[4].items():
                set_xattr(own, key, value)
            own.chmod(what[2])
            os.utime(own, ns=(0, what[3]))
            files.append(own)
