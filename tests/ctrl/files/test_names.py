"""`careful://` of a directory: moves, appends, modes, names like patterns and missing names."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from careful.daemon.route import Route
from fake_daemon import FakeDaemon

pytest.importorskip("fsspec")

from careful.errors import CarefulError
from careful.files import AsyncHost, Host
from careful.files.copies import SMALL_BYTES
from careful.files.filesystem import CarefulFileSystem
from fsspec.asyn import sync
from fsspec.mapping import FSMap


@pytest.fixture
def umask() -> Iterator[None]:
    """A umask of 027."""
    old = os.umask(0o027)
    yield
    os.umask(old)


def below(top: Path) -> dict[str, bytes | None]:
    """Returns everything below a directory: contents of files, None for directories."""
    return {
        str(path.relative_to(top)): path.read_bytes() if path.is_file() else None
        for path in top.rglob("*")
    }


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("recursive", [True, False])
@pytest.mark.parametrize(
    ("source", "target", "refused"),
    [
        ("/w/f", "/w/", False),
        ("/w/f", "/w", False),
        ("/w/f", "w/f", False),
        ("/w/f", "careful://h2/w/f", False),
        ("/w/f", "/w/./f", False),
        ("/w/f", "/link/f", False),
        ("/w/d", "/w/", False),
        ("/w/d/x", "/w/d", False),
        ("/w/d", "/w/d/", True),
        ("/w/d", "/w/d/sub", True),
        ("/w/d", "/w/d/new/sub", True),
        ("/w/d", "/link/d/sub", True),
    ],
)
def test_mv__onto_or_into_itself(
    fs: Any, export: Path, source: str, target: str, refused: bool, recursive: bool
) -> None:
    (export / "w/d").mkdir(parents=True)
    (export / "link").symlink_to("w")
    for name in ("f", "d/x"):
        (export / "w" / name).write_bytes(b"data")
    before = below(export)
    if refused:
        with pytest.raises(OSError, match="into itself"):
            fs.mv(source, target, recursive=recursive)
    else:
        fs.mv(source, target, recursive=recursive)
    assert below(export) == before


def test_mv__renames(fs: Any, export: Path) -> None:
    (export / "a/empty").mkdir(parents=True)
    for name in ("a/1", "a/2", "b"):
        (export / name).write_bytes(name.encode())
    inode = (export / "a/1").stat().st_ino
    fs.mv("/a/1", "/b")
    assert (export / "b").stat().st_ino == inode
    assert (export / "b").read_bytes() == b"a/1"
    fs.rename("/b", "/new/folder/b")
    fs.move("/a/empty", "/new/")
    fs.mv("/a/*", "/new/")
    assert below(export / "new") == {
        "folder": None,
        "folder/b": b"a/1",
        "empty": None,
        "2": b"a/2",
    }
    fs.mv("/a", "/new/folder/b2", recursive=True)
    assert not (export / "a").exists()
    assert (export / "new/folder/b2").is_dir()


def test_mv__refusals(fs: Any, export: Path, daemon: FakeDaemon) -> None:
    (export / "a").mkdir()
    (export / "b").mkdir()
    for name in ("a/x", "b/x"):
        (export / name).write_bytes(name.encode())
    before = below(export)
    with pytest.raises(FileNotFoundError):
        fs.mv("/none", "/new/none")
    with pytest.raises(ValueError, match="the same name"):
        fs.mv(["/a/x", "/b/x"], "/")
    with pytest.raises(NotImplementedError, match="maxdepth"):
        fs.mv("/a", "/new", recursive=True, maxdepth=1)
    with pytest.raises(OSError, match="not empty"):
        fs.mv(["/a"], ["/b"])
    assert below(export) == before


def test_mv__to_another_file_system(fs: Any, export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file moves with its contents; a directory, and a file that is its own target, stay."""
    (export / "d").mkdir()
    (export / "f").write_bytes(b"data")
    (export / "same").hardlink_to(export / "f")

    async def elsewhere(old: str, new: str) -> None:
        raise CarefulError(errno.EXDEV, "", old)

    monkeypatch.setattr(fs, "_rename", elsewhere)
    fs.mv("/f", "/same")
    with pytest.raises(OSError, match="/d"):
        fs.mv("/d", "/e")
    assert below(export) == {"d": None, "f": b"data", "same": b"data"}
    fs.mv("/f", "/moved")
    assert below(export) == {"d": None, "moved": b"data", "same": b"data"}


