"""Another user replaces names of a source by symlinks while it is read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import transfers
from careful.daemon.route import Route
from careful.transfer.options import Options, Progress
from careful.transfer.protocol.entries import Entry
from careful.transfer.run import verify
from careful.transfer.tree.scan import scan_local
from fake_daemon import FakeDaemon

SECRET = b"root only"
SIZES = [len(SECRET), 200_000]


class Swapping(Progress):
    """Swaps names once, as soon as the tree is listed."""

    def __init__(self, swap: Callable[[], None]) -> None:
        self.swap: Callable[[], None] | None = swap

    def expect(self, files: int, nbytes: int) -> None:
        swap, self.swap = self.swap, None
        if swap is not None:
            swap()


class Source:
    """A tree with sub/f, and a secret file of the same size elsewhere.

    Args:
        name: the swapped name: the file, or its directory.
    """

    def __init__(self, top: Path, name: str, nbytes: int) -> None:
        self.top, self.name = top / "user", name
        for folder, byte in ((self.top / "sub", b"0"), (top / "secret", SECRET)):
            folder.mkdir(parents=True)
            (folder / "f").write_bytes(byte * (nbytes // len(byte)))
        self.secret = top / "secret" / ("f" if name == "sub/f" else "")

    def swap(self) -> None:
        """Replaces the name by a symlink to the secret."""
        path = self.top / self.name
        path.rename(self.top / "aside")
        path.symlink_to(self.secret)


@pytest.fixture(params=["sub/f", "sub"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("archive", [False, True])
def test_put__a_tree(
    route: Route, daemon: FakeDaemon, tmp_path: Path, name: str, nbytes: int, archive: bool
) -> None:
    """A put by root must not send root's files."""
    source = Source(tmp_path, name, nbytes)
    options = Options(block_bytes=65536, links=archive, xattrs=archive, checksum=archive)
    report = transfers.put(
        route, [f"{source.top}/"], "backup", True, options, Swapping(source.swap)
    )
    assert (source.top / name).is_symlink()
    assert len(report.failures) == 1
    assert not any(SECRET in one.read_bytes() for one in daemon.root.rglob("f"))


@pytest.mark.parametrize("nbytes", SIZES)
def test_put__a_file_that_was_named(
    route: Route, daemon: FakeDaemon, tmp_path: Path, nbytes: int
) -> None:
    """With links kept, a name that became a link is not followed either."""
    source = Source(tmp_path, "sub/f", nbytes)
    path = str(source.top / "sub/f")
    options = Options(block_bytes=65536, links=True)
    report = transfers.put(route, [path], "", False, options, Swapping(source.swap))
    assert len(report.failures) == 1
    assert not (daemon.root / "f").exists()


@pytest.mark.parametrize("nbytes", SIZES)
def test_verify__a_tree(
    route: Route,
    daemon: FakeDaemon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    nbytes: int,
) -> None:
    """A comparison with root's files would reveal whether the peer's are equal."""
    source = Source(tmp_path, name, nbytes)
    shutil.copytree(tmp_path / "secret", daemon.root / "sub")
    for one in (daemon.root, source.top):
        (one / "other").write_bytes(b"x")

    def then_swapped(top: str) -> list[Entry]:
        found = scan_local(top)
        source.swap()
        return found

    monkeypatch.setattr(verify, "scan_local", then_swapped)
    found = transfers.verify(route, ".", str(source.top), True, 65536)
    assert [one for one, _ in found.differences] == ["h2:sub/f"]
