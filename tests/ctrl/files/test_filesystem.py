"""`careful://` of a directory: what is removed, copied and left, without a lab."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from careful.daemon.route import Route

pytest.importorskip("fsspec")

from careful.files import AsyncHost
from careful.files.filesystem import CarefulFileSystem


@pytest.fixture
def fs(route: Route) -> Iterator[Any]:
    """The file system of the export."""
    one = CarefulFileSystem("h2", skip_instance_cache=True)
    one._connection = AsyncHost("h2", lambda: route)
    yield one
    from fsspec.asyn import sync

    sync(one.loop, one._close)


@pytest.fixture
def kept(export: Path) -> Path:
    """A file that symlinks in /proj and in /proj/real lead to."""
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
def test_rm__a_link_goes_not_what_it_leads_to(
    fs: Any, export: Path, kept: Path, path: str | list[str]
) -> None:
    fs.rm(path, recursive=True)
    assert kept.read_bytes() == b"kept"
    assert list((export / "proj").iterdir()) == []


@pytest.mark.parametrize("path", ["/proj", "/proj/", "careful://h2/proj", ["/proj"]])
def test_rm__a_whole_directory(fs: Any, export: Path, kept: Path, path: str | list[str]) -> None:
    fs.rm(path, recursive=True)
    assert kept.read_bytes() == b"kept"
    assert not (export / "proj").exists()


def test_rm__what_is_not_there(fs: Any, export: Path, kept: Path) -> None:
    for path in ("/none", "/none/below", "/proj/none*", ["/none"]):
        with pytest.raises(FileNotFoundError):
            fs.rm(path, recursive=True)
        with pytest.raises(FileNotFoundError):
            fs.rm(path)
    fs.rm(["/none", "/none/below", "/proj/link"], recursive=True)
    assert not (export / "proj/link").is_symlink()
    assert kept.read_bytes() == b"kept"


def test_rm__not_recursive(fs: Any, export: Path, kept: Path) -> None:
    fs.rm("/proj/link")
    fs.rm("/proj/nowhere")
    with pytest.raises(OSError, match="not empty"):
        fs.rm("/proj")
    assert kept.read_bytes() == b"kept"


def test_mv__a_link_to_a_directory_is_not_lost(fs: Any, export: Path, kept: Path) -> None:
    """It would come as an empty directory, and then go."""
    for call in (fs.mv, fs.cp):
        with pytest.raises(OSError, match=r"/proj/(real/)?link: .*symlink"):
            call("/proj", "/moved", recursive=True)
        assert not (export / "moved").exists()
        assert (export / "proj/link").readlink() == Path("../kept")
    fs.mv("/proj/link", "/moved", recursive=True)
    assert (export / "moved/file").read_bytes() == kept.read_bytes() == b"kept"
    assert not (export / "proj/link").is_symlink()