def test_rename__replaces_only_if_asked(host: Host, export: Path) -> None:
    (export / "a").write_bytes(b"a")
    (export / "b").write_bytes(b"b")
    with pytest.raises(FileExistsError, match="h2:b: exists; replace=True replaces it"):
        host.rename("a", "b")
    host.rename("a", "a")
    assert below(export) == {"a": b"a", "b": b"b"}
    host.rename("a", "b", replace=True)
    assert below(export) == {"b": b"a"}
    with pytest.raises(FileNotFoundError):
        host.rename("a", "b", replace=True)


def test_append__at_the_present_end(fs: Any, export: Path) -> None:
    one, other = fs.open("/log", "ab"), fs.open("/log", "ab")
    assert one.tell() == 0
    one.write(b"one\n")
    one.close()
    other.write(b"other\n")
    other.close()
    late = fs.open("/log", "ab")
    assert late.tell() == 10
    with (export / "log").open("ab") as here:
        here.write(b"from here\n")
    late.write(b"late\n")
    late.close()
    assert (export / "log").read_bytes() == b"one\nother\nfrom here\nlate\n"
    late = fs.open("/log", "ab")
    os.truncate(export / "log", 4)
    late.write(b"after a rotation\n")
    late.close()
    assert (export / "log").read_bytes() == b"one\nafter a rotation\n"


def test_append__many_at_once(host: Host, export: Path) -> None:
    async def all_of(one: AsyncHost) -> None:
        lines = (one.append("log", f"{i} {'x' * 999}\n".encode(), sync=False) for i in range(60))
        await asyncio.gather(*lines)

    host._thread.run(all_of(host._awaited))
    lines = (export / "log").read_text().splitlines()
    assert sorted(int(line.removesuffix(" " + "x" * 999)) for line in lines) == list(range(60))
    assert host.append("log", bytes(5 << 20)) == 5 << 20
    assert (export / "log").stat().st_size == sum(len(line) + 1 for line in lines) + (5 << 20)


def test_append__refusals(
    fs: Any, host: Host, export: Path, tmp_path: Path, daemon: FakeDaemon
) -> None:
    (export / "d").mkdir()
    os.mkfifo(export / "fifo")
    (tmp_path / "out").write_bytes(b"")
    (export / "out").symlink_to("../out")
    (export / "nothing").symlink_to("none")
    (export / "set").write_bytes(b"")
    for name in ("d", "fifo", "out", "nothing", "d/none/x", "fifo/x"):
        with pytest.raises(OSError, match=name):
            host.append(name, b"x")
    assert (tmp_path / "out").read_bytes() == b""


