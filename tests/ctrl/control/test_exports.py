"""Parses --export as carefulctl does."""

from __future__ import annotations

from pathlib import Path

import pytest
from careful.control.options.exports import Export, check, parse
from careful.errors import CarefulError


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("/a", Export("/a")),
        ("/a:ro", Export("/a")),
        ("/a:rw", Export("/a", True)),
        ("/a:rw,owners", Export("/a", True, True)),
        ("/a:rw,host=h1,host=::1,owners", Export("/a", True, True, False, ("h1", "::1"))),
        ("/a:ro,host=10.0.0.1", Export("/a", hosts=("10.0.0.1",))),
        ("/a:ro,devices", Export("/a", devices=True)),
        ("/a:rw,devices,owners", Export("/a", True, True, True)),
        ("/a,b:rw:c", Export("/a,b:rw:c")),
        ("/a:rw,x:rw", Export("/a:rw,x", True)),
        ("/a\nb:rw", Export("/a\nb", True)),
    ],
)
def test_parse__accepted_forms(text: str, meant: Export) -> None:
    assert parse(text) == meant
    assert parse(str(meant)) == meant


@pytest.mark.parametrize(
    "text", [":rw", "", "/a:rw,", "/a:rw,owner", "/a:ro,owners", "/a:rw,host=", "/a:rw,rw"]
)
def test_parse__refused_forms(text: str) -> None:
    with pytest.raises(CarefulError):
        parse(text)


def test_check__hosts_become_addresses(tmp_path: Path) -> None:
    assert check((f"{tmp_path}/:rw,host=127.0.0.1,host=::1",)) == (
        f"{tmp_path}:rw,host=127.0.0.1,host=::1",
    )
    with pytest.raises(CarefulError, match="unknown host"):
        check((f"{tmp_path}:ro,host=no.such.host.invalid",))
