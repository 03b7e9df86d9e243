"""ls, get, put, sync and partials as they are typed: what they mean, print and end with."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from careful._abi import lib
from careful.cli.main import run
from careful.control import remote
from careful.daemon.route import Route
from fake_daemon import FakeDaemon


class Effect:
    """What is in effect on the way; nothing of interest here."""

    def as_dict(self) -> dict[str, Any]:
        return {}


class Said(NamedTuple):
    """What a command ended with, and printed."""

    status: int
    out: str
    err: str


Type = Callable[..., Said]


@pytest.fixture(name="type_")
def _type(
    route: Route,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Type:
    """Type a command in a directory `here`; h2 is the stand-in for a peer."""
    monkeypatch.setattr(remote, "find", lambda *_: (route, Effect()))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def typed(*words: str) -> Said:
        capsys.readouterr()
        status = run(words)
        return Said(status, *capsys.readouterr())

    return typed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["get", "foo"], "foo: names no host; HOST:PATH is wanted (is foo: meant?)"),
        (["get", "foo", "."], "foo: names no host; HOST:PATH is wanted (is foo: meant?)"),
        (["put", "foo", "h2"], "h2: names no host; HOST:PATH is wanted (is h2: meant?)"),
        (["ls", "h2"], "h2: names no host; HOST:PATH is wanted (is h2: meant?)"),
        (["get", "--bytes", "10", "h2:a", "h2:b"], "--offset, --bytes and --at are of one file"),
        (["get", "--at", "10", "-f", "h2:a", "h2:b", "."], "and --at are of one file"),
    ],
)
def test_usage__a_line_and_status_2(type_: Type, words: list[str], said: str) -> None:
    found = type_(*words)
    assert (found.status, found.out) == (2, "")
    assert said in found.err


def test_put__the_same_twice(type_: Type, export: Path) -> None:
    """What is there is equal: one line says so, and the status is 0."""
    Path("ds").mkdir()
    for index in range(50):
        Path(f"ds/{index}").write_text(str(index))
    assert type_("put", "-r", "ds", "h2:").status == 0
    again = type_("put", "-r", "ds", "h2:")
    assert (again.status, again.err) == (0, "")
    assert again.out.count("\n") == 1
    assert "50 files equal and left alone" in again.out
    (export / "ds/7").write_text("8")
    again = type_("put", "-r", "ds", "h2:")
    assert again.status == 3
    assert again.err == "carefulctl: h2:ds/7: exists already, and differs; -f replaces it\n"


def test_get__a_special_file_stays(type_: Type, export: Path) -> None:
    """A file of a tree replaces files and links, with -f, but no fifo; nor does a directory."""
    (export / "ds/sub").mkdir(parents=True)
    (export / "ds/link").symlink_to("a")
    for name in ("a", "b", "sub/x"):
        (export / "ds" / name).write_text(name)
    Path("ds").mkdir()
    for name in ("a", "link", "sub"):
        os.mkfifo(f"ds/{name}")
    found = type_("get", "-af", "--delete", "h2:ds", ".")
    assert found.status == 3
    assert "ds/a: is a special file: nothing replaces it" in found.err
    assert "ds/link: is a special file: nothing replaces it" in found.err
    assert all(Path("ds", name).is_fifo() for name in ("a", "link", "sub"))
    assert Path("ds/b").read_text() == "b"


def test_get__verbose_names_what_is_done(type_: Type, export: Path) -> None:
    """Not what failed: that is on standard error."""
    (export / "ds").mkdir()
    for name in ("a", "b", "c"):
        (export / "ds" / name).write_text(name)
    Path("ds").mkdir()
    Path("ds/b").write_text("mine")
    found = type_("get", "-rv", "h2:ds", ".")
    assert found.status == 3
    assert sorted(found.out.splitlines()[:-1]) == ["h2:ds/a", "h2:ds/c"]
    assert "ds/b: exists already, and differs" in found.err


def test_names__of_the_export_itself(type_: Type, daemon: FakeDaemon) -> None:
    found = type_("get", "h2:", ".")
    assert (found.status, found.err) == (1, "carefulctl: h2:/: is a directory; -r fetches it\n")
    daemon.fault = lambda question: (
        -errno.ECONNREFUSED if question.op == lib.CAREFUL_IPC_REQUEST else 0
    )
    for path in ("", "some/file"):
        found = type_("ls", f"h2:{path}")
        assert (found.status, found.out) == (1, "")
        assert found.err.startswith("carefulctl: h2: nobody answers there")