WAYS: dict[str, Callable[[Any, Host, Path, str], object]] = {
    "fs.pipe": lambda fs, host, here, name: fs.pipe(name, b"new"),
    "fs.open": lambda fs, host, here, name: fs.open(name, "wb").close(),
    "Host.write": lambda fs, host, here, name: host.write(name, b"new", replace=True),
    "fs.put": lambda fs, host, here, name: fs.put(str(here), name),
    "fs.put large": lambda fs, host, here, name: (
        os.truncate(here, SMALL_BYTES + 1),
        fs.put(str(here), name),
    ),
    "Host.put": lambda fs, host, here, name: host.put(here, name, replace=True),
    "tree": lambda fs, host, here, name: (
        (here.parent / "tree").mkdir(),
        here.rename(here.parent / "tree" / name.strip("/")),
        host.put(f"{here.parent}/tree/", ".", recursive=True, replace=True),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_modes__at_the_host(
    fs: Any, host: Host, export: Path, tmp_path: Path, umask: None, way: str
) -> None:
    """A file that is replaced keeps its mode; a new one gets the source's, or 0666, by umask."""
    here = tmp_path / "here"
    here.write_bytes(b"new")
    here.chmod(0o646)
    (export / "old").write_bytes(b"old")
    (export / "old").chmod(0o604)
    is_copy = "put" in way or way == "tree"
    WAYS[way](fs, host, here, "/old")
    assert (export / "old").stat().st_size != 3 or (export / "old").read_bytes() == b"new"
    assert mode(export / "old") == 0o604
    (export / "old").unlink()
    if way == "tree":
        host.put(f"{tmp_path}/tree/", ".", recursive=True, replace=True)
    else:
        WAYS[way](fs, host, here, "/old")
    assert mode(export / "old") == (0o646 if is_copy else 0o666) & ~0o027


@pytest.mark.parametrize("size", [3, SMALL_BYTES + 1, 9 << 20])
def test_modes__here(
    fs: Any, host: Host, export: Path, tmp_path: Path, umask: None, size: int
) -> None:
    (export / "f").write_bytes(bytes(size))
    (export / "f").chmod(0o646)
    target = tmp_path / "target"
    for get in (
        lambda: fs.get("/f", str(target)),
        lambda: host.get("f", target, replace=True),
        lambda: (target.unlink(missing_ok=True), host.get("f", target, archive=True)),
    ):
        target.unlink(missing_ok=True)
        get()
        is_preserved = mode(target) == 0o646
        assert is_preserved or mode(target) == 0o640
        target.write_bytes(b"old")
        target.chmod(0o600)
        get()
        assert mode(target) == (0o646 if is_preserved else 0o600)
        assert target.stat().st_size == size
    fs.cp("/f", "/copy")
    assert mode(export / "copy") == 0o640


def test_patterns__a_name_that_exists_is_that_name(fs: Any, export: Path, tmp_path: Path) -> None:
    def anew() -> None:
        if fs.exists("/w"):
            fs.rm("/w", recursive=True)
        fs.mkdir("/w")
        fs.pipe({"/w/run[1]": b"mine", "/w/run1": b"other", "/w/d[1]/x?": b"x"})

    fs.auto_mkdir = True
    anew()
    fs.rm("/w/run[1]")
    assert below(export / "w") == {"run1": b"other", "d[1]": None, "d[1]/x?": b"x"}
    fs.rm("/w/d[1]", recursive=True)
    assert below(export / "w") == {"run1": b"other"}
    anew()
    fs.mv("/w/run[1]", "/w/new")
    fs.mv("/w/d[1]", "/w/d", recursive=True)
    assert below(export / "w") == {"run1": b"other", "new": b"mine", "d": None, "d/x?": b"x"}
    anew()
    assert fs.cat("/w/run[1]") == b"mine"
    assert fs.cat("/w/run[2-9]*" if fs.exists("/w/none") else "/w/run?") == {"/w/run1": b"other"}
    fs.cp("/w/run[1]", "/w/copy")
    fs.cp("/w/d[1]", "/w/e", recursive=True)
    fs.cp("/w/run[1]", "/w/e/")
    assert below(export / "w/e") == {"x?": b"x", "run[1]": b"mine"}
    assert (export / "w/copy").read_bytes() == b"mine"
    here = tmp_path / "here"
    fs.get("/w/run[1]", str(here))
    assert here.read_bytes() == b"mine"
    fs.get("/w/d[1]", f"{tmp_path}/tree", recursive=True)
    assert below(tmp_path / "tree") == {"x?": b"x"}
    (tmp_path / "up[1]").write_bytes(b"up")
    (tmp_path / "up1").write_bytes(b"other")
    fs.put(f"{tmp_path}/up[1]", "/w/up")
    fs.put([f"{tmp_path}/up[1]"], "/w/e/")
    fs.put(f"{tmp_path}/tree", "/w/t[2]", recursive=True)
    assert (export / "w/up").read_bytes() == (export / "w/e/up[1]").read_bytes() == b"up"
    assert below(export / "w/t[2]") == {"x?": b"x"}
    assert not (export / "w/e/up1").exists()


@pytest.mark.parametrize("recursive", [True, False])
def test_rm__of_a_missing_file_by_a_program(fs: Any, export: Path, recursive: bool) -> None:
    """zarr calls _rm() to overwrite an array even if it does not exist."""
    (export / "t1").write_bytes(b"other")
    for names in ("/t[1]", "/t*", ["/t[1]"]):
        with pytest.raises(FileNotFoundError):
            sync(fs.loop, fs._rm, names, recursive)
    assert below(export) == {"t1": b"other"}
    fs.rm("/t[1]", recursive)
    assert below(export) == {}


@pytest.mark.parametrize("key", ["k[1]", "k?", "k*"])
@pytest.mark.parametrize("is_own", [True, False])
def test_mapping__a_key_is_a_name(fs: Any, export: Path, key: str, is_own: bool) -> None:
    """fs.get_mapper() and fsspec.get_mapper(), which makes the mapping itself."""
    mapping = fs.get_mapper("/") if is_own else FSMap("/", fs)
    (export / "k1").write_bytes(b"other")
    for missing in (mapping.__getitem__, mapping.__delitem__, mapping.pop):
        with pytest.raises(KeyError):
            missing(key)
    assert mapping.pop(key, b"none") == b"none"
    assert mapping.getitems([key, "k1"], on_error="omit") == {"k1": b"other"}
    with pytest.raises(KeyError):
        mapping.getitems([key])
    with pytest.raises(FileNotFoundError):
        mapping.delitems([key])
    fs.get_mapper(f"/{key}").clear()
    assert below(export) == {"k1": b"other"}
    mapping.setitems({key: b"mine", "too": b"2"})
    assert mapping[key] == b"mine"
    assert mapping.getitems([key, "k1"]) == {key: b"mine", "k1": b"other"}
    mapping.delitems([key, "too"])
    assert below(export) == {"k1": b"other"}
    assert fs.cat("/k[1]") == {"/k1": b"other"}  # a program asks for a pattern
    mapping[key] = b"new"
    assert mapping.pop(key) == b"new"
    mapping.clear()
    assert below(export) == {}


def test_exists__names_of_nothing(fs: Any, export: Path) -> None:
    (export / "f").write_bytes(b"1")
    (export / "loop").symlink_to("loop")
    (export / "dangling").symlink_to("none")
    for name in ("/none", "/f/x", "/" + "x" * 300, "/loop", "/dangling", "/f/x/y"):
        assert fs.exists(name) is False
        assert fs.find(name) == []
        assert fs.isfile(name) is fs.isdir(name) is False
        assert fs.lexists(name) is (name in ("/loop", "/dangling"))
    assert fs.exists("/f")
    assert fs.lexists("/f")


def test_put__names_that_are_no_files(fs: Any, export: Path, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a").write_bytes(b"a")
    os.mkfifo(tmp_path / "d/pipe")
    for put in (
        lambda: fs.put(f"{tmp_path}/d/", "/d/", recursive=True),
        lambda: fs.put_file(f"{tmp_path}/d/pipe", "/p"),
    ):
        with pytest.raises(OSError, match="/d/pipe: is not a regular file"):
            put()
    assert not (export / "p").exists()


def test_get__a_link_to_nothing_is_left_out_of_a_tree(
    fs: Any, export: Path, tmp_path: Path
) -> None:
    (export / "d").mkdir()
    (export / "d/dangling").symlink_to("none")
    (export / "d/z").write_bytes(b"z")
    with pytest.warns(UserWarning, match="careful://h2/d/dangling is a symlink to nothing"):
        fs.get("/d", f"{tmp_path}/got", recursive=True)
    assert below(tmp_path / "got") == {"z": b"z"}
    with pytest.raises(FileNotFoundError):
        fs.get("/d/dangling", f"{tmp_path}/got/z")


def test_loops__an_instance_serves_one_after_the_other(route: Route, export: Path) -> None:
    """fsspec gives the same instance to each asyncio.run() of a thread."""
    (export / "f").write_bytes(b"data")
    fs = CarefulFileSystem("h2", asynchronous=True, skip_instance_cache=True)
    fs._connect = lambda: AsyncHost("h2", lambda: route)  # type: ignore[method-assign]
    for _ in range(3):
        assert asyncio.run(fs._cat_file("/f")) == b"data"
        assert len(fs._connections) == 1

    async def closed() -> None:
        await fs._cat_file("/f")
        await fs._close()

    asyncio.run(closed())
    assert not fs._connections


def test_paths__longer_than_a_frame(host: Host, fs: Any, export: Path, daemon: FakeDaemon) -> None:
    """With small frames a path is stored at the host first; nothing of it is left."""
    daemon.request_max = 200
    folder = "/".join(["d" * 99] * 5)
    host.mkdir(folder, parents=True)
    host.write(f"{folder}/f", b"data")
    assert host.read(f"{folder}/f") == b"data"
    assert [entry.name for entry in host.ls(folder)] == ["f"]
    host.rename(f"{folder}/f", f"{folder}/g")
    assert list(fs.find("/")) == [f"/{folder}/g"]
    assert not daemon.handles
    with pytest.raises(OSError, match="too long"):
        host.read(f"{folder}/" + "x/" * 2048)
    assert not daemon.handles
