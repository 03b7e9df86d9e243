"""`carefulctl memory get`: the file that it replaces."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import careful.memory
import pytest
from careful.cli.main import run
from careful.errors import CarefulError

SHOWN = {"name": "image", "nbytes": 3, "access": "rw", "mine": True, "owner": "h1"}


class _Piece:
    """A piece whose bytes arrive, or whose session ends first."""

    nbytes, info = 3, SimpleNamespace(**SHOWN)

    def __init__(self, ends: bool) -> None:
        self.ends = ends

    def read(self, offset: int, nbytes: int) -> bytes:
        if self.ends:
            raise CarefulError(errno.ECONNRESET, "", "h2")
        return b"new"[offset : offset + nbytes]


@pytest.mark.parametrize(("ends", "left"), [(False, b"new"), (True, b"old bytes")])
def test_get__replaces_a_file_only_by_all_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool, left: bytes
) -> None:
    @contextmanager
    def opened(name: str, owner: str) -> Iterator[_Piece]:
        yield _Piece(ends)

    host = SimpleNamespace(name="h2", open=opened)
    monkeypatch.setattr(careful.memory, "connect", lambda *_args, **_options: host)
    target = tmp_path / "copy"
    target.write_bytes(b"old bytes")
    status = run(["memory", "get", "h2:image", str(target)])
    assert (status != 0) == ends
    assert target.read_bytes() == left
    assert list(tmp_path.iterdir()) == [target]
