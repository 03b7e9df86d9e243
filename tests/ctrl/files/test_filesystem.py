"""`careful://` of a directory without a lab: what is removed, copied and left."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from careful.transfer.folder import current_umask

pytest.importorskip("fsspec")


@pytest.fixture
def spared(export: Path) -> Path:
    """Makes a file that is the target of symlinks in /proj and /proj/real."""
    (export / "kept").mkdir()
    (export / "kept/file").write_bytes(b"kept")
    (export / "proj/real/below").mkdir(parents=True)
    (export / "proj/real/below/file").write_bytes(b"goes")
    (export / "proj/link").symlink_to("../kept")
    (export / "proj/real/link").symlink_to("../../kept")
    (export / "proj/nowhere").symlink_to("nothing")
    return export / "kept/file"


@pytest.mark.parametrize(
    "path",
    [
        "/proj/*",
        ["/proj/link", "/proj/real", "/proj/nowhere"],
        ["/proj/l*", "/proj/[rn]*"],
        "/proj/?*",
    ],
)
def test_rm__removes_a_link_not_its_target(
    fs: Any, export: Path, spared: Path, path: str | list[str]
) -> None:
    fs.rm(path, recursive=True)
    assert spared.read_bytes() == b"kept"
    assert list((export / "proj").iterdir()) == []


@pytest.mark.parametrize("path", ["/proj", "/proj/", "careful://h2/proj", ["/proj"]])
def test_rm__a_whole_directory(fs: Any, export: Path, spared: Path, path: str | list[str]) -> None:
    fs.rm(path, recursive=True)
    assert spared.read_bytes() == b"kept"
    assert not (export / "proj").exists()


def test_rm__of_a_missing_file(fs: Any, export: Path, spared: Path) -> None:
    for path in ("/none", "/none/below", "/proj/none*", ["/none"]):
        with pytest.raises(FileNotFoundError):
            fs.rm(path, recursive=True)
        with pytest.raises(FileNotFoundError):
            fs.rm(path)
    fs.rm(["/none", "/none/below", "/proj/link"], recursive=True)
    assert not (export / "proj/link").is_symlink()
    assert spared.read_bytes() == b"kept"


def test_rm__not_recursive(fs: Any, export: Path, spared: Path) -> None:
    fs.rm("/proj/link")
    fs.rm("/proj/nowhere")
    with pytest.raises(OSError, match="not empty"):
        fs.rm("/proj")
    assert spared.read_bytes() == b"kept"


def test_mv__a_link_to_a_directory_is_not_lost(fs: Any, export: Path, spared: Path) -> None:
    """Otherwise the link would become an empty directory and then be removed."""
    with pytest.raises(OSError, match=r"/proj/(real/)?link: .*symlink"):
        fs.cp("/proj", "/moved", recursive=True)
    assert not (export / "moved").exists()
    for source in ("/proj", "/moved/link"):
        fs.mv(source, "/moved" if source == "/proj" else "/moved/other", recursive=True)
    assert not (export / "proj").exists()
    assert (export / "moved/other").readlink() == Path("../kept")
    assert (export / "moved/other/file").read_bytes() == spared.read_bytes() == b"kept"


@pytest.mark.parametrize("sync", [True, False])
def test_get__a_small_file_is_whole_and_synced(
    fs: Any, export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: bool
) -> None:
    (export / "file").write_bytes(b"new")
    target, synced = tmp_path / "file", []
    fsync = os.fsync

    def watch(fd: int) -> None:
        synced.append(stat.S_ISREG(os.fstat(fd).st_mode))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", watch)
    fs._sync = sync
    target.write_bytes(b"old and longer")
    target.chmod(0o640)
    with target.open("rb") as old:
        fs.get("/file", str(target))
        assert old.read() == b"old and longer"
    assert target.read_bytes() == b"new"
    assert synced == [True, False] * sync
    assert target.stat().st_mode & 0o777 == 0o640
    with pytest.raises(FileNotFoundError):
        fs.get("/none", str(target))
    with pytest.raises(OSError, match="is a directory"):
        fs.get_file("/file", str(tmp_path / "export"))
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["file"]


@pytest.mark.parametrize("nbytes", [0, 5, 3 << 20])
def test_open__a_file_ended_by_an_exception_is_absent(fs: Any, export: Path, nbytes: int) -> None:
    """The file is neither truncated nor empty; a transaction does not make it later either."""
    (export / "old").write_bytes(b"old")

    def interrupted(name: str, mode: str) -> None:
        with fs.open(name, mode) as file:
            file.write(bytes(nbytes))
            raise KeyError

    for name, mode in (("/old", "wb"), ("/new", "wb"), ("/new", "xb")):
        with pytest.raises(KeyError):
            interrupted(name, mode)
    with fs.transaction, contextlib.suppress(KeyError):
        interrupted("/new", "wb")
    assert [path.name for path in export.iterdir()] == ["old"]
    assert (export / "old").read_bytes() == b"old"
    with fs.open("/new", "wb") as file:
        file.write(bytes(nbytes))
    assert (export / "new").read_bytes() == bytes(nbytes)


def test_spool__has_no_name(
    fs: Any, export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other users cannot open data that waits to be sent; the mode is that of a new file."""
    spools = tmp_path / "spools"
    spools.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spools))
    seen: list[Path] = []
    put = fs._put_spool

    async def watched(*args: Any) -> None:
        await put(*args)
        seen.extend(spools.iterdir())

    monkeypatch.setattr(fs, "_put_spool", watched)
    data = os.urandom(3 << 20)
    with fs.open("/secret", "wb", block_size=1 << 20) as file:
        for at in range(0, len(data), 1 << 19):
            file.write(data[at : at + (1 << 19)])
            seen.extend(spools.iterdir())
    fs.cp("/secret", "/copy")
    assert seen == []
    for name in ("secret", "copy"):
        assert (export / name).read_bytes() == data
        assert stat.S_IMODE((export / name).stat().st_mode) == 0o666 & ~current_umask()


def test_umask__is_read_each_time(fs: Any, export: Path) -> None:
    modes = {}
    before = os.umask(0o022)
    try:
        for mask in (0o022, 0o077, 0o002):
            os.umask(mask)
            fs.pipe("/new", b"x")
            modes[mask] = stat.S_IMODE((export / "new").stat().st_mode)
            fs.rm("/new")
    finally:
        os.umask(before)
    assert modes == {0o022: 0o644, 0o077: 0o600, 0o002: 0o664}
